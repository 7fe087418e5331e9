//! Why there is no server.

use std::{io, path::PathBuf};

/// Why a server could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Nothing on this machine can run one; the text is the line that changes that.
    #[error("{what} is not on this machine; {remedy}")]
    Missing {
        /// What was looked for.
        what: &'static str,
        /// What to do about it, as one line.
        remedy: &'static str,
    },
    /// A program was started and did not do its work.
    #[error("{program} failed: {report}")]
    Program {
        /// Its name.
        program: String,
        /// What it said.
        report: String,
    },
    /// A file or a folder could not be used.
    #[error("{}: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Fault {
    /// For `map_err` on what was done to `path`.
    pub(crate) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Folder { path, source }
    }
}
