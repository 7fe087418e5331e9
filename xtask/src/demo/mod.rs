//! `cargo xtask demo`: a relay and the devices of two members as separate processes, from
//! the first key to a revoked device, on real documents.
//!
//! It prints what is typed and what is answered, and fails on the first difference between
//! what is and what has to be. [`story`] is the place to read.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::stopwatch::{Stopwatch, spoken};

mod actor;
mod binaries;
mod evidence;
mod folders;
mod process;
mod relays;
mod search;
mod stage;
mod story;

pub(crate) use binaries::build;
pub(crate) use relays::Relays;
pub(crate) use stage::{GROUP, Layout, Stage};

/// How to run it.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Leave the folder behind: the relay's data, key files, synced folders.
    #[arg(long)]
    keep: bool,
    /// Where the relay keeps what it stores.
    #[arg(long, value_enum, default_value_t)]
    store: StoreKind,
}

/// Stores that the demo can be played on.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    /// A file, and blobs in a folder.
    #[default]
    Sqlite,
    /// A server of the demo's own, started from the programs on this machine.
    Postgres,
}

impl StoreKind {
    const fn layout(self) -> Layout {
        match self {
            Self::Sqlite => Layout::Sqlite,
            Self::Postgres => Layout::Postgres,
        }
    }
}

impl Options {
    /// The demo on one kind of store, nothing left behind.
    pub(crate) fn on(store: StoreKind) -> Self {
        Self { keep: false, store }
    }
}

/// Builds the programs, plays the story, cleans up.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.store == StoreKind::Postgres {
        // Said before anything is built for it.
        argala_servers::look_for_postgres()?;
    }
    play(options.store.layout(), options.keep)
}

/// Plays the story on a relay of that layout.
pub(crate) fn play(layout: Layout, keep: bool) -> Result<()> {
    let binaries = build()?;
    let stopwatch = Stopwatch::start();
    let mut stage = Stage::set(binaries, layout)?;
    let outcome = story::play(&mut stage);
    if keep {
        println!("\nEverything is left in {}", stage.keep().display());
    }
    outcome?;
    println!("\nThe demo held, in {}.", spoken(stopwatch.elapsed()));
    Ok(())
}
