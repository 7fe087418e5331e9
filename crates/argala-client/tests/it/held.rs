//! Writes are held while keys are behind or the relay is away, and never dropped.

use argala_client::{Error, GraphAccess, Outcome, Refusal};
use argala_testkit::record_id;
use argala_wire::{limits::Quotas, records::PushReason};
use http::Method;

use crate::world::{Meddle, World, acme, bytes_below, write};

#[tokio::test]
async fn writes_wait_for_the_key_and_go_out_in_their_order() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    let mut seven = world.device("user:7", "late").await;
    let writes = [write("a", "one"), write("b", "two"), write("a", "three")];
    let flushed = seven.session.write(&acme(), &writes).await.expect("held");
    assert_eq!((flushed.accepted.len(), flushed.held), (0, 3));
    assert_eq!(seven.event_names().last(), Some(&"keys.behind"));
    let status = seven.session.status().await.expect("told");
    assert_eq!(status.behind().collect::<Vec<_>>(), [&acme()]);
    assert_eq!(status.held(), 3);

    // The application that keeps its own copy is told instead.
    let outcomes = seven
        .session
        .push(&acme(), &[write("c", "x")])
        .await
        .expect("told");
    assert_eq!(outcomes, [Outcome::KeysBehind]);

    // They outlive the process, and nobody reads them from the disk.
    drop(seven);
    let disk = bytes_below(&world.path("user_7-late.keys.state"));
    let holds = |needle: &[u8]| disk.windows(needle.len()).any(|window| window == needle);
    assert!(holds(b"\"id\":\"b\"") && !holds(b"three") && !holds(b"dGhyZWU"));
    let mut seven = world.again("user:7", "late").await;
    sam.look(&acme()).await;
    sam.session.grant(&acme(), None).await.expect("grants");
    let flushed = seven.session.flush(&acme()).await.expect("sends");
    assert_eq!((flushed.accepted.len(), flushed.held), (3, 0));
    let texts = sam.pull(&acme()).await.texts();
    let expected = [("b", "two"), ("a", "three")];
    assert_eq!(
        texts,
        expected.map(|(id, text)| (id.to_owned(), text.to_owned()))
    );
    let status = seven.session.status().await.expect("told");
    assert_eq!((status.held(), status.behind().count()), (0, 0));
}

#[tokio::test]
async fn writes_to_a_graph_without_a_key_wait_for_its_first_rotation() {
    let world = World::new().await;
    let mut sam = world.device("sam", "laptop").await;
    let flushed = sam
        .session
        .write(&acme(), &[write("a", "one")])
        .await
        .expect("held");
    assert_eq!(flushed.held, 1);
    sam.session.rotate(&acme()).await.expect("rotates");
    let flushed = sam.session.flush(&acme()).await.expect("sends");
    assert_eq!(flushed.accepted, [(record_id("a"), 1)]);
}

#[tokio::test]
async fn a_rotation_in_between_is_met_with_the_new_key() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    alex.say(&acme(), "a", "one").await;
    sam.session.rotate(&acme()).await.expect("rotates");
    // Alex has not been told, and seals under epoch 1.
    alex.say(&acme(), "a", "two").await;
    let outcomes = alex
        .session
        .push(&acme(), &[write("b", "three")])
        .await
        .expect("pushes");
    assert!(matches!(outcomes[..], [Outcome::Accepted { .. }]));
    let walk = sam.pull(&acme()).await;
    assert!(walk.items.iter().all(|item| item.epoch == 2));
    assert_eq!(walk.texts().len(), 2);
}

#[tokio::test]
async fn without_a_relay_everything_is_held_and_goes_out_later() {
    let mut world = World::new().await;
    let (mut sam, _) = world.pair().await;
    sam.say(&acme(), "a", "one").await;
    world.stop().await;
    let error = sam
        .session
        .write(&acme(), &[write("b", "two")])
        .await
        .expect_err("gone");
    assert!(matches!(error, Error::Offline(_)), "{error}");
    assert_eq!(sam.session.waiting(&acme()).expect("told").held(), 1);
    let status = sam
        .session
        .status()
        .await
        .expect("answers without the relay");
    assert!(status.offline.is_some());
    assert_eq!(status.held(), 1);
}

