//! The rules, held to the protocol over all the inputs that a generator finds; and the ports that
//! live in memory, held to the suites that every adapter is held to.
#![cfg(test)]

mod blob;
mod device;
mod given;
mod grant;
mod memory;
mod pull_cursor;
mod pull_tag;
mod pull_walk;
mod push_faults;
mod push_model;
mod push_signature;
mod push_whole;
mod roster;
mod rotate;
mod shared;
mod shelf;
mod sweep;
