//! Epochs: beginning them, giving their keys, coming late to them.

use argala_client::{Error, GraphAccess, Position};
use argala_testkit::device_ref;
use argala_wire::{Code, graphs::RotationReason};
use http::Method;

use crate::world::{Meddle, World, acme, graph, problem, write};

#[tokio::test]
async fn a_device_that_comes_late_reads_everything_once_it_is_granted() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    sam.say(&acme(), "a", "epoch 1").await;
    sam.session.rotate(&acme()).await.expect("rotates");
    sam.say(&acme(), "b", "epoch 2").await;

    let mut seven = world.device("user:7", "late").await;
    let walk = seven.pull(&acme()).await;
    assert_eq!((walk.items.len(), walk.filtered, walk.behind), (0, 2, true));
    sam.look(&acme()).await;
    let granted = sam.session.grant(&acme(), None).await.expect("grants");
    assert_eq!((granted.granted, granted.to), (2, vec![seven.name()]));
    let walk = seven.pull(&acme()).await;
    let mut texts = walk.texts();
    texts.sort();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(!walk.behind && !walk.from_start);
    sam.say(&acme(), "c", "more").await;
    assert_eq!(seven.pull(&acme()).await.texts().len(), 1);
    let again = sam.session.grant(&acme(), None).await.expect("grants");
    assert!(again.to.is_empty());
}

#[tokio::test]
async fn keys_granted_in_the_midst_of_a_walk_lose_nothing() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    let many = |from: usize| -> Vec<_> {
        (from..from + 700)
            .map(|n| write(&format!("id-{n}"), "x"))
            .collect()
    };
    sam.session.write(&acme(), &many(0)).await.expect("writes");
    let mut seven = world.device("user:7", "late").await;
    sam.look(&acme()).await;
    // The newcomer has the new key, and for now only that.
    world.meddler.once(
        Method::POST,
        "/grant",
        Meddle::Answer(problem(Code::Internal, |_| ())),
    );
    sam.session
        .rotate(&acme())
        .await
        .expect_err("the grant fails");
    world.meddler.rest();
    sam.session
        .write(&acme(), &many(700))
        .await
        .expect("writes");

    let first = seven
        .session
        .pull(&acme(), &Position::default())
        .await
        .expect("pulls");
    assert_eq!(
        (first.items.len(), first.filtered, first.more),
        (500, 700, true)
    );
    let granted = sam
        .session
        .grant(&acme(), Some(&[seven.name()]))
        .await
        .expect("grants");
    assert_eq!((granted.granted, granted.already), (1, 1));
    let (rest, position) = seven.walk(&acme(), first.position).await;
    let (late, position) = seven.walk(&acme(), position).await;
    let mut ids: Vec<String> = rest
        .texts()
        .into_iter()
        .chain(late.texts())
        .map(|t| t.0)
        .collect();
    ids.extend(first.items.iter().map(|item| item.id.to_string()));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1_400);
    let (after, _) = seven.walk(&acme(), position).await;
    assert!(after.items.is_empty() && after.filtered == 0);
}

#[tokio::test]
async fn a_rotation_gives_newcomers_the_older_keys() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    sam.say(&acme(), "a", "epoch 1").await;
    let mut seven = world.device("user:7", "late").await;
    sam.look(&acme()).await;
    let rotated = sam.session.rotate(&acme()).await.expect("rotates");
    assert_eq!((rotated.epoch, rotated.devices, rotated.granted), (2, 3, 1));
    assert_eq!(seven.pull(&acme()).await.texts().len(), 1);
}

#[tokio::test]
async fn of_two_that_rotate_at_once_the_slower_tries_again_on_the_new_truth() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    // While Sam's first try is on its way, Alex rotates.
    let raced = Box::pin(async move {
        alex.session.rotate(&acme()).await.expect("rotates");
    });
    world
        .meddler
        .once(Method::POST, "/rotate", Meddle::After(raced));
    let rotated = sam.session.rotate(&acme()).await.expect("rotates");
    assert_eq!(rotated.epoch, 3);
    assert_eq!(
        sam.session
            .key_file()
            .contents()
            .epochs(&"g:acme".parse().expect("a key"))
            .count(),
        3
    );
}

#[tokio::test]
async fn a_roster_that_grew_meanwhile_is_covered() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    // Sam has met the newcomer before, in the graph of those two.
    world.device("user:7", "late").await;
    sam.look(&graph("d:user:7")).await;
    world.directory.leave("acme", "user:7");
    let directory = world.directory.clone();
    let joins = Box::pin(async move { directory.join("acme", "user:7") });
    world
        .meddler
        .once(Method::POST, "/rotate", Meddle::After(joins));
    let rotated = sam.session.rotate(&acme()).await.expect("rotates");
    assert_eq!((rotated.epoch, rotated.devices), (2, 3));
}

#[tokio::test]
async fn a_stranger_who_came_meanwhile_is_shown_first() {
    let world = World::new().await;
    let (mut sam, _) = world.pair().await;
    let mut seven = world.unregistered("user:7", "late").await;
    let name = seven.name();
    let registers = Box::pin(async move {
        seven.session.register(None).await.expect("registers");
    });
    world
        .meddler
        .once(Method::POST, "/rotate", Meddle::After(registers));
    let error = sam.session.rotate(&acme()).await.expect_err("refuses");
    assert!(
        matches!(&error, Error::Unlisted(who) if *who == [name]),
        "{error}"
    );
    sam.look(&acme()).await;
    let rotated = sam.session.rotate(&acme()).await.expect("rotates");
    assert_eq!((rotated.epoch, rotated.devices), (2, 3));
}