#[tokio::test]
async fn an_answer_that_was_lost_is_asked_for_under_the_same_key() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    world.meddler.take();
    world.meddler.once(Method::POST, "/push", Meddle::Cut);
    sam.say(&acme(), "a", "one").await;
    let pushes: Vec<_> = world.meddler.take();
    let pushes: Vec<_> = pushes
        .iter()
        .filter(|asked| asked.is(Method::POST, "/push"))
        .collect();
    assert_eq!(pushes.len(), 2);
    assert!(pushes[0].key.is_some() && pushes[0].key == pushes[1].key);
    let info = sam.session.api().graph(&acme()).await.expect("told");
    assert_eq!((info.head, info.records), (1, 1));
    assert_eq!(alex.pull(&acme()).await.texts().len(), 1);
}

#[tokio::test]
async fn a_process_that_died_in_mid_push_sends_the_very_same_request() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    // Every answer is lost: what became of the push is open when the process ends.
    world
        .meddler
        .set(|asked| match asked.is(Method::POST, "/push") {
            true => Meddle::Cut,
            false => Meddle::Pass,
        });
    let mut created = write("a", "one");
    created.expect = Some(0);
    let error = sam
        .session
        .write(&acme(), &[created])
        .await
        .expect_err("cut");
    assert!(matches!(error, Error::Offline(_)));
    drop(sam);
    world.meddler.rest();
    // Another device replaces the record before the first one comes back.
    alex.say(&acme(), "a", "two").await;
    let mut sam = world.again("sam", "laptop").await;
    let flushed = sam.session.flush(&acme()).await.expect("sends");
    assert_eq!(
        flushed.accepted,
        [(record_id("a"), 1)],
        "told as the first time"
    );
    assert_eq!(
        alex.pull(&acme()).await.texts(),
        [("a".to_owned(), "two".to_owned())]
    );
}

#[tokio::test]
async fn a_refused_write_is_kept_counted_shown_and_sent_again_when_asked() {
    let quotas = Quotas {
        max_records_per_graph: 1,
        ..Quotas::default()
    };
    let world = World::with(|builder| builder.quotas(quotas)).await;
    let (mut sam, _) = world.pair().await;
    sam.events();
    let writes = [write("a", "one"), write("b", "two"), write("c", "three")];
    let flushed = sam.session.write(&acme(), &writes).await.expect("told");
    let full = Refusal::Relay(PushReason::QuotaRecords { limit: 1 });
    assert_eq!(
        flushed.accepted,
        [(record_id("a"), 1)],
        "its neighbours do not stop it"
    );
    assert_eq!(
        flushed.rejected,
        [(record_id("b"), full), (record_id("c"), full)]
    );
    assert_eq!(sam.event_names(), ["record.rejected"; 2]);
    drop(sam);
    let mut sam = world.again("sam", "laptop").await;
    let status = sam.session.status().await.expect("told");
    assert_eq!((status.rejected(), status.held()), (2, 0));
    let kept = sam.session.rejected(&acme()).expect("told");
    assert_eq!(
        (kept[0].reason.as_str(), kept[0].detail),
        ("quota_records", Some(1))
    );

    let mut gone = write("a", "");
    gone.deleted = true;
    sam.session
        .write(&acme(), &[gone])
        .await
        .expect("makes room");
    assert_eq!(sam.session.try_rejected_again(&acme()).expect("moves"), 2);
    let flushed = sam.session.flush(&acme()).await.expect("sends");
    assert_eq!((flushed.accepted.len(), flushed.rejected.len()), (1, 1));
    assert_eq!(sam.session.forget_rejected(&acme()).expect("forgets"), 1);
    assert_eq!(sam.session.status().await.expect("told").rejected(), 0);
}
