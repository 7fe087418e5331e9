//! The binary with limits and pokes on a real Redis.

mod outage;
mod replicas;

use argala_testkit::servers::PrivateRedis;
use tokio::runtime::Runtime;

/// The variables that put limits and pokes on the Redis at `url`.
fn shared<'a>(url: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut variables = vec![
        ("ARGALA__REDIS__URL", url),
        ("ARGALA__LIMITER__KIND", "redis"),
        ("ARGALA__POKES__KIND", "redis"),
    ];
    variables.extend_from_slice(more);
    variables
}

/// Runs what the servers of a test need; its own threads carry it while the test blocks.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

fn redis(runtime: &Runtime) -> PrivateRedis {
    runtime.block_on(PrivateRedis::start())
}
