//! Redis away, slow, silent and back, and limits all the while.

use std::time::Duration;

use argala_core::ports::Verdict;
use argala_testkit::{
    eventually, member,
    servers::{Passage, PrivateRedis},
};
use tokio::time::Instant;

use crate::bench::{Limits, options, up};

/// Room for a machine with few cores on which much else runs.
const LATE: Duration = Duration::from_millis(500);

/// Asks for a while; how many were allowed, and how long the longest verdict took, without the
/// first few, which may find out.
async fn ask(limits: &Limits, name: &str, times: usize) -> (usize, Duration) {
    let (mut allowed, mut slowest) = (0, Duration::ZERO);
    for _ in 0..times {
        let begun = Instant::now();
        let verdict = limits.limiters.push.check(&member(name)).await;
        slowest = slowest.max(begun.elapsed());
        allowed += usize::from(verdict == Verdict::Allowed);
    }
    (allowed, slowest)
}

async fn fallen_back(limits: &Limits) {
    eventually("it limits by itself", || async {
        // It is found out by being asked, too.
        limits.allowed("nobody", 1).await;
        limits.redis.status().limiter_fallback.then_some(())
    })
    .await;
}

/// Never unlimited, never an outage: two replicas without Redis allow a half each.
#[tokio::test(flavor = "multi_thread")]
async fn without_redis_each_replica_allows_its_share() {
    let server = PrivateRedis::start().await;
    let options = options(server.url());
    let (one, other) = (
        Limits::start(&options, 60, 40),
        Limits::start(&options, 60, 40),
    );
    up(&one.redis).await;
    up(&other.redis).await;
    eventually("they know of each other", || async {
        (one.redis.status().replicas == 2 && other.redis.status().replicas == 2).then_some(())
    })
    .await;
    server.kill(0).await;
    fallen_back(&one).await;
    fallen_back(&other).await;
    let begun = Instant::now();
    let (a, slow_a) = ask(&one, "sam", 60).await;
    let (b, slow_b) = ask(&other, "sam", 60).await;
    let worth = 20 + usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
    assert!((20..=worth).contains(&a), "{a}");
    assert!((20..=worth).contains(&b), "{b}");
    assert!(slow_a < LATE && slow_b < LATE, "{slow_a:?} {slow_b:?}");
    server.start_again(0).await;
    up(&one.redis).await;
    up(&other.redis).await;
    let (a, _) = ask(&one, "alex", 60).await;
    let (b, _) = ask(&other, "alex", 60).await;
    assert!((40..=44).contains(&(a + b)), "shared again: {a} and {b}");
}

/// Whoever has used up their burst is not given another one because Redis goes.
#[tokio::test(flavor = "multi_thread")]
async fn what_redis_has_allowed_is_counted_here_too() {
    let server = PrivateRedis::start().await;
    let limits = Limits::start(&options(server.url()), 6, 30);
    up(&limits.redis).await;
    let begun = Instant::now();
    let before = limits.allowed("sam", 30).await;
    server.kill(0).await;
    fallen_back(&limits).await;
    let after = limits.allowed("sam", 30).await;
    let worth = 31 + usize::try_from(begun.elapsed().as_secs() / 10).unwrap();
    assert!(before + after <= worth, "{before} and {after}");
}

/// Not even the first requests wait for long, and the others for nothing: one question finds out
/// for all.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_hangs_holds_up_nobody() {
    let server = PrivateRedis::start().await;
    let limits = Limits::start(&options(server.url()), 60_000, 60_000);
    up(&limits.redis).await;
    server.pause(0);
    let (mut waited, mut slowest) = (0, Duration::ZERO);
    for _ in 0..500 {
        let (allowed, took) = ask(&limits, "sam", 1).await;
        assert_eq!(allowed, 1);
        slowest = slowest.max(took);
        waited += usize::from(took >= Duration::from_millis(45));
    }
    assert!(slowest < LATE, "{slowest:?}");
    // The first one finds out; room for what a busy machine holds up by itself.
    assert!(waited <= 5, "{waited} waited");
    assert!(limits.redis.status().limiter_fallback);
    server.resume(0);
    up(&limits.redis).await;
}

/// A network that swallows packets: nobody is told that a connection is dead. It heals, for the
/// old connection or for new ones only, and Redis is used again.
#[tokio::test(flavor = "multi_thread")]
async fn fred_307_and_315_a_network_that_swallows_everything_is_noticed_and_heals() {
    let server = PrivateRedis::start().await;
    let passage = Passage::to(server.ports()[0]).await;
    let url = format!("redis://127.0.0.1:{}", passage.port());
    let limits = Limits::start(&options(&url), 60_000, 60_000);
    up(&limits.redis).await;
    for for_new_only in [false, true] {
        passage.close();
        let (allowed, slowest) = ask(&limits, "sam", 500).await;
        assert_eq!(allowed, 500);
        assert!(slowest < LATE, "{slowest:?}");
        assert!(limits.redis.status().limiter_fallback);
        if for_new_only {
            passage.open_for_new();
        } else {
            passage.open();
        }
        up(&limits.redis).await;
        let before = passage.carried();
        eventually("Redis is asked again", || async {
            limits.allowed("sam", 10).await;
            (passage.carried() > before + 1_000).then_some(())
        })
        .await;
    }
}

/// A replica starts without Redis, and uses it as soon as it is there.
#[tokio::test(flavor = "multi_thread")]
async fn redis_may_come_later() {
    let server = PrivateRedis::start().await;
    server.kill(0).await;
    let limits = Limits::start(&options(server.url()), 60, 10);
    let (allowed, slowest) = ask(&limits, "sam", 30).await;
    assert!((10..=12).contains(&allowed), "{allowed}");
    assert!(slowest < LATE, "{slowest:?}");
    server.start_again(0).await;
    up(&limits.redis).await;
}

/// A server that takes no writes is no limiter: it is told from one that is well, and nobody waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_is_as_good_as_none() {
    let server = PrivateRedis::start().await;
    let limits = Limits::start(&options(server.url()), 60, 10);
    up(&limits.redis).await;
    // A replica of nobody.
    server.ask(0, "REPLICAOF 127.0.0.1 1").await;
    fallen_back(&limits).await;
    let (allowed, slowest) = ask(&limits, "sam", 30).await;
    assert!((10..=12).contains(&allowed), "{allowed}");
    assert!(slowest < LATE, "{slowest:?}");
    server.ask(0, "REPLICAOF NO ONE").await;
    up(&limits.redis).await;
}

/// A replica that has gone is counted no more, at once where it says goodbye.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_counted_while_they_live() {
    let server = PrivateRedis::start().await;
    let options = options(server.url());
    let one = Limits::start(&options, 60, 10);
    let other = Limits::start(&options, 60, 10);
    let killed = Limits::start(&options, 60, 10);
    let counted = async |count: u32| {
        eventually("they are counted", || async {
            (one.redis.status().replicas == count).then_some(())
        })
        .await;
    };
    counted(3).await;
    other.redis.close().await;
    counted(2).await;
    // Without a word, as a process that is killed goes.
    drop(killed);
    counted(1).await;
}
