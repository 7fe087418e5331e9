//! Time and chance that a test decides.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use argala_core::ports::{Clock, Random};
use argala_wire::Timestamp;
use sha2::{Digest, Sha256};

/// The time at which every [`TestClock`] starts: 2026-01-01T00:00:00.000Z.
pub const EPOCH: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A clock that stands still until it is told otherwise. Clones show the same time.
#[derive(Debug, Clone)]
pub struct TestClock(Arc<AtomicI64>);

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl TestClock {
    /// A clock that shows [`EPOCH`].
    #[must_use]
    pub fn new() -> Self {
        Self::at(EPOCH)
    }

    /// A clock that shows `time`.
    #[must_use]
    pub fn at(time: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(time.as_millis())))
    }

    /// Shows `time` from now on, be it earlier or later.
    pub fn set(&self, time: Timestamp) {
        self.0.store(time.as_millis(), Ordering::SeqCst);
    }

    /// Moves on by `duration`, and tells the time it then is.
    pub fn advance(&self, duration: Duration) -> Timestamp {
        let millis = i64::try_from(duration.as_millis()).expect("a test does not wait for ages");
        Timestamp::from_millis(self.0.fetch_add(millis, Ordering::SeqCst) + millis)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Bytes that look random and are the same for the same seed. Clones share their place in the
/// sequence.
#[derive(Debug, Clone)]
pub struct TestRandom {
    seed: u64,
    block: Arc<AtomicU64>,
}

impl Default for TestRandom {
    fn default() -> Self {
        Self::new(0)
    }
}

impl TestRandom {
    /// The sequence of `seed`, from its beginning.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            block: Arc::new(AtomicU64::new(0)),
        }
    }

    /// The next number of the sequence.
    #[must_use]
    pub fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// A number from 0 to `bound`, `bound` excluded.
    ///
    /// # Panics
    /// Where `bound` is 0.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// True once in `n` times.
    #[must_use]
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `items`.
    ///
    /// # Panics
    /// Where there are none.
    #[must_use]
    pub fn pick<'a, T>(&self, items: &'a [T]) -> &'a T {
        let at = self.below(items.len() as u64);
        &items[usize::try_from(at).expect("an index of the slice")]
    }
}

impl Random for TestRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            let block = self.block.fetch_add(1, Ordering::SeqCst);
            let mut hash = Sha256::new();
            hash.update(self.seed.to_be_bytes());
            hash.update(block.to_be_bytes());
            chunk.copy_from_slice(&hash.finalize()[..chunk.len()]);
        }
    }
}
