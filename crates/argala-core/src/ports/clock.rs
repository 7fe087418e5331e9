//! Time and chance, passed in so that every rule can be replayed in a test.

use argala_wire::Timestamp;

/// Tells the time of day.
pub trait Clock: Send + Sync + 'static {
    /// The present.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the port's one real implementation"
    )]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let millis = since.map_or(0, |duration| duration.as_millis());
        Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
    }
}

/// Gives bytes that nobody can guess.
pub trait Random: Send + Sync + 'static {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

impl dyn Random {
    /// A number that fits a database's signed integer and is not zero.
    pub fn positive(&self) -> u64 {
        loop {
            let mut bytes = [0; 8];
            self.fill(&mut bytes);
            let number = u64::from_be_bytes(bytes) >> 1;
            if number != 0 {
                return number;
            }
        }
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

/// The operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system has randomness");
    }
}
