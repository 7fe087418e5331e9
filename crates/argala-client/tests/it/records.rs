//! Pushing and pulling between devices.

use argala_client::{GraphAccess, Kind, Outcome, Position, Refusal, Write};
use argala_testkit::record_id;
use argala_wire::{Code, codec::Format, records::PushReason};

use crate::world::{Device, World, acme, graph, note, write};

#[tokio::test]
async fn what_one_device_writes_another_reads() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let seq = sam.say(&acme(), "milk", "two litres").await;
    let walk = alex.pull(&acme()).await;
    assert_eq!(walk.texts(), [("milk".to_owned(), "two litres".to_owned())]);
    let item = &walk.items[0];
    assert_eq!((item.seq, &item.by, item.epoch), (seq, &sam.name(), 1));
    assert_eq!(item.kind, note());
    assert!(walk.from_start && walk.refused.is_empty());
    let again = alex.pull(&acme()).await;
    assert!(again.items.is_empty() && !again.from_start);
}

#[tokio::test]
async fn graphs_of_every_kind_and_ids_that_look_like_paths() {
    let world = World::new().await;
    let mut sam = world.device("sam", "a/b:c%").await;
    let mut phone = world.device("sam", "phone").await;
    let mut alex = world.device("alex", "é 🦀").await;
    let mut seven = world.device("user:7", "..x").await;
    let cases = [
        (graph("d:sam"), graph("d:sam"), true),
        (graph("g:a/b:c%"), graph("g:a/b:c%"), false),
        (graph("d:alex"), graph("d:sam"), false),
    ];
    for (by_sam, by_other, own) in cases {
        let other = if own { &mut phone } else { &mut alex };
        sam.look(&by_sam).await;
        sam.session.rotate(&by_sam).await.expect("rotates");
        sam.say(&by_sam, "a/b c?#", "hello").await;
        other.say(&by_other, "back", "hi").await;
        assert_eq!(other.pull(&by_other).await.texts().len(), 2, "{by_sam}");
        assert_eq!(sam.pull(&by_sam).await.texts().len(), 2, "{by_sam}");
    }
    let (by_sam, by_seven) = (graph("d:user:7"), graph("d:sam"));
    seven.look(&by_seven).await;
    sam.look(&by_sam).await;
    seven.session.rotate(&by_seven).await.expect("rotates");
    seven.say(&by_seven, "x", "hello").await;
    assert_eq!(sam.pull(&by_sam).await.texts().len(), 1);
}

#[tokio::test]
async fn cbor_says_the_same_as_json() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    sam.say(&acme(), "a", "one").await;
    let name = argala_testkit::device_ref("user:7", "cbor");
    let client = world.client(&name).with_format(Format::Cbor);
    let path = world.key_file("user:7", "cbor");
    let session = argala_client::Session::create(client, &path, name, std::time::Duration::ZERO);
    let mut seven = Device::of(session.await.expect("a key file"));
    seven.session.register(None).await.expect("registers");
    let walk = seven.pull(&acme()).await;
    assert_eq!((walk.items.len(), walk.filtered, walk.behind), (0, 1, true));
    sam.look(&acme()).await;
    sam.session.grant(&acme(), None).await.expect("grants");
    assert_eq!(seven.pull(&acme()).await.texts().len(), 1);
    seven.say(&acme(), "b", "two").await;
    assert_eq!(sam.pull(&acme()).await.texts().len(), 2);
    let error = seven
        .session
        .pull(&graph("g:none"), &Position::default())
        .await;
    assert_eq!(
        error.expect_err("no such group").code(),
        Some(Code::GraphNotFound)
    );
}

#[tokio::test]
async fn a_large_walk_comes_whole_over_many_pages() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let writes: Vec<Write> = (0..2_300)
        .map(|n| write(&format!("id-{n}"), &n.to_string()))
        .collect();
    let outcomes = sam.session.push(&acme(), &writes).await.expect("pushes");
    let seqs: Vec<u64> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Accepted { seq } => *seq,
            other => panic!("not accepted: {other:?}"),
        })
        .collect();
    assert_eq!(seqs, (1..=2_300).collect::<Vec<u64>>());
    let walk = alex.pull(&acme()).await;
    assert_eq!(walk.items.len(), 2_300);
    assert!(walk.pages >= 5);
    let read: Vec<u64> = walk.items.iter().map(|item| item.seq).collect();
    assert_eq!(read, seqs);
}

#[tokio::test]
async fn records_near_the_ceiling_are_split_over_requests_and_larger_ones_refused_alone() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    sam.events();
    let most = sam.session.largest_body(&note()).await.expect("told");
    let most = usize::try_from(most).expect("fits");
    let mut writes: Vec<Write> = (0..9).map(|n| write(&n.to_string(), "")).collect();
    for (at, write) in writes.iter_mut().enumerate() {
        write.body = vec![7; most + usize::from(at == 4)];
    }
    let outcomes = sam.session.push(&acme(), &writes).await.expect("pushes");
    for (at, outcome) in outcomes.iter().enumerate() {
        let refused = matches!(outcome, Outcome::Refused(Refusal::TooLarge { .. }));
        assert_eq!(refused, at == 4, "{at}: {outcome:?}");
    }
    assert_eq!(sam.event_names(), ["record.rejected"]);
    assert_eq!(alex.pull(&acme()).await.items.len(), 8);
}

