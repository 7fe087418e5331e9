//! What the tests of every other crate stand on: fixtures, and suites that hold any adapter to
//! the contract of its port.
//!
//! - Fixtures: [`TestDevice`] (keys and signatures), [`TestClock`] and [`TestRandom`] (time and
//!   chance that a test decides), [`MemoryDirectory`], [`EventLog`] and [`PokeLog`].
//! - [`MemoryBlobs`] and [`ReferenceStore`]: the plainest adapters there can be, to compare others
//!   with.
//! - `servers`, a feature: a real Postgres, shared by all tests or one's own; a real Redis; a real
//!   S3; a way to either that can be closed.
//! - [`Interposed`]: a port with a test in between, which fails, loses or holds up what it likes.
//! - [`conformance`]: the suites, stamped by [`store_conformance!`], [`race_conformance!`],
//!   [`directory_conformance!`], [`blob_conformance!`], [`limiter_conformance!`],
//!   [`counter_conformance!`], [`poke_conformance!`], [`relay_conformance!`],
//!   [`interleaving_conformance!`] and [`statements_conformance!`].
//!
//! A dev-dependency only, never published. Everything here panics where an adapter breaks its
//! contract: the panic is the report.

mod blobs;
pub mod conformance;
mod device;
mod directory;
mod event;
mod interposed;
mod names;
mod poke;
mod reference;
#[cfg(feature = "servers")]
pub mod servers;
pub mod stock;
mod time;
mod wait;

pub use blobs::MemoryBlobs;
pub use device::TestDevice;
pub use directory::MemoryDirectory;
pub use event::EventLog;
pub use interposed::{Interpose, Interposed};
pub use names::{blob_id, device_id, device_ref, group, member, record_id};
pub use poke::PokeLog;
pub use reference::ReferenceStore;
pub use time::{EPOCH, TestClock, TestRandom};
pub use wait::{PATIENCE, eventually};
