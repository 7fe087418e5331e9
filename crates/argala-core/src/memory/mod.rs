//! Ports that need nothing but memory: enough for one process, and for tests.

mod counters;
mod limiter;
mod pokes;

pub use counters::MemoryCounters;
pub use limiter::MemoryLimiter;
pub use pokes::MemoryPokes;
