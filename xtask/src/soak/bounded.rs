//! Commands that end in time, with all that they started, and whose output is heard.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cargo::spelled;
use crate::stopwatch::{Stopwatch, spoken};

/// Runs a command, prints and keeps what it says on both streams, and fails unless it succeeds
/// within so long. What is late is killed, its descendants included.
pub(crate) fn heard(mut command: Command, within: Duration) -> Result<Vec<String>> {
    let line = spelled(&command);
    println!("$ {line}");
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that the tests and relays that it starts can be ended with it.
        .process_group(0)
        .spawn()
        .with_context(|| format!("`{line}` could not be started"))?;
    let mut group = Group(child);
    let (sender, lines) = channel();
    let stderr = group.0.stderr.take().context("no standard error")?;
    let errors = sender.clone();
    thread::spawn(move || forward(BufReader::new(stderr), &errors));
    let stdout = group.0.stdout.take().context("no standard output")?;
    thread::spawn(move || forward(BufReader::new(stdout), &sender));
    let stopwatch = Stopwatch::start();
    let mut said = Vec::new();
    loop {
        match lines.recv_timeout(within.saturating_sub(stopwatch.elapsed())) {
            Ok(line) => {
                println!("{line}");
                said.push(line);
            }
            // Both streams have ended.
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                bail!("`{line}` did not end within {}", spoken(within));
            }
        }
    }
    let status = group.0.wait().context("the command cannot be waited for")?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(said)
}

fn forward(lines: impl BufRead, to: &std::sync::mpsc::Sender<String>) {
    for line in lines.lines().map_while(Result::ok) {
        if to.send(line).is_err() {
            return;
        }
    }
}

/// A process that leads a group; dropping it before it has ended ends the group.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_is_said_is_heard_and_failures_are_told() {
        let soon = Duration::from_secs(60);
        let said = heard(shell("echo one; echo two >&2"), soon).unwrap();
        assert_eq!(said.len(), 2);
        assert!(said.contains(&"two".to_owned()));
        assert!(heard(shell("exit 3"), soon).is_err());
    }

    #[test]
    fn what_is_late_is_ended_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "sleep 600 & echo $! > {}/child; wait",
            folder.path().display()
        );
        let told = heard(shell(&script), Duration::from_millis(500)).unwrap_err();
        assert!(told.to_string().contains("did not end"), "{told}");
        let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
        // Gone, or a zombie that nobody has waited for yet; a moment after it was told to end.
        let running = || {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
            let state = state.unwrap_or_default();
            let state = state
                .rsplit(')')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned();
            !state.is_empty() && !state.starts_with('Z')
        };
        let stopwatch = Stopwatch::start();
        while running() {
            assert!(stopwatch.elapsed() < Duration::from_secs(60), "it lives on");
            thread::yield_now();
        }
    }
}
