//! Who is let in, and what is remembered of it.

use std::{sync::Arc, time::Duration};

use argala_core::{Fault, Gate, Identity, PageQuery, Rejection, StoreErrorKind, ports::Event};
use argala_wire::limits::{Bucket, Rate, RateLimits};

use super::{GROUP, RelayPorts, Rig, rejection};
use crate::{conformance::Fresh, device_id, member};

/// Revocation that is known, allowance, device, member, graph: the first that refuses is told.
pub async fn the_checks_come_in_their_order(fresh: Fresh<RelayPorts>) {
    let once = Rate {
        per_minute: 1,
        burst: 1,
    };
    let rig = Rig::with(fresh.replica(0), |builder| {
        builder.rate_limits(RateLimits {
            blobs: once,
            ..RateLimits::default()
        })
    });
    let stranger = |bucket| rig.admit(&rig.laptop, bucket);
    rig.directory.set_member("sam", false);
    assert_eq!(
        rejection(stranger(Bucket::Blobs).await),
        Rejection::DeviceUnregistered
    );
    assert!(matches!(
        rejection(stranger(Bucket::Blobs).await),
        Rejection::RateLimited {
            bucket: Bucket::Blobs,
            retry_after_ms: 60_000
        }
    ));
    let unregistered = Identity {
        device: rig.laptop.to_ref(),
        expires_at: None,
    };
    let admitted = rig
        .relay
        .admit(unregistered, Bucket::Keys, Gate::Anyone)
        .await;
    assert_eq!(rejection(admitted), Rejection::MemberInactive);

    rig.directory.set_member("sam", true);
    rig.register(&rig.laptop).await;
    rig.directory.leave("acme", "sam");
    assert_eq!(
        rejection(rig.open(&rig.laptop, GROUP).await),
        Rejection::GraphNotFound
    );
    assert_eq!(
        rejection(rig.open(&rig.laptop, "g:nobody").await),
        Rejection::GraphNotFound
    );
    assert_eq!(
        rejection(rig.open(&rig.laptop, "d:nobody").await),
        Rejection::GraphNotFound
    );
    rig.directory.set_member("alex", false);
    assert_eq!(
        rejection(rig.open(&rig.laptop, "d:alex").await),
        Rejection::GraphNotFound
    );
    assert!(rig.open(&rig.laptop, "d:sam").await.is_ok());
    rig.directory.set_member("sam", false);
    assert_eq!(
        rejection(rig.open(&rig.laptop, "d:sam").await),
        Rejection::MemberInactive
    );

    let reasons: Vec<_> = rig
        .events
        .take()
        .into_iter()
        .map(|event| match event {
            Event::AuthRejected { reason } => reason,
            Event::RateLimitHit { .. } => "ratelimit.hit",
            other => other.name(),
        })
        .collect();
    assert_eq!(
        reasons,
        [
            "device_unregistered",
            "ratelimit.hit",
            "member_inactive",
            "device.register",
            "member_inactive"
        ]
    );
}

/// A flood from a revoked device does not use up its member's allowance.
pub async fn a_revocation_is_remembered_before_the_allowance(fresh: Fresh<RelayPorts>) {
    let few = Rate {
        per_minute: 1,
        burst: 4,
    };
    let rig = Rig::with(fresh.replica(0), |builder| {
        builder.rate_limits(RateLimits {
            pull: few,
            ..RateLimits::default()
        })
    });
    rig.keyed().await;
    let caller = rig.admit(&rig.laptop, Bucket::Keys).await.expect("active");
    rig.relay
        .revoke(&caller, device_id("phone"))
        .await
        .expect("revokes");
    for _ in 0..10 {
        assert_eq!(
            rejection(rig.admit(&rig.phone, Bucket::Pull).await),
            Rejection::DeviceRevoked
        );
    }
    assert!(rig.admit(&rig.laptop, Bucket::Pull).await.is_ok());

    // A relay that did not see the revocation finds it in the store, and remembers it then.
    let other = Rig::new(fresh.replica(1));
    for _ in 0..2 {
        assert_eq!(
            rejection(other.admit(&other.phone, Bucket::Pull).await),
            Rejection::DeviceRevoked
        );
    }
}

