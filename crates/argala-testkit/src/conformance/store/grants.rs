//! Giving wraps to devices.

use argala_core::{
    Rejection,
    ports::{SweepStore, store::Granted},
};
use argala_wire::{
    StorageKey,
    keys::{GrantReason, GrantRejection, GrantWrap, Wrap},
};

use super::{Scene, acme, at, refused};
use crate::{TestDevice, conformance::Fresh, member};

fn refusal(wrap: &GrantWrap, reason: GrantReason) -> GrantRejection {
    GrantRejection {
        epoch: wrap.epoch,
        member_id: wrap.member_id.clone(),
        device_id: wrap.device_id.clone(),
        reason,
    }
}

/// With who gave it, when, and where the epoch begins; nothing else of the graph changes.
pub async fn a_granted_wrap_is_read_by_its_device(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, alex] = scene.devices([("sam", "a"), ("alex", "x")]).await;
    scene.rotate(&acme(), 1, &[&a, &alex]).await;
    scene.fill(&acme(), &a, 1, &["one", "two"]).await;
    scene.rotate(&acme(), 2, &[&a, &alex]).await;
    let [b, c] = scene.devices([("sam", "b"), ("sam", "c")]).await;
    let before = scene.store().graph(&acme()).await.expect("answered");
    let wraps = vec![
        b.grant_wrap(2, "b2"),
        b.grant_wrap(1, "b1"),
        c.grant_wrap(2, "c2"),
        alex.grant_wrap(2, "other"),
    ];
    let granted = scene
        .grant(&acme(), &a, &["sam", "alex"], wraps.clone())
        .await;
    let wanted = Granted {
        epoch: 2,
        granted: 3,
        devices: 2,
        poke: vec![member("sam")],
        rejected: vec![refusal(&wraps[3], GrantReason::WrapExists)],
    };
    assert_eq!(granted, wanted);
    let wrap = |epoch: u64, content: &str, first_seq: u64| Wrap {
        epoch,
        wrap: content.as_bytes().into(),
        by: a.to_ref(),
        at: at(500),
        first_seq,
    };
    let read = scene.wraps(&acme(), &b.to_ref()).await;
    assert_eq!(read, [wrap(1, "b1", 1), wrap(2, "b2", 3)]);
    assert_eq!(scene.wraps(&acme(), &c.to_ref()).await, [wrap(2, "c2", 3)]);
    assert_eq!(
        scene.store().graph(&acme()).await.expect("answered"),
        before
    );
    // Whoever was given it may give it on.
    let [d] = scene.devices([("sam", "d")]).await;
    let granted = scene
        .grant(&acme(), &b, &["sam"], vec![d.grant_wrap(1, "d1")])
        .await;
    assert_eq!(granted.granted, 1);
    assert_eq!(scene.wraps(&acme(), &d.to_ref()).await[0].by, b.to_ref());
}

/// The identical one counts as granted and is not news; another one is refused.
pub async fn no_wrap_is_overwritten(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    let [b] = scene.devices([("sam", "b")]).await;
    let (one, other) = (b.grant_wrap(1, "one"), b.grant_wrap(1, "two"));
    let grant = async |wrap: &GrantWrap| {
        let mut request = scene.grant_request(&acme(), &a, &["sam"], vec![wrap.clone()]);
        request.now = at(700);
        scene.store().grant(request).await.expect("granted")
    };
    scene.grant(&acme(), &a, &["sam"], vec![one.clone()]).await;
    let again = grant(&one).await;
    assert_eq!((again.granted, again.devices, again.poke.len()), (1, 1, 0));
    let refused = grant(&other).await;
    assert_eq!((refused.granted, refused.devices), (0, 0));
    assert_eq!(refused.rejected, [refusal(&other, GrantReason::WrapExists)]);
    let read = scene.wraps(&acme(), &b.to_ref()).await;
    assert_eq!(
        (read[0].wrap.as_slice(), read[0].at),
        (&b"one"[..], at(500))
    );
}

