//! Pokes, and the changes that a lost poke would have told.

use std::time::Duration;

use argala_client::{Change, Watch};
use argala_testkit::PATIENCE;
use argala_wire::Code;
use http::Method;

use crate::world::{Meddle, World, acme, problem};

async fn next(watch: &mut Watch) -> Change {
    tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("in time")
        .expect("a change")
}

#[tokio::test]
async fn a_poke_wakes_a_watch_and_its_own_does_not() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let mut watch = Watch::new(world.client(&alex.name()));
    assert_eq!(next(&mut watch).await, Change::Ready);
    alex.say(&acme(), "a", "by Alex").await;
    sam.say(&acme(), "b", "by Sam").await;
    assert_eq!(next(&mut watch).await, Change::Poked(acme()));
    // Alex's own push poked nobody here: the next poke is Sam's next.
    let quiet = tokio::time::timeout(Duration::from_millis(200), watch.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    sam.say(&acme(), "c", "more").await;
    assert_eq!(next(&mut watch).await, Change::Poked(acme()));
}

#[tokio::test]
async fn what_happened_while_the_stream_was_cut_is_told() {
    let world = World::new().await;
    let (mut sam, alex) = world.pair().await;
    // The first stream ends at once after its hello.
    world.meddler.once(
        Method::GET,
        "/pokes",
        Meddle::Answer(
            http::Response::builder()
                .header("content-type", "text/event-stream")
                .body("data: {\"type\":\"argala.hello\"}\n\n".into())
                .expect("an answer"),
        ),
    );
    let mut watch = Watch::new(world.client(&alex.name()));
    assert_eq!(next(&mut watch).await, Change::Ready);
    assert_eq!(next(&mut watch).await, Change::Lost);
    sam.say(&acme(), "a", "nobody was listening").await;
    assert_eq!(next(&mut watch).await, Change::Ready);
    assert_eq!(next(&mut watch).await, Change::Poked(acme()));
}

#[tokio::test]
async fn a_relay_that_is_away_is_asked_again_and_one_that_refuses_is_not() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let mut left = 6;
    world.meddler.set(move |asked| {
        if !asked.is(Method::GET, "/pokes") || left == 0 {
            return Meddle::Pass;
        }
        left -= 1;
        Meddle::Answer(problem(Code::Unavailable, |_| ()))
    });
    let mut watch = Watch::new(world.client(&alex.name()));
    assert_eq!(next(&mut watch).await, Change::Ready);
    world.meddler.rest();

    let phone = alex.name().device_id;
    alex.session.revoke(&phone).await.expect("revokes itself");
    let refused = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Err(error) = watch.next().await {
                return error;
            }
        }
    });
    assert_eq!(
        refused.await.expect("in time").code(),
        Some(Code::DeviceRevoked)
    );
    sam.say(&acme(), "a", "goes on").await;
}

/// The next change by waits of no length to speak of, as a loop that does other things has them.
async fn next_in_bits(watch: &mut Watch) -> Change {
    let bits = async {
        loop {
            let bit = tokio::time::timeout(Duration::from_millis(1), watch.next());
            if let Ok(change) = bit.await {
                return change.expect("a change");
            }
        }
    };
    tokio::time::timeout(PATIENCE, bits).await.expect("in time")
}

#[tokio::test]
async fn a_dropped_wait_loses_nothing() {
    let world = World::new().await;
    let (mut sam, alex) = world.pair().await;
    let mut watch = Watch::new(world.client(&alex.name()));
    assert_eq!(next_in_bits(&mut watch).await, Change::Ready);
    sam.say(&acme(), "a", "one").await;
    assert_eq!(next_in_bits(&mut watch).await, Change::Poked(acme()));
}
