//! All that must hold before a change lands.

use anyhow::{Context, Result};

use crate::cargo::{cargo, run as run_command};
use crate::stopwatch::{Stopwatch, spoken};
use crate::{cluster, demo, deny, lints, suite, vectors};

/// One named step.
struct Step {
    name: &'static str,
    chore: fn() -> Result<()>,
}

/// In the order in which a fault shows soonest.
const STEPS: &[Step] = &[
    Step {
        name: "fetch",
        chore: fetch,
    },
    Step {
        name: "format",
        chore: lints::format,
    },
    Step {
        name: "clippy",
        chore: lints::clippy,
    },
    Step {
        name: "rustdoc",
        chore: lints::rustdoc,
    },
    Step {
        name: "deny",
        chore: deny::check,
    },
    Step {
        name: "vectors",
        chore: vectors::check,
    },
    Step {
        name: "test",
        chore: || suite::run_suite(&suite::Options::default()),
    },
    Step {
        name: "demo",
        chore: || demo::run(&demo::Options::on(demo::StoreKind::Sqlite)),
    },
    Step {
        name: "demo on Postgres",
        chore: || demo::run(&demo::Options::on(demo::StoreKind::Postgres)),
    },
    Step {
        name: "cluster",
        chore: || cluster::run(&cluster::Options::CHECK),
    },
];

/// Runs the steps; the first failure ends the run, and the summary says how far it came.
pub(crate) fn run() -> Result<()> {
    let whole = Stopwatch::start();
    let mut summary = Vec::new();
    let mut outcome = Ok(());
    for (index, step) in STEPS.iter().enumerate() {
        println!("\n=== {} ({} of {})", step.name, index + 1, STEPS.len());
        let stopwatch = Stopwatch::start();
        let result = (step.chore)();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        summary.push(format!(
            "{:<16} {verdict:<8} {}",
            step.name,
            spoken(stopwatch.elapsed())
        ));
        if let Err(error) = result {
            outcome = Err(error).with_context(|| format!("step `{}`", step.name));
            break;
        }
    }
    for step in &STEPS[summary.len()..] {
        summary.push(format!("{:<16} not run", step.name));
    }
    println!(
        "\n=== summary\n{}\n{:<16} {:<8} {}",
        summary.join("\n"),
        "all",
        "",
        spoken(whole.elapsed())
    );
    outcome
}

/// Downloads what the lock files name, and fails if the manifests ask for something else. The fuzz
/// targets' programs are a workspace of their own, which no other step looks at.
fn fetch() -> Result<()> {
    run_command(cargo(&["fetch", "--locked"])?)
        .context("Cargo.lock must be committed together with the manifests it follows from")?;
    run_command(cargo(&["fetch", "--locked", "--manifest-path", "fuzz/Cargo.toml"])?).context(
        "fuzz/Cargo.lock, too, must follow the manifests: `cargo fetch --manifest-path fuzz/Cargo.toml`",
    )
}
