//! The client against the real relay: router, rules and database, over a socket.
//!
//! [`world`] starts a relay and makes devices; between the two stands a meddler, which plays the
//! relay that lies and the network that fails.
#![cfg(test)]

mod api;
mod blobs;
mod command;
mod deceit;
mod deceit_command;
mod deceit_roster;
mod devices;
mod held;
mod keys;
mod records;
mod recovery;
mod sync;
mod sync_command;
mod vectors;
mod watch;
mod world;
