//! What a sync tells: as it goes, and in the end.

use serde::Serialize;

use super::{error::Blocked, path::RelPath};

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The folder is being read.
    Scanning,
    /// The folder was read.
    Scanned {
        /// Files found.
        files: usize,
    },
    /// A page was pulled.
    Pulled {
        /// Changes on it.
        changes: usize,
        /// The seq that it reaches.
        seq: u64,
        /// The graph's newest seq.
        head: u64,
    },
    /// A file was written here.
    Wrote(&'a RelPath),
    /// A file was removed here.
    Removed(&'a RelPath),
    /// A version that lost a conflict was kept under another name.
    Kept(&'a Kept),
    /// Files are about to be pushed.
    Pushing {
        /// How many.
        files: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// Bytes went up.
    Sent {
        /// How many.
        bytes: u64,
    },
    /// A new or edited file was accepted.
    Pushed(&'a RelPath),
    /// A deletion was accepted.
    Deleted(&'a RelPath),
    /// Bytes came down.
    Received {
        /// How many.
        bytes: u64,
    },
}

/// Sees what happens.
pub trait Observer {
    /// Is told of `event`.
    fn see(&mut self, event: Event<'_>);
}

/// Sees nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn see(&mut self, _: Event<'_>) {}
}

/// A version that lost, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The path that was fought over.
    pub path: RelPath,
    /// Where the version that lost is.
    pub kept: RelPath,
}

/// A file that is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Left {
    /// The file.
    pub path: RelPath,
    /// Why.
    pub reason: Blocked,
}

/// A record that was refused: it is kept where it is, and tried again by the next sync.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RefusedFile {
    /// The file, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<RelPath>,
    /// The device that wrote the record, where it was not this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, as a word.
    pub reason: String,
}

/// What became of a sync.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Files written here.
    pub written: Vec<RelPath>,
    /// Files removed here.
    pub removed: Vec<RelPath>,
    /// Versions that lost a conflict, each kept as a file of its own.
    pub conflicts: Vec<Kept>,
    /// New and edited files that the graph accepted.
    pub pushed: Vec<RelPath>,
    /// Deletions that the graph accepted.
    pub deleted: Vec<RelPath>,
    /// Files that cannot be synced.
    pub skipped: Vec<Left>,
    /// Files of the folder whose names are no text that a path could be made of.
    pub unnameable: u64,
    /// Files that could not be brought in step this time.
    pub left: Vec<Left>,
    /// Records that were refused, by the relay or by this client.
    pub refused: Vec<RefusedFile>,
    /// Pushes that wait until this device has a key of the current epoch.
    pub held: u64,
    /// Records that the relay holds back since this device has no key of their epoch.
    pub held_back: u64,
    /// Records of other applications that were passed over.
    pub other_records: u64,
    /// Blobs that no record names any longer and that could not be deleted yet.
    pub garbage: u64,
    /// Whether the folder and the graph say the same, as far as this device can tell.
    pub in_step: bool,
    /// What the run knew of and could not push, as [`news`](super::news) numbers it: equal news
    /// later on are no reason to try again.
    #[serde(skip)]
    pub unpushed: Option<u64>,
}

impl Report {
    /// Whether something is left that somebody should look at.
    #[must_use]
    pub fn needs_attention(&self) -> bool {
        !(self.left.is_empty() && self.refused.is_empty())
            || self.held > 0
            || self.held_back > 0
            || !self.in_step
    }

    /// Whether the sync changed anything, here or there.
    #[must_use]
    pub fn changed_anything(&self) -> bool {
        !(self.written.is_empty()
            && self.removed.is_empty()
            && self.conflicts.is_empty()
            && self.pushed.is_empty()
            && self.deleted.is_empty())
    }
}
