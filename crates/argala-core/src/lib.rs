//! The relay without its surroundings: rules, ports, and the [`Relay`] that runs an operation over
//! the ports.
//!
//! - [`rules`]: what each operation decides, as pure functions. Every store calls them inside its
//!   transaction, so that two databases cannot disagree.
//! - [`ports`]: what the relay asks of the world, as traits.
//! - [`Relay`]: one method for each route; what an HTTP layer calls.
//! - [`memory`]: the ports that need nothing but memory: rate limits and pokes of one process.
//! - [`shared`]: rate limits over a counter that a host brings.
//! - [`sweep`]: the pass that forgets what is due; [`erase`]: removing what is forgotten.
//!
//! What it does not do: no HTTP, no SQL, no files, no environment, no global state. It starts
//! tasks only under a [`Relay`], and [`Relay::close`] ends them.

mod cursor;
pub mod erase;
mod error;
pub mod memory;
pub mod ports;
mod relay;
pub mod rules;
pub mod shared;
pub mod sweep;

pub use error::{Fault, Outcome, Quota, Rejection, StoreError, StoreErrorKind, StoreResult};
pub use relay::{
    Access, Caller, Gate, IdempotencyKey, Identity, PageQuery, PokeStream, PullQuery, Relay,
    RelayBuilder, Upload,
};
