//! What is soaked.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{bounded::heard, figures};
use crate::cargo::cargo;
use crate::fuzz;
use crate::stopwatch::Stopwatch;

/// One stage. `weight` is its share of the time that is left when it begins; `run` adds to its
/// figures as it goes, so that they are there where it fails, too.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) weight: u32,
    pub(crate) run: fn(Duration, &mut Vec<String>) -> Result<()>,
}

pub(crate) const NAMES: [&str; 5] = ["bench", "fuzz", "model", "sync", "kill"];

/// Benchmarks come first, while the machine is cool; what takes its share to the end comes after.
pub(crate) const ALL: &[Stage] = &[
    Stage {
        name: NAMES[0],
        weight: 15,
        run: benchmarks,
    },
    Stage {
        name: NAMES[1],
        weight: 30,
        run: fuzzing,
    },
    Stage {
        name: NAMES[2],
        weight: 30,
        run: model,
    },
    Stage {
        name: NAMES[3],
        weight: 10,
        run: folders,
    },
    Stage {
        name: NAMES[4],
        weight: 15,
        run: kills,
    },
];

/// A build on a small machine takes this long when nothing of it is there yet.
const BUILD: Duration = Duration::from_secs(15 * 60);

/// Cases of the model in one round of each of its tests: few minutes' worth, so that a round ends
/// in time where building has used up the stage's share. More cases come from more rounds.
const MODEL_CASES: u64 = 250;

/// The router's answers against the plain model of the protocol.
fn model(time: Duration, told: &mut Vec<String>) -> Result<()> {
    let cases = MODEL_CASES.to_string();
    let command = Tests {
        target: &["--test", "it"],
        filter: "model::",
        set: &[("ARGALA_MODEL_CASES", &cases)],
    };
    let rounds = command.repeat(time)?;
    told.push(format!(
        "{} rounds, {} tests, {MODEL_CASES} cases each",
        rounds.count, rounds.passed
    ));
    Ok(())
}

/// The folder sync on simulated devices that are cut off anywhere.
fn folders(time: Duration, told: &mut Vec<String>) -> Result<()> {
    let command = Tests {
        target: &["--lib"],
        filter: "sync::simulation::",
        set: &[],
    };
    let rounds = command.repeat(time)?;
    told.push(format!("{} rounds, {} tests", rounds.count, rounds.passed));
    Ok(())
}

/// A relay that is killed while it is pushed to, again and again.
fn kills(time: Duration, told: &mut Vec<String>) -> Result<()> {
    let command = Tests {
        target: &["--test", "it"],
        filter: "durability::killed",
        set: &[],
    };
    let rounds = command.repeat(time)?;
    told.push(format!("{} kills, nothing lost", rounds.passed));
    Ok(())
}

/// Tests that draw their inputs anew each time they run.
struct Tests<'a> {
    target: &'a [&'a str],
    filter: &'a str,
    set: &'a [(&'a str, &'a str)],
}

#[derive(Default)]
struct Rounds {
    count: u64,
    passed: u64,
}

impl Tests<'_> {
    /// Runs them until the time is up; one round at the least.
    fn repeat(&self, time: Duration) -> Result<Rounds> {
        let stopwatch = Stopwatch::start();
        let mut rounds = Rounds::default();
        // The whole workspace, as the tests do: other features would build everything again.
        let test = || -> Result<Command> {
            let mut command = cargo(&["test", "--quiet", "--workspace"])?;
            command.args(self.target);
            Ok(command)
        };
        let mut build = test()?;
        build.arg("--no-run");
        heard(build, time + BUILD)?;
        let mut longest = Duration::ZERO;
        while rounds.count == 0 || stopwatch.elapsed() + longest <= time {
            let mut command = test()?;
            command.args(["--", self.filter, "--skip", "postgres"]);
            command.envs(self.set.iter().copied());
            let round = Stopwatch::start();
            let left = time.saturating_sub(stopwatch.elapsed());
            let said = heard(command, left + Duration::from_secs(5 * 60))?;
            let passed = figures::passed(&said);
            ensure!(passed > 0, "no test has {} in its name", self.filter);
            rounds.count += 1;
            rounds.passed += passed;
            longest = longest.max(round.elapsed());
        }
        Ok(rounds)
    }
}

/// Every fuzz target, for an equal part of the time.
fn fuzzing(time: Duration, told: &mut Vec<String>) -> Result<()> {
    let stopwatch = Stopwatch::start();
    for (at, target) in fuzz::TARGETS.iter().enumerate() {
        let left = u32::try_from(fuzz::TARGETS.len() - at).context("few targets")?;
        let share = time.saturating_sub(stopwatch.elapsed()) / left;
        // Not for nothing where a build has used up the time.
        let seconds = share.as_secs().max(10);
        let limit = Duration::from_secs(seconds + 60) + BUILD;
        let said = heard(fuzz::command(target, seconds)?, limit)
            .with_context(|| format!("the target {target}"))?;
        let executed = figures::executed(&said).context("libFuzzer told no figures")?;
        told.push(format!("{target:<13} {executed} inputs in {seconds} s"));
    }
    Ok(())
}

/// The benchmarks, quickly: for what has become ten times slower, not for what a tenth is.
fn benchmarks(time: Duration, told: &mut Vec<String>) -> Result<()> {
    let benches = [
        ("argala-wire", "wire"),
        ("argala-core", "rules"),
        ("argala-http", "router"),
    ];
    for (package, bench) in benches {
        let mut command = cargo(&["bench", "--quiet", "--package", package])?;
        command.args(["--bench", bench, "--", "--quick", "--noplot"]);
        let said = heard(command, time + BUILD)?;
        let times = figures::times(&said);
        ensure!(!times.is_empty(), "{bench} measured nothing");
        told.extend(
            times
                .iter()
                .map(|(name, time)| format!("{name:<32} {time:>12}")),
        );
    }
    Ok(())
}
