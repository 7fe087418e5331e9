//! Revoking devices.

use argala_core::{
    Rejection,
    ports::{
        SweepStore,
        store::{ForgetBlob, Revoke},
    },
};
use argala_wire::{StorageKey, Timestamp, devices::Device};

use super::{Scene, acme, at, refused};
use crate::{EPOCH, TestDevice, blob_id, conformance::Fresh, device_id, group, member};

fn graph(name: &str) -> StorageKey {
    StorageKey::group(&group(name))
}

async fn owed(scene: &Scene, key: &StorageKey) -> bool {
    let graph = scene.store().graph(key).await.expect("answered");
    let graph = graph.expect("the graph is there");
    assert_eq!(graph.rotation_owed(), graph.revocation_owed);
    graph.revocation_owed
}

/// Not those of an older epoch only, not those of others; told in the order of storage keys.
pub async fn a_revocation_flags_the_graphs_of_whose_current_epoch_it_holds_a_wrap(
    fresh: Fresh<dyn SweepStore>,
) {
    let scene = Scene::new(fresh);
    let [laptop, phone, alex] = scene
        .devices([("sam", "laptop"), ("sam", "phone"), ("alex", "x")])
        .await;
    let own = StorageKey::own(&member("sam"));
    let pair = StorageKey::pair(&member("sam"), &member("alex"));
    let all = [&laptop, &phone, &alex];
    for key in [&graph("z"), &graph("b"), &pair, &graph("left")] {
        scene.rotate(key, 1, &all).await;
    }
    scene.rotate(&own, 1, &[&laptop, &phone]).await;
    // Sam left this one, and it was rotated since.
    scene.rotate(&graph("left"), 2, &[&alex]).await;
    scene.rotate(&graph("never"), 1, &[&alex]).await;

    let revoked = scene.revoke(&laptop, &phone).await;
    assert!(revoked.fresh);
    let mut wanted = vec![graph("z"), graph("b"), pair, own];
    wanted.sort();
    assert_eq!(revoked.flagged, wanted);
    for key in &wanted {
        assert!(owed(&scene, key).await, "{key}");
    }
    for name in ["left", "never"] {
        assert!(!owed(&scene, &graph(name)).await, "{name}");
    }
}

/// The wraps of every epoch are gone, and the others' are not; the row of the holder stays.
pub async fn a_revocation_blanks_every_wrap_and_the_holder_stays(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [laptop, phone, namesake] = scene
        .devices([("sam", "laptop"), ("sam", "phone"), ("alex", "phone")])
        .await;
    let all = [&laptop, &phone, &namesake];
    for key in [acme(), graph("beta")] {
        scene.rotate(&key, 1, &all).await;
        scene.rotate(&key, 2, &all).await;
    }
    assert_eq!(scene.wraps(&acme(), &phone.to_ref()).await.len(), 2);
    scene.revoke(&laptop, &phone).await;
    for key in [acme(), graph("beta")] {
        assert!(scene.wraps(&key, &phone.to_ref()).await.is_empty());
        assert_eq!(scene.wraps(&key, &laptop.to_ref()).await.len(), 2);
        assert_eq!(scene.wraps(&key, &namesake.to_ref()).await.len(), 2);
        let standing = scene.store().standing(&key, &[member("sam")]).await;
        let standing = standing.expect("answered").expect("the graph is there");
        let holders: Vec<_> = standing
            .holders
            .iter()
            .map(|holder| (holder.device.clone(), holder.revoked))
            .collect();
        assert_eq!(
            holders,
            [
                (namesake.to_ref(), false),
                (laptop.to_ref(), false),
                (phone.to_ref(), true)
            ]
        );
        assert_eq!(standing.roster, [laptop.to_ref()]);
    }
    let row = scene.store().device(&phone.to_ref()).await;
    let wanted = Device {
        revoked_at: Some(at(900)),
        ..phone.registered(EPOCH)
    };
    assert_eq!(row.expect("answered"), Some(wanted));
}

/// Nor does it move the time; a graph that was flagged is flagged by the next device all the same.
pub async fn a_revocation_again_flags_nothing(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b, c] = scene
        .devices([("sam", "a"), ("sam", "b"), ("sam", "c")])
        .await;
    scene.rotate(&acme(), 1, &[&a, &b, &c]).await;
    assert_eq!(scene.revoke(&a, &b).await.flagged, [acme()]);
    let request = Revoke {
        by: a.to_ref(),
        device_id: b.to_ref().device_id,
        now: at(5_000),
    };
    let again = scene.store().revoke(request).await.expect("answered");
    assert!(!again.fresh);
    assert!(again.flagged.is_empty());
    let row = scene.store().device(&b.to_ref()).await.expect("answered");
    assert_eq!(row.and_then(|row| row.revoked_at), Some(at(900)));
    assert_eq!(scene.revoke(&a, &c).await.flagged, [acme()]);
}

