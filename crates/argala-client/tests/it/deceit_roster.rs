//! A relay that lies about devices: whom it slips in, whose keys it exchanges, whom it brings back.
//! No key is sealed for any of them nor taken from them, and whoever uses this device is told.

use argala_client::{
    Doubt, Error, Event,
    crypto::{DeviceKeys, GraphKey, PublicKeys, recovery::RecoveryCode, wrap},
};
use argala_testkit::device_ref;
use argala_wire::{Sealed, devices::DeviceRef};
use http::Method;
use serde_json::{Value, json};

use crate::world::{Device, Meddle, World, acme, write};

fn text(key: &[u8; 32]) -> Value {
    Sealed::from(&key[..]).to_base64url().into()
}

/// Writes other keys into what the relay tells of a device.
pub(crate) fn put_keys(device: &mut Value, keys: &PublicKeys) {
    device["encryptionKey"] = text(&keys.encryption);
    device["signingKey"] = text(&keys.signing);
}

/// Has every list of devices changed so, and what a graph tells of itself so.
pub(crate) fn lie_about(
    world: &World,
    devices: impl Fn(&mut Vec<Value>) + Clone + Send + 'static,
    graph: impl Fn(&mut Value) + Clone + Send + 'static,
) {
    world.meddler.set(move |asked| {
        let (devices, graph) = (devices.clone(), graph.clone());
        if asked.is(Method::GET, "/devices") {
            Meddle::Change(Box::new(move |answer| {
                devices(answer["devices"].as_array_mut().expect("a list"));
            }))
        } else if asked.is(Method::GET, "/graphs/g%3Aacme") {
            Meddle::Change(Box::new(move |answer| graph(answer)))
        } else {
            Meddle::Pass
        }
    });
}

/// Has a device that nobody registered told among the others, and as one that lacks the key.
pub(crate) fn slip_in(world: &World, ghost: &DeviceRef, keys: PublicKeys) {
    let (name, named) = (json!(ghost), json!(ghost));
    lie_about(
        world,
        move |devices| {
            let mut device = devices[0].clone();
            device["memberId"] = name["memberId"].clone();
            device["deviceId"] = name["deviceId"].clone();
            put_keys(&mut device, &keys);
            devices.push(device);
        },
        move |graph| {
            let owed = graph["grantsOwed"].as_array_mut().expect("a list");
            owed.push(named.clone());
        },
    );
}

/// Has a device that was revoked told as active, in whatever list.
pub(crate) fn bring_back(world: &World, device: Value) {
    lie_about(
        world,
        move |devices| {
            let mut device = device.clone();
            device.as_object_mut().expect("a map").remove("revokedAt");
            devices.retain(|other| other["deviceId"] != device["deviceId"]);
            devices.push(device);
        },
        |_| (),
    );
}

/// No key has left the device since this was asked last.
fn nothing_was_sealed(world: &World) {
    let asked = world.meddler.take();
    let sealed = |end| asked.iter().any(|asked| asked.is(Method::POST, end));
    assert!(!sealed("/rotate") && !sealed("/grant"), "{asked:?}");
}

async fn doubts(device: &mut Device) -> Vec<Doubt> {
    device.session.status().await.expect("told").doubts
}

#[tokio::test]
async fn a_device_that_the_relay_slips_in_gets_no_key_before_it_was_shown() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    sam.events();
    let ghost = device_ref("alex", "ghost");
    let keys = DeviceKeys::generate().public();
    slip_in(&world, &ghost, keys);
    world.meddler.take();
    // It stays so, in this process and in the next.
    for round in 0..2 {
        let error = sam.session.rotate(&acme()).await.expect_err("refuses");
        assert!(matches!(&error, Error::Unlisted(who) if *who == [ghost.clone()]));
        let granted = sam.session.grant(&acme(), None).await.expect("grants");
        assert!(granted.to.is_empty());
        assert_eq!(granted.unlisted, std::slice::from_ref(&ghost));
        let named = [ghost.clone()];
        let error = sam.session.grant(&acme(), Some(&named)).await;
        assert!(matches!(error, Err(Error::Unlisted(who)) if who == named));
        nothing_was_sealed(&world);
        let status = sam.session.status().await.expect("told");
        let unlisted = status.unlisted.iter();
        let unlisted: Vec<_> = unlisted
            .map(|known| (&known.device, known.keys()))
            .collect();
        assert_eq!(unlisted, [(&ghost, keys)]);
        let told: &[&str] = if round == 0 { &["device.new"] } else { &[] };
        assert_eq!(sam.event_names(), told);
        drop(sam);
        sam = world.again("sam", "laptop").await;
    }
    // Where it is on the roster no more, it is in nobody's way, and not forgotten.
    world.meddler.rest();
    sam.session.rotate(&acme()).await.expect("rotates");
    let status = sam.session.status().await.expect("told");
    assert_eq!(status.unlisted.len(), 1);
}

