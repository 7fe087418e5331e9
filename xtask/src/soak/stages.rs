//! What is soaked.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{bounded::heard, figures};
use crate::cargo::cargo;
use crate::fuzz;
use crate::stopwatch::Stopwatch;

/// One stage. `build` makes what it runs, before any stage begins: a build must not use up the time
/// of what it is for. `weight` is its share of the time that is left when it begins; `run` adds to
/// its figures as it goes, so that they are there where it fails, too.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) weight: u32,
    pub(crate) build: fn() -> Result<()>,
    pub(crate) run: fn(Duration, &mut Vec<String>) -> Result<()>,
}

pub(crate) const NAMES: [&str; 5] = ["bench", "fuzz", "model", "sync", "kill"];

/// Benchmarks come first, while the machine is cool; what takes its share to the end comes after.
pub(crate) const ALL: &[Stage] = &[
    Stage {
        name: NAMES[0],
        weight: 15,
        build: build_benchmarks,
        run: benchmarks,
    },
    Stage {
        name: NAMES[1],
        weight: 30,
        build: build_fuzzing,
        run: fuzzing,
    },
    Stage {
        name: NAMES[2],
        weight: 30,
        build: || MODEL.build(),
        run: model,
    },
    Stage {
        name: NAMES[3],
        weight: 10,
        build: || FOLDERS.build(),
        run: folders,
    },
    Stage {
        name: NAMES[4],
        weight: 15,
        build: || KILLS.build(),
        run: kills,
    },
];

/// A build on a small machine takes less than this when nothing of it is there yet, and others build
/// beside it.
const BUILD: Duration = Duration::from_secs(60 * 60);

/// A round that began in time may end so much later, and a target be linked anew.
const GRACE: Duration = Duration::from_secs(5 * 60);

/// Cases of the model in one round of each of its tests: few minutes' worth, so that a round ends
/// in time. More cases come from more rounds.
const MODEL_CASES: &str = "250";

/// The router's answers against the plain model of the protocol.
const MODEL: Tests = Tests {
    target: &["--test", "it"],
    filter: "model::",
    set: &[("ARGALA_MODEL_CASES", MODEL_CASES)],
};

/// The folder sync on simulated devices that are cut off anywhere.
const FOLDERS: Tests = Tests {
    target: &["--lib"],
    filter: "sync::simulation::",
    set: &[],
};

/// A relay that is killed while it is pushed to, again and again.
const KILLS: Tests = Tests {
    target: &["--test", "it"],
    filter: "durability::killed",
    set: &[],
};

fn model(time: Duration, told: &mut Vec<String>) -> Result<()> {
    let rounds = MODEL.repeat(time)?;
    told.push(format!(
        "{} rounds, {} tests, {MODEL_CASES} cases each",
        rounds.count, rounds.passed
    ));
    Ok(())
}

fn folders(time: Duration, told: &mut Vec<String>) -> Result<()> {
    let rounds = FOLDERS.repeat(time)?;
    told.push(format!("{} rounds, {} tests", rounds.count, rounds.passed));
    Ok(())
}

fn kills(time: Duration, told: &mut Vec<String>) -> Result<()> {
    let rounds = KILLS.repeat(time)?;
    told.push(format!("{} kills, nothing lost", rounds.passed));
    Ok(())
}

/// Tests that draw their inputs anew each time they run.
struct Tests {
    target: &'static [&'static str],
    filter: &'static str,
    set: &'static [(&'static str, &'static str)],
}

#[derive(Default)]
struct Rounds {
    count: u64,
    passed: u64,
}

impl Tests {
    /// The whole workspace, as the tests do: other features would build everything again.
    fn command(&self) -> Result<Command> {
        let mut command = cargo(&["test", "--quiet", "--workspace"])?;
        command.args(self.target);
        Ok(command)
    }

    fn build(&self) -> Result<()> {
        let mut command = self.command()?;
        command.arg("--no-run");
        heard(command, BUILD).map(drop)
    }

    /// Runs them until the time is up; one round at the least.
    fn repeat(&self, time: Duration) -> Result<Rounds> {
        let stopwatch = Stopwatch::start();
        let mut rounds = Rounds::default();
        let mut longest = Duration::ZERO;
        while rounds.count == 0 || stopwatch.elapsed() + longest <= time {
            let mut command = self.command()?;
            command.args(["--", self.filter, "--skip", "postgres"]);
            command.envs(self.set.iter().copied());
            let round = Stopwatch::start();
            let left = time.saturating_sub(stopwatch.elapsed());
            let said = heard(command, left + GRACE)?;
            let passed = figures::passed(&said);
            ensure!(passed > 0, "no test has {} in its name", self.filter);
            rounds.count += 1;
            rounds.passed += passed;
            longest = longest.max(round.elapsed());
        }
        Ok(rounds)
    }
}

/// Runs every fuzz target for a moment, by which it is built.
fn build_fuzzing() -> Result<()> {
    for target in fuzz::TARGETS {
        heard(fuzz::command(target, 1)?, BUILD).with_context(|| format!("the target {target}"))?;
    }
    Ok(())
}

/// Every fuzz target, for an equal part of the time.
fn fuzzing(time: Duration, told: &mut Vec<String>) -> Result<()> {
    let stopwatch = Stopwatch::start();
    for (at, target) in fuzz::TARGETS.iter().enumerate() {
        let left = u32::try_from(fuzz::TARGETS.len() - at).context("few targets")?;
        let share = time.saturating_sub(stopwatch.elapsed()) / left;
        let seconds = share.as_secs().max(10);
        let limit = Duration::from_secs(seconds) + GRACE;
        let said = heard(fuzz::command(target, seconds)?, limit)
            .with_context(|| format!("the target {target}"))?;
        let executed = figures::executed(&said).context("libFuzzer told no figures")?;
        told.push(format!("{target:<13} {executed} inputs in {seconds} s"));
    }
    Ok(())
}

/// The benchmarks, a package and its bench each.
const BENCHES: [(&str, &str); 3] = [
    ("argala-wire", "wire"),
    ("argala-core", "rules"),
    ("argala-http", "router"),
];

fn bench(package: &str, bench: &str) -> Result<Command> {
    cargo(&["bench", "--quiet", "--package", package, "--bench", bench])
}

fn build_benchmarks() -> Result<()> {
    for (package, name) in BENCHES {
        let mut command = bench(package, name)?;
        command.arg("--no-run");
        heard(command, BUILD)?;
    }
    Ok(())
}

/// The benchmarks, quickly: for what has become ten times slower, not for what a tenth is.
fn benchmarks(time: Duration, told: &mut Vec<String>) -> Result<()> {
    for (package, name) in BENCHES {
        let mut command = bench(package, name)?;
        command.args(["--", "--quick", "--noplot"]);
        let said = heard(command, time + GRACE)?;
        let times = figures::times(&said);
        ensure!(!times.is_empty(), "{name} measured nothing");
        told.extend(
            times
                .iter()
                .map(|(name, time)| format!("{name:<32} {time:>12}")),
        );
    }
    Ok(())
}
