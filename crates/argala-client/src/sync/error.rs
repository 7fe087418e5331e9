//! What stops a sync as a whole. What only concerns one file never does: that is a [`Blocked`].

use std::io;

use argala_wire::GraphId;
use serde::{Deserialize, Serialize};

/// Why a sync could not go on. What was done until then is remembered, and a later run goes on
/// from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The relay, or the session with it.
    #[error(transparent)]
    Client(#[from] crate::Error),
    /// The disk.
    #[error("{what}: {source}")]
    Disk {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Another process syncs the same folder.
    #[error("another sync of this folder is running")]
    Locked,
    /// The state file is not what was written.
    #[error(
        "the sync state in {0} cannot be read; move that folder away to start over (no file is lost by it: where a file differs from the graph's, both versions are kept)"
    )]
    Damaged(String),
    /// The state file, or the folder's record, was written by a newer client.
    #[error("a newer version of this client has synced this folder; use that one")]
    Newer,
    /// The folder is synced with another graph.
    #[error("this folder is synced with {0}; one folder syncs with one graph")]
    OtherGraph(GraphId),
    /// The record that names all others is not the one that was first seen.
    #[error(
        "the graph's folder record was replaced by another one; nothing is synced until somebody finds out why"
    )]
    FolderReplaced,
    /// The relay refused the record that names all others.
    #[error("the relay refuses the graph's folder record ({0})")]
    FolderRefused(&'static str),
    /// The record that names all others cannot be read by this device.
    #[error(
        "the graph holds a folder that this device cannot read yet; ask another device to grant it every epoch"
    )]
    FolderUnreadable,
}

impl SyncError {
    /// Says what was being done when the system said no; for [`Result::map_err`].
    pub(crate) fn disk(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { what, source }
    }
}

/// Why one file is left as it is. It is counted and shown, and does not stop the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocked {
    /// A symbolic link, which is never followed.
    Symlink,
    /// Neither a file nor a folder: a socket, a device, a pipe.
    Special,
    /// The system does not let us read it.
    Unreadable,
    /// The system does not let us write it.
    Unwritable,
    /// Its name is no text, too long, or the client's own.
    Name,
    /// Something that is not synced has the place where the file belongs.
    InTheWay,
    /// The disk has no room for it.
    NoRoom,
    /// It changes faster than it can be read.
    Changing,
    /// Parts of it are missing at the relay, or are not what was put.
    Broken,
    /// The device has no key for it.
    NoKey,
    /// The graph holds a version that this device cannot read, so that none can be put in its
    /// place.
    Unseen,
}

impl Blocked {
    /// The reason as a word, in `--output json`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Symlink => "symlink",
            Self::Special => "special",
            Self::Unreadable => "unreadable",
            Self::Unwritable => "unwritable",
            Self::Name => "name",
            Self::InTheWay => "in_the_way",
            Self::NoRoom => "no_room",
            Self::Changing => "changing",
            Self::Broken => "broken",
            Self::NoKey => "no_key",
            Self::Unseen => "unseen",
        }
    }

    /// The reason for a person.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::Symlink => "symbolic links are not synced",
            Self::Special => "it is neither a file nor a folder",
            Self::Unreadable => "it cannot be read",
            Self::Unwritable => "it cannot be written",
            Self::Name => "its name cannot be synced",
            Self::InTheWay => "something that is not synced is in the way",
            Self::NoRoom => "there is no room for it on this disk",
            Self::Changing => "it keeps changing; the next sync tries again",
            Self::Broken => "a part of it is missing at the relay, or is not what was put",
            Self::NoKey => "this device has no key for it yet",
            Self::Unseen => "the graph holds a version of it that this device cannot read",
        }
    }
}
