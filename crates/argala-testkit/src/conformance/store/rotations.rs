//! Beginning epochs.

use argala_core::{
    Rejection,
    ports::{SweepStore, store::Rotated},
    rules::rotate::fingerprint,
};
use argala_wire::keys::Wrap;

use super::{Scene, acme, at, refused, wrap_text};
use crate::{TestDevice, conformance::Fresh, member};

/// Its own, and nobody else's; the wraps of before stay.
pub async fn a_rotation_gives_each_device_its_wrap(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b, alex] = scene
        .devices([("sam", "a"), ("sam", "b"), ("alex", "a")])
        .await;
    let rotated = scene.rotate(&acme(), 1, &[&a, &b, &alex]).await;
    let wanted = Rotated {
        epoch: 1,
        first_seq: 1,
        devices: 3,
        replay: false,
    };
    assert_eq!(rotated, wanted);
    scene.rotate(&acme(), 2, &[&b, &a]).await;
    let wrap = |epoch: u64, device: &TestDevice, by: &TestDevice| Wrap {
        epoch,
        wrap: wrap_text(epoch, &device.to_ref()).into_bytes().into(),
        by: by.to_ref(),
        at: at(epoch),
        first_seq: 1,
    };
    for device in [&a, &b] {
        let read = scene.wraps(&acme(), &device.to_ref()).await;
        assert_eq!(read, [wrap(1, device, &a), wrap(2, device, &b)]);
    }
    assert_eq!(
        scene.wraps(&acme(), &alex.to_ref()).await,
        [wrap(1, &alex, &a)]
    );
}

/// Its first seq is the next one, and each wrap of it says so.
pub async fn an_epoch_begins_after_the_head(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    let mut firsts = Vec::new();
    for (epoch, ids) in [
        (1, &["r1", "r2"][..]),
        (2, &[]),
        (3, &["r1", "r3", "r4"]),
        (4, &[]),
    ] {
        firsts.push(scene.rotate(&acme(), epoch, &[&a]).await.first_seq);
        scene.fill(&acme(), &a, epoch, ids).await;
    }
    assert_eq!(firsts, [1, 3, 3, 6]);
    let read = scene.wraps(&acme(), &a.to_ref()).await;
    let told: Vec<u64> = read.iter().map(|wrap| wrap.first_seq).collect();
    assert_eq!(told, firsts);
}

/// No epoch, no wrap, no flag.
pub async fn a_refused_rotation_writes_nothing(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b, gone] = scene
        .devices([("sam", "a"), ("sam", "b"), ("sam", "gone")])
        .await;
    scene.rotate(&acme(), 1, &[&a, &b, &gone]).await;
    scene.revoke(&a, &gone).await;
    let before = scene.store().graph(&acme()).await.expect("answered");

    let missing = scene
        .store()
        .rotate(scene.rotate_request(&acme(), 2, &[&a]))
        .await;
    let wanted = Rejection::RotationIncomplete {
        missing: vec![b.to_ref()],
        extra: Vec::new(),
    };
    assert_eq!(refused(missing), wanted);
    let extra = scene.rotate_request(&acme(), 2, &[&a, &b, &gone]);
    let wanted = Rejection::RotationIncomplete {
        missing: Vec::new(),
        extra: vec![gone.to_ref()],
    };
    assert_eq!(refused(scene.store().rotate(extra).await), wanted);
    for epoch in [0, 1, 3] {
        let mut request = scene.rotate_request(&acme(), epoch, &[&b, &a]);
        request.members.clear();
        let refusal = refused(scene.store().rotate(request).await);
        assert_eq!(
            refusal,
            Rejection::EpochConflict { epoch: 1 },
            "epoch {epoch}"
        );
    }
    assert_eq!(
        scene.store().graph(&acme()).await.expect("answered"),
        before
    );
    for device in [&a, &b] {
        assert_eq!(scene.wraps(&acme(), &device.to_ref()).await.len(), 1);
    }
}

