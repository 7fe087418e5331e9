//! A relay that lies: what it may change is noticed, counted and shown.

use argala_client::{
    Error, Event, Position,
    api::PullQuery,
    crypto::{DeviceKeys, GraphKey, record::RecordCipher, wrap},
};
use argala_testkit::{device_ref, record_id};
use argala_wire::{
    Sealed,
    records::{PushRecord, PushRequest},
};
use http::Method;
use serde_json::{Value, json};

use crate::world::{Meddle, World, acme, graph, note, write};

/// Another last byte of something sealed or signed.
pub(crate) fn flip(value: &mut Value) {
    let mut bytes = Sealed::from_base64url(value.as_str().expect("text")).expect("bytes");
    let last = bytes.0.len() - 1;
    bytes.0[last] ^= 1;
    *value = bytes.to_base64url().into();
}

/// A record of epoch 1 of the group that a member's device has signed, sealed with a key that is not
/// the epoch's: nothing but opening it tells.
pub(crate) fn sealed_otherwise(id: &str, by: &DeviceKeys) -> PushRecord {
    let (graph, id) = ("g:acme".parse().expect("a key"), record_id(id));
    let cipher = RecordCipher::new(&GraphKey::generate(), &graph, 1);
    let ciphertext = cipher.seal(&id, false, &note(), 1_000, b"one");
    PushRecord {
        sig: Some(by.sign_record(&graph, 1, &id, false, &ciphertext)),
        id,
        epoch: 1,
        ciphertext: Sealed(ciphertext),
        deleted: false,
        expect: None,
    }
}

/// Has one record pulled with an answer changed so, and tells why it was refused.
async fn refused_when(change: impl FnOnce(&mut Value) + Send + 'static) -> Vec<&'static str> {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    // Alex knows both devices' keys, so that a lie about names is all there is to it.
    alex.look(&acme()).await;
    sam.say(&acme(), "a", "one").await;
    world.meddler.change(Method::GET, "/pull", move |page| {
        change(&mut page["records"][0]);
    });
    let walk = alex.pull(&acme()).await;
    assert!(walk.items.is_empty(), "{walk:?}");
    assert_eq!(alex.event_names().last(), Some(&"record.rejected"));
    assert_eq!(alex.session.status().await.expect("told").rejected(), 1);
    walk.reasons()
}

#[tokio::test]
async fn records_that_were_touched_are_refused() {
    assert_eq!(
        refused_when(|r| flip(&mut r["ciphertext"])).await,
        ["signature_invalid"]
    );
    assert_eq!(
        refused_when(|r| flip(&mut r["sig"])).await,
        ["signature_invalid"]
    );
    assert_eq!(
        refused_when(|r| r["id"] = "b".into()).await,
        ["signature_invalid"]
    );
    assert_eq!(
        refused_when(|r| r["deleted"] = true.into()).await,
        ["signature_invalid"]
    );
    assert_eq!(
        refused_when(|r| r["epoch"] = 2.into()).await,
        ["signature_invalid"]
    );
    let unsigned = refused_when(|r| drop(r.as_object_mut().expect("a map").remove("sig")));
    assert_eq!(unsigned.await, ["unsigned"]);
}

#[tokio::test]
async fn a_pusher_by_another_name_is_told_apart() {
    let mismatch = refused_when(|r| r["by"] = json!({"memberId": "alex", "deviceId": "phone"}));
    assert_eq!(mismatch.await, ["by_mismatch"]);
    let unknown = refused_when(|r| {
        r["by"] = json!({"memberId": "kim", "deviceId": "x"});
        flip(&mut r["sig"]);
    });
    assert_eq!(unknown.await, ["unknown_device"]);
}

#[tokio::test]
async fn what_was_sealed_with_another_key_is_unreadable() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let record = sealed_otherwise("a", sam.session.key_file().keys());
    let request = PushRequest {
        records: vec![record],
        if_head: None,
        atomic: false,
    };
    let pushed = sam.session.api().push(&acme(), &request, None).await;
    assert_eq!(
        pushed.expect("the relay cannot tell").accepted,
        1,
        "its signature is good"
    );
    sam.say(&acme(), "b", "two").await;
    let walk = alex.pull(&acme()).await;
    assert_eq!(walk.reasons(), ["unreadable"]);
    assert_eq!(walk.texts(), [("b".to_owned(), "two".to_owned())]);
    assert!(alex.event_names().contains(&"record.rejected"));
    assert_eq!(alex.session.status().await.expect("told").rejected(), 1);
    // What is sealed as it must be takes its place.
    sam.say(&acme(), "a", "one").await;
    assert_eq!(
        alex.pull(&acme()).await.texts(),
        [("a".to_owned(), "one".to_owned())]
    );
    assert_eq!(alex.session.status().await.expect("told").rejected(), 0);
}

