//! Driving one arm with many callers for a while.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use tokio::{sync::Barrier, time::Instant};

use crate::{
    arms::{Arm, GRAPHS},
    cpu::{Cpu, Spent},
};

/// What one caller does over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Pushes of so many new records, to graphs in turn.
    Push { records: usize, graphs: Graphs },
    /// Pages of so many records, of one full graph, from its beginning again and again.
    Pull { page: usize },
}

/// Where a push goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Graphs {
    /// A thousand graphs; each caller has its own share of them.
    Many,
    /// One graph for all callers.
    One,
}

/// What came of it.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Records that were acknowledged, or returned.
    pub(crate) records: u64,
    /// The same before the time was taken.
    pub(crate) before: u64,
    /// How long it took.
    pub(crate) took: Duration,
    /// Microseconds a request.
    pub(crate) latency: Histogram<u64>,
    /// Processor time, all in all.
    pub(crate) spent: Spent,
}

impl Run {
    /// Records a second.
    pub(crate) fn rate(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64()
    }
}

/// Lets `callers` work at `load` for about `time`, after each of them has been at each of its graphs
/// once: an arm that remembers graphs has met those that others have changed since its last turn.
pub(crate) async fn run(
    arm: &Arc<dyn Arm>,
    load: Load,
    callers: usize,
    time: Duration,
    cpu: Cpu,
) -> Result<Run> {
    let warm = match load {
        Load::Push {
            graphs: Graphs::Many,
            ..
        } => GRAPHS.div_ceil(callers),
        _ => 1,
    };
    let ready = Arc::new(Barrier::new(callers + 1));
    let mut tasks = Vec::with_capacity(callers);
    for number in 0..callers {
        let ready = Arc::clone(&ready);
        let mut caller = arm.caller(number, load).await?;
        let mut latency = Histogram::<u64>::new(3)?;
        tasks.push(tokio::spawn(async move {
            let (mut records, mut before) = (0, 0);
            let mut warmed = Ok(());
            for _ in 0..warm {
                match caller.request().await {
                    Ok(records) => before += records,
                    Err(error) => warmed = Err(error),
                }
            }
            ready.wait().await;
            warmed?;
            let began = Instant::now();
            while began.elapsed() < time {
                let sent = Instant::now();
                records += caller.request().await?;
                let micros = u64::try_from(sent.elapsed().as_micros())?;
                latency.record(micros.max(1))?;
            }
            anyhow::Ok((latency, records, before))
        }));
    }
    ready.wait().await;
    let began = Instant::now();
    let spent = cpu.spent();
    let mut run = Run {
        requests: 0,
        records: 0,
        before: 0,
        spent: Spent::default(),
        took: Duration::ZERO,
        latency: Histogram::new(3)?,
    };
    for task in tasks {
        let (latency, records, before) = task
            .await?
            .with_context(|| format!("{} at {load:?}", arm.name()))?;
        run.requests += latency.len();
        run.records += records;
        run.before += before;
        run.latency.add(latency)?;
    }
    run.took = began.elapsed();
    run.spent = cpu.spent().since(spent);
    Ok(run)
}
