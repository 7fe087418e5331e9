//! The tests of the whole workspace.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use argala_servers::Hold;
use clap::Args;

use crate::cargo::{cargo, run, works};
use crate::servers;

/// What to run.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Only what needs nothing but Rust and a C compiler; says what it leaves out.
    #[arg(long)]
    embedded: bool,
    /// Run only tests whose name contains one of these.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

/// Tests that are left out, and why.
struct LeftOut {
    why: &'static str,
    /// All tests of these crates.
    crates: &'static [&'static str],
    /// Every other test in whose path one of these stands.
    modules: &'static [&'static str],
}

const NOTHING: LeftOut = LeftOut {
    why: "",
    crates: &[],
    modules: &[],
};

/// What needs a server.
const SERVED: LeftOut = LeftOut {
    why: "embedded: what needs a server is left out",
    crates: &["argala-postgres", "argala-redis"],
    modules: &["cluster::", "docker::", "moto::", "postgres::", "redis::"],
};

/// What needs an engine that runs containers.
const CONTAINED: LeftOut = LeftOut {
    why: "no Docker engine answers: what needs one is left out",
    crates: &[],
    modules: &["docker::"],
};

/// Runs the doc tests, then all others, and fails if either did.
///
/// Both runners print their own closing line (how many passed), which is what people and
/// CI read; nothing is printed after it.
pub(crate) fn run_suite(options: &Options) -> Result<()> {
    let nextest_is_there = works(cargo(&["nextest", "--version"])?);
    let left_out = if options.embedded {
        SERVED
    } else if works(servers::engine()) {
        NOTHING
    } else {
        CONTAINED
    };
    // Before anything is built.
    if !options.embedded {
        servers::provide()?;
    }
    left_out.say(nextest_is_there)?;
    // The first test that wants a server starts it; held here, it is there for the last one, too.
    let hold = if options.embedded {
        None
    } else {
        Some(Hold::take()?)
    };
    // First, so that the closing line of the output is that of the tests proper.
    let documentation = run(doc_tests(options)?);
    // After a failure too: whoever mends one should see all there is to mend.
    let units = run(if nextest_is_there {
        nextest(options, &left_out)?
    } else {
        cargo_test(options, &left_out)?
    });
    let ended = hold.map_or(Ok(()), Hold::end);
    match (documentation, units) {
        (Err(documentation), Err(units)) => bail!("{documentation:#}; {units:#}"),
        (documentation, units) => documentation.and(units),
    }?;
    ended.context("the tests' server")
}

impl LeftOut {
    fn is_nothing(&self) -> bool {
        self.crates.is_empty() && self.modules.is_empty()
    }

    /// Which tests these are, as nextest says it.
    fn filter(&self) -> String {
        let crates = self.crates.iter().map(|name| format!("package({name})"));
        let modules = self.modules.iter();
        let modules = modules.map(|name| format!("test(/(^|::){name}/)"));
        crates.chain(modules).collect::<Vec<_>>().join(" or ")
    }

    /// Says which tests are left out, and why.
    fn say(&self, nextest_is_there: bool) -> Result<()> {
        if self.is_nothing() {
            return Ok(());
        }
        let modules: Vec<_> = self
            .modules
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let crates = self.crates.iter().map(|name| format!("the crate {name}"));
        let all: Vec<_> = crates
            .chain([format!(
                "each test with {} in its path",
                modules.join(" or ")
            )])
            .collect();
        println!("{}: {}", self.why, all.join(", "));
        if !nextest_is_there {
            return Ok(());
        }
        let mut list = cargo(&[
            "nextest",
            "list",
            "--workspace",
            "--message-format",
            "oneline",
        ])?;
        list.args(["-E", &self.filter()]).stderr(Stdio::inherit());
        let output = list.output().context("`cargo nextest list`")?;
        if !output.status.success() {
            bail!("`cargo nextest list` failed ({})", output.status);
        }
        let names = String::from_utf8_lossy(&output.stdout);
        for line in self.lines(&names) {
            println!("{line}");
        }
        Ok(())
    }

    /// What to say of tests that are left out, of which nextest has printed a line each.
    fn lines(&self, names: &str) -> Vec<String> {
        let names: Vec<&str> = names.lines().filter(|line| !line.is_empty()).collect();
        let home = |name: &str| name.split([' ', ':']).next().map(str::to_owned);
        let of = |served: &str| {
            let is_its = |name: &&&str| home(name).as_deref() == Some(served);
            names.iter().filter(is_its).count()
        };
        let mut lines: Vec<String> = self
            .crates
            .iter()
            .map(|served| format!("  {} tests of {served}", of(served)))
            .collect();
        let single = names
            .iter()
            .filter(|name| !home(name).is_some_and(|home| self.crates.contains(&home.as_str())));
        lines.extend(single.map(|name| format!("  {name}")));
        lines.push(format!("{} tests are left out", names.len()));
        lines
    }
}

/// Nextest runs each test in a process of its own and ends a test that hangs.
fn nextest(options: &Options, left_out: &LeftOut) -> Result<Command> {
    let mut command = cargo(&["nextest", "run", "--workspace", "--no-fail-fast"])?;
    // The benchmarks, too, once through each: nobody notices otherwise that one has decayed.
    command.arg("--all-targets");
    if !left_out.is_nothing() {
        command.args(["-E", &format!("not ({})", left_out.filter())]);
    }
    if !options.filters.is_empty() {
        // The filter may be the name of a doc test.
        command.args(["--no-tests", "warn"]).args(&options.filters);
    }
    Ok(command)
}

fn cargo_test(options: &Options, left_out: &LeftOut) -> Result<Command> {
    let mut command = cargo(&[
        "test",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
        "--examples",
        "--no-fail-fast",
    ])?;
    for served in left_out.crates {
        command.args(["--exclude", served]);
    }
    command.arg("--").args(&options.filters);
    for module in left_out.modules {
        command.args(["--skip", module]);
    }
    Ok(command)
}

fn doc_tests(options: &Options) -> Result<Command> {
    let mut command = cargo(&["test", "--workspace", "--doc", "--no-fail-fast"])?;
    command.arg("--").args(&options.filters);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_named_or_counted() {
        let names = "argala-postgres::it store::a\nargala-postgres options::b\n\n\
                     relay::it postgres::locks::c\n";
        assert_eq!(
            SERVED.lines(names),
            [
                "  2 tests of argala-postgres",
                "  0 tests of argala-redis",
                "  relay::it postgres::locks::c",
                "3 tests are left out",
            ]
        );
    }
}
