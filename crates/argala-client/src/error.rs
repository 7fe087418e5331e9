//! What can go wrong, in one type that tells a program what to do and a person what happened.

use std::{io, path::PathBuf};

use argala_wire::{
    Code, GraphId, Problem,
    devices::DeviceRef,
    records::{PushReason, PushResult},
};

/// Why an operation of the client did not come about.
///
/// `Display` never holds a key, a record's id or plaintext: it may be logged as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The relay answered, and refused.
    #[error("the relay refused: {} ({})", .0.detail, .0.code.as_str())]
    Relay(Box<Problem>),
    /// Something answered with a failure that is no problem document that this build knows: a
    /// newer relay, or a proxy before it.
    #[error("the relay answered with status {status}{}", code.as_deref().map(|code| format!(" ({code})")).unwrap_or_default())]
    Status {
        /// The answer's status.
        status: u16,
        /// The problem's code, where there was one that could stand in a log.
        code: Option<String>,
    },
    /// The answer is not of the shape that the route answers with.
    #[error("the relay's answer cannot be read: {0}")]
    Answer(String),
    /// No answer came, however often the request was made. Whether a change was made is open; to
    /// make it again does no harm (protocol, section 6).
    #[error("the relay cannot be reached: {0}")]
    Offline(String),
    /// The device has no key of the graph's current epoch to write under. Another device must grant
    /// it; or its giver was never listed here; or that was revoked, and a rotation makes a new one.
    #[error(
        "this device has no key of the current epoch of {graph} to write under; list the graph's \
         devices, ask another to grant it, or rotate"
    )]
    KeysBehind {
        /// The graph.
        graph: GraphId,
    },
    /// The graph has no key yet; the first rotate makes one.
    #[error("{graph} has no key yet; rotate it first")]
    Unkeyed {
        /// The graph.
        graph: GraphId,
    },
    /// The relay tells an older epoch than this device has a key of. An epoch never goes back: a
    /// relay that says so would have new records sealed under a key that a revoked device holds.
    #[error(
        "the relay tells an older epoch of {graph} than this device has seen; nothing was sealed"
    )]
    EpochWentBack {
        /// The graph.
        graph: GraphId,
    },
    /// The relay shows other keys for these devices than it did when they were first seen.
    /// Either somebody put a device of their own in their place, or the record in the key file is
    /// of another relay.
    #[error("the relay shows other keys than before for {}; nothing was sealed for them", list(.0))]
    KeysChanged(Vec<DeviceRef>),
    /// The relay shows these devices as active, which were revoked before: somebody may want keys
    /// for a device that its owner has lost.
    #[error("the relay shows {} as active, revoked before; nothing was sealed", list(.0))]
    Returned(Vec<DeviceRef>),
    /// These devices were never listed to whoever uses this one, who so had no chance to object:
    /// the relay may have made them up. Listing them is all that it takes.
    #[error(
        "{} never listed here before; list the devices, compare their fingerprints with their \
         owners, and try again; nothing was sealed",
        were(.0)
    )]
    Unlisted(Vec<DeviceRef>),
    /// Sealed bytes are not what was sealed: forged, cut, swapped or damaged.
    #[error("{0} does not open: it is not what was sealed")]
    Unreadable(&'static str),
    /// A file that was to be put changed while it was read.
    #[error("the file changed while it was read; try again")]
    FileChanged,
    /// The key file is not usable as it is.
    #[error("the key file {}: {reason}", path.display())]
    KeyFile {
        /// Where it lies.
        path: PathBuf,
        /// What is wrong with it, or with what was asked of it.
        reason: &'static str,
    },
    /// A local file could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// What was asked for cannot be: the caller's mistake.
    #[error("{0}")]
    Usage(String),
}

fn list(devices: &[DeviceRef]) -> String {
    let names: Vec<String> = devices
        .iter()
        .map(|device| format!("{}/{}", device.member_id, device.device_id))
        .collect();
    names.join(", ")
}

fn were(devices: &[DeviceRef]) -> String {
    let were = if devices.len() == 1 { "was" } else { "were" };
    format!("{} {were}", list(devices))
}

impl Error {
    /// Says what was being done when the system said no; for [`Result::map_err`].
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// The problem document that the relay answered with, where it did.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Relay(problem) => Some(problem),
            _ => None,
        }
    }

    /// The code of the problem that the relay answered with, where it did.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.problem().map(|problem| problem.code)
    }

    /// The verdicts of an atomic push of which a record was not acceptable.
    #[must_use]
    pub fn push_results(&self) -> Option<&[PushResult]> {
        self.problem()?.results.as_deref()
    }
}

/// Why a record was refused: by the relay as it was pushed, or by this client as it was pulled.
/// Refused records are kept and counted, never lost from sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The relay's verdict on a push.
    Relay(PushReason),
    /// The client's own: the record would be larger than the relay takes.
    TooLarge {
        /// Bytes of one ciphertext.
        limit: u64,
    },
    /// Pulled: of a kind that the application has not declared.
    UndeclaredKind,
    /// Pulled: its ciphertext does not open under the epoch's key, graph, id and deleted flag.
    Unreadable,
    /// Pulled: it carries no signature.
    Unsigned,
    /// Pulled: the signature is not one of any device ever known to this graph.
    SignatureInvalid,
    /// Pulled: the signature is that of another device than the one the relay names.
    ByMismatch,
    /// Pulled: the device named as its pusher is not known to this graph.
    UnknownDevice,
    /// Pulled: sealed under an epoch that had passed by the time of its seq. The relay takes none
    /// such; one that does may be serving what a revoked device wrote.
    EpochPassed,
    /// Pulled: an older version of an item of which a newer one was seen before.
    Replayed,
}

impl Refusal {
    /// The name in output and in events.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Relay(reason) => reason.as_str(),
            Self::TooLarge { .. } => "record_too_large",
            Self::UndeclaredKind => "undeclared_kind",
            Self::Unreadable => "unreadable",
            Self::Unsigned => "unsigned",
            Self::SignatureInvalid => "signature_invalid",
            Self::ByMismatch => "by_mismatch",
            Self::UnknownDevice => "unknown_device",
            Self::EpochPassed => "epoch_passed",
            Self::Replayed => "replayed",
        }
    }
}
