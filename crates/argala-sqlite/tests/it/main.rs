//! The database from outside: the contract of its ports, and what is its own.
#![cfg(test)]

mod batches;
mod contract;
mod crash;
mod crowd;
#[cfg(target_os = "linux")]
mod memory;
mod objects;
mod opening;
mod plans;
mod relay;
mod scene;
mod statements;
mod sweeping;
mod two_processes;
