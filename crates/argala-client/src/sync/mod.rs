//! A folder as the records of a graph: `argala sync DIR`.
//!
//! Each file is one record, its path sealed with its content; large files go as blobs that the
//! record names. [`sync`] brings a folder and a graph in step. What holds, whatever happens:
//!
//! - **No edit is lost.** Every push names the version that it replaces, every step on a file names
//!   the content that it expects. Where two devices changed a file, both versions are kept, the
//!   later one under a name that tells whose it is. A deletion never wins against an edit.
//! - **It may be interrupted anywhere**, by a crash, a cut line or a loss of power: run again, it
//!   converges.
//! - **Names that some file system takes for one both survive** (`README` and `readme`, `é` in two
//!   normalisations). Where they cannot stand side by side one has another name locally, and only
//!   there.
//! - **Nothing outside of the folder is read or written**, whatever a record says its path is.
//!   Symbolic links are not followed.
//! - **What cannot be synced is counted and shown**, and stops nothing else.
//!
//! Not synced: empty folders, symbolic links, times, owners, permissions other than the owner's
//! executable bit, extended attributes; files whose names are not UTF-8, or begin with `.argala-`.
//!
//! Where to start: `plan` and `outgoing` decide (pure), `engine` carries out over
//! [`FileTree`] and [`Remote`], [`DiskTree`] is the folder on a real disk.

mod blobs;
mod content;
#[cfg(unix)]
mod disk;
mod engine;
mod error;
mod incoming;
mod index;
#[cfg(unix)]
mod journal;
mod names;
mod outbound;
mod outgoing;
mod path;
mod payload;
mod plan;
mod pull;
mod remote;
mod report;
mod session;
mod state;
mod tree;
mod view;

#[cfg(test)]
mod simulation;

pub use content::{Content, ContentHash, Part};
#[cfg(unix)]
pub use disk::DiskTree;
pub use engine::{Options, news, sync};
pub use error::{Blocked, SyncError};
#[cfg(unix)]
pub use journal::Journal;
pub use path::{PathFault, RelPath};
pub use payload::{FolderSecret, file_kind, folder_kind};
pub use remote::{Page, Remote, Start};
pub use report::{Event, Kept, Left, Observer, RefusedFile, Report, Silent};
pub use session::SessionRemote;
pub use state::{Base, Folder, RefusedRecord, Stamp, State, StateOp, StateStore, Upload};
pub use tree::{FileTree, TreeFault, Unread};
pub use view::{LocalFile, Scan};
