//! Running the binary; whatever happens to a test, its process ends with it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

/// Far longer than anything takes that ends by itself.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The binary with none of this process's settings.
pub(crate) fn sweeper() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sweeper"));
    let ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in ours.filter(|name| name.starts_with("ARGALA")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command on the database at `url` that ends by itself.
pub(crate) fn run(url: &str, args: &[&str]) -> Output {
    run_with(&Settings::on(url), args)
}

/// Runs a command with these settings that ends by itself.
pub(crate) fn run_with(settings: &Settings, args: &[&str]) -> Output {
    let mut command = sweeper();
    command.args(args).envs(settings.variables());
    command.output().unwrap()
}

/// What a cluster's relays and sweepers are told by their environment.
#[derive(Debug, Clone)]
pub(crate) struct Settings(Vec<(String, String)>);

impl Settings {
    /// Those that put a process on the database at `url`.
    pub(crate) fn on(url: &str) -> Self {
        let mut settings = Self(Vec::new());
        settings.set("STORE__KIND", "postgres");
        settings.set("STORE__URL", url);
        settings
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.0.push((format!("ARGALA__{key}"), value.to_owned()));
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter();
        pairs.map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A sweeper that runs.
pub(crate) struct Running {
    child: Child,
    admin: String,
    log: Receiver<String>,
    logged: String,
}

impl Running {
    /// Starts one that sweeps every second, and may be silent for two.
    pub(crate) fn start(url: &str) -> Self {
        Self::start_with(&Settings::on(url))
    }

    /// The same, with these settings.
    pub(crate) fn start_with(settings: &Settings) -> Self {
        let mut child = sweeper()
            .args(["run", "--admin-listen", "127.0.0.1:0"])
            .args(["--set", "sweep.interval=1s", "--set", "sweep.lease=2s"])
            .args(["--set", "log.level=info"])
            .envs(settings.variables())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, log) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let admin = line.trim().strip_prefix("admin on http://");
        let admin = admin.expect("it says where it listens").to_owned();
        Self {
            child,
            admin,
            log,
            logged: String::new(),
        }
    }

    /// What it answers to an orchestrator: the status, and the body.
    pub(crate) fn ask(&self, path: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: sweeper\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    pub(crate) fn leads(&self) -> bool {
        let (status, body) = self.ask("/readyz");
        assert_eq!(status, 200, "{body}");
        body["leader"].as_bool().unwrap()
    }

    /// Asks until it leads; how long that took.
    pub(crate) fn wait_until_it_leads(&self) -> Duration {
        let began = Instant::now();
        while !self.leads() {
            assert!(began.elapsed() < SOON, "it never leads");
            pause();
        }
        began.elapsed()
    }

    /// Waits until a line of the log holds `text`.
    pub(crate) fn wait_for_log(&mut self, text: &str) {
        loop {
            let line = self.log.recv_timeout(SOON);
            let line = line.unwrap_or_else(|_| panic!("no {text:?} in {}", self.logged));
            self.logged.push_str(&line);
            self.logged.push('\n');
            if line.contains(text) {
                return;
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

    /// Waits for the process to end; its status and its log.
    pub(crate) fn wait(&mut self) -> (ExitStatus, String) {
        loop {
            match self.log.recv_timeout(SOON) {
                Ok(line) => {
                    self.logged.push_str(&line);
                    self.logged.push('\n');
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it has not ended in time"),
            }
        }
        (self.child.wait().unwrap(), std::mem::take(&mut self.logged))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only where the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A moment between two looks at something that another process does.
pub(crate) fn pause() {
    thread::park_timeout(Duration::from_millis(20));
}
