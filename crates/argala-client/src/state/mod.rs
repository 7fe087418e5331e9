//! What a session keeps beside the key file, graph by graph: writes that wait, records that were
//! refused, and which versions of which items have been seen.
//!
//! Files are named by a digest of the storage key, so that a graph's name, which may hold
//! anything, is never a path.

mod outbox;
mod seen;

use std::path::{Path, PathBuf};

use argala_wire::StorageKey;
use sha2::{Digest, Sha256};

pub use outbox::{Direction, Outbox, Rejected};
pub(crate) use outbox::{Held, Sending};
pub(crate) use seen::{News, SeenLog};

use crate::{error::Error, files};

/// The folder beside the key file.
pub(crate) struct StateFolder {
    folder: Option<PathBuf>,
}

impl StateFolder {
    /// Takes the folder into use: what a killed process left unfinished in it is removed, so the
    /// key file's lock must be held. Without a folder nothing is kept.
    pub(crate) fn open(folder: Option<PathBuf>) -> Result<Self, Error> {
        if let Some(folder) = &folder {
            files::remove_unfinished(folder)
                .map_err(Error::io("the folder beside the key file"))?;
        }
        Ok(Self { folder })
    }

    /// The folder, for temporary files; `None` for keys in memory.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    fn file(&self, graph: &StorageKey, ending: &str) -> Option<PathBuf> {
        let digest = Sha256::digest(graph.as_str());
        let mut name: String = digest[..16].iter().map(|b| format!("{b:02x}")).collect();
        name.push_str(ending);
        Some(self.folder.as_ref()?.join(name))
    }

    /// The writes of a graph that wait or were refused.
    pub(crate) fn outbox(&self, graph: &StorageKey) -> Result<Outbox, Error> {
        Outbox::read(self.file(graph, ".outbox.json"))
    }

    /// Which versions of a graph's items have been seen.
    pub(crate) fn seen(&self, graph: &StorageKey) -> Result<SeenLog, Error> {
        SeenLog::read(self.file(graph, ".seen.jsonl"))
    }
}