#[tokio::test]
async fn the_past_of_an_item_is_not_its_present() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    sam.say(&acme(), "a", "we meet at five").await;
    let old = sam.session.api().pull(&acme(), &PullQuery::default()).await;
    let mut old = serde_json::to_value(&old.expect("pulls").records[0]).expect("JSON");
    sam.say(&acme(), "a", "we meet at six").await;
    assert_eq!(alex.pull(&acme()).await.texts()[0].1, "we meet at six");

    // The relay serves the old version as the newest, its signature as good as ever.
    old["seq"] = 3.into();
    world.meddler.set(move |asked| {
        let old = old.clone();
        match asked.is(Method::GET, "/pull") {
            true => Meddle::Change(Box::new(move |page| {
                page["records"] = json!([old]);
                page["head"] = 3.into();
            })),
            false => Meddle::Pass,
        }
    });
    let walk = alex.pull(&acme()).await;
    assert_eq!(walk.reasons(), ["replayed"]);
    assert!(walk.items.is_empty());
    // Neither a new start nor a new process makes it news.
    drop(alex);
    let mut alex = world.again("alex", "phone").await;
    let (walk, _) = alex.walk(&acme(), Position::default()).await;
    assert_eq!(walk.reasons(), ["replayed"]);
    // Nor is it news to the device that wrote it.
    let (walk, _) = sam.walk(&acme(), Position::default()).await;
    assert_eq!(walk.reasons(), ["replayed"]);
    world.meddler.rest();
    let (walk, _) = alex.walk(&acme(), Position::default()).await;
    assert_eq!(walk.texts()[0].1, "we meet at six");
    assert_eq!(alex.session.status().await.expect("told").rejected(), 0);
}

#[tokio::test]
async fn devices_that_overwrite_each_other_are_no_replay() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    for round in 0..3 {
        for text in ["by Sam", "by Sam again"] {
            sam.say(&acme(), "a", text).await;
        }
        alex.say(&acme(), "a", &format!("by Alex, {round}")).await;
        assert!(sam.pull(&acme()).await.refused.is_empty());
        assert!(alex.pull(&acme()).await.refused.is_empty());
    }
}

#[tokio::test]
async fn a_key_that_the_relay_made_up_is_not_used() {
    let world = World::new().await;
    let (_, alex) = world.pair().await;
    // The relay knows Alex's public keys, and makes a wrap in Sam's name.
    let (sam, forger) = (device_ref("sam", "laptop"), DeviceKeys::generate());
    let to = alex.name();
    let key = "g:acme".parse().expect("a key");
    let context = wrap::WrapContext {
        graph: &key,
        epoch: 2,
        to: &to,
        by: &sam,
    };
    let public = alex.session.key_file().keys().public();
    let forged = wrap::seal(&context, &GraphKey::generate(), &forger, &public).expect("seals");
    world.meddler.set(move |asked| {
        let forged = forged.to_base64url();
        match asked.is(Method::GET, "/wraps") {
            true => Meddle::Change(Box::new(move |answer| {
                let mut wrap = answer["wraps"][0].clone();
                wrap["epoch"] = 2.into();
                wrap["wrap"] = forged.into();
                answer["epoch"] = 2.into();
                answer["wraps"].as_array_mut().expect("a list").push(wrap);
            })),
            false => Meddle::Pass,
        }
    });
    let mut alex = alex;
    let flushed = alex
        .session
        .write(&acme(), &[write("a", "secret")])
        .await
        .expect("held");
    assert_eq!((flushed.accepted.len(), flushed.held), (0, 1));
    let events = alex.events();
    let told = events
        .iter()
        .any(|event| matches!(event, Event::WrapRejected { epoch: 2, by, .. } if *by == sam));
    assert!(told, "{events:?}");
    world.meddler.rest();
    drop(alex);
    let mut alex = world.again("alex", "phone").await;
    let flushed = alex.session.flush(&acme()).await.expect("sends");
    assert_eq!(flushed.accepted.len(), 1);
}

