//! `sync --watch`.

use std::time::Duration;

use argala_client::{
    Change, Watch,
    sync::{self, Blocked, Report},
};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::sync::{Work, failure};
use crate::{
    args,
    exit::{Exit, Failure},
};

/// How long to wait after a sync that failed and may succeed later.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// How many looks at the folder to wait after a sync, where what it waits for is no news of the graph
/// or the folder. `None` where there is no such thing.
fn looks(report: &Report) -> Option<u32> {
    let left = |why| report.left.iter().any(|it| it.reason == why);
    let unread = report.held_back > 0 || !report.refused.is_empty();
    if left(Blocked::NoKey) || unread || report.held > 0 {
        // The giver of a key may be listed.
        Some(6)
    } else if left(Blocked::Broken) {
        // The relay may have the part again; those that it has are fetched each time.
        Some(60)
    } else {
        None
    }
}

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
    let mut told: Option<Report> = None;
    loop {
        let until = match work.once().await {
            Ok(report) => {
                let is_new = report.needs_attention() && told.as_ref() != Some(&report);
                if told.is_none() || report.changed_anything() || is_new {
                    work.tell(&report)?;
                }
                // What could not be pushed just now is no news; what comes to it is.
                let stale = report.unpushed;
                let looks = looks(&report);
                told = Some(report);
                Until {
                    folder_has: Some(stale),
                    anew: looks.map(|looks| Instant::now() + args.interval * looks),
                }
            }
            Err(failure) if failure.exit() == Exit::Offline => {
                work.context.output.failed(&failure);
                Until {
                    folder_has: None,
                    anew: Some(Instant::now() + AFTER_FAILURE),
                }
            }
            Err(failure) => return Err(failure),
        };
        wait(work, args, watch, until).await?;
    }
}

/// What the next sync waits for, beside news of the graph.
struct Until {
    /// Other news of the folder than these, as [`sync::news`] numbers them; `None` where the folder
    /// need not be looked at.
    folder_has: Option<Option<u64>>,
    /// That it is time to try again.
    anew: Option<Instant>,
}

/// Waits for a reason to sync again.
async fn wait(
    work: &mut Work<'_>,
    args: &args::Sync,
    watch: &mut Watch,
    until: Until,
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
            () = time(until.anew) => return Ok(()),
            _ = ticks.tick(), if until.folder_has.is_some() => {
                let news = sync::news(&mut work.tree, &mut work.journal).await;
                let news = news.map_err(failure)?;
                if news.is_some() && Some(news) != until.folder_has {
                    return Ok(());
                }
            }
        }
    }
}

async fn time(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
