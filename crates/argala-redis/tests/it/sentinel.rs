//! Servers that Sentinels watch.

use argala_core::ports::{Poke, PokeSignal, Verdict};
use argala_testkit::{eventually, group, member, servers::PrivateRedis};
use argala_wire::StorageKey;
use futures_util::StreamExt as _;
use tokio::time::{Duration, Instant};

use crate::bench::{Limits, Pokes, arrives, options, up};

crate::suites::suites!(PrivateRedis::start_sentinels);

/// How the primary goes.
async fn fail_over(servers: &PrivateRedis, pause: bool) {
    let first = servers.primary().await;
    if pause {
        servers.pause(first);
    } else {
        servers.kill(first).await;
    }
    eventually("another primary", || async {
        (servers.primary().await != first).then_some(())
    })
    .await;
}

/// While the primary is gone and another is chosen, every request gets its verdict in time; then
/// limits are shared again, by themselves.
async fn limits_survive(pause: bool) {
    let servers = PrivateRedis::start_sentinels().await;
    let options = options(servers.url());
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
    let mut slowest = Duration::ZERO;
    let mut allowed = 0;
    let asked = async {
        loop {
            for replica in [&one, &other] {
                let begun = Instant::now();
                let verdict = replica.limiters.push.check(&member("sam")).await;
                slowest = slowest.max(begun.elapsed());
                allowed += u64::from(verdict == Verdict::Allowed);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let begun = Instant::now();
    tokio::select! {
        () = async {
            fail_over(&servers, pause).await;
            up(&one.redis).await;
            up(&other.redis).await;
        } => {}
        () = asked => {}
    }
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    // The burst on each side of the outage, the replicas' shares within it, and the rate.
    let most = 3 * 40 + begun.elapsed().as_secs() + 2;
    assert!((1..=most).contains(&allowed), "{allowed}");
    // What the new primary counts, it counts for both.
    eventually("the limits are shared", || async {
        let (before, after) = (
            one.allowed("alex", 40).await,
            other.allowed("alex", 1).await,
        );
        (before <= 41 && after == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_survive_a_primary_that_is_killed() {
    limits_survive(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_survive_a_primary_that_hangs() {
    limits_survive(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_go_on_with_the_next_primary() {
    let servers = PrivateRedis::start_sentinels().await;
    let redis = crate::bench::replica(&options(servers.url()));
    let counters = redis.counters();
    let long = Duration::from_secs(600);
    let count = || async { counters.increment("k", 1, long).await.ok() };
    eventually("it counts", count).await;
    fail_over(&servers, false).await;
    eventually("it counts again", count).await;
}

/// The streams are told to resync, and of what changes from then on.
#[tokio::test(flavor = "multi_thread")]
async fn pokes_survive_a_primary_that_is_killed() {
    let servers = PrivateRedis::start_sentinels().await;
    let options = options(servers.url());
    let (one, other) = (Pokes::start(&options), Pokes::start(&options));
    up(&one.redis).await;
    up(&other.redis).await;
    let mut sam = one.listen("sam", "laptop").await;
    let poke = Poke {
        storage_key: StorageKey::group(&group("acme")),
        members: vec![member("sam")],
        except: None,
    };
    let changed = PokeSignal::Changed(poke.storage_key.clone());
    other.sink.poke(&poke).await.unwrap();
    assert_eq!(sam.next().await, Some(changed.clone()));
    fail_over(&servers, false).await;
    assert_eq!(sam.next().await, Some(PokeSignal::Resync));
    arrives(&other, &poke, &mut sam).await;
}
