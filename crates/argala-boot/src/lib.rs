//! What the relay's binaries share: configuration, opening the ports, the two listeners, the
//! process's life, and what an operator does to its data.
//!
//! - [`config`]: `default.toml`, a file, the environment and flags become one checked [`Config`].
//! - [`ports`]: the store, the blob store and the directory that a configuration names.
//! - [`schema`]: whether this build may serve a store on a server, and making its tables.
//! - [`server`]: [`Server`] binds, serves, and stops in order.
//! - [`sweeping`]: the sweep of what a configuration names, pass after pass.
//! - [`logs`]: one line a request, one an event.
//! - [`dev`]: what `relay dev` starts with and prints.
//! - [`operator`]: members, groups, devices, graphs, tokens.
//!
//! Alone among the libraries it reads the environment and installs a global (the log). What it
//! does not do: no rules, no routes, no SQL.
//!
//! [`Config`]: config::Config
//! [`Server`]: server::Server

pub mod config;
pub mod dev;
mod identity;
pub mod logs;
pub mod operator;
pub mod ports;
pub mod schema;
pub mod server;
pub mod sweeping;

pub use argala_core::ports::{Clock, SystemClock};
pub use argala_http::openapi;
pub use argala_wire::{DeviceId, GroupId, MemberId, StorageKey, Timestamp, devices::Device};