/// Each reason, and those that are fine in between.
pub async fn each_refusal_is_told_in_the_order_sent(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, gone] = scene.devices([("sam", "a"), ("sam", "gone")]).await;
    scene.rotate(&acme(), 1, &[&a, &gone]).await;
    scene.revoke(&a, &gone).await;
    let [b, kim] = scene.devices([("sam", "b"), ("kim", "x")]).await;
    scene.rotate(&acme(), 2, &[&a, &b]).await;
    let [late] = scene.devices([("sam", "late")]).await;
    let stranger = TestDevice::new("sam", "stranger");
    let wraps = vec![
        late.grant_wrap(3, "w"),
        kim.grant_wrap(1, "w"),
        late.grant_wrap(2, "w"),
        a.grant_wrap(2, "w"),
        late.grant_wrap(1, "w"),
        gone.grant_wrap(1, "w"),
        stranger.grant_wrap(2, "w"),
        late.grant_wrap(0, "w"),
    ];
    // B came with the second epoch.
    let granted = scene.grant(&acme(), &b, &["sam"], wraps.clone()).await;
    assert_eq!(granted.granted, 1);
    let wanted = [
        refusal(&wraps[0], GrantReason::UnknownEpoch),
        refusal(&wraps[1], GrantReason::NotOnRoster),
        refusal(&wraps[3], GrantReason::WrapExists),
        refusal(&wraps[4], GrantReason::NotHolder),
        refusal(&wraps[5], GrantReason::NotOnRoster),
        refusal(&wraps[6], GrantReason::NotOnRoster),
        refusal(&wraps[7], GrantReason::UnknownEpoch),
    ];
    assert_eq!(granted.rejected, wanted);
    assert_eq!(scene.wraps(&acme(), &late.to_ref()).await.len(), 1);
    assert!(scene.wraps(&acme(), &kim.to_ref()).await.is_empty());
}

/// More than any statement takes parameters.
pub async fn a_grant_of_thousands_is_whole(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    let epochs = 60;
    for epoch in 1..=epochs {
        scene.rotate(&acme(), epoch, &[&a]).await;
    }
    let mut devices = Vec::new();
    for number in 0..30 {
        devices.push(scene.device("sam", &format!("d{number}")).await);
    }
    let wraps: Vec<GrantWrap> = devices
        .iter()
        .flat_map(|device| (1..=epochs).map(|epoch| device.grant_wrap(epoch, &format!("w{epoch}"))))
        .collect();
    for (round, poked) in [(0, 1), (1, 0)] {
        let granted = scene.grant(&acme(), &a, &["sam"], wraps.clone()).await;
        assert_eq!(granted.granted, 30 * epochs, "round {round}");
        assert_eq!((granted.devices, granted.poke.len()), (30, poked));
    }
    for device in &devices {
        let read = scene.wraps(&acme(), &device.to_ref()).await;
        let epochs_read: Vec<u64> = read.iter().map(|wrap| wrap.epoch).collect();
        assert_eq!(epochs_read, (1..=epochs).collect::<Vec<_>>());
    }
}

/// And none of this leaves a graph behind.
pub async fn only_an_active_device_grants_and_only_where_there_is_a_key(
    fresh: Fresh<dyn SweepStore>,
) {
    let scene = Scene::new(fresh);
    let [a, gone] = scene.devices([("sam", "a"), ("sam", "gone")]).await;
    scene.rotate(&acme(), 1, &[&a, &gone]).await;
    scene.revoke(&a, &gone).await;
    let grant = async |key: &StorageKey, by: &TestDevice| {
        let request = scene.grant_request(key, by, &["sam"], vec![a.grant_wrap(1, "w")]);
        refused(scene.store().grant(request).await)
    };
    let other = StorageKey::own(&member("sam"));
    let stranger = TestDevice::new("sam", "stranger");
    assert_eq!(grant(&other, &a).await, Rejection::GraphUnkeyed);
    assert_eq!(grant(&other, &gone).await, Rejection::DeviceRevoked);
    assert_eq!(
        grant(&acme(), &stranger).await,
        Rejection::DeviceUnregistered
    );
    assert_eq!(grant(&acme(), &gone).await, Rejection::DeviceRevoked);
    assert_eq!(scene.store().graph(&other).await.expect("answered"), None);
    let empty = scene.grant(&acme(), &a, &["sam"], Vec::new()).await;
    assert_eq!((empty.epoch, empty.granted, empty.devices), (1, 0, 0));
}