#[tokio::test]
async fn a_rotate_whose_answer_was_lost_is_one_epoch() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    world.meddler.once(Method::POST, "/rotate", Meddle::Cut);
    let rotated = sam.session.rotate(&acme()).await.expect("rotates");
    assert_eq!(rotated.epoch, 2);
    sam.say(&acme(), "a", "one").await;
    assert_eq!(alex.pull(&acme()).await.texts().len(), 1);
}

#[tokio::test]
async fn the_revoked_are_out_and_every_graph_that_owes_it_is_rotated() {
    let world = World::new().await;
    let mut sam = world.device("sam", "laptop").await;
    let mut old = world.device("sam", "old").await;
    let mut alex = world.device("alex", "phone").await;
    let (own, pair) = (graph("d:sam"), graph("d:alex"));
    sam.look(&acme()).await;
    for graph in [&acme(), &own, &pair] {
        sam.session.rotate(graph).await.expect("rotates");
    }
    sam.say(&acme(), "a", "old news").await;
    assert_eq!(old.pull(&acme()).await.texts().len(), 1);
    let revoked = sam
        .session
        .revoke(&old.name().device_id)
        .await
        .expect("revokes");
    assert_eq!(revoked.graphs_flagged, 3);

    // One graph fails and does not stop the others.
    world.meddler.set(
        |asked| match asked.is(Method::POST, "/graphs/d%3Aalex/rotate") {
            true => Meddle::Answer(problem(Code::Internal, |_| ())),
            false => Meddle::Pass,
        },
    );
    let report = sam.session.rotate_owed().await.expect("reports");
    let mut rotated: Vec<String> = report
        .rotated
        .iter()
        .map(|rotated| rotated.graph.to_string())
        .collect();
    rotated.sort();
    assert_eq!(rotated, ["d:sam", "g:acme"]);
    assert_eq!(report.owed, std::slice::from_ref(&pair));
    assert_eq!(report.failed.len(), 1);
    assert_eq!(report.failed[0].graph, pair);
    assert_eq!(report.failed[0].error.code(), Some(Code::Internal));
    world.meddler.rest();
    let report = sam.session.rotate_owed().await.expect("reports");
    assert_eq!(
        (report.rotated.len(), report.failed.len(), report.owed.len()),
        (1, 0, 0)
    );

    sam.say(&acme(), "b", "new news").await;
    let error = old
        .session
        .pull(&acme(), &Position::default())
        .await
        .expect_err("revoked");
    assert_eq!(error.code(), Some(Code::DeviceRevoked));
    let key: argala_wire::StorageKey = "g:acme".parse().expect("a key");
    assert!(old.session.key_file().contents().key(&key, 2).is_none());
    assert_eq!(alex.pull(&acme()).await.texts().len(), 2);
}

#[tokio::test]
async fn rotating_stops_where_the_next_would_fail_the_same_way() {
    let world = World::new().await;
    let mut sam = world.device("sam", "laptop").await;
    let old = world.device("sam", "old").await;
    sam.look(&acme()).await;
    for graph in [acme(), graph("d:sam"), graph("d:alex")] {
        sam.session.rotate(&graph).await.expect("rotates");
    }
    sam.session
        .revoke(&old.name().device_id)
        .await
        .expect("revokes");
    world
        .meddler
        .set(|asked| match asked.is(Method::POST, "/rotate") {
            true => Meddle::Answer(problem(Code::MemberInactive, |_| ())),
            false => Meddle::Pass,
        });
    let report = sam.session.rotate_owed().await.expect("reports");
    assert_eq!(
        (report.rotated.len(), report.failed.len(), report.owed.len()),
        (0, 1, 3)
    );
}

#[tokio::test]
async fn a_member_who_left_is_rotated_out() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    sam.say(&acme(), "a", "while Alex was here").await;
    alex.pull(&acme()).await;
    alex.say(&acme(), "b", "by Alex").await;
    world.directory.leave("acme", "alex");
    let info = sam.session.api().graph(&acme()).await.expect("told");
    assert_eq!(
        info.rotation_reasons[0].reason,
        RotationReason::MemberRemoved
    );
    let report = sam.session.rotate_owed().await.expect("reports");
    assert_eq!(report.rotated.len(), 1);
    sam.say(&acme(), "c", "after").await;
    // What a former member wrote is verified still, by one who was never there with them.
    let mut seven = world.device("user:7", "late").await;
    sam.look(&acme()).await;
    sam.session.grant(&acme(), None).await.expect("grants");
    let walk = seven.pull(&acme()).await;
    assert_eq!(walk.texts().len(), 3, "{:?}", walk.reasons());
}

#[tokio::test]
async fn there_is_nothing_to_give_without_a_key() {
    let world = World::new().await;
    let mut sam = world.device("sam", "laptop").await;
    let error = sam.session.grant(&acme(), None).await.expect_err("no key");
    assert!(matches!(error, Error::Unkeyed { .. }), "{error}");
    sam.session.rotate(&acme()).await.expect("rotates");
    let mut alex = world.device("alex", "phone").await;
    let error = alex.session.grant(&acme(), None).await.expect_err("behind");
    assert!(matches!(error, Error::KeysBehind { .. }), "{error}");
    let stranger = [device_ref("kim", "laptop")];
    let error = sam
        .session
        .grant(&acme(), Some(&stranger))
        .await
        .expect_err("not of the group");
    assert!(matches!(error, Error::Usage(_)), "{error}");
    let error = sam
        .session
        .rotate(&graph("g:none"))
        .await
        .expect_err("no such group");
    assert_eq!(error.code(), Some(Code::GraphNotFound));
}
