//! The suites against the plainest adapters: what they ask can be done, and each case is stamped.
#![cfg(test)]

#[cfg(feature = "servers")]
mod docker;
mod listed;
#[cfg(feature = "servers")]
mod postgres;
#[cfg(feature = "servers")]
mod redis;
mod reference;
