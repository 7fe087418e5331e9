//! The sweep of what a configuration names, pass after pass; and the process that does nothing else.

mod sweeper;

use std::{sync::Arc, time::Duration};

use argala_core::{
    StoreResult,
    ports::{ForgetReason, Random, SweepStore, SystemRandom},
    sweep::{Sweep, SweepOptions, SweepReport},
};

use crate::{config::Config, logs::EventLog, ports::Ports};

pub use argala_core::sweep::{Due, Preview};
pub use sweeper::{Once, Sweeper, SweeperError, once, preview};

/// The longest pause between passes that fail, unless they are further apart anyway.
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);

/// The sweep over these ports, by way of `store`.
#[must_use]
pub fn sweep(config: &Config, ports: &Ports, store: Arc<dyn SweepStore>) -> Sweep {
    let options = SweepOptions {
        grace: config.sweep.grace.0,
        ..SweepOptions::default()
    };
    let directory = Arc::clone(&ports.directory);
    let random: &dyn Random = &SystemRandom;
    Sweep::new(store, Arc::clone(&ports.blobs), directory, options)
        .clock(Arc::clone(&ports.clock))
        .events(Arc::new(EventLog))
        .compare_from(random.bytes())
}

/// Runs passes for ever, `every` so often; not at all where that is zero. Where passes fail, they
/// come further and further apart.
pub async fn passes(sweep: &Sweep, every: Duration) {
    if !every.is_zero() {
        tokio::time::sleep(every).await;
        passes_from_now(sweep, every).await;
    }
}

/// The same, with the first pass at once.
pub(crate) async fn passes_from_now(sweep: &Sweep, every: Duration) {
    let mut failures = 0;
    loop {
        failures = if told(&sweep.pass().await) {
            0
        } else {
            failures + 1
        };
        tokio::time::sleep(pause(every, failures)).await;
    }
}

/// How long to wait after so many passes have failed in a row.
#[must_use]
pub fn pause(every: Duration, failures: u32) -> Duration {
    every
        .saturating_mul(2_u32.saturating_pow(failures.min(16)))
        .min(LONGEST_PAUSE.max(every))
}

/// One line for a pass; each count by the name that `sweeper once` gives it, and blobs by the reason
/// that `blob.forget` tells.
macro_rules! line {
    ($level:ident, $report:expr) => {
        tracing::$level!(
            requested = $report.of(ForgetReason::Requested),
            expired = $report.of(ForgetReason::Expired),
            delivered = $report.of(ForgetReason::Delivered),
            orphaned = $report.of(ForgetReason::Orphaned),
            abandoned = $report.of(ForgetReason::Abandoned),
            leakedObjects = $report.leaked,
            tombstones = $report.tombstones,
            idempotencyKeys = $report.idempotency_keys,
            abandonedGraphs = $report.abandoned,
            erasedRows = $report.erased,
            failed = $report.failed,
            doubts = $report.doubts,
            more = $report.cut_short,
            "swept"
        )
    };
}

/// Logs what a pass has done; whether it ended well.
pub fn told(outcome: &StoreResult<SweepReport>) -> bool {
    match outcome {
        Ok(report) if *report == SweepReport::default() => {
            line!(debug, report);
            true
        }
        Ok(report) => {
            line!(info, report);
            true
        }
        Err(error) => {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "the sweep's pass failed; the next one tries again"
            );
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_that_fail_come_further_apart() {
        let minute = Duration::from_secs(60);
        assert_eq!(pause(minute, 0), minute);
        assert_eq!(pause(minute, 2), 4 * minute);
        assert_eq!(pause(minute, 99), LONGEST_PAUSE);
        assert_eq!(pause(60 * minute, 3), 60 * minute);
    }
}
