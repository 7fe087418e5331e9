//! Child processes that cannot outlive the demo, and are never waited for without a bound.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::stopwatch::Stopwatch;

/// Which stream a line came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// One line that a process said.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) stream: Stream,
    pub(crate) text: String,
}

/// A started process; dropping it ends it.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<Line>,
    said: Vec<Line>,
}

impl Running {
    /// Starts a process with nothing on its standard input.
    pub(crate) fn start(command: Command) -> Result<Self> {
        Self::start_with(command, Stdio::null())
    }

    /// Starts a process whose standard input ends when this is dropped, or we end.
    pub(crate) fn start_tied(command: Command) -> Result<Self> {
        Self::start_with(command, Stdio::piped())
    }

    fn start_with(mut command: Command, input: Stdio) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{program} could not be started"))?;
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            listen(stdout, Stream::Out, sender.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            listen(stderr, Stream::Err, sender);
        }
        Ok(Self {
            child,
            lines,
            said: Vec::new(),
        })
    }

    /// Whether it has not ended.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for a line that `wanted` accepts, among those said and those to come.
    pub(crate) fn wait_for(
        &mut self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&Line) -> bool,
    ) -> Result<Line> {
        if let Some(line) = self.said.iter().find(|line| wanted(line)) {
            return Ok(line.clone());
        }
        let stopwatch = Stopwatch::start();
        loop {
            match self
                .lines
                .recv_timeout(within.saturating_sub(stopwatch.elapsed()))
            {
                Ok(line) => {
                    self.said.push(line.clone());
                    if wanted(&line) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "{what}: nothing within {within:?}; it said:\n{}",
                        self.transcript()
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{what}: the process ended; it said:\n{}", self.transcript())
                }
            }
        }
    }

    /// Waits for the process to end by itself, and gives back all that it said.
    pub(crate) fn finish(mut self, within: Duration) -> Result<(ExitStatus, Vec<Line>)> {
        let stopwatch = Stopwatch::start();
        loop {
            match self
                .lines
                .recv_timeout(within.saturating_sub(stopwatch.elapsed()))
            {
                Ok(line) => self.said.push(line),
                // Both streams are closed: it has ended, or is about to.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "still running after {within:?}; it said:\n{}",
                        self.transcript()
                    )
                }
            }
        }
        let status = self
            .child
            .wait()
            .context("a process could not be waited for")?;
        Ok((status, std::mem::take(&mut self.said)))
    }

    /// Asks the process to stop, as a supervisor would, and waits until it has.
    pub(crate) fn terminate(self, within: Duration) -> Result<(ExitStatus, Vec<Line>)> {
        let asked = Command::new("sh")
            .args(["-c", r#"kill -TERM "$0""#, &self.child.id().to_string()])
            .status()
            .context("sh could not be started")?;
        if !asked.success() {
            bail!("the process could not be told to stop");
        }
        self.finish(within)
    }

    fn transcript(&self) -> String {
        self.said
            .iter()
            .map(|line| format!("  {}", line.text))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only where the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands on each line of a stream until it closes.
fn listen(stream: impl Read + Send + 'static, kind: Stream, sender: Sender<Line>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        // A line need not be UTF-8, and the last one need not end.
        while reader
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|read| read > 0)
        {
            let text = String::from_utf8_lossy(&bytes)
                .trim_end_matches(['\n', '\r'])
                .to_owned();
            if sender.send(Line { stream: kind, text }).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_and_the_status_are_given_back() {
        let running = Running::start(shell("echo out; echo err >&2; exit 3")).unwrap();
        let (status, lines) = running.finish(SOON).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(
            lines
                .iter()
                .any(|line| line.stream == Stream::Out && line.text == "out")
        );
        assert!(
            lines
                .iter()
                .any(|line| line.stream == Stream::Err && line.text == "err")
        );
    }

    #[test]
    fn a_line_can_be_waited_for_and_the_process_told_to_stop() {
        let script =
            "trap 'echo bye; exit 0' TERM; echo ready; while :; do read line || sleep 0.05; done";
        let mut running = Running::start(shell(script)).unwrap();
        running
            .wait_for("the shell", SOON, |line| line.text == "ready")
            .unwrap();
        let (status, lines) = running.terminate(SOON).unwrap();
        assert!(status.success(), "{lines:?}");
        assert!(lines.iter().any(|line| line.text == "bye"));
    }

    #[test]
    fn what_never_comes_is_not_waited_for_and_the_process_is_gone() {
        let mut running = Running::start(shell("echo $$; exec sleep 600")).unwrap();
        let pid = running.wait_for("a pid", SOON, |_| true).unwrap().text;
        let missing =
            running.wait_for("a word", Duration::from_millis(50), |line| line.text == "x");
        assert!(missing.is_err());
        drop(running);
        let mut probe = shell(r#"kill -0 "$0""#);
        assert!(
            !probe
                .arg(&pid)
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
    }
}
