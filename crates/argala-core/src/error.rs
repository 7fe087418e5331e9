//! What can go wrong: the caller's fault, a store's, or a directory's.

use std::error::Error as StdError;

use argala_wire::{
    devices::DeviceRef,
    limits::Bucket,
    records::{CursorReason, PushResult},
};

/// The caller's fault: a request that the rules refuse. One variant for each problem code that a
/// rule can give; the HTTP layer maps each to its status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Malformed: a bad id, a duplicate, a bad proof.
    #[error("{detail}")]
    InvalidRequest {
        /// The path of what is at fault, where one thing is.
        field: Option<String>,
        /// What is wrong with it, never what it holds.
        detail: String,
    },
    /// A blob's bytes are not those announced.
    #[error("the bytes differ from {announced}")]
    DigestMismatch {
        /// The header they differ from.
        announced: &'static str,
    },
    /// The device has not been registered.
    #[error("register the device first")]
    DeviceUnregistered,
    /// The device was revoked.
    #[error("the device was revoked; it stays so")]
    DeviceRevoked,
    /// The directory does not count the member as active.
    #[error("the directory does not count the member as active")]
    MemberInactive,
    /// A ceiling other than a body's size.
    #[error("{} of {limit} {} are used", used, what.as_str())]
    QuotaExceeded {
        /// Which ceiling.
        what: Quota,
        /// The ceiling.
        limit: u64,
        /// How much of it is used.
        used: u64,
    },
    /// No such graph, or none for the caller: one answer, so that neither can be told.
    #[error("there is no such graph, or the caller is not of it")]
    GraphNotFound,
    /// No such blob.
    #[error("the graph has no such blob")]
    BlobNotFound,
    /// The caller has no such device.
    #[error("the caller has no such device")]
    DeviceNotFound,
    /// The device id is registered with other keys, another kind or another suite.
    #[error("the device id is registered with other keys, kind or suite")]
    DeviceKeyMismatch,
    /// A rotate to any epoch but the next.
    #[error("the epoch in force is {epoch}")]
    EpochConflict {
        /// The epoch in force.
        epoch: u64,
    },
    /// The graph has no key yet.
    #[error("rotate the graph to its first epoch first")]
    GraphUnkeyed,
    /// A record of an atomic push is not acceptable.
    #[error("not every record of the atomic push is acceptable")]
    PushRejected {
        /// What is wrong with each; those that are acceptable appear as their id alone.
        results: Vec<PushResult>,
    },
    /// The blob id holds other bytes.
    #[error("the blob id holds other bytes")]
    BlobExists,
    /// The idempotency key was used with another body.
    #[error("the idempotency key was used with another body")]
    IdempotencyConflict,
    /// The list must be started over without a cursor.
    #[error("start over without a cursor")]
    CursorInvalid {
        /// Why.
        reason: CursorReason,
    },
    /// The head is not the one that the push asks for.
    #[error("the head is {head}")]
    HeadMoved {
        /// The head.
        head: u64,
    },
    /// The blob is larger than a blob may be.
    #[error("a blob has at most {limit} bytes")]
    BlobTooLarge {
        /// Bytes of one blob.
        limit: u64,
    },
    /// The wraps are not exactly the roster.
    #[error("the wraps are not exactly the roster")]
    RotationIncomplete {
        /// On the roster, without a wrap; at most 1,000.
        missing: Vec<DeviceRef>,
        /// With a wrap, not on the roster; at most 1,000.
        extra: Vec<DeviceRef>,
    },
    /// The member has used up an allowance.
    #[error("wait {retry_after_ms} ms")]
    RateLimited {
        /// Which allowance.
        bucket: Bucket,
        /// How long until the next request of this kind is allowed, in milliseconds.
        retry_after_ms: u64,
    },
}

impl Rejection {
    /// A malformed request, with the path of what is at fault.
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::InvalidRequest {
            field: Some(field.into()),
            detail: detail.into(),
        }
    }

    /// The reason that `auth.rejected` tells, where this is a refusal of the caller as such.
    #[must_use]
    pub const fn auth_reason(&self) -> Option<&'static str> {
        match self {
            Self::DeviceUnregistered => Some("device_unregistered"),
            Self::DeviceRevoked => Some("device_revoked"),
            Self::MemberInactive => Some("member_inactive"),
            _ => None,
        }
    }
}

/// What a quota is on, as `quota.exceeded` tells it (protocol, section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quota {
    /// Live records of a graph.
    Records,
    /// Bytes of ciphertext of a graph.
    CiphertextBytes,
    /// Bytes of one blob.
    BlobBytes,
    /// Bytes of a graph's blobs.
    BlobBytesPerGraph,
    /// Active devices of a member.
    Devices,
    /// Bytes of the body of a push.
    PushBytes,
}

impl Quota {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Records,
        Self::CiphertextBytes,
        Self::BlobBytes,
        Self::BlobBytesPerGraph,
        Self::Devices,
        Self::PushBytes,
    ];

    /// The name on the wire, in events and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::CiphertextBytes => "ciphertextBytes",
            Self::BlobBytes => "blobBytes",
            Self::BlobBytesPerGraph => "blobBytesPerGraph",
            Self::Devices => "devices",
            Self::PushBytes => "pushBytes",
        }
    }
}

/// What kind of failure a store met: it decides what the caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// Down, full, slow or shutting down. The same request may succeed later.
    Unavailable,
    /// What was read breaks a rule that every write keeps.
    Corrupt,
    /// A fault of ours: a statement that the database refuses, a task that died.
    Internal,
}

/// A store, a blob store or a directory failed. Nothing was half done.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct StoreError {
    /// What kind of failure.
    pub kind: StoreErrorKind,
    /// What was being done, in a few words.
    pub context: &'static str,
    /// What the backend said.
    #[source]
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

impl StoreError {
    /// A failure of `kind` while doing what `context` says.
    pub fn new(
        kind: StoreErrorKind,
        context: &'static str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            kind,
            context,
            source: Some(source.into()),
        }
    }

    /// A backend is down, full, slow or shutting down.
    pub fn unavailable(
        context: &'static str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::new(StoreErrorKind::Unavailable, context, source)
    }

    /// A fault of ours.
    pub fn internal(
        context: &'static str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::new(StoreErrorKind::Internal, context, source)
    }

    /// What was read breaks a rule that every write keeps.
    #[must_use]
    pub const fn corrupt(context: &'static str) -> Self {
        Self {
            kind: StoreErrorKind::Corrupt,
            context,
            source: None,
        }
    }
}

/// What an operation answers with.
pub type StoreResult<T> = Result<T, StoreError>;

/// Why an operation was not done: the caller's fault or a backend's.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The rules refuse the request.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// A backend failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What an operation that the rules may refuse answers with.
pub type Outcome<T> = Result<T, Fault>;