/// Those that are registered and not revoked when it is decided, of the members that the directory
/// named.
pub async fn the_roster_is_the_active_devices_of_the_members(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, gone, alex, _stranger] = scene
        .devices([("sam", "a"), ("sam", "gone"), ("alex", "x"), ("kim", "x")])
        .await;
    scene.revoke(&a, &gone).await;
    let mut request = scene.rotate_request(&acme(), 1, &[&a, &alex]);
    // A member without a device is owed nothing.
    request.members.push(member("nobody"));
    let rotated = scene.store().rotate(request).await.expect("rotated");
    assert_eq!(rotated.devices, 2);
    // Alex has left, and kim has joined.
    let mut request = scene.rotate_request(&acme(), 2, &[&a, &alex]);
    request.members = ["sam", "kim"].map(member).to_vec();
    let wanted = Rejection::RotationIncomplete {
        missing: vec![crate::device_ref("kim", "x")],
        extra: vec![alex.to_ref()],
    };
    assert_eq!(refused(scene.store().rotate(request).await), wanted);
}

/// The same device with the same wraps in any order, whatever has happened since; nobody else.
pub async fn a_repeat_answers_as_it_did_the_first_time(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b] = scene.devices([("sam", "a"), ("sam", "b")]).await;
    scene.rotate(&acme(), 1, &[&a, &b]).await;
    scene.fill(&acme(), &a, 1, &["one", "two"]).await;
    let second = scene.rotate_request(&acme(), 2, &[&a, &b]);
    let first_answer = scene.store().rotate(second.clone()).await.expect("rotated");
    assert_eq!((first_answer.first_seq, first_answer.replay), (3, false));
    scene.fill(&acme(), &a, 2, &["three"]).await;
    scene.rotate(&acme(), 3, &[&a, &b]).await;
    let before = scene.store().graph(&acme()).await.expect("answered");

    let mut reordered = second.clone();
    reordered.wraps.reverse();
    reordered.fingerprint = fingerprint(&reordered.wraps);
    reordered.now = at(99_999);
    let wanted = Rotated {
        replay: true,
        ..first_answer
    };
    for request in [second.clone(), reordered] {
        let again = scene.store().rotate(request).await.expect("a repeat");
        assert_eq!(again, wanted);
    }
    let mut other_wraps = second.clone();
    other_wraps.wraps[0].wrap = b"other".to_vec().into();
    other_wraps.fingerprint = fingerprint(&other_wraps.wraps);
    let mut other_device = second;
    other_device.by = b.to_ref();
    for request in [other_wraps, other_device] {
        let refusal = refused(scene.store().rotate(request).await);
        assert_eq!(refusal, Rejection::EpochConflict { epoch: 3 });
    }
    assert_eq!(
        scene.store().graph(&acme()).await.expect("answered"),
        before
    );
    assert_eq!(scene.wraps(&acme(), &a.to_ref()).await.len(), 3);
    assert_eq!(scene.wraps(&acme(), &a.to_ref()).await[1].at, at(2));
}

/// More than any statement takes parameters.
pub async fn a_rotation_of_many_devices_is_whole(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let mut devices = Vec::new();
    for number in 0..400 {
        devices.push(scene.device(&format!("m{number}"), "x").await);
    }
    let holders: Vec<&TestDevice> = devices.iter().collect();
    let rotated = scene.rotate(&acme(), 1, &holders).await;
    assert_eq!(rotated.devices, 400);
    for device in &devices {
        let read = scene.wraps(&acme(), &device.to_ref()).await;
        assert_eq!(read.len(), 1);
        let text = wrap_text(1, &device.to_ref());
        assert_eq!(read[0].wrap.as_slice(), text.as_bytes());
    }
    let short = scene.rotate_request(&acme(), 2, &holders[..399]);
    let mut short = short;
    short.members.push(member("m399"));
    let wanted = Rejection::RotationIncomplete {
        missing: vec![devices[399].to_ref()],
        extra: Vec::new(),
    };
    assert_eq!(refused(scene.store().rotate(short).await), wanted);
}

/// A device that never registered is told so, in whatever state the graph is.
pub async fn only_an_active_device_rotates(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, gone] = scene.devices([("sam", "a"), ("sam", "gone")]).await;
    scene.revoke(&a, &gone).await;
    let stranger = TestDevice::new("sam", "stranger");
    for epoch in [1, 2] {
        for (by, wanted) in [
            (&stranger, Rejection::DeviceUnregistered),
            (&gone, Rejection::DeviceRevoked),
        ] {
            let request = scene.rotate_request(&acme(), epoch, &[by, &a]);
            assert_eq!(refused(scene.store().rotate(request).await), wanted);
        }
        scene.rotate(&acme(), epoch, &[&a]).await;
    }
}
