//! `cargo xtask cluster`: replicas behind a load balancer with all that they share, on this
//! machine, to try out or to be held to the demo.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::demo::{self, GROUP, Layout, Relays, Stage};
use crate::servers;

/// How often is looked whether all still run.
const LOOK: Duration = Duration::from_secs(1);

/// How to run it.
#[derive(Args)]
pub(crate) struct Options {
    /// How many relays.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=16))]
    replicas: u8,
    /// Play the demo through the load balancer, and end.
    #[arg(long)]
    check: bool,
}

impl Options {
    /// The demo on three replicas.
    pub(crate) const CHECK: Self = Self {
        replicas: 3,
        check: true,
    };
}

/// Starts everything; ends with the demo, or when it is told to.
pub(crate) fn run(options: &Options) -> Result<()> {
    servers::provide()?;
    let layout = Layout::Cluster(options.replicas.into());
    if options.check {
        return demo::play(layout, false);
    }
    let (stop, stopped) = channel();
    // Before anything is started: a Ctrl-C in between must find us listening.
    ctrlc::set_handler(move || {
        // Whoever is told twice has been told.
        let _ = stop.send(());
    })
    .context("signals cannot be heard")?;
    let mut stage = Stage::set(demo::build()?, layout)?;
    stage.prepare()?;
    let mut relays = stage.start()?;
    tell(&mut stage, &relays)?;
    loop {
        match stopped.recv_timeout(LOOK) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if relays.all_run() => {}
            Err(RecvTimeoutError::Timeout) => bail!("a process has ended by itself"),
        }
    }
    println!("\nstopping");
    relays.terminate().map(drop)
}

/// Registers a device, so that there is something to ask, and prints how.
fn tell(stage: &mut Stage, relays: &Relays) -> Result<()> {
    let url = relays.url();
    let laptop = stage.device("sam", "laptop", &url)?;
    laptop.run(&["register"])?;
    laptop.run(&["rotate", &format!("g:{GROUP}")])?;
    laptop.run(&[
        "push",
        &format!("g:{GROUP}"),
        "--id",
        "hello",
        "--text",
        "Hello",
    ])?;
    let token = stage.tokens.last().context("no token")?.trim();
    println!("\n──── The cluster runs; Ctrl-C stops it");
    println!("    load balancer   {url}");
    for (number, addresses) in relays.addresses().iter().enumerate() {
        println!(
            "    relay {number}         {} (admin {})",
            addresses.public, addresses.admin
        );
    }
    if let Some(admin) = relays.sweeper() {
        println!("    sweeper         (admin {admin})");
    }
    for (name, address) in stage.servers() {
        println!("    {name:<15} {address}");
    }
    println!("    files           {}", stage.folder().display());
    println!(
        "\nA token for sam's laptop, which is registered:

    TOKEN={token}

Ask any relay, or all in turn:

    curl -sS -H \"Authorization: Bearer $TOKEN\" {url}/limits
    curl -sS -H \"Authorization: Bearer $TOKEN\" {url}/graphs
    curl -sS -H \"Authorization: Bearer $TOKEN\" '{url}/graphs/g:{GROUP}/pull?limit=10'
    curl -sSN -H \"Authorization: Bearer $TOKEN\" -H 'Accept: text/event-stream' {url}/pokes

Ask what the sweeper would forget now:

    {}",
        stage.dry_run()
    );
    Ok(())
}