#[tokio::test]
async fn a_ghost_does_not_keep_others_from_their_keys() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    let mut seven = world.device("user:7", "late").await;
    sam.look(&acme()).await;
    let ghost = device_ref("user:7", "ghost");
    slip_in(&world, &ghost, DeviceKeys::generate().public());
    let granted = sam.session.grant(&acme(), None).await.expect("grants");
    assert_eq!(
        (granted.to, granted.unlisted),
        (vec![seven.name()], vec![ghost])
    );
    assert!(!seven.pull(&acme()).await.behind);
}

#[tokio::test]
async fn either_key_alone_is_as_good_as_both_to_tell_a_forgery() {
    let world = World::new().await;
    let (mut sam, alex) = world.pair().await;
    let evil = DeviceKeys::generate().public();
    let forgeries = [
        ("encryptionKey", evil.encryption),
        ("signingKey", evil.signing),
    ];
    for victim in [alex.name(), sam.name()] {
        for (field, key) in forgeries {
            sam.events();
            let id = victim.device_id.to_string();
            lie_about(
                &world,
                move |devices| {
                    let mut theirs = devices.iter_mut().filter(|it| it["deviceId"] == id);
                    theirs.next().expect("there")[field] = text(&key);
                },
                |_| (),
            );
            world.meddler.take();
            let error = sam.session.rotate(&acme()).await.expect_err("refuses");
            assert!(matches!(&error, Error::KeysChanged(who) if *who == [victim.clone()]));
            let error = sam.session.grant(&acme(), None).await.expect_err("refuses");
            assert!(matches!(error, Error::KeysChanged(_)), "{error}");
            nothing_was_sealed(&world);
            assert_eq!(sam.event_names(), ["device.changed"; 2], "{field}");
            let listed = sam.look(&acme()).await;
            let changed = listed.iter().filter(|seen| seen.changed);
            let changed: Vec<_> = changed
                .map(|seen| (seen.device.to_ref(), seen.verified))
                .collect();
            assert_eq!(changed, [(victim.clone(), false)], "{field}");
            let device = victim.clone();
            assert_eq!(doubts(&mut sam).await, [Doubt::DeviceChanged { device }]);
            world.meddler.rest();
            sam.session.forget_doubts().expect("saves");
        }
    }
    sam.session.rotate(&acme()).await.expect("rotates");
}

#[tokio::test]
async fn a_fingerprint_that_was_shown_stands_for_no_other_keys() {
    let world = World::new().await;
    let mut sam = world.device("sam", "laptop").await;
    let ghost = device_ref("alex", "ghost");
    let (first, second) = (
        DeviceKeys::generate().public(),
        DeviceKeys::generate().public(),
    );
    // The keys on record are those that came first, and shown is the fingerprint of others.
    slip_in(&world, &ghost, first);
    sam.session.rotate(&acme()).await.expect_err("refuses");
    slip_in(&world, &ghost, second);
    let listed = sam.look(&acme()).await;
    let shown = listed.iter().find(|seen| seen.device.to_ref() == ghost);
    let shown = shown.expect("listed");
    assert_eq!(shown.fingerprint, second.fingerprint(&ghost));
    assert!(shown.new && shown.changed);
    slip_in(&world, &ghost, first);
    let error = sam.session.rotate(&acme()).await.expect_err("refuses");
    assert!(matches!(error, Error::Unlisted(_)), "{error}");
    // What was compared was that of the keys on record, so others are not called verified.
    let fingerprint = first.fingerprint(&ghost).to_string();
    sam.session.verify(&ghost, &fingerprint).expect("the same");
    slip_in(&world, &ghost, second);
    let listed = sam.look(&acme()).await;
    assert!(listed.iter().any(|seen| seen.changed && !seen.verified));
    assert!(
        !listed
            .iter()
            .any(|seen| seen.device.to_ref() == ghost && seen.verified)
    );
}

#[tokio::test]
async fn looking_for_a_recovery_device_shows_nobody_to_anybody() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    let ghost = device_ref("sam", "ghost");
    slip_in(&world, &ghost, DeviceKeys::generate().public());
    let code = RecoveryCode::generate();
    let error = sam.session.find_recovery(&code).await.expect_err("none");
    assert!(matches!(error, Error::Usage(_)), "{error}");
    let error = sam.session.rotate(&acme()).await.expect_err("refuses");
    assert!(
        matches!(&error, Error::Unlisted(who) if *who == [ghost]),
        "{error}"
    );
}

