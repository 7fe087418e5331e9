//! `sync --watch`.

use std::time::Duration;

use argala_client::{Change, Watch, sync};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::sync::{Work, failure};
use crate::{
    args,
    exit::{Exit, Failure},
};

/// How long to wait after a sync that failed and may succeed later.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// Syncs, and again whenever the graph or the folder has news, until interrupted. To be
/// interrupted is how it ends, and no failure.
pub(super) async fn watch(work: &mut Work<'_>, args: &args::Sync) -> Result<Exit, Failure> {
    let context = work.context;
    let client = context.client(&context.credential()?)?;
    let mut watch = Watch::new(client);
    tokio::select! {
        done = go_on(work, args, &mut watch) => done,
        // Wherever it is: a sync may end anywhere.
        _ = tokio::signal::ctrl_c() => Ok(Exit::Done),
    }
}

async fn go_on(work: &mut Work<'_>, args: &args::Sync, watch: &mut Watch) -> Result<Exit, Failure> {
    let mut first = true;
    loop {
        // What could not be pushed just now is no news; what comes to it is.
        let (stale, retry) = match work.once().await {
            Ok(report) => {
                if first || report.changed_anything() || report.needs_attention() {
                    work.tell(&report)?;
                }
                (report.unpushed, None)
            }
            Err(failure) if failure.exit() == Exit::Offline => {
                work.context.output.failed(&failure);
                (None, Some(Instant::now() + AFTER_FAILURE))
            }
            Err(failure) => return Err(failure),
        };
        first = false;
        wait(work, args, watch, stale, retry).await?;
    }
}

/// Waits for news of the graph or the folder, or until it is time to try again.
async fn wait(
    work: &mut Work<'_>,
    args: &args::Sync,
    watch: &mut Watch,
    stale: Option<u64>,
    retry: Option<Instant>,
) -> Result<(), Failure> {
    let mut ticks = interval_at(Instant::now() + args.interval, args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            change = watch.next() => match change? {
                Change::Poked(graph) if graph == args.graph => return Ok(()),
                // Until the stream is open nothing is told: what came in between is looked up.
                Change::Ready => return Ok(()),
                Change::Poked(_) | Change::Lost => {}
            },
            () = until(retry) => return Ok(()),
            _ = ticks.tick(), if retry.is_none() => {
                let news = sync::news(&mut work.tree, &mut work.journal).await;
                let news = news.map_err(failure)?;
                if news.is_some() && news != stale {
                    return Ok(());
                }
            }
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
