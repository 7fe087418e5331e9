//! Which names are taken in a folder, to a file system that folds them.

use std::collections::HashMap;

use super::{names, path::RelPath};

struct Node {
    /// The name as it is spelled on disk.
    actual: RelPath,
    /// Files of this name; more than one only where the file system does not fold.
    files: u32,
    /// Files somewhere below it.
    below: u32,
    /// Whether the scan found a folder here; it may be gone since.
    folder: bool,
}

/// What stands at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nothing.
    Free,
    /// A file, perhaps of another spelling.
    File,
    /// A folder with files in it, as it is spelled on disk.
    Folder(RelPath),
    /// A folder without any file, which a file may take the place of.
    Empty(RelPath),
}

/// Every local name, folded. Kept in step with the files; asking costs one look-up, and not one
/// pass over a quarter of a million names.
#[derive(Default)]
pub(crate) struct Names(HashMap<Box<str>, Node>);

impl Names {
    pub(crate) fn insert(&mut self, path: &RelPath) {
        let folded = names::fold(path.as_str());
        for (key, actual) in folded_ancestors(&folded, path) {
            self.node(key, &actual).below += 1;
        }
        self.node(&folded, path).files += 1;
    }

    pub(crate) fn insert_folder(&mut self, path: &RelPath) {
        let folded = names::fold(path.as_str());
        self.node(&folded, path).folder = true;
    }

    pub(crate) fn remove(&mut self, path: &RelPath) {
        let folded = names::fold(path.as_str());
        for (key, _) in folded_ancestors(&folded, path) {
            self.lower(key, |node| &mut node.below);
        }
        self.lower(&folded, |node| &mut node.files);
    }

    /// What a file system that folds has at `path`.
    pub(crate) fn at(&self, path: &RelPath) -> Taken {
        match self.0.get(&*names::fold(path.as_str())) {
            None => Taken::Free,
            Some(node) if node.below > 0 => Taken::Folder(node.actual.clone()),
            Some(node) if node.files > 0 => Taken::File,
            Some(node) => Taken::Empty(node.actual.clone()),
        }
    }

    fn node(&mut self, key: &str, actual: &RelPath) -> &mut Node {
        // Looked up first: a folder of a thousand files is entered once.
        if !self.0.contains_key(key) {
            let node = Node {
                actual: actual.clone(),
                files: 0,
                below: 0,
                folder: false,
            };
            self.0.insert(key.into(), node);
        }
        self.0.get_mut(key).expect("inserted above")
    }

    fn lower(&mut self, key: &str, count: fn(&mut Node) -> &mut u32) {
        if let Some(node) = self.0.get_mut(key) {
            let count = count(node);
            *count = count.saturating_sub(1);
            if node.files == 0 && node.below == 0 && !node.folder {
                self.0.remove(key);
            }
        }
    }
}

fn folded_ancestors<'a>(
    folded: &'a str,
    path: &'a RelPath,
) -> impl Iterator<Item = (&'a str, RelPath)> {
    folded
        .match_indices('/')
        .map(|(end, _)| &folded[..end])
        .zip(path.ancestors())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).expect("legal")
    }

    #[test]
    fn names_are_found_in_any_spelling_and_forgotten_again() {
        let mut names = Names::default();
        names.insert(&path("Docs/É.md"));
        names.insert(&path("Docs/b.md"));
        assert_eq!(names.at(&path("docs")), Taken::Folder(path("Docs")));
        assert_eq!(names.at(&path("DOCS/e\u{301}.md")), Taken::File);
        assert_eq!(names.at(&path("docs/x")), Taken::Free);
        names.remove(&path("Docs/É.md"));
        assert_eq!(names.at(&path("Docs/É.md")), Taken::Free);
        assert_eq!(names.at(&path("docs")), Taken::Folder(path("Docs")));
        names.remove(&path("Docs/b.md"));
        assert_eq!(names.at(&path("Docs")), Taken::Free);
        assert!(names.0.is_empty());
    }
}
