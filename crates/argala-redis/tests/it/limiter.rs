//! Limits by Redis's own clock, and what is kept there.

use std::time::Duration;

use argala_core::ports::Verdict;
use argala_testkit::{
    eventually, member,
    servers::{PrivateRedis, redis},
};

use crate::bench::{Limits, options, patient, up};

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_allow_what_one_would() {
    let server = redis().await;
    let options = patient(server.url());
    let (one, other) = (
        Limits::start(&options, 60, 20),
        Limits::start(&options, 60, 20),
    );
    up(&one.redis).await;
    up(&other.redis).await;
    let (a, b) = tokio::join!(one.allowed("sam", 30), other.allowed("sam", 30));
    // What came back meanwhile is at most a request or two.
    assert!((20..=22).contains(&(a + b)), "{a} and {b}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_as_told_is_allowed() {
    let server = redis().await;
    let limits = Limits::start(&patient(server.url()), 600, 2);
    up(&limits.redis).await;
    assert!(limits.allowed("sam", 3).await >= 2);
    for _ in 0..5 {
        let Verdict::Denied { retry_after } = limits.limiters.pull.check(&member("sam")).await
        else {
            continue;
        };
        assert!(retry_after <= Duration::from_millis(100), "{retry_after:?}");
        tokio::time::sleep(retry_after).await;
        assert_eq!(limits.allowed("sam", 1).await, 1);
    }
}

/// A denial is not asked for again while it holds, and not a moment longer is it believed.
#[tokio::test(flavor = "multi_thread")]
async fn a_denial_costs_redis_one_question() {
    let server = PrivateRedis::start().await;
    let limits = Limits::start(&patient(server.url()), 60, 1);
    up(&limits.redis).await;
    assert_eq!(limits.allowed("sam", 2).await, 1);
    let before = scripts(&server).await;
    assert_eq!(limits.allowed("sam", 200).await, 0);
    // A heartbeat or two.
    let asked = scripts(&server).await - before;
    assert!(asked <= 5, "{asked}");
    eventually("it is asked in time", || async {
        (limits.allowed("sam", 1).await == 1).then_some(())
    })
    .await;
}

/// How many scripts a server has run.
async fn scripts(server: &PrivateRedis) -> u64 {
    let told = server.ask(0, "INFO commandstats").await;
    told.lines()
        .filter(|line| line.starts_with("cmdstat_eval"))
        .filter_map(|line| {
            line.split("calls=")
                .nth(1)?
                .split(',')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .sum()
}

/// One command, one round trip: nothing but the script's name is sent, and its text once where it
/// is not known.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_the_scripts_is_told_them_again() {
    let server = PrivateRedis::start().await;
    let limits = Limits::start(&patient(server.url()), 60, 100);
    up(&limits.redis).await;
    assert_eq!(limits.allowed("sam", 10).await, 10);
    assert_eq!(server.ask(0, "SCRIPT FLUSH").await, "+OK");
    assert_eq!(limits.allowed("sam", 10).await, 10);
    assert!(!limits.redis.status().limiter_fallback, "no failure");
    let told = server.ask(0, "INFO commandstats").await;
    let texts = told
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_eval:calls="))
        .and_then(|rest| rest.split(',').next())
        .expect("it was told");
    // Twice for the limiter, once or twice for the heartbeat.
    assert!(["3", "4"].contains(&texts), "{texts}");
}

/// A recipe that is often used, an increment and then its expiry, leaves a key for ever where the
/// process ends between the two: its member is locked out. Here no key is without an expiry at any
/// moment, whenever a connection ends.
#[tokio::test(flavor = "multi_thread")]
async fn incr_then_expire_a_process_killed_at_any_moment_locks_nobody_out() {
    let server = PrivateRedis::start().await;
    let options = patient(server.url());
    for round in 0..10 {
        let limits = std::sync::Arc::new(Limits::start(&options, 600, 5));
        up(&limits.redis).await;
        let counters = limits.redis.counters();
        let hammer: Vec<_> = (0..4)
            .map(|at| {
                let (limits, counters) = (std::sync::Arc::clone(&limits), counters.clone());
                tokio::spawn(async move {
                    loop {
                        limits.allowed(&format!("m{round}-{at}"), 1).await;
                        let minute = Duration::from_secs(60);
                        let key = format!("k{round}-{at}");
                        let _ = counters.increment(&key, 1, minute).await;
                        // A denial that is known and a Redis that is away are told at once: without
                        // this the loop would leave its thread to nobody.
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        eventually("everybody is counted", || async {
            let keys = server.ask(0, "KEYS *").await;
            let all = (0..4).all(|at| {
                [format!(":m{round}-{at}"), format!(":k{round}-{at}")]
                    .iter()
                    .all(|key| keys.contains(key.as_str()))
            });
            all.then_some(())
        })
        .await;
        // As the end of the process would end them: nothing that was to follow follows.
        server.ask(0, "CLIENT KILL TYPE normal").await;
        for task in hammer {
            task.abort();
        }
        drop(limits);
        let keys = server.ask(0, "KEYS *").await;
        let mut seen = 0;
        for key in keys.lines().filter(|line| line.starts_with("test-")) {
            let left = server.ask(0, &format!("PTTL {key}")).await;
            assert!(left != ":-1", "{key} stays for ever");
            seen += 1;
        }
        assert!(seen >= 8, "{seen} keys:\n{keys}");
    }
}

/// A counter that lost its expiry somewhere else gets one with the next addition.
#[tokio::test(flavor = "multi_thread")]
async fn a_counter_left_for_ever_by_others_is_mended() {
    let server = PrivateRedis::start().await;
    let options = patient(server.url());
    let redis = crate::bench::replica(&options);
    let counters = redis.counters();
    server
        .ask(0, &format!("SET {}:counter:k 5", options.prefix))
        .await;
    let count = eventually("it counts", || async {
        counters
            .increment("k", 1, Duration::from_secs(60))
            .await
            .ok()
    })
    .await;
    assert_eq!(count, 6);
    let left = server
        .ask(0, &format!("PTTL {}:counter:k", options.prefix))
        .await;
    let left: u64 = left.trim_start_matches(':').parse().unwrap();
    assert!((1..=60_000).contains(&left));
}

/// What is kept of a member goes by itself when it means nothing any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_expires_when_the_bucket_is_full() {
    let server = PrivateRedis::start().await;
    let options = options(server.url());
    let limits = Limits::start(
        &argala_redis::Options {
            limiter_timeout: Duration::from_secs(10),
            ..options.clone()
        },
        60,
        10,
    );
    up(&limits.redis).await;
    limits.allowed("a:b {c}", 5).await;
    let key = format!("{}:limit:push:a%3Ab%20%7Bc%7D", options.prefix);
    let left = server.ask(0, &format!("PTTL {key}")).await;
    let left: u64 = left.trim_start_matches(':').parse().unwrap();
    assert!((10_000..=15_000).contains(&left), "{left}");
}
