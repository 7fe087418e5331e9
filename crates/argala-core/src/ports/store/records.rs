//! Requests and answers about records.

use argala_wire::{
    StorageKey, Timestamp,
    devices::DeviceRef,
    limits::{Pages, Quotas},
    records::{PullResponse, PushRecord, PushResponse},
};

/// What came of a record's signature, verified against the pushing device's key before the graph
/// is locked. Device keys never change, so nothing can come between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureVerdict {
    /// There is a valid one, or there is none and none is required.
    Good,
    /// There is none, and one is required.
    Missing,
    /// There is one, and it is wrong.
    Invalid,
}

/// One record of a push.
#[derive(Debug, Clone)]
pub struct PushedRecord {
    /// The record as it was sent. Its ciphertext is empty only where it is a tombstone.
    pub record: PushRecord,
    /// What came of its signature.
    pub signature: SignatureVerdict,
}

/// Makes a push answer as it did the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key; scoped to its device and the graph.
    pub key: String,
    /// SHA-256 of the body's bytes.
    pub body: [u8; 32],
    /// Keys stored before this are as good as gone: 24 hours before the request.
    pub since: Timestamp,
}

/// A device pushes records.
#[derive(Debug, Clone)]
pub struct Push {
    /// The graph.
    pub key: StorageKey,
    /// The calling device, which must be active still.
    pub by: DeviceRef,
    /// The records; no id twice.
    pub records: Vec<PushedRecord>,
    /// The head that the graph must have.
    pub if_head: Option<u64>,
    /// All or none.
    pub atomic: bool,
    /// Where the caller sent an idempotency key.
    pub idempotency: Option<Idempotency>,
    /// When the request came; the records' `at`.
    pub now: Timestamp,
    /// The ceilings in force.
    pub quotas: Quotas,
}

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushOutcome {
    /// What the caller is told, and was told the first time.
    pub answer: PushResponse,
    /// Whether anything was written, so that others need a poke.
    pub changed: bool,
}

/// A device pulls records.
#[derive(Debug, Clone)]
pub struct Pull {
    /// The graph, which need not exist yet.
    pub key: StorageKey,
    /// The calling device.
    pub device: DeviceRef,
    /// The cursor as it was sent.
    pub cursor: Option<String>,
    /// How many records at the most; 1 to 1,000.
    pub limit: usize,
    /// One epoch alone; at least 1.
    pub epoch: Option<u64>,
    /// What else the answer's form depends on (its media type); part of the tag.
    pub variant: &'static str,
    /// Tags that the caller has already, as `If-None-Match` names them; `*` is not among them.
    pub known: Vec<String>,
    /// Page sizes in force.
    pub pages: Pages,
}

/// What a pull answers with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pulled {
    /// The caller has this page already.
    Unchanged {
        /// The page's tag.
        tag: String,
    },
    /// A page.
    Page(PullPage),
}

/// A page and its tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullPage {
    /// The page.
    pub page: PullResponse,
    /// Its tag: base64url, without quotes.
    pub tag: String,
}
