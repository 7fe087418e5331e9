//! The planner's other half: what the graph is to be told.

use std::{
    collections::{BTreeSet, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{
    content::{Content, ContentHash},
    path::RelPath,
    view::{Here, View},
};

/// One record to push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) path: RelPath,
    /// The seq that the record must still have.
    pub(crate) expect: u64,
    /// The file's name here and its content; `None` for a tombstone.
    pub(crate) file: Option<(RelPath, Content)>,
}

/// The pushes, in the order in which they must be made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outbound {
    /// Deletions of files whose path has become a folder, or the other way round: elsewhere the
    /// new file has no room until they are gone.
    pub(crate) clearing: Vec<Outgoing>,
    /// New and edited files.
    pub(crate) files: Vec<Outgoing>,
}

/// What to push first. Nothing of `left_out`: those paths wait for something.
pub(crate) fn files(view: &View, left_out: &BTreeSet<RelPath>) -> Outbound {
    let mut files = Vec::new();
    let fresh = view.fresh.keys();
    let edited = (view.state.base.iter()).filter_map(|(path, base)| match view.here(path) {
        Here::File(_, file) if base.content != Some(file.content) => Some(path),
        _ => None,
    });
    for path in fresh.chain(edited) {
        let Here::File(name, file) = view.here(path) else {
            continue;
        };
        if !left_out.contains(path) {
            files.push(Outgoing {
                path: path.clone(),
                expect: view.state.expect(path),
                file: Some((name, file.content)),
            });
        }
    }
    let ancestors: HashSet<RelPath> = files.iter().flat_map(|out| out.path.ancestors()).collect();
    let paths: HashSet<&RelPath> = files.iter().map(|out| &out.path).collect();
    let in_the_way = |path: &RelPath| {
        ancestors.contains(path) || path.ancestors().any(|above| paths.contains(&above))
    };
    let mut clearing = deletions(view, left_out);
    clearing.retain(|out| in_the_way(&out.path));
    Outbound { clearing, files }
}

/// What to push last: the deletions that are left. One whose bytes live on under another path
/// waits until the graph has that, so that a file on the move is never nowhere but here.
pub(crate) fn deletions_after(view: &View, left_out: &BTreeSet<RelPath>) -> Vec<Outgoing> {
    let unsaved: HashSet<ContentHash> = (files(view, &BTreeSet::new()).files.iter())
        .filter_map(|out| out.file.as_ref().map(|(_, content)| content.hash))
        .collect();
    let mut all = deletions(view, left_out);
    all.retain(|out| {
        let base = view.state.base.get(&out.path);
        let content = base.and_then(|base| base.content);
        content.is_none_or(|content| !unsaved.contains(&content.hash))
    });
    all
}

/// Everything that is to be pushed, as one number; `None` where nothing is.
pub(crate) fn news(view: &View) -> Option<u64> {
    let nothing = BTreeSet::new();
    let mut all = files(view, &nothing).files;
    all.extend(deletions(view, &nothing));
    if all.is_empty() {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    for out in &all {
        let content = out.file.as_ref().map(|(_, content)| content);
        let content = content.map(|content| (content.hash, content.executable));
        (out.path.as_str(), content).hash(&mut hasher);
    }
    Some(hasher.finish())
}

fn deletions(view: &View, left_out: &BTreeSet<RelPath>) -> Vec<Outgoing> {
    (view.state.base.iter())
        .filter(|(path, base)| {
            // Where nothing is agreed on, an absent file says nothing.
            base.content.is_some() && view.here(path) == Here::Absent && !left_out.contains(*path)
        })
        .map(|(path, base)| Outgoing {
            path: path.clone(),
            expect: base.seq,
            file: None,
        })
        .collect()
}
