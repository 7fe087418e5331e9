//! Registering and listing devices.

use argala_core::{
    Quota, Rejection,
    ports::{
        SweepStore,
        store::{DeviceMark, Register},
    },
};
use argala_wire::{
    Sealed, Timestamp,
    devices::{Device, DeviceRef},
};

use super::{Scene, at, refused};
use crate::{EPOCH, TestDevice, conformance::Fresh, device_ref, member};

fn label(text: &str) -> Option<Sealed> {
    Some(Sealed(text.as_bytes().to_vec()))
}

/// Every field is kept; nobody else is there.
pub async fn a_device_stands_as_it_was_registered(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let device = TestDevice::new("sam", "laptop").recovery();
    let request = Register {
        label: label("sealed \u{0} bytes"),
        ..device.register(at(7))
    };
    let registered = scene.store().register(request.clone()).await;
    let registered = registered.expect("registered");
    assert!(registered.fresh);
    let wanted = Device {
        label: request.label,
        ..device.registered(at(7))
    };
    assert_eq!(registered.device, wanted);
    let read = scene.store().device(&device.to_ref()).await;
    assert_eq!(read.expect("answered"), Some(wanted));
    for other in [("sam", "phone"), ("alex", "laptop"), ("laptop", "sam")] {
        let read = scene.store().device(&device_ref(other.0, other.1)).await;
        assert_eq!(read.expect("answered"), None);
    }
}

/// A repeat that brings a label replaces it; one without leaves it; the time stays the first's.
pub async fn registering_again_changes_the_label_alone(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let device = TestDevice::new("sam", "laptop");
    let steps = [
        (None, None),
        (label("one"), label("one")),
        (None, label("one")),
        (label("two"), label("two")),
        (label(""), label("")),
    ];
    for (step, (sent, wanted)) in steps.into_iter().enumerate() {
        let request = Register {
            label: sent,
            ..device.register(at(step as u64))
        };
        let registered = scene.store().register(request).await.expect("registered");
        assert_eq!(registered.fresh, step == 0, "step {step}");
        let wanted = Device {
            label: wanted,
            ..device.registered(at(0))
        };
        assert_eq!(registered.device, wanted, "step {step}");
        let read = scene.store().device(&device.to_ref()).await;
        assert_eq!(read.expect("answered"), Some(wanted), "step {step}");
    }
}

/// The id stays with the keys that it was registered with.
pub async fn other_keys_are_refused_and_change_nothing(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let device = scene.device("sam", "laptop").await;
    let other = TestDevice::with_keys(device.to_ref(), 1);
    for request in [
        Register {
            label: label("new"),
            ..other.register(at(1))
        },
        device.clone().recovery().register(at(1)),
    ] {
        let refusal = refused(scene.store().register(request).await);
        assert_eq!(refusal, Rejection::DeviceKeyMismatch);
    }
    let read = scene.store().device(&device.to_ref()).await;
    assert_eq!(read.expect("answered"), Some(device.registered(EPOCH)));
}

/// Revoked devices and other members' take no place, and a repeat needs none.
pub async fn the_ceiling_counts_active_devices_of_one_member(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    for name in ["a", "b", "c"] {
        scene.device("alex", name).await;
    }
    let register = async |name: &str| {
        let request = Register {
            max_devices: 2,
            ..TestDevice::new("sam", name).register(at(1))
        };
        scene.store().register(request).await
    };
    let full = Rejection::QuotaExceeded {
        what: Quota::Devices,
        limit: 2,
        used: 2,
    };
    assert!(register("a").await.expect("registered").fresh);
    assert!(register("b").await.expect("registered").fresh);
    assert_eq!(refused(register("c").await), full);
    assert!(!register("a").await.expect("a repeat").fresh);
    let (a, b) = (TestDevice::new("sam", "a"), TestDevice::new("sam", "b"));
    scene.revoke(&a, &b).await;
    assert!(register("c").await.expect("registered").fresh);
    assert_eq!(refused(register("d").await), full);
    assert_eq!(refused(register("b").await), Rejection::DeviceRevoked);
}

/// By time, then by id in byte order; revoked ones among them; whole, whatever the page.
pub async fn devices_are_listed_oldest_first_page_by_page(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let times = [
        ("z", 1),
        ("B", 2),
        ("a", 2),
        ("é", 2),
        ("10", 3),
        ("9", 3),
        ("old", 0),
    ];
    for (name, millis) in times {
        let request = TestDevice::new("sam", name).register(at(millis));
        scene.store().register(request).await.expect("registered");
        let namesake = TestDevice::new("alex", name).register(at(millis));
        scene.store().register(namesake).await.expect("registered");
    }
    scene
        .revoke(&TestDevice::new("sam", "z"), &TestDevice::new("sam", "a"))
        .await;
    let wanted = ["old", "z", "B", "a", "é", "10", "9"];
    let sam = member("sam");
    for page in [1, 2, 3, 7, 100] {
        let mut all: Vec<Device> = Vec::new();
        loop {
            let mark = all.last().map(|last| DeviceMark {
                registered_at: last.registered_at,
                device_id: last.device_id.clone(),
            });
            let next = scene.store().devices_of_member(&sam, mark.as_ref(), page);
            let next = next.await.expect("answered");
            assert!(next.len() <= page);
            if next.is_empty() {
                break;
            }
            all.extend(next);
        }
        let names: Vec<&str> = all.iter().map(|device| device.device_id.as_str()).collect();
        assert_eq!(names, wanted, "pages of {page}");
        for device in &all {
            assert_eq!(device.member_id, sam);
            assert_eq!(device.is_active(), device.device_id.as_str() != "a");
        }
    }
    // A mark is a place, not a row.
    let mark = DeviceMark {
        registered_at: at(2),
        device_id: crate::device_id("b"),
    };
    let rest = scene.store().devices_of_member(&sam, Some(&mark), 2).await;
    let rest = rest.expect("answered");
    let names: Vec<&str> = rest
        .iter()
        .map(|device| device.device_id.as_str())
        .collect();
    assert_eq!(names, ["é", "10"]);
    let nobody = member("nobody");
    let nothing = scene.store().devices_of_member(&nobody, None, 9).await;
    assert!(nothing.expect("answered").is_empty());
}

