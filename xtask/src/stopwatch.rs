//! How long a step took.

use std::time::{Duration, Instant};

/// A running measurement.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    #[expect(
        clippy::disallowed_methods,
        reason = "a developer's tool measures real time; there is no rule here to replay"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since [`Stopwatch::start`].
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Writes a duration as a person would say it: `850 ms`, `12.3 s`, `4 min 05 s`.
pub(crate) fn spoken(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds >= 60 {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    } else if seconds >= 1 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} ms", duration.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_naturally() {
        assert_eq!(spoken(Duration::from_millis(850)), "850 ms");
        assert_eq!(spoken(Duration::from_millis(12_340)), "12.3 s");
        assert_eq!(spoken(Duration::from_secs(245)), "4 min 05 s");
    }
}
