//! A device: its home folder, and the `argala` command as it is typed there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::process::{Running, Stream};
use super::stage::{SOON, spelled};

/// The exit code of a command that the relay refused (`argala --help`).
const REFUSED: i32 = 3;

/// The folder that a device syncs, below its home.
pub(crate) const NOTES: &str = "notes";

/// The file with a device's keys, below its home.
const KEYS: &str = "device.keys";

/// One device of one member.
pub(crate) struct Actor {
    pub(crate) member: String,
    pub(crate) device: String,
    home: PathBuf,
    program: PathBuf,
    url: String,
}

/// What a command answered.
pub(crate) struct Answer {
    code: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    err: String,
}

impl Actor {
    pub(crate) fn new(
        member: &str,
        device: &str,
        home: PathBuf,
        program: &Path,
        url: &str,
    ) -> Self {
        Self {
            member: member.to_owned(),
            device: device.to_owned(),
            home,
            program: program.to_owned(),
            url: url.to_owned(),
        }
    }

    /// Everything that lies on the device.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The synced folder.
    pub(crate) fn notes(&self) -> PathBuf {
        self.home.join(NOTES)
    }

    /// The key file.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.home.join(KEYS)
    }

    /// `member/device`.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.member, self.device)
    }

    /// Runs a command that has to succeed.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Answer> {
        self.exits(arguments, 0)
    }

    /// Runs a command that has to exit with this code.
    pub(crate) fn exits(&self, arguments: &[&str], code: i32) -> Result<Answer> {
        let answer = self.answer(arguments)?;
        if answer.code != Some(code) {
            bail!(
                "{}: `argala {}` had to exit with {code}, and exited with {:?}",
                self.name(),
                spelled(arguments),
                answer.code
            );
        }
        Ok(answer)
    }

    /// Runs a command that has to succeed, and reads its answer.
    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut all = arguments.to_vec();
        all.extend(["--output", "json"]);
        self.run(&all)?.json()
    }

    /// Runs a command that the relay has to refuse with this problem.
    pub(crate) fn refused(&self, arguments: &[&str], problem: &str) -> Result<()> {
        let mut all = arguments.to_vec();
        all.extend(["--output", "json"]);
        let answer = self.answer(&all)?;
        let told = answer
            .err
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .any(|line| line["error"]["problem"]["code"] == problem);
        if answer.code != Some(REFUSED) || !told {
            bail!(
                "{}: `argala {}` had to be refused with {problem}, and exited with {:?}",
                self.name(),
                spelled(&all),
                answer.code
            );
        }
        Ok(())
    }

    /// Starts a command that goes on for a while.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Running> {
        println!("\n{}$ argala {} &", self.name(), spelled(arguments));
        Running::start(self.command(arguments))
    }

    /// Waits for a started command and shows what it printed.
    pub(crate) fn finish(&self, running: Running, within: Duration) -> Result<Answer> {
        let (status, lines) = running.finish(within)?;
        let said = |stream: Stream| {
            let lines = lines.iter().filter(|line| line.stream == stream);
            lines
                .map(|line| line.text.as_str())
                .collect::<Vec<_>>()
                .join("\n")
        };
        let answer = Answer {
            code: status.code(),
            out: said(Stream::Out),
            err: said(Stream::Err),
        };
        answer.show();
        Ok(answer)
    }

    fn answer(&self, arguments: &[&str]) -> Result<Answer> {
        println!("\n{}$ argala {}", self.name(), spelled(arguments));
        self.finish(Running::start(self.command(arguments))?, SOON)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.home);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ARGALA_") {
                command.env_remove(name);
            }
        }
        command
            .env("ARGALA_URL", &self.url)
            .env("ARGALA_KEYFILE", KEYS)
            .env("ARGALA_TOKEN_FILE", "token");
        command
    }
}

impl Answer {
    /// The answer of a command that was asked for JSON.
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out).context("a command printed no JSON")
    }

    /// The exit code; `None` where a signal ended the command.
    pub(crate) fn code(&self) -> Option<i32> {
        self.code
    }

    /// Whether the relay refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.code == Some(REFUSED)
    }

    /// Prints the answer, a long one cut in its middle.
    fn show(&self) {
        const EDGE: usize = 8;
        for text in [&self.out, &self.err] {
            let lines: Vec<&str> = text.lines().collect();
            let cut = lines.len() > 2 * EDGE + 1;
            for (index, line) in lines.iter().enumerate() {
                if !cut || index < EDGE || index >= lines.len() - EDGE {
                    println!("    {line}");
                } else if index == EDGE {
                    println!("    … {} more lines", lines.len() - 2 * EDGE);
                }
            }
        }
        if self.code != Some(0) {
            match self.code {
                Some(code) => println!("    (exit code {code})"),
                None => println!("    (ended by a signal)"),
            }
        }
    }
}