#[tokio::test]
async fn a_push_that_is_answered_for_in_part_is_not_guessed_at() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    world.meddler.change(Method::POST, "/push", |answer| {
        answer["results"] = json!([]);
    });
    let error = sam
        .session
        .write(&acme(), &[write("a", "one")])
        .await
        .expect_err("no verdict");
    assert!(matches!(error, Error::Answer(_)), "{error}");
    assert_eq!(sam.session.waiting(&acme()).expect("told").held(), 1);
    let flushed = sam.session.flush(&acme()).await.expect("sends");
    assert_eq!(flushed.accepted.len(), 1);
}

#[tokio::test]
async fn the_wrong_graphs_records_do_not_open() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let pair = graph("d:alex");
    sam.session.rotate(&pair).await.expect("rotates");
    sam.say(&pair, "a", "for two").await;
    let page = sam.session.api().pull(&pair, &PullQuery::default()).await;
    let records = serde_json::to_value(page.expect("pulls").records).expect("JSON");
    world
        .meddler
        .change(Method::GET, "/pull", move |page| page["records"] = records);
    assert_eq!(alex.pull(&acme()).await.reasons(), ["signature_invalid"]);
}

#[tokio::test]
async fn an_epoch_never_goes_back() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    alex.say(&acme(), "a", "epoch 1").await;
    sam.session.rotate(&acme()).await.expect("rotates");
    alex.say(&acme(), "b", "epoch 2").await;
    drop(alex);
    // The relay says that epoch 1 is in force again, whose key a revoked device may have.
    world.meddler.set(|asked| {
        let told = ["/wraps", "/pull", "/graphs/g%3Aacme"];
        match asked.method == Method::GET && told.iter().any(|end| asked.path.ends_with(end)) {
            true => Meddle::Change(Box::new(|answer| answer["epoch"] = 1.into())),
            false => Meddle::Pass,
        }
    });
    let mut alex = world.again("alex", "phone").await;
    let flushed = alex
        .session
        .write(&acme(), &[write("c", "secret")])
        .await
        .expect("writes");
    assert_eq!(
        flushed.accepted.len(),
        1,
        "under epoch 2, which the relay knows of after all"
    );
    assert!(alex.event_names().contains(&"epoch.went_back"));
    let error = alex.session.rotate(&acme()).await.expect_err("refuses");
    assert!(matches!(error, Error::EpochWentBack { .. }), "{error}");
    world.meddler.rest();
    let (walk, _) = sam.walk(&acme(), Position::default()).await;
    let epochs: Vec<u64> = walk.items.iter().map(|item| item.epoch).collect();
    assert_eq!(epochs, [1, 2, 2]);
}

#[tokio::test]
async fn nothing_new_comes_under_an_epoch_that_has_passed() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    sam.say(&acme(), "a", "epoch 1").await;
    sam.session.rotate(&acme()).await.expect("rotates");
    sam.say(&acme(), "b", "epoch 2").await;
    // Whoever still has the key of epoch 1 could have written it only now.
    world.meddler.change(Method::GET, "/pull", |page| {
        page["records"][0]["seq"] = 3.into();
        page["head"] = 3.into();
    });
    let walk = alex.pull(&acme()).await;
    assert_eq!(walk.reasons(), ["epoch_passed"]);
    assert_eq!(walk.texts(), [("b".to_owned(), "epoch 2".to_owned())]);
}
