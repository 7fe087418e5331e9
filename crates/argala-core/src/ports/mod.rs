//! The ports: what the relay asks of the world, as traits. Adapters live in crates of their own;
//! those that need nothing but memory live in [`crate::memory`].

mod blob;
mod clock;
mod counter;
mod directory;
mod event;
mod limiter;
mod poke;
pub mod store;

pub use blob::{BlobStore, ByteStream, ListedObject, ObjectKey, ObjectLink};
pub use clock::{Clock, Random, SystemClock, SystemRandom};
pub use counter::CounterStore;
pub use directory::{Directory, DirectoryTables};
pub use event::{Event, EventSink, ForgetReason, NoEvents};
pub use limiter::{RateLimiter, RateLimiters, Verdict};
pub use poke::{Poke, PokeSignal, PokeSink, PokeSource, PokeSubscription};
pub use store::{Store, SweepStore, UpkeepStore};
