//! The Argala client: typed calls of every route, the reference end-to-end encryption, and the
//! rules by which a device operates.
//!
//! | to | start with |
//! | --- | --- |
//! | read and write graphs | [`Session`], and [`GraphAccess`] for code that works over any |
//! | be told of changes | [`Watch`] |
//! | keep a folder in step with a graph | [`sync`] |
//! | speak the protocol, with encryption of your own | [`api::Client`] |
//! | write a client in another language | [`crypto`], which describes every byte |
//!
//! The layers: [`api`] speaks HTTP and knows nothing of keys; [`crypto`] seals and opens and knows
//! nothing of the network; [`keyfile`] and [`state`] keep what must survive; [`Session`] joins
//! them by the operating rules. The `argala` command is a thin shell around a session.
//!
//! What it does not do: decide who may read what (the host's directory does), merge what an
//! application writes (only it can), or trust the relay with more than carrying bytes.

pub mod access;
pub mod api;
pub mod crypto;
mod doubt;
pub mod error;
pub mod events;
mod files;
pub mod keyfile;
pub mod session;
pub mod state;
pub mod sync;
mod watch;

pub use access::{GraphAccess, Item, Kind, Outcome, Position, Pulled, Refused, StoredBlob, Write};
pub use api::{Client, Credential};
pub use doubt::Doubt;
pub use error::{Error, Refusal};
pub use events::{Event, ObserverFn, Progress, ProgressFn};
pub use files::UNFINISHED;
pub use keyfile::KeyFile;
pub use session::{LOSS_WARNING, Session};
pub use watch::{Change, Watch};
