//! Who holds a graph's key, who should, and who ever did.

use argala_core::ports::{
    SweepStore,
    store::{GraphDevicesQuery, Holder, Standing},
};
use argala_wire::{
    MemberId,
    devices::{Device, DeviceRef},
};

use super::{Scene, acme, at};
use crate::{TestDevice, conformance::Fresh, device_ref, member};

fn members(names: &[&str]) -> Vec<MemberId> {
    names.iter().map(|name| member(name)).collect()
}

async fn standing(scene: &Scene, names: &[&str]) -> Standing {
    let standing = scene.store().standing(&acme(), &members(names)).await;
    standing.expect("answered").expect("the graph is there")
}

fn holding(device: &TestDevice) -> Holder {
    Holder {
        device: device.to_ref(),
        revoked: false,
    }
}

async fn list(scene: &Scene, names: &[&str], former: bool) -> Vec<DeviceRef> {
    let query = GraphDevicesQuery {
        key: acme(),
        members: members(names),
        former,
        after: None,
        limit: 1_000,
    };
    let devices = scene.store().graph_devices(&query).await;
    let devices = devices.expect("answered");
    for device in &devices {
        assert_eq!(device.last_seen_at, None, "others learn no presence");
        let row = scene.store().device(&device.to_ref()).await;
        assert_eq!(row.expect("answered").as_ref(), Some(device));
    }
    devices.iter().map(Device::to_ref).collect()
}

/// Both sorted; the roster follows from the members that are asked about, the holders do not.
pub async fn a_standing_is_holders_and_roster(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [b, a, alex, kim] = scene
        .devices([("sam", "b"), ("sam", "a"), ("alex", "z"), ("kim", "x")])
        .await;
    scene.rotate(&acme(), 1, &[&b, &a, &alex]).await;
    let holders = [holding(&alex), holding(&a), holding(&b)];
    for (names, roster) in [
        (&[][..], &[][..]),
        (&["sam"], &[a.to_ref(), b.to_ref()]),
        (&["nobody", "alex"], &[alex.to_ref()]),
        (
            &["sam", "kim", "alex"],
            &[alex.to_ref(), kim.to_ref(), a.to_ref(), b.to_ref()],
        ),
    ] {
        let standing = standing(&scene, names).await;
        assert_eq!(standing.holders, holders, "{names:?}");
        assert_eq!(standing.roster, roster, "{names:?}");
        let graph = scene.store().graph(&acme()).await.expect("answered");
        assert_eq!(Some(standing.graph), graph);
    }
    let other = argala_wire::StorageKey::own(&member("sam"));
    let none = scene.store().standing(&other, &members(&["sam"])).await;
    assert_eq!(none.expect("answered"), None);
}

/// Holders are of the current epoch alone.
pub async fn a_standing_shows_who_was_revoked_and_who_came(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b, alex] = scene
        .devices([("sam", "a"), ("sam", "b"), ("alex", "z")])
        .await;
    scene.rotate(&acme(), 1, &[&a, &b, &alex]).await;
    scene.revoke(&a, &b).await;
    let late = scene.device("sam", "late").await;
    let now = standing(&scene, &["sam", "alex"]).await;
    let gone = Holder {
        device: b.to_ref(),
        revoked: true,
    };
    assert_eq!(now.holders, [holding(&alex), holding(&a), gone.clone()]);
    assert_eq!(now.roster, [alex.to_ref(), a.to_ref(), late.to_ref()]);
    scene
        .grant(&acme(), &a, &["sam"], vec![late.grant_wrap(1, "w")])
        .await;
    let now = standing(&scene, &["sam", "alex"]).await;
    assert_eq!(
        now.holders,
        [holding(&alex), holding(&a), gone, holding(&late)]
    );
    scene.rotate(&acme(), 2, &[&a, &late]).await;
    let now = standing(&scene, &["sam"]).await;
    assert_eq!(now.holders, [holding(&a), holding(&late)]);
    assert_eq!(now.graph.epoch, 2);
}

