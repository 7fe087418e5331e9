//! When a request is made again, and after how long.

use std::time::Duration;

use argala_wire::{Code, Problem};

use crate::crypto::random;

/// How patient the client is. Waits are full of chance, so that a crowd of clients that lost
/// their relay at one moment does not come back at one moment.
#[derive(Debug, Clone)]
pub struct Retry {
    /// How often a request is made at the most where no usable answer comes; at least 1.
    pub tries: u32,
    /// The first wait; each further one is twice as long.
    pub first_wait: Duration,
    /// The longest such wait.
    pub longest_wait: Duration,
    /// How long one call waits in all because the relay said so (429, 503) before it gives up
    /// and reports what the relay said.
    pub patience: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            tries: 6,
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(10),
            patience: Duration::from_secs(150),
        }
    }
}

impl Retry {
    /// One try and no more.
    #[must_use]
    pub fn never() -> Self {
        Self {
            tries: 1,
            patience: Duration::ZERO,
            ..Self::default()
        }
    }

    pub(crate) fn begin(&self) -> Attempts<'_> {
        Attempts {
            retry: self,
            failed: 0,
            told: Duration::ZERO,
        }
    }
}

/// Between a half and the whole of `wait`.
fn jitter(wait: Duration) -> Duration {
    let part = f64::from(u32::from_be_bytes(random())) / f64::from(u32::MAX);
    wait.div_f64(2.0) + wait.div_f64(2.0).mul_f64(part)
}

/// What came of a request that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No answer, or half of one.
    Cut,
    /// The relay, or a proxy before it, cannot answer now (502, 503, 504).
    Unavailable {
        /// How long it asks to be left alone.
        after: Option<Duration>,
    },
    /// An allowance is used up (429).
    Limited {
        /// When there will be some again.
        after: Duration,
    },
    /// An answer that will be the same next time: 401, 403, a quota, and all else.
    Final,
}

impl Failure {
    /// What an answer with `status` is; `problem` is its body and `after` its `Retry-After`.
    pub(crate) fn of(status: u16, problem: Option<&Problem>, after: Option<Duration>) -> Self {
        match status {
            429 => {
                let exact = problem
                    .filter(|problem| problem.code == Code::RateLimited)
                    .and_then(|problem| problem.retry_after_ms)
                    .map(Duration::from_millis);
                Self::Limited {
                    after: exact.or(after).unwrap_or(Duration::from_secs(1)),
                }
            }
            502..=504 => Self::Unavailable { after },
            _ => Self::Final,
        }
    }
}

/// The tries of one call.
pub(crate) struct Attempts<'a> {
    retry: &'a Retry,
    failed: u32,
    told: Duration,
}

impl Attempts<'_> {
    /// How long to wait before the next try; `None` where there is none.
    pub(crate) fn after(&mut self, failure: Failure) -> Option<Duration> {
        let told = match failure {
            Failure::Final => return None,
            // Waiting as told is no failure, however often: it ends with the patience.
            Failure::Limited { after } => {
                self.told += after;
                return (self.told <= self.retry.patience).then(|| after + jitter(after / 8));
            }
            Failure::Unavailable { after } => after,
            Failure::Cut => None,
        };
        self.failed += 1;
        if self.failed >= self.retry.tries {
            return None;
        }
        let doubled = 2_u32.saturating_pow(self.failed - 1);
        let wait = self.retry.first_wait.saturating_mul(doubled);
        let wait = jitter(wait.min(self.retry.longest_wait));
        let Some(told) = told else {
            return Some(wait);
        };
        self.told += told;
        (self.told <= self.retry.patience).then(|| wait.max(told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_grow_to_a_ceiling_and_end() {
        let retry = Retry::default();
        let mut attempts = retry.begin();
        let mut least = Duration::ZERO;
        for n in 0..5 {
            let wait = attempts.after(Failure::Cut).expect("six tries");
            let full = retry.first_wait * 2_u32.pow(n);
            assert!(wait >= full / 2 && wait <= full, "{wait:?} of {full:?}");
            assert!(wait >= least);
            least = full / 2;
        }
        assert_eq!(attempts.after(Failure::Cut), None);
    }

    #[test]
    fn what_will_not_change_is_not_asked_again() {
        for status in [400, 401, 403, 404, 409, 410, 412, 413, 422, 500] {
            let failure = Failure::of(status, None, Some(SECOND));
            assert_eq!(Retry::default().begin().after(failure), None, "{status}");
        }
    }

    #[test]
    fn a_rate_limit_is_waited_for_as_told_and_not_for_ever() {
        let mut problem = Problem::new(Code::RateLimited, "later");
        problem.retry_after_ms = Some(20);
        let failure = Failure::of(429, Some(&problem), Some(SECOND));
        assert_eq!(
            failure,
            Failure::Limited {
                after: Duration::from_millis(20)
            }
        );
        assert_eq!(
            Failure::of(429, None, Some(3 * SECOND)),
            Failure::Limited { after: 3 * SECOND }
        );
        let retry = Retry::default();
        let mut attempts = retry.begin();
        let mut waits = 0;
        while let Some(wait) = attempts.after(Failure::Limited { after: 10 * SECOND }) {
            assert!(wait >= 10 * SECOND);
            waits += 1;
        }
        assert_eq!(waits, 15);
    }

    #[test]
    fn an_unavailable_relay_is_left_alone_as_long_as_it_asks() {
        let retry = Retry::default();
        let failure = Failure::of(503, None, Some(5 * SECOND));
        assert!(retry.begin().after(failure).expect("again") >= 5 * SECOND);
        let failure = Failure::of(503, None, Some(1_000 * SECOND));
        assert_eq!(retry.begin().after(failure), None);
        assert_eq!(Retry::never().begin().after(Failure::Cut), None);
    }
}