#[tokio::test]
async fn a_key_from_a_device_that_the_relay_slipped_in_is_not_used() {
    let world = World::new().await;
    let (_, mut alex) = world.pair().await;
    alex.pull(&acme()).await;
    let wraps = alex.session.api().wraps(&acme(), 0).await.expect("told");
    let given = json!(wraps.wraps[0]);
    // The relay makes up a device of Sam's, and a key in its name.
    let (ghost, evil) = (device_ref("sam", "ghost"), DeviceKeys::generate());
    let (key, to) = ("g:acme".parse().expect("a key"), alex.name());
    let context = wrap::WrapContext {
        graph: &key,
        epoch: 2,
        to: &to,
        by: &ghost,
    };
    let public = alex.session.key_file().keys().public();
    let forged = wrap::seal(&context, &GraphKey::generate(), &evil, &public).expect("seals");
    let (forged, by, keys) = (forged.to_base64url(), json!(ghost), evil.public());
    world.meddler.set(move |asked| {
        let (mut wrap, forged, by) = (given.clone(), forged.clone(), by.clone());
        if asked.is(Method::GET, "/wraps") {
            Meddle::Change(Box::new(move |answer| {
                (wrap["epoch"], wrap["wrap"], wrap["by"]) = (2.into(), forged.into(), by);
                answer["epoch"] = 2.into();
                answer["wraps"].as_array_mut().expect("a list").push(wrap);
            }))
        } else if asked.is(Method::GET, "/devices") {
            Meddle::Change(Box::new(move |answer| {
                let devices = answer["devices"].as_array_mut().expect("a list");
                let mut device = devices[0].clone();
                device["memberId"] = by["memberId"].clone();
                device["deviceId"] = by["deviceId"].clone();
                put_keys(&mut device, &keys);
                devices.push(device);
            }))
        } else {
            Meddle::Pass
        }
    });
    drop(alex);
    let mut alex = world.again("alex", "phone").await;
    let written = alex.session.write(&acme(), &[write("a", "secret")]).await;
    assert_eq!(written.expect("held").held, 1);
    let told = alex.event_names();
    for name in ["device.new", "wrap.held", "keys.behind"] {
        assert!(told.contains(&name), "{told:?}");
    }
    let status = alex.session.status().await.expect("told");
    assert_eq!(status.unlisted.len(), 1);
    world.meddler.rest();
    drop(alex);
    let mut alex = world.again("alex", "phone").await;
    let key = alex.session.key_file().contents().key(&key, 2);
    assert!(key.is_none());
    let flushed = alex.session.flush(&acme()).await.expect("sends");
    assert_eq!(flushed.accepted.len(), 1);
}

#[tokio::test]
async fn a_key_from_a_newcomer_waits_until_that_was_listed() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    alex.pull(&acme()).await;
    let mut seven = world.device("user:7", "late").await;
    sam.look(&acme()).await;
    sam.session.grant(&acme(), None).await.expect("grants");
    // Who has only just come takes its first keys from whoever gives them.
    assert!(!seven.pull(&acme()).await.behind);
    sam.session.rotate(&acme()).await.expect("rotates");
    assert!(
        !seven.pull(&acme()).await.behind,
        "Sam has given one before"
    );
    seven.look(&acme()).await;
    seven.session.rotate(&acme()).await.expect("rotates");
    seven.say(&acme(), "a", "epoch 3").await;
    let walk = alex.pull(&acme()).await;
    assert!(walk.behind && walk.items.is_empty(), "{walk:?}");
    let held = |event: &Event| matches!(event, Event::WrapHeld { epoch: 3, .. });
    assert!(alex.events().iter().any(held));
    alex.look(&acme()).await;
    let walk = alex.pull(&acme()).await;
    assert_eq!(walk.texts(), [("a".to_owned(), "epoch 3".to_owned())]);
    let status = alex.session.status().await.expect("told");
    assert_eq!((status.rejected(), status.behind().count()), (0, 0));
}

#[tokio::test]
async fn nothing_is_sealed_under_a_key_that_a_revoked_device_gave() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    let mut phone = world.device("sam", "phone").await;
    sam.look(&acme()).await;
    sam.session.grant(&acme(), None).await.expect("grants");
    phone.pull(&acme()).await;
    phone.look(&acme()).await;
    phone.session.rotate(&acme()).await.expect("rotates");
    phone.say(&acme(), "a", "by the phone").await;
    let name = phone.name();
    sam.session.revoke(&name.device_id).await.expect("revokes");
    // There will be no other key to read it with.
    let walk = sam.pull(&acme()).await;
    assert_eq!(walk.texts(), [("a".to_owned(), "by the phone".to_owned())]);
    for _ in 0..2 {
        let status = sam.session.status().await.expect("told");
        assert_eq!(status.behind().count(), 1);
    }
    sam.session.rotate(&acme()).await.expect("rotates");
    let status = sam.session.status().await.expect("told");
    assert_eq!(status.behind().count(), 0);
    sam.say(&acme(), "b", "without the phone").await;
}

