//! The database from outside: the contract of its ports, and what is its own.
#![cfg(test)]

mod batches;
mod bouncer;
mod contract;
mod database;
mod divided;
mod encryption;
mod faults;
mod leading;
mod locked;
mod looks;
#[cfg(target_os = "linux")]
mod memory;
mod objects;
mod opening;
mod plans;
mod promoted;
mod relay;
mod remembered;
mod scene;
mod shapes;
mod sized;
mod statements;
mod sweeping;
mod sweeps;
