//! Limits, counters and pokes on real Redis servers: one, a cluster, and servers that Sentinels
//! watch; paused, cut off, killed and started again.
#![cfg(test)]

mod bench;
mod cluster;
mod counters;
mod limiter;
mod outage;
mod pokes;
mod sentinel;
mod single;
mod suites;
