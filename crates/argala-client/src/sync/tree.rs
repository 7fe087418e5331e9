//! The folder, as the engine works on it.

use std::collections::BTreeMap;

use super::{
    content::Content,
    error::{Blocked, SyncError},
    path::RelPath,
    state::Stamp,
    view::{LocalFile, Scan},
};

/// Why one step on one file did not come about.
#[derive(Debug)]
pub enum TreeFault {
    /// The file is not, or no longer, what the step expected. Nothing was changed.
    Changed,
    /// It cannot be done, now or ever. Nothing was changed.
    Blocked(Blocked),
    /// The disk failed, or is full: no use in going on.
    Fatal(SyncError),
}

/// Files that need not be read again if their stamp is still the same, by their local name.
pub type Unread = BTreeMap<RelPath, (Stamp, Content)>;

/// A folder of files.
///
/// No method follows a symbolic link, and none changes anything outside of the folder. A step that
/// returns survives a loss of power. A step that does not return leaves the old file or the new
/// one, whole.
#[expect(
    async_fn_in_trait,
    reason = "the engine is one task of one command; nobody needs these futures to be Send"
)]
pub trait FileTree {
    /// A file that is being written and has no name yet. Dropped, it leaves nothing behind.
    type Staged;
    /// A file that is being read.
    type Reader;

    /// Whether two names may be one file's: because case is ignored, or normalisation.
    fn folds(&self) -> bool;

    /// Whether the executable bit means something here.
    fn keeps_executable(&self) -> bool;

    /// Reads everything, and removes what an interrupted run left behind.
    async fn scan(&mut self, unread: &Unread) -> Result<Scan, SyncError>;

    /// Opens a file to read it.
    async fn open(&mut self, at: &RelPath) -> Result<Self::Reader, TreeFault>;

    /// The next bytes of a file, at most `limit`; fewer only at its end.
    async fn read(&mut self, reader: &mut Self::Reader, limit: usize)
    -> Result<Vec<u8>, TreeFault>;

    /// Begins a file.
    async fn stage(&mut self) -> Result<Self::Staged, TreeFault>;

    /// Appends to it.
    async fn append(&mut self, staged: &mut Self::Staged, bytes: &[u8]) -> Result<(), TreeFault>;

    /// Gives it its name `at`: in place of the file there, which must hold `over`, or where there must
    /// be nothing. `content` is what was written. Answers with the name as it is spelled on disk.
    async fn finish(
        &mut self,
        staged: Self::Staged,
        at: &RelPath,
        over: Option<&Content>,
        content: Content,
    ) -> Result<(RelPath, LocalFile), TreeFault>;

    /// Moves the file at `from`, which must hold `over`, to `to`, where there must be nothing.
    /// Answers with the name as it is spelled on disk.
    async fn rename(
        &mut self,
        from: &RelPath,
        over: &Content,
        to: &RelPath,
    ) -> Result<RelPath, TreeFault>;

    /// Removes the file at `at`, which must hold `over`, and each folder that is empty then.
    async fn remove(&mut self, at: &RelPath, over: &Content) -> Result<(), TreeFault>;

    /// Sets or clears the executable bit of the file at `at`, which must hold `over`.
    async fn set_executable(
        &mut self,
        at: &RelPath,
        over: &Content,
        executable: bool,
    ) -> Result<LocalFile, TreeFault>;
}
