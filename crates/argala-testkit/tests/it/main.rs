//! The suites against the plainest adapters: what they ask can be done, and each case is stamped.
#![cfg(test)]

mod docker;
mod listed;
mod postgres;
mod redis;
mod reference;