/// Presence is told to the member, in the list, and an earlier sighting changes nothing.
pub async fn last_seen_is_told_in_the_list_alone_and_only_rises(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [laptop, phone] = scene.devices([("sam", "laptop"), ("sam", "phone")]).await;
    let seen = async |seen: &[(DeviceRef, Timestamp)]| {
        scene.store().record_seen(seen).await.expect("noted");
        let sam = member("sam");
        let listed = scene.store().devices_of_member(&sam, None, 9).await;
        let listed = listed.expect("answered");
        [listed[0].last_seen_at, listed[1].last_seen_at]
    };
    let (l, p) = (laptop.to_ref(), phone.to_ref());
    assert_eq!(seen(&[]).await, [None, None]);
    assert_eq!(seen(&[(l.clone(), at(5))]).await, [Some(at(5)), None]);
    assert_eq!(
        seen(&[(l.clone(), at(4)), (p.clone(), at(9))]).await,
        [Some(at(5)), Some(at(9))]
    );
    assert_eq!(
        seen(&[(p, at(10)), (l, at(6))]).await,
        [Some(at(6)), Some(at(10))]
    );
    // One that never registered is no fault.
    let stranger = device_ref("nobody", "x");
    seen(&[(stranger.clone(), at(1))]).await;
    let read = scene.store().device(&stranger).await;
    assert_eq!(read.expect("answered"), None);
    // Nowhere else.
    let read = scene.store().device(&laptop.to_ref()).await;
    assert_eq!(read.expect("answered"), Some(laptop.registered(EPOCH)));
    let again = scene.store().register(laptop.register(at(20))).await;
    let again = again.expect("registered").device;
    assert_eq!(again, laptop.registered(EPOCH));
    let many: Vec<_> = (0..3_000)
        .map(|number| (device_ref("sam", &format!("d{number}")), at(number)))
        .collect();
    assert_eq!(seen(&many).await, [Some(at(6)), Some(at(10))]);
    // What came for a device that is not there, or no more, is not kept for the next of its name.
    let [later] = scene.devices([("sam", "d7")]).await;
    let listed = scene
        .store()
        .devices_of_member(&member("sam"), None, 9)
        .await;
    let listed = listed.expect("answered");
    let found = listed
        .iter()
        .find(|it| it.device_id == later.to_ref().device_id);
    assert_eq!(found.expect("listed").last_seen_at, None);
}

/// No folding, no normalising, no patterns; a device id is unique within its member only.
pub async fn device_ids_are_compared_byte_for_byte(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let names = [
        "sam", "Sam", "SAM", "é", "e\u{301}", "auth0|42", "user:7", "50%", "_", "a_b", "🦀", "it's",
    ];
    for (number, name) in names.into_iter().enumerate() {
        let device = TestDevice::with_keys(device_ref(name, "laptop"), number as u64);
        let registered = scene.store().register(device.register(EPOCH)).await;
        assert!(registered.expect("registered").fresh, "{name}");
        let device = TestDevice::with_keys(device_ref("sam", name), number as u64);
        let registered = scene.store().register(device.register(EPOCH)).await;
        assert!(registered.expect("registered").fresh, "{name}");
    }
    for (number, name) in names.into_iter().enumerate() {
        let device = TestDevice::with_keys(device_ref(name, "laptop"), number as u64);
        let read = scene.store().device(&device.to_ref()).await;
        assert_eq!(read.expect("answered"), Some(device.registered(EPOCH)));
    }
    let sam = member("sam");
    let sams = scene.store().devices_of_member(&sam, None, 99).await;
    assert_eq!(sams.expect("answered").len(), names.len() + 1);
}

/// One question for thousands, of which few are registered and fewer revoked.
pub async fn the_revoked_among_many_are_found(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b, c] = scene
        .devices([("sam", "a"), ("sam", "b"), ("alex", "b")])
        .await;
    assert!(
        scene
            .store()
            .revoked_among(&[])
            .await
            .expect("answered")
            .is_empty()
    );
    scene.revoke(&a, &b).await;
    let mut asked: Vec<DeviceRef> = (0..3_000)
        .map(|number| device_ref("sam", &format!("d{number}")))
        .collect();
    asked.extend([a.to_ref(), b.to_ref(), c.to_ref(), device_ref("alex", "a")]);
    let revoked = scene.store().revoked_among(&asked).await.expect("answered");
    assert_eq!(revoked, [b.to_ref()]);
    let revoked = scene.store().revoked_among(&[a.to_ref(), c.to_ref()]).await;
    assert!(revoked.expect("answered").is_empty());
}
