//! Counters while Redis is away.

use std::time::Duration;

use argala_core::StoreErrorKind;
use argala_testkit::{eventually, servers::PrivateRedis};

use crate::bench::{options, replica};

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_cannot_be_reached_says_so_at_once_and_comes_back() {
    let server = PrivateRedis::start().await;
    let redis = replica(&options(server.url()));
    let counters = redis.counters();
    let long = Duration::from_secs(600);
    let count = || async { counters.increment("k", 1, long).await.ok() };
    eventually("it counts", count).await;
    server.kill(0).await;
    let fault = eventually("it is missed", || async { counters.read("k").await.err() }).await;
    assert_eq!(fault.kind, StoreErrorKind::Unavailable);
    server.start_again(0).await;
    assert_eq!(eventually("it counts from nothing", count).await, 1);
}
