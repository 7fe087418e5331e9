//! Poke streams: what they carry and when they end.

use std::time::Duration;

use argala_core::{Fault, Gate, Identity, PokeStream, StoreErrorKind, ports::store::Revoke};
use argala_wire::{limits::Bucket, pokes::PokeMessage};
use futures_util::StreamExt;

use super::{GROUP, RelayPorts, Rig};
use crate::{PATIENCE, TestDevice, conformance::Fresh};

async fn open(rig: &Rig, device: &TestDevice) -> PokeStream {
    let caller = rig.admit(device, Bucket::Pull).await.expect("active");
    let mut stream = rig.relay.pokes(&caller).await.expect("a stream");
    assert_eq!(next(&mut stream).await, Some(PokeMessage::Hello));
    stream
}

async fn next(stream: &mut PokeStream) -> Option<PokeMessage> {
    tokio::time::timeout(PATIENCE, stream.next())
        .await
        .expect("something within the time")
}

fn poke(graph: &str) -> Option<PokeMessage> {
    Some(PokeMessage::Poke {
        graph_id: graph.parse().expect("a graph"),
    })
}

/// A whole life of a stream.
pub async fn hello_then_pokes_then_resync_on_closing(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let (mut alex, mut laptop) = (open(&rig, &rig.alex).await, open(&rig, &rig.laptop).await);
    rig.push(&rig.laptop, "a", "one").await.expect("pushes");
    assert_eq!(next(&mut alex).await, poke(GROUP));
    rig.push(&rig.alex, "b", "two").await.expect("pushes");
    assert_eq!(
        next(&mut laptop).await,
        poke(GROUP),
        "its own push was not told to it"
    );
    rig.relay.close().await;
    for stream in [&mut alex, &mut laptop] {
        assert_eq!(next(stream).await, Some(PokeMessage::Resync));
        assert_eq!(next(stream).await, None);
    }
}

/// Revoked here: the stream ends with the answer.
pub async fn a_revoked_device_hears_no_more(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let mut phone = open(&rig, &rig.phone).await;
    let caller = rig.admit(&rig.laptop, Bucket::Keys).await.expect("active");
    rig.relay
        .revoke(&caller, rig.phone.to_ref().device_id)
        .await
        .expect("revokes");
    assert_eq!(next(&mut phone).await, None);
}

/// Revoked by another relay over the same store: the stream ends within 5 s.
pub async fn a_device_revoked_elsewhere_hears_no_more(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let (mut phone, mut laptop) = (open(&rig, &rig.phone).await, open(&rig, &rig.laptop).await);
    let by = rig.laptop.to_ref();
    let device_id = rig.phone.to_ref().device_id;
    let revoke = Revoke {
        by,
        device_id,
        now: crate::EPOCH,
    };
    fresh
        .replica(1)
        .store
        .revoke(revoke)
        .await
        .expect("revokes");
    let ended = tokio::time::timeout(Duration::from_secs(5), phone.next()).await;
    assert_eq!(ended.expect("within five seconds"), None);
    rig.push(&rig.alex, "a", "one").await.expect("pushes");
    assert_eq!(
        next(&mut laptop).await,
        poke(GROUP),
        "its neighbour's goes on"
    );
}

/// Until then it goes on.
pub async fn a_credential_that_expires_ends_the_stream(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let expires_at = {
        use argala_core::ports::Clock as _;
        rig.clock.now().saturating_add(Duration::from_millis(300))
    };
    let identity = Identity {
        device: rig.alex.to_ref(),
        expires_at: Some(expires_at),
    };
    let caller = rig
        .relay
        .admit(identity, Bucket::Pull, Gate::Registered)
        .await
        .expect("active");
    let mut stream = rig.relay.pokes(&caller).await.expect("a stream");
    assert_eq!(next(&mut stream).await, Some(PokeMessage::Hello));
    rig.push(&rig.laptop, "a", "one").await.expect("pushes");
    assert_eq!(next(&mut stream).await, poke(GROUP));
    assert_eq!(next(&mut stream).await, None);
}

/// The ceiling is the member's, and a stream that is dropped frees its place.
pub async fn a_member_has_so_many_streams_and_gets_them_back(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let mut streams = Vec::new();
    for n in 0..rig.relay.limits().max_streams_per_member {
        let device = if n % 2 == 0 { &rig.laptop } else { &rig.phone };
        streams.push(open(&rig, device).await);
    }
    let caller = rig.admit(&rig.phone, Bucket::Pull).await.expect("active");
    assert!(matches!(
        rig.relay.pokes(&caller).await,
        Err(Fault::Store(error)) if error.kind == StoreErrorKind::Unavailable
    ));
    drop(open(&rig, &rig.alex).await);
    streams.pop();
    drop(open(&rig, &rig.phone).await);
}
