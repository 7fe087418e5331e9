//! The relay of a stage: one process, or replicas behind a load balancer.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use argala_servers::{Balancer, Behind};

use super::process::{Line, Running};
use super::stage::SOON;

/// Where one process of the relay listens.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    /// For clients.
    pub(crate) public: String,
    /// For orchestrators.
    pub(crate) admin: String,
}

/// Processes that serve, and who sweeps for them; dropping this ends them.
pub(crate) struct Relays {
    processes: Vec<Running>,
    sweeper: Option<(Running, String)>,
    addresses: Vec<Addresses>,
    balancer: Option<Balancer>,
}

impl Relays {
    /// Starts processes by `command` and waits until each has said where it listens; more than one
    /// come behind a load balancer.
    pub(crate) fn start(count: usize, command: impl Fn() -> Command) -> Result<Self> {
        let mut processes = Vec::new();
        for _ in 0..count {
            processes.push(Running::start(command())?);
        }
        let mut addresses = Vec::new();
        for relay in &mut processes {
            let public = said(relay, "listening on ")?;
            let admin = said(relay, "admin on ")?;
            addresses.push(Addresses { public, admin });
        }
        let balancer = if count > 1 {
            let behind: Result<Vec<_>> = addresses
                .iter()
                .map(|addresses| {
                    Ok(Behind {
                        port: port(&addresses.public)?,
                        health_port: port(&addresses.admin)?,
                    })
                })
                .collect();
            Some(Balancer::start(&behind?)?)
        } else {
            None
        };
        Ok(Self {
            processes,
            sweeper: None,
            addresses,
            balancer,
        })
    }

    /// Starts who sweeps for them, too.
    pub(crate) fn with_sweeper(mut self, command: Command) -> Result<Self> {
        let mut sweeper = Running::start(command)?;
        let admin = said(&mut sweeper, "admin on ")?;
        self.sweeper = Some((sweeper, admin));
        Ok(self)
    }

    /// Where clients go.
    pub(crate) fn url(&self) -> String {
        match &self.balancer {
            Some(balancer) => {
                let first = &self.addresses[0].public;
                // The path below which the routes lie stays.
                let path = first
                    .splitn(4, '/')
                    .nth(3)
                    .map_or(String::new(), |path| format!("/{path}"));
                format!("http://127.0.0.1:{}{path}", balancer.port())
            }
            None => self.addresses[0].public.clone(),
        }
    }

    /// Where each process listens.
    pub(crate) fn addresses(&self) -> &[Addresses] {
        &self.addresses
    }

    /// Where orchestrators ask who sweeps.
    pub(crate) fn sweeper(&self) -> Option<&str> {
        self.sweeper.as_ref().map(|(_, admin)| admin.as_str())
    }

    /// Whether all processes still run.
    pub(crate) fn all_run(&mut self) -> bool {
        let sweeper = self.sweeper.iter_mut().map(|(sweeper, _)| sweeper);
        self.processes.iter_mut().chain(sweeper).all(Running::runs)
    }

    /// Ends them as a supervisor would, and gives back all that they logged.
    pub(crate) fn terminate(self) -> Result<String> {
        let mut log = String::new();
        let sweeper = self.sweeper.map(|(sweeper, _)| sweeper);
        for process in self.processes.into_iter().chain(sweeper) {
            let (status, lines) = process.terminate(SOON)?;
            println!("    {} lines of log, {status}", lines.len());
            ensure!(status.success(), "a process ended with {status}");
            for line in lines {
                log.push_str(&line.text);
                log.push('\n');
            }
        }
        Ok(log)
    }
}

/// What a process says behind `before`.
fn said(process: &mut Running, before: &'static str) -> Result<String> {
    let begins = |line: &Line| line.text.starts_with(before);
    let line = process.wait_for("an address", SOON, begins)?.text;
    println!("    {line}");
    Ok(line[before.len()..].trim().to_owned())
}

/// The port of `http://127.0.0.1:port/…`.
fn port(url: &str) -> Result<u16> {
    url.split('/')
        .nth(2)
        .and_then(|host| host.rsplit(':').next())
        .and_then(|port| port.parse().ok())
        .with_context(|| format!("{url} has no port"))
}