/// With `former`, everybody whose signature may stand on an old record; nobody twice.
pub async fn graph_devices_are_the_roster_and_who_ever_held(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, gone, left, never] = scene
        .devices([("sam", "a"), ("sam", "gone"), ("left", "x"), ("kim", "x")])
        .await;
    let seen = [&a, &gone, &left].map(|device| (device.to_ref(), at(5)));
    scene.store().record_seen(&seen).await.expect("noted");
    // Nobody holds a key of a graph that is not there, and the roster is there all the same.
    for former in [false, true] {
        assert_eq!(
            list(&scene, &["sam"], former).await,
            [a.to_ref(), gone.to_ref()]
        );
    }
    scene.rotate(&acme(), 1, &[&a, &gone, &left]).await;
    scene.revoke(&a, &gone).await;
    scene.rotate(&acme(), 2, &[&a]).await;
    let other = argala_wire::StorageKey::own(&member("kim"));
    scene.rotate(&other, 1, &[&never]).await;
    assert_eq!(list(&scene, &["sam"], false).await, [a.to_ref()]);
    let ever = [left.to_ref(), a.to_ref(), gone.to_ref()];
    assert_eq!(list(&scene, &["sam"], true).await, ever);
    assert_eq!(list(&scene, &["sam", "left"], true).await, ever);
    assert_eq!(list(&scene, &[], true).await, ever);
    assert!(list(&scene, &[], false).await.is_empty());
    assert_eq!(list(&scene, &["nobody"], true).await, ever);
    let row = scene
        .store()
        .device(&gone.to_ref())
        .await
        .expect("answered");
    assert_eq!(row.and_then(|row| row.revoked_at), Some(at(900)));
}

/// By member and device in byte order, whole, whatever the page.
pub async fn graph_devices_are_listed_page_by_page(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let names = ["sam", "Sam", "é", "user:7", "🦀"];
    let mut holders = Vec::new();
    for name in names {
        for device in ["b", "B", "10", "9"] {
            holders.push(scene.device(name, device).await);
        }
    }
    scene
        .rotate(&acme(), 1, &holders.iter().collect::<Vec<_>>())
        .await;
    // Half of them leave; one each of the rest is revoked.
    for name in &names[..3] {
        scene
            .revoke(&TestDevice::new(name, "b"), &TestDevice::new(name, "9"))
            .await;
    }
    let mut ever: Vec<DeviceRef> = holders.iter().map(TestDevice::to_ref).collect();
    ever.sort();
    let of_now = |device: &&DeviceRef| {
        names[..3].contains(&device.member_id.as_str()) && device.device_id.as_str() != "9"
    };
    let roster: Vec<DeviceRef> = ever.iter().filter(of_now).cloned().collect();
    for (former, wanted) in [(false, &roster), (true, &ever)] {
        for page in [1, 3, wanted.len(), 1_000] {
            let mut all: Vec<DeviceRef> = Vec::new();
            loop {
                let query = GraphDevicesQuery {
                    key: acme(),
                    members: members(&names[..3]),
                    former,
                    after: all.last().cloned(),
                    limit: page,
                };
                let next = scene.store().graph_devices(&query).await;
                let next = next.expect("answered");
                assert!(next.len() <= page);
                if next.is_empty() {
                    break;
                }
                all.extend(next.iter().map(Device::to_ref));
            }
            assert_eq!(all, *wanted, "pages of {page}, former: {former}");
        }
    }
}

/// One question for all of a large group, most of whom have no device.
pub async fn thousands_of_members_are_no_matter(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [first, last] = scene.devices([("m0", "x"), ("m2999", "x")]).await;
    scene.rotate(&acme(), 1, &[&first, &last]).await;
    let names: Vec<String> = (0..3_000).map(|number| format!("m{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let both = [device_ref("m0", "x"), device_ref("m2999", "x")];
    assert_eq!(standing(&scene, &names).await.roster, both);
    assert_eq!(list(&scene, &names, false).await, both);
    let mut request = scene.rotate_request(&acme(), 2, &[&first, &last]);
    request.members = members(&names);
    let rotated = scene.store().rotate(request).await.expect("rotated");
    assert_eq!(rotated.devices, 2);
    let granted = scene
        .grant(&acme(), &first, &names, vec![last.grant_wrap(2, "w")])
        .await;
    assert_eq!(granted.granted, 0, "it has another one");
}
