//! Devices: told apart, named, taken on trust once.

use argala_client::{Error, Event};
use argala_testkit::device_ref;
use argala_wire::{Code, devices::DeviceKind};

use crate::world::{World, acme, graph};

#[tokio::test]
async fn registering_again_does_no_harm_and_other_keys_are_refused() {
    let world = World::new().await;
    let mut sam = world.unregistered("sam", "laptop").await;
    let registered = sam.session.register(None).await.expect("registers");
    assert!(registered.fresh);
    assert!(!sam.session.register(None).await.expect("registers").fresh);
    // The key file was lost, and its device id is tried with new keys.
    drop(sam);
    std::fs::remove_file(world.key_file("sam", "laptop")).expect("there");
    let mut twin = world.unregistered("sam", "laptop").await;
    let error = twin.session.register(None).await.expect_err("other keys");
    assert_eq!(error.code(), Some(Code::DeviceKeyMismatch));
}

#[tokio::test]
async fn a_new_device_is_told_once_and_listed_as_new_once() {
    let world = World::new().await;
    let mut sam = world.device("sam", "laptop").await;
    let alex = world.device("alex", "phone").await;
    let alexs = alex.session.fingerprint();
    // Met, but shown to nobody: it stays new, and is given no key.
    for _ in 0..2 {
        let error = sam.session.rotate(&acme()).await.expect_err("refuses");
        assert!(matches!(error, Error::Unlisted(_)), "{error}");
        let status = sam.session.status().await.expect("told");
        let unlisted = status.unlisted.iter().map(|known| &known.device);
        assert_eq!(unlisted.collect::<Vec<_>>(), [&alex.name()]);
    }
    let events = sam.events();
    let expected = Event::DeviceNew {
        device: alex.name(),
        fingerprint: alexs,
    };
    assert_eq!(events, [expected]);
    let listed = sam
        .session
        .graph_devices(&acme(), false)
        .await
        .expect("told");
    let new: Vec<_> = listed.iter().filter(|seen| seen.new).collect();
    assert_eq!(new.len(), 1);
    assert_eq!(
        (new[0].device.to_ref(), new[0].fingerprint),
        (alex.name(), alexs)
    );
    // What was got and could not be shown was not listed.
    let listed = sam.look(&acme()).await;
    assert_eq!(listed.iter().filter(|seen| seen.new).count(), 1);
    let listed = sam.look(&acme()).await;
    assert!(listed.iter().all(|seen| !seen.new && !seen.changed));
    assert!(sam.events().is_empty());
    let status = sam.session.status().await.expect("told");
    assert!(status.unlisted.is_empty());
    sam.session.rotate(&acme()).await.expect("rotates");

    // Both are shown the same fingerprint, and one says so.
    let error = sam
        .session
        .verify(&alex.name(), "0000")
        .expect_err("another");
    assert!(matches!(error, Error::Usage(_)));
    let typed = alexs.to_string().to_uppercase().replace(' ', "");
    sam.session.verify(&alex.name(), &typed).expect("the same");
    let listed = sam
        .session
        .graph_devices(&acme(), false)
        .await
        .expect("told");
    assert!(
        listed
            .iter()
            .any(|seen| seen.verified && seen.device.to_ref() == alex.name())
    );
    assert!(sam.session.verify(&device_ref("kim", "x"), "0000").is_err());
    alex.events();
}

#[tokio::test]
async fn names_are_for_the_members_own_devices() {
    let world = World::new().await;
    let mut sam = world.device("sam", "laptop").await;
    let mut phone = world.device("sam", "phone").await;
    let mut alex = world.device("alex", "phone").await;
    let registered = sam
        .session
        .register(Some("Sam’s laptop"))
        .await
        .expect("registers");
    assert!(!registered.labelled, "there is no key to seal it with");
    sam.look(&graph("d:sam")).await;
    sam.session.rotate(&graph("d:sam")).await.expect("rotates");
    assert!(
        sam.session
            .register(None)
            .await
            .expect("registers")
            .labelled
    );
    phone.pull(&graph("d:sam")).await;
    let names = phone.session.own_devices().await.expect("told");
    let names: Vec<_> = names
        .iter()
        .filter_map(|seen| seen.label.as_deref())
        .collect();
    assert_eq!(names, ["Sam’s laptop"]);
    let listed = alex
        .session
        .graph_devices(&acme(), false)
        .await
        .expect("told");
    assert!(listed.iter().all(|seen| seen.label.is_none()));
    let sealed = listed
        .iter()
        .find_map(|seen| seen.device.label.as_ref())
        .expect("it is there");
    assert!(
        !sealed
            .as_slice()
            .windows(6)
            .any(|window| window == b"laptop")
    );
}

#[tokio::test]
async fn the_revoked_are_listed_as_such() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let old = world.device("sam", "old").await;
    sam.look(&acme()).await;
    sam.session.rotate(&acme()).await.expect("rotates");
    let revoked = sam
        .session
        .revoke(&old.name().device_id)
        .await
        .expect("revokes");
    assert_eq!(revoked.graphs, [acme()]);
    let listed = sam.session.own_devices().await.expect("told");
    let active: Vec<bool> = listed.iter().map(|seen| seen.device.is_active()).collect();
    assert_eq!(active, [true, false]);
    assert!(
        listed
            .iter()
            .all(|seen| seen.device.kind == DeviceKind::Device)
    );
    assert_eq!(
        alex.session
            .graph_devices(&acme(), false)
            .await
            .expect("told")
            .len(),
        2
    );
    assert_eq!(
        alex.session
            .graph_devices(&acme(), true)
            .await
            .expect("told")
            .len(),
        3
    );
    let again = sam
        .session
        .revoke(&old.name().device_id)
        .await
        .expect("revokes");
    assert_eq!(again.graphs_flagged, 0);
    let error = sam
        .session
        .revoke(&alex.name().device_id)
        .await
        .expect_err("not Sam's");
    assert_eq!(error.code(), Some(Code::DeviceNotFound));
}
