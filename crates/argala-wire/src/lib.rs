//! What an Argala client and an Argala relay say to each other.
//!
//! This crate holds identifiers, graph addresses and storage keys, the body of every request and
//! answer, problem documents, the bytes that devices sign, and the two codecs (JSON and CBOR).
//! Server and client both build on it, so a name is spelled in one place only.
//!
//! What it does not do: no input or output, no cryptography beyond laying out the bytes that get
//! signed, no rules. The rules live in `argala-core`.
//!
//! Start with [`StorageKey`] and [`GraphAddress`] (how a graph is named), then [`records`] (what
//! is pushed and pulled). Where a rule comes from is said as "protocol, section N": the document
//! is `docs/protocol.md`.

pub mod blobs;
pub mod codec;
pub mod devices;
mod graph;
pub mod graphs;
mod id;
pub mod keys;
pub mod limits;
pub mod pokes;
mod problem;
pub mod records;
mod sealed;
pub mod signing;
mod time;

pub use graph::{GraphAddress, GraphAddressError, GraphId, Owners, StorageKey, StorageKeyError};
pub use id::{BlobId, DeviceId, GroupId, IdError, MemberId, RecordId};
pub use problem::{Code, Problem};
pub use sealed::Sealed;
pub use time::{ParseTimestampError, Timestamp};

/// The media type of JSON bodies, and of every answer unless the caller asks otherwise.
pub const JSON: &str = "application/json";
/// The media type of CBOR bodies (RFC 8949), problems included.
pub const CBOR: &str = "application/cbor";
/// The media type of a problem document in JSON (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";
/// The media type of a blob's bytes.
pub const OCTET_STREAM: &str = "application/octet-stream";
