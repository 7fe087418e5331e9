//! Running the binary; whatever happens to a test, its process ends with it.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use crate::http::Target;

/// Far longer than anything takes that ends by itself.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The time, by a clock that only goes forwards.
#[expect(
    clippy::disallowed_methods,
    reason = "what another process does is timed, and it has no clock that could be asked"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The binary with none of this process's settings.
pub(crate) fn relay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relay"));
    let ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in ours.filter(|name| name.starts_with("ARGALA")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command that ends by itself.
pub(crate) fn run(args: &[&str], folder: &Path) -> Output {
    relay().args(args).current_dir(folder).output().unwrap()
}

/// What a command printed, of which it is known that it succeeds.
pub(crate) fn ok(args: &[&str], folder: &Path) -> String {
    ok_with(args, folder, &[])
}

/// The same with these variables in its environment.
pub(crate) fn ok_with(args: &[&str], folder: &Path, variables: &[(&str, &str)]) -> String {
    let mut command = relay();
    command.args(args).current_dir(folder);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(
        output.status.success(),
        "{args:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A served relay.
pub(crate) struct Served {
    child: Child,
    lines: Receiver<String>,
    /// Where the routes are.
    pub(crate) public: Target,
    /// Where an orchestrator asks.
    pub(crate) admin: Target,
    log: Receiver<String>,
    /// Lines of the log that were read already.
    logged: String,
}

impl Served {
    /// Starts a development relay in `folder`.
    pub(crate) fn dev(folder: &Path, args: &[&str]) -> Self {
        Self::dev_with(folder, &[], args)
    }

    /// Starts a development relay in `folder`, with these variables in its environment.
    pub(crate) fn dev_with(folder: &Path, variables: &[(&str, &str)], args: &[&str]) -> Self {
        let mut command = relay();
        command
            .envs(variables.iter().copied())
            .env("ARGALA_DEV_AUTH", "1")
            .args(["dev", "--data", "kept", "--listen", "127.0.0.1:0"])
            .args(args)
            .current_dir(folder);
        Self::start(command)
    }

    /// Starts a relay with this configuration in `folder`.
    pub(crate) fn with_config(folder: &Path, config: &str) -> Self {
        Self::with_config_and(folder, config, &[])
    }

    /// Starts a relay with this configuration in `folder`, and these variables in its environment.
    pub(crate) fn with_config_and(folder: &Path, config: &str, variables: &[(&str, &str)]) -> Self {
        std::fs::write(folder.join("relay.toml"), config).unwrap();
        let mut command = relay();
        command
            .envs(variables.iter().copied())
            .args(["serve", "--config", "relay.toml"])
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .current_dir(folder);
        Self::start(command)
    }

    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stderr = child.stderr.take().unwrap();
        let (sender, log) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let target = |prefix: &str| {
            loop {
                let line = lines.recv_timeout(SOON);
                let line = line.unwrap_or_else(|_| panic!("no line began with {prefix:?}"));
                if let Some(url) = line.strip_prefix(prefix) {
                    return Target::parse(url);
                }
            }
        };
        let public = target("listening on ");
        let admin = target("admin on ");
        Self {
            child,
            lines,
            public,
            admin,
            log,
            logged: String::new(),
        }
    }

    /// Waits until a line of the log holds `text`.
    pub(crate) fn wait_for_log(&mut self, text: &str) {
        loop {
            let line = self.log.recv_timeout(SOON);
            let line = line.unwrap_or_else(|_| panic!("no {text:?} in {}", self.logged));
            self.remember(&line);
            if line.contains(text) {
                return;
            }
        }
    }

    fn remember(&mut self, line: &str) {
        self.logged.push_str(line);
        self.logged.push('\n');
    }

    /// The next lines of standard output, up to the first that holds `until`.
    pub(crate) fn printed(&self, until: &str) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let line = self.lines.recv_timeout(SOON).unwrap();
            let last = line.contains(until);
            said.push(line);
            if last {
                return said;
            }
        }
    }

    /// Sends a signal, by its name.
    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
    }

    /// Waits until the relay has noticed that it is to stop.
    pub(crate) fn wait_until_stopping(&self) {
        while self.admin.get("/readyz", &[]).status != 503 {}
    }

    /// Waits for the process to end, no longer than `within`; its status and its log.
    pub(crate) fn wait(&mut self, within: Duration) -> (ExitStatus, String) {
        // The log's end is the process's: nobody else holds its standard error.
        loop {
            match self.log.recv_timeout(within) {
                Ok(line) => self.remember(&line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it has not ended in time"),
            }
        }
        (self.child.wait().unwrap(), std::mem::take(&mut self.logged))
    }

    /// Asks the process to stop, and waits until it has.
    pub(crate) fn stop(&mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        self.wait(SOON)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only where the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
