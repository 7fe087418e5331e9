//! Requests and answers about the rows of blobs.

use argala_wire::{BlobId, StorageKey, Timestamp, blobs::BlobPolicy, devices::DeviceRef};

use crate::ports::{ForgetReason, ObjectKey};

/// A live blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// The graph it belongs to.
    pub graph: StorageKey,
    /// Its id within the graph.
    pub id: BlobId,
    /// Where its bytes lie.
    pub object: ObjectKey,
    /// How many there are.
    pub size: u64,
    /// SHA-256 of them.
    pub sha256: [u8; 32],
    /// How long it stays.
    pub policy: BlobPolicy,
    /// When it is forgotten at the latest.
    pub expires_at: Option<Timestamp>,
    /// Who uploaded it.
    pub by: DeviceRef,
}

impl Blob {
    /// Whether its time has passed, so that it is gone but for the sweep.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// An upload begins.
#[derive(Debug, Clone)]
pub struct ReserveBlob {
    /// The graph.
    pub key: StorageKey,
    /// The blob's id.
    pub id: BlobId,
    /// The calling device, which must be active still.
    pub by: DeviceRef,
    /// Where its bytes will lie.
    pub object: ObjectKey,
    /// How many there will be.
    pub size: u64,
    /// How long it is to stay.
    pub policy: BlobPolicy,
    /// When it is to be forgotten at the latest.
    pub expires_at: Option<Timestamp>,
    /// When the request came.
    pub now: Timestamp,
    /// Bytes of blobs that the graph may hold.
    pub max_bytes_per_graph: u64,
}

/// What became of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// Its bytes are charged; store them and commit.
    Pending,
    /// A live blob has the id; nothing was reserved. Compare by hash.
    Exists(Blob),
}

/// An upload's bytes are stored.
#[derive(Debug, Clone)]
pub struct CommitBlob {
    /// The graph.
    pub key: StorageKey,
    /// Where they lie.
    pub object: ObjectKey,
    /// The calling device, which must be active still.
    pub by: DeviceRef,
    /// SHA-256 of them.
    pub sha256: [u8; 32],
    /// When they were stored.
    pub now: Timestamp,
}

/// What became of a finished upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// It is live.
    Live(Blob),
    /// Another upload of the same bytes became live first; this one is `forgetting`, its bytes
    /// given back. Its object is to be removed.
    Same(Blob),
    /// Another upload of other bytes became live first; this one is `forgetting`, its bytes given
    /// back. Its object is to be removed.
    Differs,
    /// It is neither pending nor live: it took so long that the sweep let it go, or it was live and
    /// has been deleted since.
    Gone,
    /// The calling device was revoked meanwhile; the upload is `forgetting`, its bytes given back.
    /// Its object is to be removed.
    Revoked,
}

/// What an upload that is given up has become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// Its row is `forgetting` without ever having been live, or gone: nothing will ever refer to its
    /// object, which is to be removed.
    LetGo,
    /// Its row is `forgetting` for another reason than that its upload was given up: its commit took
    /// effect, or its graph is being erased. Whoever let it go removes its object and tells of it,
    /// or a sweep does.
    Forgotten,
    /// Its commit took effect, though nobody heard of it: the blob is live, and its object must
    /// stay.
    Live,
}

/// A device deletes a blob.
#[derive(Debug, Clone)]
pub struct ForgetBlob {
    /// The graph.
    pub key: StorageKey,
    /// The blob.
    pub id: BlobId,
    /// The calling device, which must be active still.
    pub by: DeviceRef,
    /// When the request came.
    pub now: Timestamp,
}

/// A blob whose bytes are given back and whose object is to be removed, then its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// The graph it belonged to.
    pub graph: StorageKey,
    /// Where its bytes lie.
    pub object: ObjectKey,
    /// Why it is forgotten.
    pub reason: ForgetReason,
}
