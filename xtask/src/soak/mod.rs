//! `cargo xtask soak --embedded`: for as long as it is told, everything that finds what a short
//! run does not, on the relay that needs no server. Prints a table of figures at the end.
//!
//! Each stage repeats its tests, which draw new inputs every time, until its share of the time is
//! used up. Whatever fails ends its stage and the soak's good name, not the other stages.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::stopwatch::{Stopwatch, spoken};

mod bounded;
mod figures;
mod stages;

/// How to run it.
#[derive(Args)]
pub(crate) struct Options {
    /// The relay on SQLite and files, which is what there is to soak so far.
    #[arg(long)]
    embedded: bool,
    /// How long the stages may take together, once everything is built.
    #[arg(long, default_value_t = 60, value_name = "MINUTES")]
    minutes: u64,
    /// Only these stages.
    #[arg(long, value_name = "STAGE", value_delimiter = ',',
          value_parser = clap::builder::PossibleValuesParser::new(stages::NAMES))]
    only: Vec<String>,
}

/// What a stage has come to.
struct Row {
    name: &'static str,
    figures: Vec<String>,
    took: Duration,
    outcome: Result<()>,
}

/// Runs the stages and prints what they came to; fails where one did.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        options.embedded,
        "say --embedded: other relays are not soaked yet"
    );
    let mut left: Vec<_> = stages::ALL
        .iter()
        .filter(|stage| options.only.is_empty() || options.only.iter().any(|it| it == stage.name))
        .collect();
    println!("=== builds");
    for stage in &left {
        (stage.build)().with_context(|| format!("nothing to run for {}", stage.name))?;
    }
    let whole = Stopwatch::start();
    let end = Duration::from_secs(options.minutes * 60);
    let mut rows = Vec::new();
    while !left.is_empty() {
        let weights: u32 = left.iter().map(|stage| stage.weight).sum();
        let stage = left.remove(0);
        let time = end.saturating_sub(whole.elapsed()) * stage.weight / weights;
        println!("\n=== {}: {}", stage.name, spoken(time));
        let stopwatch = Stopwatch::start();
        let mut figures = Vec::new();
        let outcome = (stage.run)(time, &mut figures);
        if let Err(error) = &outcome {
            println!("{}: {error:#}", stage.name);
        }
        rows.push(Row {
            name: stage.name,
            figures,
            took: stopwatch.elapsed(),
            outcome,
        });
    }
    print(&rows, whole.elapsed());
    let failed: Vec<&str> = rows
        .iter()
        .filter(|row| row.outcome.is_err())
        .map(|row| row.name)
        .collect();
    if !failed.is_empty() {
        let first = rows.into_iter().find_map(|row| row.outcome.err());
        let cause = first.context("a stage has failed")?;
        return Err(cause.context(format!("the soak failed: {}", failed.join(", "))));
    }
    if whole.elapsed() > end + Duration::from_secs(60) {
        bail!("the soak took longer than it was given");
    }
    Ok(())
}

fn print(rows: &[Row], whole: Duration) {
    println!("\n=== figures");
    for row in rows {
        let verdict = if row.outcome.is_ok() { "ok" } else { "FAILED" };
        println!("{:<8} {verdict:<8} {}", row.name, spoken(row.took));
        for figure in &row.figures {
            println!("         {figure}");
        }
    }
    println!("{:<8} {:<8} {}", "all", "", spoken(whole));
}