/// Within its time an answer is used again, after it the directory is asked.
pub async fn an_answer_of_the_directory_is_good_for_its_time(fresh: Fresh<RelayPorts>) {
    let ttl = Duration::from_secs(5);
    let rig = Rig::with(fresh.replica(0), |builder| builder.directory_cache_ttl(ttl));
    rig.keyed().await;
    rig.clock.advance(ttl);
    assert!(rig.open(&rig.alex, GROUP).await.is_ok());
    let asked = rig.directory.questions();
    assert!(rig.open(&rig.alex, GROUP).await.is_ok());
    assert_eq!(
        rig.directory.questions(),
        asked,
        "the second time it is remembered"
    );
    rig.directory.leave("acme", "alex");
    rig.clock.advance(ttl - Duration::from_millis(1));
    assert!(rig.open(&rig.alex, GROUP).await.is_ok());
    rig.clock.advance(Duration::from_millis(1));
    assert_eq!(
        rejection(rig.open(&rig.alex, GROUP).await),
        Rejection::GraphNotFound
    );
}

/// What a key rests on is never a remembered answer.
pub async fn rotate_grant_and_roster_ask_afresh(fresh: Fresh<RelayPorts>) {
    let ttl = Duration::from_secs(5);
    let rig = Rig::with(fresh.replica(0), |builder| builder.directory_cache_ttl(ttl));
    rig.keyed().await;
    rig.open(&rig.alex, GROUP).await.expect("a member");
    rig.directory.leave("acme", "alex");
    // Alex is remembered as a member, yet neither the roster nor the next epoch has the tablet.
    let access = rig.open(&rig.laptop, GROUP).await.expect("a member");
    let roster = rig
        .relay
        .graph_devices(&access, false, PageQuery::default())
        .await;
    let roster = roster.expect("a roster").devices;
    assert!(
        roster
            .iter()
            .all(|device| device.member_id == member("sam"))
    );
    let everybody = rig.rotate(2, &[&rig.laptop, &rig.phone, &rig.alex]).await;
    assert!(matches!(
        rejection(everybody),
        Rejection::RotationIncomplete { missing, extra }
            if missing.is_empty() && extra == [rig.alex.to_ref()]
    ));
    rig.rotate(2, &[&rig.laptop, &rig.phone])
        .await
        .expect("exactly the roster");
    // A caller who has just left is let in by memory, and found out by the fresh answer.
    let access = rig.open(&rig.alex, GROUP).await.expect("remembered");
    let grant = argala_wire::keys::GrantRequest {
        wraps: vec![rig.phone.grant_wrap(1, "key")],
    };
    assert_eq!(
        rejection(rig.relay.grant(&access, grant).await),
        Rejection::GraphNotFound
    );
}

/// Without an answer of the directory nobody is let in, and nothing is remembered.
pub async fn a_directory_that_fails_is_never_a_yes(fresh: Fresh<RelayPorts>) {
    let rig = Rig::with(fresh.replica(0), |builder| {
        builder.directory_cache_ttl(Duration::from_secs(5))
    });
    rig.keyed().await;
    rig.clock.advance(Duration::from_secs(60));
    rig.directory.set_failing(true);
    assert!(matches!(
        rig.open(&rig.laptop, GROUP).await,
        Err(Fault::Store(error)) if error.kind == StoreErrorKind::Unavailable
    ));
    rig.directory.set_failing(false);
    assert!(rig.open(&rig.laptop, GROUP).await.is_ok());
}

/// A host's sink that panics costs an event, not a request.
pub async fn a_sink_that_panics_is_contained_and_counted(fresh: Fresh<RelayPorts>) {
    let rig = Rig::with(fresh.replica(0), |builder| {
        builder.events(|event: &Event| assert_ne!(event.name(), "graph.push"))
    });
    rig.keyed().await;
    assert_eq!(
        rig.push(&rig.laptop, "a", "one")
            .await
            .expect("pushes")
            .accepted,
        1
    );
    assert_eq!(
        rig.push(&rig.laptop, "b", "two")
            .await
            .expect("pushes")
            .accepted,
        1
    );
    assert_eq!(rig.relay.sink_panics(), 2);
}

/// When a device was seen is told before it is written, and written when the relay ends.
pub async fn presence_is_told_at_once_and_kept_after_closing(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let seen = rig.clock.advance(Duration::from_secs(9));
    rig.admit(&rig.phone, Bucket::Pull).await.expect("active");
    let caller = rig.admit(&rig.laptop, Bucket::Keys).await.expect("active");
    let devices = rig
        .relay
        .devices(&caller, PageQuery::default())
        .await
        .expect("a list")
        .devices;
    assert_eq!(devices.len(), 2);
    assert!(
        devices
            .iter()
            .all(|device| device.last_seen_at == Some(seen))
    );
    rig.relay.close().await;
    let stored = rig
        .store
        .devices_of_member(&member("sam"), None, 10)
        .await
        .expect("a list");
    assert!(
        stored
            .iter()
            .all(|device| device.last_seen_at == Some(seen))
    );
    assert_eq!(
        Arc::strong_count(&rig.relay),
        1,
        "what ran in the background has ended"
    );
}
