//! The relay's router beside bare Postgres, in turns.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::{
    arms::{
        Arm,
        bare::{self, Bare, Shape},
        relay::{Ground, RelayArm},
    },
    cpu::Cpu,
    measure::{self, Graphs, Load, Run},
    report::{self, Cell},
};

#[derive(Args)]
pub(crate) struct Options {
    /// A database, `postgres://…`, by way of which two more are made, `bare` and `relay`: what was
    /// in databases of these names is lost.
    #[arg(long, value_name = "URL")]
    server: String,
    /// How many callers work at the same time.
    #[arg(long, default_value_t = 32)]
    callers: usize,
    /// How many connections each arm has.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// How long an arm works at a time, in seconds.
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    time: f64,
    /// How often each arm has its turn; the median of its turns is reported.
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Only loads whose names begin so, as in `push 10,`.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// A file for the tables, in Markdown.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The name of the arm that the others are compared with.
pub(crate) const BARE: &str = "bare";
/// For how long what the directory says is remembered: as a replica does unless told otherwise.
const DIRECTORY: Duration = Duration::from_secs(5);
pub(crate) const RELAY: &str = "relay";
pub(crate) const UNGROUPED: &str = "ungrouped";
const CBOR: &str = "relay, CBOR";

pub(crate) async fn run(options: Options) -> Result<()> {
    let (connections, callers) = (options.connections, options.callers);
    let urls = databases(&options.server, ["bare", "relay"]).await?;
    Bare::prepare(&urls[0]).await?;
    let mut bares = Vec::new();
    for shape in [Shape::One, Shape::TwoTrips, Shape::Versioned] {
        let arm = Bare::new(&urls[0], shape, connections, callers).await?;
        bares.push(Arc::new(arm) as Arc<dyn Arm>);
    }
    let ground = Ground::new(&urls[1], connections, callers, DIRECTORY, None).await?;
    let mut relays = Vec::new();
    for (name, together, media_type) in [
        (RELAY, true, argala_wire::JSON),
        (UNGROUPED, false, argala_wire::JSON),
        (CBOR, true, argala_wire::CBOR),
    ] {
        let arm = RelayArm::new(&ground, name, together, media_type).await?;
        relays.push(Arc::new(arm) as Arc<dyn Arm>);
    }
    let [relay, ungrouped, cbor] = [0, 1, 2].map(|at| Arc::clone(&relays[at]));
    let push = |records, graphs| Load::Push { records, graphs };
    let pulling = vec![Arc::clone(&bares[0]), Arc::clone(&relay), cbor];
    let mut pushing = bares;
    pushing.extend([relay, ungrouped]);
    let cells = [
        (push(1, Graphs::Many), &pushing),
        (push(10, Graphs::Many), &pushing),
        (push(100, Graphs::Many), &pushing),
        (push(1, Graphs::One), &pushing),
        (push(10, Graphs::One), &pushing),
        (push(100, Graphs::One), &pushing),
        (Load::Pull { page: 100 }, &pulling),
        (Load::Pull { page: 1_000 }, &pulling),
    ];
    let mut told = Vec::new();
    let cpu = Cpu::of(&options.server).await?;
    for (load, arms) in cells {
        let name = report::name(load);
        if options
            .only
            .as_ref()
            .is_some_and(|only| !name.starts_with(&**only))
        {
            continue;
        }
        let cell = Cell {
            load,
            runs: cell(load, arms, &options, cpu).await?,
        };
        println!("{}", report::lines(&cell));
        told.push(cell);
    }
    let table = report::table(
        &told,
        &format!(
            "{callers} callers, {connections} connections an arm, turns of {} s, the median of {}",
            options.time, options.turns
        ),
    );
    println!("{table}");
    if let Some(path) = &options.report {
        std::fs::write(path, table)?;
    }
    Ok(())
}

/// Makes databases of these names anew, and tells their URLs.
pub(crate) async fn databases<const N: usize>(
    server: &str,
    names: [&str; N],
) -> Result<[String; N]> {
    let client = bare::connect(server).await?;
    let (before, _) = server.rsplit_once('/').context("a URL has a path")?;
    for name in names {
        for statement in ["DROP DATABASE IF EXISTS", "CREATE DATABASE"] {
            client.batch_execute(&format!("{statement} {name}")).await?;
        }
    }
    Ok(names.map(|name| format!("{before}/{name}")))
}

/// Each arm's turns; after each, what it acknowledged is there.
async fn cell(
    load: Load,
    arms: &[Arc<dyn Arm>],
    options: &Options,
    cpu: Cpu,
) -> Result<BTreeMap<&'static str, Run>> {
    let time = Duration::from_secs_f64(options.time);
    let mut turns: BTreeMap<&'static str, Vec<Run>> = BTreeMap::new();
    for turn in 0..options.turns.max(1) {
        // In another order each time, so that nobody always has the same neighbour before it.
        for at in 0..arms.len() {
            let arm = &arms[(at + turn) % arms.len()];
            let before = arm.stored().await?;
            let run = measure::run(arm, load, options.callers, time, cpu).await?;
            let written = if matches!(load, Load::Push { .. }) {
                run.before + run.records
            } else {
                0
            };
            let after = arm.stored().await?;
            ensure!(
                after == before + written,
                "{} acknowledged {written} records at {load:?} and stored {}",
                arm.name(),
                after - before
            );
            turns.entry(arm.name()).or_default().push(run);
        }
    }
    Ok(turns
        .into_iter()
        .map(|(name, mut runs)| {
            runs.sort_by(|one, other| one.rate().total_cmp(&other.rate()));
            let middle = runs.len() / 2;
            (name, runs.swap_remove(middle))
        })
        .collect())
}
