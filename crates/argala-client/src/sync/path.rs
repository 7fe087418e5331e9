//! Paths of files, relative to the synced folder: the only names the engine works with.

use std::{collections::BTreeMap, fmt, ops::Bound, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::names;

/// The most bytes of a whole path.
pub(crate) const MAX_PATH_BYTES: usize = 4_096;
/// The most bytes of one component; what the file systems in use allow.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// No component may begin with this, in whatever case: it marks the engine's own files.
pub(crate) const RESERVED: &str = ".argala-";

/// Why a text is no path of a file in a synced folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// The text or one of its components is empty: `""`, `/etc/passwd`, `a//b`, `a/`.
    #[error("a path has no empty component")]
    Empty,
    /// More bytes than a path, or a component, may have.
    #[error("a path has at most 4,096 bytes, and a component of it at most 255")]
    TooLong,
    /// A component is `.` or `..`.
    #[error("no component of a path is `.` or `..`")]
    Dots,
    /// A NUL, at which the system would cut the name.
    #[error("a path holds no NUL")]
    Nul,
    /// A component begins with `.argala-`.
    #[error("names that begin with `.argala-` are the client's own")]
    Reserved,
}

/// The path of a file relative to the synced folder: components joined by `/`.
///
/// It cannot name anything outside of the folder, nor the engine's own files: a record that
/// says otherwise is refused before anybody opens a file. Compared byte for byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Arc<str>);

impl RelPath {
    /// Takes `text` as a path.
    ///
    /// # Errors
    /// [`PathFault`] where it leads out of the folder, or could not be a file's name.
    pub fn parse(text: &str) -> Result<Self, PathFault> {
        if text.len() > MAX_PATH_BYTES {
            return Err(PathFault::TooLong);
        }
        text.split('/').try_for_each(check_component)?;
        Ok(Self(text.into()))
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The components, outermost first.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// The last component.
    #[must_use]
    pub fn leaf(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The folder that the file lies in; `None` at the top.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(Self(parent.into()))
    }

    /// Every folder that the file lies in, outermost first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        self.0
            .match_indices('/')
            .map(|(end, _)| Self(self.0[..end].into()))
    }

    /// The entry `name` of the folder `parent`, or of the synced folder itself.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn within(parent: Option<&Self>, name: &str) -> Result<Self, PathFault> {
        match parent {
            Some(parent) => Self::parse(&format!("{parent}/{name}")),
            None => Self::parse(name),
        }
    }

    /// What every path below this one begins with.
    pub(crate) fn below(&self) -> String {
        format!("{}/", self.0)
    }

    /// Of `map`, everything that begins with `prefix`, in order.
    pub(crate) fn beginning_with<'a, V>(
        map: &'a BTreeMap<Self, V>,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a Self, &'a V)> {
        map.range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(move |(path, _)| path.as_str().starts_with(prefix))
    }
}

fn check_component(name: &str) -> Result<(), PathFault> {
    if name.is_empty() {
        return Err(PathFault::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(PathFault::TooLong);
    }
    if name == "." || name == ".." {
        return Err(PathFault::Dots);
    }
    if name.contains('\0') {
        return Err(PathFault::Nul);
    }
    // Folded, since a file system that folds would open our own files under such a name.
    if name.starts_with('.') && names::fold(name).starts_with(RESERVED) {
        return Err(PathFault::Reserved);
    }
    Ok(())
}

impl std::borrow::Borrow<str> for RelPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for RelPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_leads_out_of_the_folder() {
        let cases = [
            ("", PathFault::Empty),
            ("/etc/passwd", PathFault::Empty),
            ("a//b", PathFault::Empty),
            ("a/", PathFault::Empty),
            ("..", PathFault::Dots),
            ("a/../../b", PathFault::Dots),
            ("./a", PathFault::Dots),
            ("a\0b", PathFault::Nul),
            (".argala-sync/state.json", PathFault::Reserved),
            ("a/.ARGALA-tmp-1", PathFault::Reserved),
        ];
        for (text, fault) in cases {
            assert_eq!(RelPath::parse(text), Err(fault), "{text:?}");
        }
        assert_eq!(RelPath::parse(&"x".repeat(256)), Err(PathFault::TooLong));
        assert_eq!(RelPath::parse(&"x/".repeat(2_049)), Err(PathFault::TooLong));
    }

    #[test]
    fn odd_names_are_names() {
        for text in ["...", ".hidden", "a b", "a\nb", "C:\\x", "~", "-rf", "é/ü"] {
            assert!(RelPath::parse(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn parts() {
        let path = RelPath::parse("a/b/c").expect("legal");
        assert_eq!(path.leaf(), "c");
        assert_eq!(path.parent().expect("deep").as_str(), "a/b");
        let ancestors: Vec<_> = path.ancestors().map(|a| a.to_string()).collect();
        assert_eq!(ancestors, ["a", "a/b"]);
        assert_eq!(RelPath::parse("a").expect("legal").parent(), None);
    }

    proptest! {
        /// Whatever parses stays below the folder, as the system resolves paths.
        #[test]
        fn what_parses_stays_inside(text in "[./a\\\\-]{0,12}") {
            if let Ok(path) = RelPath::parse(&text) {
                let root = std::path::Path::new("/synced");
                let joined = root.join(path.as_str());
                let mut depth = 0;
                for component in joined.components().skip(2) {
                    prop_assert!(matches!(component, std::path::Component::Normal(_)));
                    depth += 1;
                }
                prop_assert_eq!(depth, path.components().count());
            }
        }
    }
}
