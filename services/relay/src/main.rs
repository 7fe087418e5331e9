//! The relay's binary: a command line over `argala-boot`.

mod admin;
mod cli;
mod migrate;
mod output;
mod run;
mod upkeep;

use std::{io::Write as _, process::ExitCode, time::Duration};

use argala_boot::{config::ConfigError, schema, server::Stopped};
use clap::Parser as _;

use cli::{Cli, EXIT_FAILED, EXIT_SCHEMA, EXIT_WRONG};

/// How long what blocks may hold up the end of the process.
const LAST_WORK: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let outcome = runtime.block_on(run::run(cli));
    runtime.shutdown_timeout(LAST_WORK);
    match outcome {
        Ok(Stopped::Finished) => ExitCode::SUCCESS,
        Ok(Stopped::Cut) => ExitCode::from(EXIT_FAILED),
        Err(error) => fail(&error),
    }
}

/// Says what went wrong, once, and how bad that is.
fn fail(error: &anyhow::Error) -> ExitCode {
    if output::is_broken_pipe(error) {
        // Whoever read our output has seen enough.
        return ExitCode::SUCCESS;
    }
    let schema = error.is::<migrate::Refused>() || error.chain().any(schema::is_refusal);
    let wrong = error.is::<ConfigError>() || error.is::<run::Refused>();
    // Where even standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "relay: {}", output::sentence(error));
    ExitCode::from(match (schema, wrong) {
        (true, _) => EXIT_SCHEMA,
        (_, true) => EXIT_WRONG,
        _ => EXIT_FAILED,
    })
}
