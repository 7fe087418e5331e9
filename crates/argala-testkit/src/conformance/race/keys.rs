//! Granting, registering and revoking at the same time, beside rotations and pushes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use argala_core::{
    Fault, Rejection,
    ports::{
        SweepStore,
        store::{Register, Revoke, Revoked},
    },
};
use argala_wire::{StorageKey, keys::GrantReason};

use super::{Start, all};
use crate::{
    EPOCH, TestDevice,
    conformance::{
        Fresh,
        store::{Scene, acme, at},
    },
    device_id, group, member,
};

fn revocation(by: &TestDevice, target: &str) -> Revoke {
    Revoke {
        by: by.to_ref(),
        device_id: device_id(target),
        now: at(900),
    }
}

/// Either the rotation is told that the device is extra, or the graph owes another one.
pub async fn a_rotation_and_a_revocation_leave_nobody_in(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let sam = scene.device("sam", "a").await;
    let alex = scene.device("alex", "x").await;
    for round in 0..12 {
        let key = StorageKey::group(&group(&format!("g{round}")));
        let gone = scene.device("sam", &format!("gone{round}")).await;
        scene.rotate(&key, 1, &[&alex, &sam, &gone]).await;
        let rotate = scene.rotate_request(&key, 2, &[&alex, &sam, &gone]);
        let revoke = revocation(&sam, &format!("gone{round}"));
        let start = Start::of(2);
        let (one, other) = (scene.handle(), scene.handle());
        let rotation = start.spawn(async move { one.rotate(rotate).await });
        let revocation = start.spawn(async move { other.revoke(revoke).await });
        let rotated = rotation.await.expect("no panic");
        let revoked = revocation.await.expect("no panic").expect("revoked");
        assert_eq!(revoked.flagged, std::slice::from_ref(&key), "round {round}");

        let graph = scene
            .store()
            .graph(&key)
            .await
            .expect("answered")
            .expect("there");
        assert!(graph.revocation_owed, "round {round}");
        match rotated {
            Ok(_) => assert_eq!(graph.epoch, 2),
            Err(Fault::Rejected(rejection)) => {
                let wanted = Rejection::RotationIncomplete {
                    missing: Vec::new(),
                    extra: vec![gone.to_ref()],
                };
                assert_eq!(rejection, wanted);
                assert_eq!(graph.epoch, 1);
            }
            Err(Fault::Store(error)) => panic!("{error:?}"),
        }
        assert!(
            scene.wraps(&key, &gone.to_ref()).await.is_empty(),
            "round {round}"
        );
    }
}

/// Whoever comes in between is missing, or is owed a grant.
pub async fn a_registration_during_a_rotation_strands_nobody(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let alex = scene.device("alex", "x").await;
    let mut devices = vec![scene.device("sam", "a").await];
    for round in 0..12 {
        let key = StorageKey::group(&group(&format!("g{round}")));
        let mut holders = vec![&alex];
        holders.extend(&devices);
        let rotate = scene.rotate_request(&key, 1, &holders);
        let new = TestDevice::new("sam", &format!("new{round}"));
        let register = new.register(EPOCH);
        let start = Start::of(2);
        let (one, other) = (scene.handle(), scene.handle());
        let rotation = start.spawn(async move { one.rotate(rotate).await });
        let registration = start.spawn(async move { other.register(register).await });
        let rotated = rotation.await.expect("no panic");
        registration.await.expect("no panic").expect("registered");
        let members = ["sam", "alex"].map(member);
        let standing = scene
            .store()
            .standing(&key, &members)
            .await
            .expect("answered");
        match rotated {
            Ok(_) => {
                let standing = standing.expect("the graph is there");
                assert_eq!(standing.holders.len(), devices.len() + 1);
                assert!(
                    standing.roster.contains(&new.to_ref()),
                    "it shows as owed a grant"
                );
            }
            Err(Fault::Rejected(rejection)) => {
                let wanted = Rejection::RotationIncomplete {
                    missing: vec![new.to_ref()],
                    extra: Vec::new(),
                };
                assert_eq!(rejection, wanted, "round {round}");
                assert_eq!(standing, None);
            }
            Err(Fault::Store(error)) => panic!("{error:?}"),
        }
        devices.push(new);
    }
}

