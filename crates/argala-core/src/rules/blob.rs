//! Reserving and committing uploads (protocol, route 12).

use argala_wire::devices::Device;

use super::active;
use crate::{
    Quota, Rejection,
    ports::store::{Blob, Graph, ReserveBlob},
};

/// What a reservation writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reservation {
    /// The pending row, and its bytes charged to the graph. A live blob of the id that has
    /// expired is marked `forgetting` first, as expired, its bytes given back.
    Pending,
    /// Nothing: this live blob has the id.
    Exists(Blob),
}

/// Decides a reservation; `live` is the live blob of the id, expired or not.
///
/// # Errors
/// Those of [`active`]; [`Rejection::GraphUnkeyed`]; [`Rejection::QuotaExceeded`] of a graph's
/// blob bytes.
pub fn reserve(
    request: &ReserveBlob,
    caller: Option<&Device>,
    graph: Option<&Graph>,
    live: Option<&Blob>,
) -> Result<Reservation, Rejection> {
    active(caller)?;
    let graph = graph
        .filter(|graph| graph.epoch > 0)
        .ok_or(Rejection::GraphUnkeyed)?;
    let mut used = graph.counters.blob_bytes;
    if let Some(blob) = live {
        if !blob.is_expired(request.now) {
            return Ok(Reservation::Exists(blob.clone()));
        }
        used -= blob.size;
    }
    let limit = request.max_bytes_per_graph;
    if used.checked_add(request.size).is_none_or(|sum| sum > limit) {
        return Err(Rejection::QuotaExceeded {
            what: Quota::BlobBytesPerGraph,
            limit,
            used,
        });
    }
    Ok(Reservation::Pending)
}

/// What a finished upload writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commitment {
    /// The row becomes live. A live blob of its id that has expired is marked `forgetting` first,
    /// as expired, its bytes given back.
    Live,
    /// The row becomes `forgetting`, its bytes given back: its device was revoked.
    Revoked,
    /// The row becomes `forgetting`, its bytes given back: the same bytes are live already.
    Same,
    /// The row becomes `forgetting`, its bytes given back: other bytes are live already.
    Differs,
}

/// Decides what becomes of a pending row whose bytes are stored, hashing to `sha256`; `live` is
/// the live blob of its id that has not expired.
#[must_use]
pub fn commit(caller: Option<&Device>, sha256: &[u8; 32], live: Option<&Blob>) -> Commitment {
    if active(caller).is_err() {
        return Commitment::Revoked;
    }
    match live {
        None => Commitment::Live,
        Some(blob) if blob.sha256 == *sha256 => Commitment::Same,
        Some(_) => Commitment::Differs,
    }
}
