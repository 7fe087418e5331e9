//! Every device is lost, and a code on paper is not.

use argala_client::{Error, KeyFile, Session, crypto::recovery::RecoveryCode};
use argala_testkit::device_ref;
use argala_wire::{Code, devices::DeviceKind};

use crate::world::{Device, World, acme, graph};

#[tokio::test]
async fn a_code_on_paper_brings_everything_back() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    sam.session.rotate(&graph("d:sam")).await.expect("rotates");
    sam.say(&acme(), "a", "epoch 1").await;
    sam.session.rotate(&acme()).await.expect("rotates");

    let code = RecoveryCode::generate();
    let name = device_ref("sam", "recovery-1");
    let api = world.client(&name);
    let grants = sam
        .session
        .create_recovery(&code, &name, &api)
        .await
        .expect("creates");
    assert_eq!((grants.granted.len(), grants.failed.len()), (2, 0));
    let given: u64 = grants.granted.iter().map(|granted| granted.granted).sum();
    assert_eq!(given, 3);
    let listed = sam.session.own_devices().await.expect("told");
    let recovery = listed
        .iter()
        .find(|seen| seen.device.kind == DeviceKind::Recovery);
    assert!(recovery.expect("listed").verified);
    // From now on rotations cover it as any other device.
    sam.session.rotate(&acme()).await.expect("rotates");
    sam.say(&acme(), "b", "epoch 3").await;
    let laptop = sam.name().device_id;
    drop(sam);
    std::fs::remove_file(world.key_file("sam", "laptop")).expect("lost");

    let typed = RecoveryCode::read(&code.reveal().to_lowercase()).expect("a code");
    let mut new = world.device("sam", "new-laptop").await;
    assert_eq!(new.pull(&acme()).await.filtered, 2);
    let found = new.session.find_recovery(&typed).await.expect("found");
    assert_eq!(found, name);
    let recovered = new
        .session
        .restore(&typed, &found, &api)
        .await
        .expect("restores");
    let mut graphs: Vec<String> = recovered.graphs.iter().map(ToString::to_string).collect();
    graphs.sort();
    assert_eq!(graphs, ["d:sam", "g:acme"]);
    assert!(recovered.grants.failed.is_empty());
    assert_eq!(new.pull(&acme()).await.texts().len(), 2);
    new.say(&acme(), "c", "back again").await;
    assert_eq!(alex.pull(&acme()).await.texts().len(), 3);
    // And the lost laptop is out.
    new.session.revoke(&laptop).await.expect("revokes");
    new.look(&acme()).await;
    let report = new.session.rotate_owed().await.expect("rotates");
    assert!(report.failed.is_empty() && report.owed.is_empty());
    new.say(&acme(), "d", "without the laptop").await;
    alex.look(&acme()).await;
    assert_eq!(alex.pull(&acme()).await.texts().len(), 1);
}

#[tokio::test]
async fn a_code_brings_back_what_several_devices_gave_it() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    sam.session.rotate(&graph("d:sam")).await.expect("rotates");
    let code = RecoveryCode::generate();
    let name = device_ref("sam", "recovery-1");
    let api = world.client(&name);
    let created = sam.session.create_recovery(&code, &name, &api).await;
    created.expect("creates");
    // A later epoch of one graph, and another graph, which comes first.
    alex.look(&acme()).await;
    alex.session.rotate(&acme()).await.expect("rotates");
    alex.say(&acme(), "a", "epoch 2").await;
    alex.look(&graph("d:sam")).await;
    alex.session.rotate(&graph("d:sam")).await.expect("rotates");
    sam.pull(&acme()).await;
    let laptop = sam.name().device_id;
    drop(sam);

    let mut new = world.device("sam", "new-laptop").await;
    // Whose keys the code has is no matter of theirs.
    new.session.revoke(&laptop).await.expect("revokes");
    let found = new.session.find_recovery(&code).await.expect("found");
    let recovered = new.session.restore(&code, &found, &api).await;
    let recovered = recovered.expect("restores");
    assert!(recovered.grants.failed.is_empty(), "{recovered:?}");
    let mut graphs: Vec<String> = recovered.graphs.iter().map(ToString::to_string).collect();
    graphs.sort();
    assert_eq!(graphs, ["d:alex", "d:sam", "g:acme"]);
    assert_eq!(
        new.pull(&acme()).await.texts(),
        [("a".to_owned(), "epoch 2".to_owned())]
    );
}

#[tokio::test]
async fn a_code_that_was_refused_stands_in_no_others_way() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    let name = device_ref("sam", "recovery-1");
    let nobody = world.client(&device_ref("alex", "phone"));
    let refused = RecoveryCode::generate();
    let created = sam.session.create_recovery(&refused, &name, &nobody).await;
    assert!(matches!(created, Err(Error::Relay(_))), "{created:?}");
    let code = RecoveryCode::generate();
    let api = world.client(&name);
    let created = sam.session.create_recovery(&code, &name, &api).await;
    assert!(created.expect("creates").failed.is_empty());
    sam.look(&acme()).await;
    sam.session.rotate(&acme()).await.expect("rotates");
}

#[tokio::test]
async fn another_code_and_another_members_code_find_nothing() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let code = RecoveryCode::generate();
    let name = device_ref("sam", "recovery-1");
    let api = world.client(&name);
    sam.session
        .create_recovery(&code, &name, &api)
        .await
        .expect("creates");
    for (who, code) in [
        (&mut sam, RecoveryCode::generate()),
        (&mut alex, code.clone()),
    ] {
        let error = who.session.find_recovery(&code).await.expect_err("none");
        assert!(matches!(error, Error::Usage(_)), "{error}");
    }
    // A code whose device was revoked is good for nothing.
    sam.session.revoke(&name.device_id).await.expect("revokes");
    let error = sam.session.find_recovery(&code).await.expect_err("revoked");
    assert!(matches!(error, Error::Usage(_)), "{error}");
    let mut new = world.device("sam", "new").await;
    let error = new
        .session
        .restore(&code, &name, &api)
        .await
        .expect_err("revoked");
    assert_eq!(error.code(), Some(Code::DeviceRevoked));
    let other = device_ref("alex", "recovery-1");
    let error = sam
        .session
        .create_recovery(&code, &other, &world.client(&other))
        .await;
    assert!(matches!(error, Err(Error::Usage(_))));
}

#[tokio::test]
async fn a_new_device_is_given_keys_for_its_own_and_no_other() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    let code = RecoveryCode::generate();
    let name = device_ref("sam", "recovery-1");
    let api = world.client(&name);
    sam.session
        .create_recovery(&code, &name, &api)
        .await
        .expect("creates");
    let new = world.device("sam", "new").await;
    // Another machine says it is that device. The recovery device is shown the registered keys,
    // which are not this machine's, and seals nothing for them.
    let keys = argala_client::crypto::DeviceKeys::generate();
    let file = KeyFile::in_memory(new.name(), DeviceKind::Device, keys);
    let session = Session::over(world.client(&new.name()), file).expect("in memory");
    let mut twin = Device::of(session);
    let recovered = twin
        .session
        .restore(&code, &name, &api)
        .await
        .expect("reports");
    assert!(recovered.graphs.is_empty());
    assert!(matches!(
        recovered.grants.failed[0].error,
        Error::KeysChanged(_)
    ));
}