/// A device of Sam's that was revoked, as the relay tells it.
async fn revoked(world: &World, sam: &Device) -> Value {
    let old = world.device("sam", "old").await;
    let devices = sam.session.api().devices().await.expect("told");
    let told = devices.iter().find(|told| told.to_ref() == old.name());
    json!(told.expect("listed"))
}

/// Nothing is sealed for a device that was revoked once, and its return is shown.
async fn its_return_is_noticed(world: &World, device: &mut Device, old: Value) {
    let name = device_ref("sam", "old");
    bring_back(world, old);
    device.events();
    world.meddler.take();
    let error = device.session.rotate(&acme()).await.expect_err("refuses");
    assert!(
        matches!(&error, Error::Returned(who) if *who == [name.clone()]),
        "{error}"
    );
    let error = device
        .session
        .grant(&acme(), None)
        .await
        .expect_err("refuses");
    assert!(matches!(error, Error::Returned(_)), "{error}");
    nothing_was_sealed(world);
    assert!(device.event_names().ends_with(&["device.returned"]));
    let doubt = Doubt::DeviceReturned {
        device: name.clone(),
    };
    assert_eq!(doubts(device).await, [doubt]);
    // To be shown it makes it no better.
    let listed = device.look(&acme()).await;
    let back = listed.iter().filter(|seen| seen.returned);
    let back: Vec<_> = back.map(|seen| seen.device.to_ref()).collect();
    assert_eq!(back, std::slice::from_ref(&name));
    let error = device.session.rotate(&acme()).await.expect_err("refuses");
    assert!(matches!(error, Error::Returned(_)), "{error}");
    nothing_was_sealed(world);
    world.meddler.rest();
}

#[tokio::test]
async fn what_this_device_revoked_does_not_come_back() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    // Sam has never been shown it.
    let old = revoked(&world, &sam).await;
    let name = device_ref("sam", "old");
    sam.session.revoke(&name.device_id).await.expect("revokes");
    drop(sam);
    let mut sam = world.again("sam", "laptop").await;
    its_return_is_noticed(&world, &mut sam, old.clone()).await;
    sam.session.rotate(&acme()).await.expect("rotates");

    // Sam says that it is theirs again: then it is a new one, and has to be shown.
    sam.session.forget_device(&name).expect("saves");
    assert!(doubts(&mut sam).await.is_empty());
    bring_back(&world, old);
    let error = sam.session.rotate(&acme()).await.expect_err("refuses");
    assert!(
        matches!(&error, Error::Unlisted(who) if *who == [name]),
        "{error}"
    );
}

#[tokio::test]
async fn a_roster_with_a_revoked_device_on_it_is_not_sealed_for() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    let mut old = revoked(&world, &sam).await;
    old["revokedAt"] = old["registeredAt"].clone();
    sam.look(&acme()).await;
    lie_about(
        &world,
        move |devices| {
            devices.retain(|other| other["deviceId"] != "old");
            devices.push(old.clone());
        },
        |_| (),
    );
    let name = device_ref("sam", "old");
    world.meddler.take();
    for _ in 0..2 {
        let error = sam.session.rotate(&acme()).await.expect_err("refuses");
        assert!(matches!(&error, Error::Returned(who) if *who == [name.clone()]));
    }
    nothing_was_sealed(&world);
    let doubt = Doubt::DeviceReturned { device: name };
    assert_eq!(doubts(&mut sam).await, [doubt]);
}

#[tokio::test]
async fn what_the_relay_told_as_revoked_does_not_come_back() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let mut phone = world.device("sam", "phone").await;
    let old = revoked(&world, &sam).await;
    for device in [&mut sam, &mut alex, &mut phone] {
        device.look(&acme()).await;
    }
    sam.session.rotate(&acme()).await.expect("rotates");
    let name = device_ref("sam", "old");
    sam.session.revoke(&name.device_id).await.expect("revokes");
    // Alex was told why a rotation is owed.
    alex.session.rotate(&acme()).await.expect("rotates");
    its_return_is_noticed(&world, &mut alex, old.clone()).await;
    // Now none is, and Sam's phone was shown its own devices.
    phone.session.own_devices().await.expect("told");
    its_return_is_noticed(&world, &mut phone, old).await;
}

#[tokio::test]
async fn a_relay_that_registers_other_keys_is_caught() {
    let world = World::new().await;
    let mut sam = world.unregistered("sam", "laptop").await;
    let evil = DeviceKeys::generate().public();
    for (field, key) in [
        ("encryptionKey", evil.encryption),
        ("signingKey", evil.signing),
    ] {
        world
            .meddler
            .change(Method::POST, "/devices", move |answer| {
                answer["device"][field] = text(&key);
            });
        let error = sam.session.register(None).await.expect_err("other keys");
        assert!(matches!(error, Error::Answer(_)), "{field}: {error}");
    }
}
