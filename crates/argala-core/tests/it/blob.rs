//! Reserving and committing uploads (protocol, route 12).

use std::time::Duration;

use argala_core::{
    Quota, Rejection,
    ports::{
        ObjectKey,
        store::{Blob, Counters, Graph, ReserveBlob},
    },
    rules::blob::{Commitment, Reservation, commit, reserve},
};
use argala_testkit::{EPOCH, blob_id, device_ref};
use argala_wire::blobs::BlobPolicy;
use proptest::prelude::*;

use crate::given::{Standing, caller, graph, key};

fn request(size: u64, max_bytes_per_graph: u64) -> ReserveBlob {
    ReserveBlob {
        key: key(),
        id: blob_id("photo"),
        by: caller().to_ref(),
        object: ObjectKey::new("ab", [1; 16]),
        size,
        policy: BlobPolicy::Keep,
        expires_at: None,
        now: EPOCH,
        max_bytes_per_graph,
    }
}

/// A live blob of `size`, which expires `in_ms` after now, if ever.
fn live(size: u64, in_ms: Option<i64>) -> Blob {
    let at = |ms: i64| match u64::try_from(ms) {
        Ok(ms) => EPOCH.saturating_add(Duration::from_millis(ms)),
        Err(_) => EPOCH.saturating_sub(Duration::from_millis(ms.unsigned_abs())),
    };
    Blob {
        graph: key(),
        id: blob_id("photo"),
        object: ObjectKey::new("ab", [2; 16]),
        size,
        sha256: [7; 32],
        policy: BlobPolicy::Expire,
        expires_at: in_ms.map(at),
        by: device_ref("alex", "phone"),
    }
}

proptest! {
    /// Whatever is reserved fits; whatever fits is reserved; an expired blob of the id makes room
    /// first; and one that lives is told, be the graph full or not.
    #[test]
    fn a_reservation_fits(
        size in prop_oneof![0..200_u64, Just(u64::MAX)],
        limit in prop_oneof![0..200_u64, Just(u64::MAX)],
        others in 0..200_u64,
        there in prop::option::of((0..100_u64, prop::option::of(-2..3_i64))),
    ) {
        let blob = there.map(|(size, expires)| live(size, expires));
        let expired = there.is_some_and(|(_, expires)| expires.is_some_and(|ms| ms <= 0));
        let used = others + blob.as_ref().map_or(0, |blob| blob.size);
        let graph = Graph {
            counters: Counters { blob_bytes: used, ..Counters::default() },
            ..graph(1, 0)
        };
        let row = Standing::Active.row(&caller());
        let got = reserve(&request(size, limit), row.as_ref(), Some(&graph), blob.as_ref());
        let wanted = match blob {
            Some(blob) if !expired => Ok(Reservation::Exists(blob)),
            _ if u128::from(others) + u128::from(size) <= u128::from(limit) => Ok(Reservation::Pending),
            _ => Err(Rejection::QuotaExceeded {
                what: Quota::BlobBytesPerGraph,
                limit,
                used: others,
            }),
        };
        prop_assert_eq!(got, wanted);
    }

    #[test]
    fn a_finished_upload_is_live_unless_another_was_first(
        standing in prop::sample::select(Standing::ALL.to_vec()),
        there in prop::option::of(any::<bool>()),
    ) {
        let blob = there.map(|same| Blob { sha256: [u8::from(same); 32], ..live(3, None) });
        let got = commit(standing.row(&caller()).as_ref(), &[1; 32], blob.as_ref());
        let wanted = match (standing, there) {
            (Standing::Unregistered | Standing::Revoked, _) => Commitment::Revoked,
            (Standing::Active, None) => Commitment::Live,
            (Standing::Active, Some(true)) => Commitment::Same,
            (Standing::Active, Some(false)) => Commitment::Differs,
        };
        prop_assert_eq!(got, wanted);
    }
}

#[test]
fn caller_then_key_then_room() {
    let refusal = |standing: Standing, graph: Option<Graph>| {
        let row = standing.row(&caller());
        reserve(&request(2, 1), row.as_ref(), graph.as_ref(), None).unwrap_err()
    };
    assert_eq!(
        refusal(Standing::Unregistered, None),
        Rejection::DeviceUnregistered
    );
    assert_eq!(refusal(Standing::Revoked, None), Rejection::DeviceRevoked);
    assert_eq!(refusal(Standing::Active, None), Rejection::GraphUnkeyed);
    assert_eq!(
        refusal(Standing::Active, Some(graph(0, 0))),
        Rejection::GraphUnkeyed
    );
    assert!(matches!(
        refusal(Standing::Active, Some(graph(1, 0))),
        Rejection::QuotaExceeded { .. }
    ));
}
