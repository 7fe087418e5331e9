//! The `argala` command: a device at work, from a terminal or a script.
//!
//! A thin shell: [`args`] says what may be typed, [`context`] opens the key file and the relay,
//! each file of [`commands`] is one command, [`output`] writes text or JSON, [`exit`] decides the
//! exit code. All that it knows how to do is in the library.

mod args;
mod commands;
mod context;
mod exit;
mod output;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use crate::{args::Cli, context::Context, exit::Failure};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let format = cli.globals.output;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(Failure::from(error)),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::failure(format, &failure);
            failure.exit().into()
        }
    }
}

async fn run(cli: Cli) -> Result<exit::Exit, Failure> {
    let context = Context::new(cli.globals)?;
    commands::run(&context, cli.command).await
}