/// Exactly as many as there are places.
pub async fn the_device_ceiling_holds_under_many_registrations(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    for round in 0..4 {
        let name = format!("m{round}");
        let start = Start::of(16);
        let tasks = (0..16).map(|number| {
            let request = Register {
                max_devices: 5,
                ..TestDevice::new(&name, &format!("d{number}")).register(at(number))
            };
            let store = scene.handle();
            start.spawn(async move { store.register(request).await })
        });
        let mut fresh = 0;
        for outcome in all(tasks.collect()).await {
            match outcome {
                Ok(registered) => fresh += usize::from(registered.fresh),
                Err(Fault::Rejected(Rejection::QuotaExceeded { limit, used, .. })) => {
                    assert_eq!((limit, used), (5, 5));
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(fresh, 5);
        let listed = scene
            .store()
            .devices_of_member(&member(&name), None, 99)
            .await;
        assert_eq!(listed.expect("answered").len(), 5);
    }
    // One and the same device, sent again and again.
    let start = Start::of(8);
    let tasks = (0..8).map(|_| {
        let request = TestDevice::new("sam", "a").register(EPOCH);
        let store = scene.handle();
        start.spawn(async move { store.register(request).await.expect("registered").fresh })
    });
    let fresh = all(tasks.collect()).await;
    assert_eq!(fresh.iter().filter(|fresh| **fresh).count(), 1);
}

/// Either it is not on the roster any more, or its wrap is blanked and the graph owes a rotation.
pub async fn a_grant_and_a_revocation_leave_no_wrap(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [sam, alex] = scene.devices([("sam", "a"), ("alex", "x")]).await;
    scene.rotate(&acme(), 1, &[&alex, &sam]).await;
    for round in 0..12 {
        let name = format!("gone{round}");
        let gone = scene.device("sam", &name).await;
        let grant = scene.grant_request(&acme(), &alex, &["sam"], vec![gone.grant_wrap(1, "w")]);
        let revoke = revocation(&sam, &name);
        let start = Start::of(2);
        let (one, other) = (scene.handle(), scene.handle());
        let granting = start.spawn(async move { one.grant(grant).await });
        let revoking = start.spawn(async move { other.revoke(revoke).await });
        let granted = granting.await.expect("no panic").expect("answered");
        let revoked = revoking.await.expect("no panic").expect("revoked");
        let standing = scene.store().standing(&acme(), &[member("sam")]).await;
        let standing = standing.expect("answered").expect("there");
        let held = standing
            .holders
            .iter()
            .find(|holder| holder.device == gone.to_ref());
        if granted.granted == 1 {
            assert_eq!(revoked.flagged, [acme()], "round {round}");
            assert!(held.is_some_and(|holder| holder.revoked), "round {round}");
            assert!(standing.graph.revocation_owed);
        } else {
            assert_eq!(granted.rejected[0].reason, GrantReason::NotOnRoster);
            assert!(revoked.flagged.is_empty(), "round {round}");
            assert_eq!(held, None);
        }
        assert!(
            scene.wraps(&acme(), &gone.to_ref()).await.is_empty(),
            "round {round}"
        );
    }
}

/// The others are told that there is one.
pub async fn of_many_grants_of_one_wrap_one_is_kept(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let mut granters = Vec::new();
    for number in 0..8 {
        granters.push(scene.device(&format!("m{number}"), "x").await);
    }
    let holders: Vec<&TestDevice> = granters.iter().collect();
    scene.rotate(&acme(), 1, &holders).await;
    for round in 0..6 {
        let new = scene.device("sam", &format!("new{round}")).await;
        let start = Start::of(granters.len());
        let tasks = granters.iter().enumerate().map(|(number, granter)| {
            let wraps = vec![new.grant_wrap(1, &format!("by {number}"))];
            let request = scene.grant_request(&acme(), granter, &["sam"], wraps);
            let store = scene.handle();
            start.spawn(async move { store.grant(request).await.expect("answered") })
        });
        let told = all(tasks.collect()).await;
        let kept: Vec<usize> = (0..told.len())
            .filter(|number| told[*number].granted == 1)
            .collect();
        assert_eq!(kept.len(), 1, "round {round}");
        for granted in told.iter().filter(|granted| granted.granted == 0) {
            assert_eq!(granted.rejected[0].reason, GrantReason::WrapExists);
        }
        let read = scene.wraps(&acme(), &new.to_ref()).await;
        assert_eq!(read.len(), 1);
        let wanted = format!("by {}", kept[0]);
        assert_eq!(read[0].wrap.as_slice(), wanted.as_bytes());
        assert_eq!(read[0].by, granters[kept[0]].to_ref());
    }
}

/// What it sent before may land; what it sends after does not.
pub async fn a_device_is_out_when_its_revocation_is_answered(fresh: Fresh<dyn SweepStore>) {
    let scene = Arc::new(Scene::new(fresh));
    let sam = scene.device("sam", "a").await;
    for round in 0..4 {
        let name = format!("gone{round}");
        let gone = scene.device("sam", &name).await;
        let key = StorageKey::group(&group(&name));
        scene.rotate(&key, 1, &[&sam, &gone]).await;
        let out = Arc::new(AtomicBool::new(false));
        let start = Start::of(5);
        let pushers: Vec<_> = (0..4)
            .map(|pusher| {
                let (scene, gone, key, out) = (
                    Arc::clone(&scene),
                    gone.clone(),
                    key.clone(),
                    Arc::clone(&out),
                );
                start.spawn(async move {
                    for number in 0..10_000 {
                        let was_out = out.load(Ordering::SeqCst);
                        let record = gone.record(&key, &format!("{pusher} {number}"), 1, b"x");
                        let request = scene.push_request(&key, &gone, vec![record]);
                        match scene.store().push(request).await {
                            Ok(_) => assert!(!was_out, "it was out when this was sent"),
                            Err(Fault::Rejected(Rejection::DeviceRevoked)) => return,
                            Err(other) => panic!("{other:?}"),
                        }
                        tokio::task::yield_now().await;
                    }
                    panic!("the revocation never came");
                })
            })
            .collect();
        let revoking = {
            let (scene, sam, out) = (Arc::clone(&scene), sam.clone(), Arc::clone(&out));
            start.spawn(async move {
                let revoked = scene.store().revoke(revocation(&sam, &name)).await;
                out.store(true, Ordering::SeqCst);
                revoked.expect("revoked")
            })
        };
        assert_eq!(
            revoking.await.expect("no panic").flagged,
            std::slice::from_ref(&key)
        );
        all(pushers).await;
        let counters = scene.counters(&key).await;
        assert_eq!(
            counters.records,
            scene.records(&key, &sam).await.len() as u64
        );
    }
}

/// The others are told that it was done, and flag nothing.
pub async fn of_many_revocations_of_one_device_one_is_fresh(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let sam = scene.device("sam", "a").await;
    for round in 0..6 {
        let name = format!("gone{round}");
        let gone = scene.device("sam", &name).await;
        let key = StorageKey::group(&group(&name));
        scene.rotate(&key, 1, &[&sam, &gone]).await;
        let start = Start::of(8);
        let tasks = (0..8).map(|_| {
            let (store, revoke) = (scene.handle(), revocation(&sam, &name));
            start.spawn(async move { store.revoke(revoke).await.expect("revoked") })
        });
        let told: Vec<Revoked> = all(tasks.collect()).await;
        let first: Vec<_> = told.iter().filter(|revoked| revoked.fresh).collect();
        assert_eq!(first.len(), 1, "round {round}");
        assert_eq!(first[0].flagged, [key]);
        assert!(
            told.iter()
                .all(|revoked| revoked.fresh || revoked.flagged.is_empty())
        );
    }
}

/// One of them is first, and neither waits for the other for ever.
pub async fn two_devices_revoke_each_other(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    for round in 0..12 {
        let name = format!("m{round}");
        let [a, b] = scene.devices([(&*name, "a"), (&*name, "b")]).await;
        scene
            .rotate(&StorageKey::own(&member(&name)), 1, &[&a, &b])
            .await;
        let start = Start::of(2);
        let tasks = [revocation(&a, "b"), revocation(&b, "a")].map(|revoke| {
            let store = scene.handle();
            start.spawn(async move { store.revoke(revoke).await })
        });
        let mut first = 0;
        for outcome in all(tasks.into()).await {
            match outcome {
                Ok(revoked) => {
                    first += 1;
                    assert_eq!(revoked.flagged.len(), 1);
                }
                Err(Fault::Rejected(Rejection::DeviceRevoked)) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(first, 1, "round {round}");
        let listed = scene
            .store()
            .devices_of_member(&member(&name), None, 9)
            .await;
        let listed = listed.expect("answered");
        assert_eq!(listed.iter().filter(|device| device.is_active()).count(), 1);
    }
}

/// All of them, while they are pushed to and rotated, and nobody waits for ever.
pub async fn a_revocation_flags_graphs_that_are_written_to(fresh: Fresh<dyn SweepStore>) {
    let scene = Arc::new(Scene::new(fresh));
    let [sam, gone, alex] = scene
        .devices([("sam", "a"), ("sam", "gone"), ("alex", "x")])
        .await;
    let mut keys: Vec<StorageKey> = (0..16)
        .map(|number| StorageKey::group(&group(&format!("g{number}"))))
        .collect();
    keys.sort();
    for key in &keys {
        scene.rotate(key, 1, &[&alex, &sam, &gone]).await;
    }
    let start = Start::of(keys.len() + 1);
    let tasks: Vec<_> = keys
        .iter()
        .map(|key| {
            let (scene, key, alex) = (Arc::clone(&scene), key.clone(), alex.clone());
            let rotate = scene.rotate_request(&key, 2, &[&alex, &sam, &gone]);
            start.spawn(async move {
                for number in 0..4 {
                    scene.fill(&key, &alex, 1, &[&format!("r{number}")]).await;
                }
                match scene.store().rotate(rotate).await {
                    Ok(_) => true,
                    Err(Fault::Rejected(Rejection::RotationIncomplete { .. })) => false,
                    Err(other) => panic!("{other:?}"),
                }
            })
        })
        .collect();
    let revoking = {
        let (store, revoke) = (scene.handle(), revocation(&sam, "gone"));
        start.spawn(async move { store.revoke(revoke).await.expect("revoked") })
    };
    assert_eq!(revoking.await.expect("no panic").flagged, keys);
    for (rotated, key) in all(tasks).await.into_iter().zip(&keys) {
        let graph = scene
            .store()
            .graph(key)
            .await
            .expect("answered")
            .expect("there");
        assert!(graph.revocation_owed, "{key}");
        assert_eq!(graph.epoch, if rotated { 2 } else { 1 });
        assert_eq!(graph.head, 4);
        assert!(scene.wraps(key, &gone.to_ref()).await.is_empty());
        scene.counters(key).await;
    }
}