#[tokio::test]
async fn expectations_and_tombstones() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let mut first = write("a", "one");
    first.expect = Some(0);
    let outcomes = sam
        .session
        .push(&acme(), &[first.clone()])
        .await
        .expect("pushes");
    assert_eq!(outcomes, [Outcome::Accepted { seq: 1 }]);
    let outcomes = alex.session.push(&acme(), &[first]).await.expect("pushes");
    let conflict = Refusal::Relay(PushReason::Conflict { seq: 1 });
    assert_eq!(outcomes, [Outcome::Refused(conflict)]);
    let mut gone = write("a", "why it went");
    (gone.deleted, gone.expect) = (true, Some(1));
    let outcomes = alex.session.push(&acme(), &[gone]).await.expect("pushes");
    assert_eq!(outcomes, [Outcome::Accepted { seq: 2 }]);
    let walk = sam.pull(&acme()).await;
    assert!(walk.items[0].deleted);
    assert_eq!(walk.items[0].body, b"why it went");
}

#[tokio::test]
async fn conditions_on_the_whole_push() {
    use argala_client::session::PushOptions;
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    sam.say(&acme(), "a", "one").await;
    let moved = PushOptions {
        if_head: Some(0),
        atomic: false,
    };
    let error = sam
        .session
        .push_with(&acme(), &[write("b", "x")], moved)
        .await;
    let error = error.expect_err("the head is 1");
    assert_eq!(
        (error.code(), error.problem().and_then(|p| p.head)),
        (Some(Code::HeadMoved), Some(1))
    );
    let mut wrong = write("a", "x");
    wrong.expect = Some(0);
    let atomic = PushOptions {
        if_head: Some(1),
        atomic: true,
    };
    let error = sam
        .session
        .push_with(&acme(), &[write("b", "x"), wrong], atomic)
        .await;
    let error = error.expect_err("a is there");
    assert_eq!(error.code(), Some(Code::PushRejected));
    assert_eq!(error.push_results().expect("told").len(), 2);
    let good = sam
        .session
        .push_with(&acme(), &[write("b", "x"), write("c", "y")], atomic)
        .await;
    assert_eq!(good.expect("pushes").len(), 2);
}

#[tokio::test]
async fn a_position_that_the_relay_no_longer_takes_starts_over() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    sam.say(&acme(), "a", "one").await;
    alex.pull(&acme()).await;
    let good = alex.session.position(&acme(), "test");
    for cursor in ["garbage", ""] {
        let mut value = serde_json::to_value(&good).expect("JSON");
        value["cursor"] = cursor.into();
        let bent: Position = serde_json::from_value(value).expect("a position");
        let (walk, position) = alex.walk(&acme(), bent).await;
        assert!(walk.from_start);
        assert_eq!(walk.texts().len(), 1);
        assert!(alex.event_names().contains(&"pull.started_over"));
        assert!(alex.session.started_over(&acme()).is_some());
        let (walk, _) = alex.walk(&acme(), position).await;
        assert!(!walk.from_start && walk.items.is_empty());
        assert!(alex.session.started_over(&acme()).is_none());
    }
    // One of another graph.
    sam.session.rotate(&graph("d:alex")).await.expect("rotates");
    let (_, foreign) = sam.walk(&graph("d:alex"), Position::default()).await;
    let (walk, _) = sam.walk(&acme(), foreign).await;
    assert!(walk.from_start);
    assert_eq!(walk.texts().len(), 1);
}

#[tokio::test]
async fn an_undeclared_kind_is_refused_counted_and_read_once_it_is_declared() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let todo = Kind::new("todo").expect("a kind");
    let mut other = write("b", "buy");
    other.kind = todo.clone();
    sam.session
        .write(&acme(), &[write("a", "one"), other])
        .await
        .expect("writes");
    let walk = alex.pull(&acme()).await;
    assert_eq!(walk.texts().len(), 1);
    assert_eq!(walk.reasons(), ["undeclared_kind"]);
    assert!(alex.event_names().contains(&"record.rejected"));
    let status = alex.session.status().await.expect("told");
    assert_eq!(status.rejected(), 1);
    assert_eq!(
        alex.session.rejected(&acme()).expect("told")[0].id,
        record_id("b")
    );

    // The refusal outlives the process; declaring the kind reads the graph anew.
    drop(alex);
    let mut alex = world.again("alex", "phone").await;
    assert_eq!(alex.session.status().await.expect("told").rejected(), 1);
    alex.session = alex.session.declare([todo]);
    let walk = alex.pull(&acme()).await;
    assert!(walk.from_start);
    assert_eq!(walk.texts().len(), 2);
    assert_eq!(alex.session.status().await.expect("told").rejected(), 0);
    assert!(alex.pull(&acme()).await.items.is_empty());
}
