//! Who is told that a graph changed.

use std::{sync::Arc, time::Duration};

use argala_core::ports::Poke;
use argala_wire::keys::GrantRequest;

use super::{GROUP, RelayPorts, Rig};
use crate::{PATIENCE, TestDevice, conformance::Fresh, member};

/// A push, a rotate and a revocation poke all members; the device that did it is left out.
pub async fn everybody_but_the_cause_is_poked(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    rig.push(&rig.phone, "a", "one").await.expect("pushes");
    let key = rig
        .open(&rig.phone, GROUP)
        .await
        .expect("a member")
        .key()
        .clone();
    let expected = Poke {
        storage_key: key,
        members: vec![member("alex"), member("sam")],
        except: Some(rig.phone.to_ref()),
    };
    assert_eq!(rig.pokes.wait_for(1).await, std::slice::from_ref(&expected));
    rig.settle().await;

    let caller = rig
        .admit(&rig.laptop, argala_wire::limits::Bucket::Keys)
        .await
        .expect("active");
    let revoked = rig
        .relay
        .revoke(&caller, rig.phone.to_ref().device_id)
        .await
        .expect("revokes");
    assert_eq!(revoked.graphs_flagged, 1);
    let mut pokes = rig.pokes.wait_for(2).await;
    pokes.sort_by_key(|poke| poke.storage_key.clone());
    let own = argala_wire::StorageKey::own(&member("sam"));
    assert_eq!(pokes[0].storage_key, own);
    assert_eq!(pokes[0].members, [member("sam")]);
    assert_eq!(
        pokes[1],
        Poke {
            except: Some(rig.laptop.to_ref()),
            ..expected
        }
    );
    let told: Vec<_> = pokes[1]
        .members
        .iter()
        .map(|m| pokes[1].graph_id_for(m))
        .collect();
    assert!(
        told.iter()
            .all(|id| id.as_ref().is_some_and(|id| id.as_str() == GROUP))
    );
}

/// Many changes cost a poke each 50 ms at the most, and none of them goes untold.
pub async fn a_burst_is_few_pokes_and_the_last_change_is_told(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let began = tokio::time::Instant::now();
    for n in 0..20 {
        rig.push(&rig.laptop, &format!("r{n}"), "text")
            .await
            .expect("pushes");
    }
    let windows = began.elapsed().as_millis() / 50;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let pokes = rig.pokes.take();
    // One at once, one at the end of each window in which something came.
    assert!(
        !pokes.is_empty() && pokes.len() as u128 <= windows + 2,
        "{} pokes",
        pokes.len()
    );
    assert!(
        pokes
            .iter()
            .all(|poke| poke.except == Some(rig.laptop.to_ref()))
    );
    rig.push(&rig.laptop, "last", "text").await.expect("pushes");
    assert_eq!(rig.pokes.wait_for(1).await.len(), 1);
}

/// Where two devices changed a graph within one window, each is told of the other's change.
pub async fn two_causes_within_a_window_are_told_of_each_other(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    for attempt in 0.. {
        let devices = [&rig.laptop, &rig.phone, &rig.alex];
        let pushes = devices.into_iter().enumerate().map(|(n, device)| {
            let (rig, id) = (&rig, format!("{attempt}-{n}"));
            async move { rig.push(device, &id, "text").await.expect("pushes") }
        });
        futures_util::future::join_all(pushes).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        let pokes = rig.pokes.take();
        let told = |device: &TestDevice| {
            pokes
                .iter()
                .any(|poke| poke.except.as_ref() != Some(&device.to_ref()))
        };
        assert!(
            [&rig.laptop, &rig.phone, &rig.alex].into_iter().all(told),
            "{pokes:?}"
        );
        if pokes.iter().any(|poke| poke.except.is_none()) {
            return;
        }
        assert!(
            attempt < 50,
            "three concurrent pushes never shared a window"
        );
    }
}

/// The same content, a refused record and a repeated rotate change nothing.
pub async fn nothing_new_pokes_nobody(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    rig.push(&rig.laptop, "a", "one").await.expect("pushes");
    rig.settle().await;
    assert_eq!(
        rig.push(&rig.laptop, "a", "one")
            .await
            .expect("the same")
            .accepted,
        1
    );
    let access = rig.open(&rig.laptop, GROUP).await.expect("a member");
    let mut unsigned = rig.one(&rig.laptop, &access, "b", "two");
    unsigned.records[0].sig = None;
    assert_eq!(
        rig.relay
            .push(&access, unsigned, None)
            .await
            .expect("told")
            .rejected,
        1
    );
    rig.rotate(1, &[&rig.laptop, &rig.phone, &rig.alex])
        .await
        .expect("a replay");
    rig.register(&rig.laptop).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(rig.pokes.take(), []);
    assert_eq!(
        rig.events.take_names(),
        [
            "graph.push",
            "graph.push",
            "graph.rotate",
            "device.register"
        ]
    );
}

/// Only the members for whose devices a wrap is new are poked.
pub async fn a_grant_pokes_those_who_were_granted(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let late = TestDevice::new("alex", "late");
    rig.register(&late).await;
    rig.settle().await;
    let access = rig.open(&rig.laptop, GROUP).await.expect("a member");
    let wraps = vec![
        late.grant_wrap(1, "a key"),
        rig.phone.grant_wrap(1, "a key"),
    ];
    let granted = rig
        .relay
        .grant(&access, GrantRequest { wraps })
        .await
        .expect("grants");
    assert_eq!(granted.granted, 2, "the phone's is there identically");
    let pokes = rig.pokes.wait_for(1).await;
    assert_eq!(pokes.len(), 1);
    assert_eq!(pokes[0].members, [member("alex")]);
}

/// The future of a push is dropped at its first wait: either nothing was done, or all of it was.
pub async fn a_caller_who_hangs_up_stops_no_event_and_no_poke(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    let access = rig.open(&rig.laptop, GROUP).await.expect("a member");
    let mut hung_up = Box::pin({
        let (relay, request) = (
            Arc::clone(&rig.relay),
            rig.one(&rig.laptop, &access, "a", "one"),
        );
        let access = access.clone();
        async move { relay.push(&access, request, None).await }
    });
    assert!(futures_util::poll!(&mut hung_up).is_pending());
    drop(hung_up);
    assert_eq!(rig.pokes.wait_for(1).await.len(), 1);
    rig.events.wait_for("graph.push").await;
    assert_eq!(
        rig.pull(&rig.alex).await.expect("pulls").page.records.len(),
        1
    );
}

/// A carrier that is down loses pokes, and nothing else.
pub async fn a_sink_that_fails_fails_no_push(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    rig.pokes.set_failing(true);
    let pushed = tokio::time::timeout(PATIENCE, rig.push(&rig.laptop, "a", "one")).await;
    assert_eq!(pushed.expect("in time").expect("pushes").accepted, 1);
    rig.pokes.wait_for(1).await;
}