/// A device of another member is no device of the caller's.
pub async fn only_an_active_device_revokes_and_only_its_members(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [sam, gone, alex] = scene
        .devices([("sam", "a"), ("sam", "gone"), ("alex", "x")])
        .await;
    scene.revoke(&sam, &gone).await;
    let revoke = async |by: &TestDevice, target: &str| {
        let request = Revoke {
            by: by.to_ref(),
            device_id: device_id(target),
            now: at(1),
        };
        refused(scene.store().revoke(request).await)
    };
    assert_eq!(revoke(&sam, "x").await, Rejection::DeviceNotFound);
    assert_eq!(revoke(&sam, "nothing").await, Rejection::DeviceNotFound);
    assert_eq!(revoke(&gone, "a").await, Rejection::DeviceRevoked);
    assert_eq!(revoke(&gone, "nothing").await, Rejection::DeviceRevoked);
    let stranger = TestDevice::new("sam", "stranger");
    assert_eq!(revoke(&stranger, "a").await, Rejection::DeviceUnregistered);
    for device in [&sam, &alex] {
        let row = scene.store().device(&device.to_ref()).await;
        assert!(row.expect("answered").expect("there").is_active());
    }
}

/// Each way to change something asks again.
pub async fn a_revoked_device_changes_nothing_any_more(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, gone] = scene.devices([("sam", "a"), ("sam", "gone")]).await;
    scene.rotate(&acme(), 1, &[&gone, &a]).await;
    let (id, other) = (blob_id("pending"), blob_id("live"));
    let pending = scene.reserve_request(&acme(), &gone, &id, 10);
    scene.reserve(&pending).await;
    scene
        .upload(&scene.reserve_request(&acme(), &gone, &other, 5), 1)
        .await;
    scene.revoke(&a, &gone).await;
    let before = scene.store().graph(&acme()).await.expect("answered");

    let store = scene.store();
    let record = gone.record(&acme(), "r", 1, b"x");
    let refusals = [
        refused(store.register(gone.register(at(1))).await),
        refused(
            store
                .revoke(Revoke {
                    by: gone.to_ref(),
                    device_id: a.to_ref().device_id,
                    now: at(1),
                })
                .await,
        ),
        refused(
            store
                .rotate(scene.rotate_request(&acme(), 2, &[&gone, &a]))
                .await,
        ),
        refused(
            store
                .grant(scene.grant_request(&acme(), &gone, &["sam"], vec![a.grant_wrap(1, "w")]))
                .await,
        ),
        refused(
            store
                .push(scene.push_request(&acme(), &gone, vec![record]))
                .await,
        ),
        refused(
            store
                .reserve_blob(scene.reserve_request(&acme(), &gone, &blob_id("new"), 1))
                .await,
        ),
        refused(
            store
                .forget_blob(ForgetBlob {
                    key: acme(),
                    id: other.clone(),
                    by: gone.to_ref(),
                    now: at(1),
                })
                .await,
        ),
    ];
    for (number, refusal) in refusals.into_iter().enumerate() {
        assert_eq!(refusal, Rejection::DeviceRevoked, "operation {number}");
    }
    assert_eq!(
        scene.store().graph(&acme()).await.expect("answered"),
        before
    );
    assert!(scene.blob(&acme(), &other, at(3_000)).await.is_some());
}

/// Its wraps are gone, so all is held back from it.
pub async fn a_revoked_device_pulls_nothing(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, gone] = scene.devices([("sam", "a"), ("sam", "gone")]).await;
    scene.rotate(&acme(), 1, &[&a, &gone]).await;
    scene.fill(&acme(), &gone, 1, &["one", "two"]).await;
    assert_eq!(scene.records(&acme(), &gone).await.len(), 2);
    scene.revoke(&a, &gone).await;
    let page = scene.page(scene.pull_request(&acme(), &gone, 9)).await.page;
    assert!(page.records.is_empty());
    assert_eq!(page.filtered, 2);
    assert!(page.rotation_owed);
    // What it pushed stays, and says who pushed it.
    let kept = scene.records(&acme(), &a).await;
    assert!(kept.iter().all(|record| record.by == gone.to_ref()));
}

/// Which is final as well.
pub async fn a_device_revokes_itself(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    assert_eq!(scene.revoke(&a, &a).await.flagged, [acme()]);
    let again = Revoke {
        by: a.to_ref(),
        device_id: a.to_ref().device_id,
        now: at(1),
    };
    assert_eq!(
        refused(scene.store().revoke(again).await),
        Rejection::DeviceRevoked
    );
}

/// And pulls tell it until then.
pub async fn a_flag_lasts_until_the_rotation(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b, c] = scene
        .devices([("sam", "a"), ("sam", "b"), ("sam", "c")])
        .await;
    scene.rotate(&acme(), 1, &[&a, &b, &c]).await;
    let told = async || {
        let page = scene.page(scene.pull_request(&acme(), &a, 9)).await;
        page.page.rotation_owed
    };
    assert!(!told().await);
    scene.revoke(&a, &b).await;
    assert!(told().await && owed(&scene, &acme()).await);
    scene.fill(&acme(), &a, 1, &["one"]).await;
    assert!(told().await && owed(&scene, &acme()).await);
    scene.rotate(&acme(), 2, &[&a, &c]).await;
    assert!(!told().await && !owed(&scene, &acme()).await);
    // Who is not in the new epoch flags nothing.
    let never: Timestamp = at(0);
    let late = TestDevice::new("sam", "late");
    scene
        .store()
        .register(late.register(never))
        .await
        .expect("registered");
    assert!(scene.revoke(&a, &late).await.flagged.is_empty());
    assert!(!owed(&scene, &acme()).await);
}
