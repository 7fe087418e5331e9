//! One redis-server in a folder: by itself, as a node of a cluster, or as a Sentinel.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufRead, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    Fault, containers,
    ground::{
        Account, answers, becomes, free_port, has_ended, is_alive, process_of, signal, succeed,
    },
    programs::Programs,
};

/// How often a start is tried anew with another port.
const ATTEMPTS: usize = 5;

/// Nothing is kept: what a server loses when it ends is what tests want it to lose.
const SETTINGS: &str = "\
bind 127.0.0.1
protected-mode no
save \"\"
appendonly no
maxclients 4000
";

/// A server whose folder stays where it is; whether it runs is its own affair.
#[derive(Debug)]
pub(crate) struct Redis {
    account: Account,
    programs: Programs,
    folder: PathBuf,
    port: u16,
    is_sentinel: bool,
}

impl Redis {
    /// Makes a new one in `folder`, which must not exist, with `settings` under our own, and
    /// starts it.
    pub(crate) fn create(
        folder: &Path,
        is_sentinel: bool,
        settings: impl Fn() -> Result<String, Fault>,
    ) -> Result<Self, Fault> {
        let account = Account::for_servers()?;
        let programs = Programs::redis()?;
        account.folder(folder)?;
        let mut redis = Self {
            account,
            programs,
            folder: folder.to_owned(),
            port: 0,
            is_sentinel,
        };
        let mut outcome = Ok(());
        for _ in 0..ATTEMPTS {
            redis.port = free_port()?;
            redis.configure(&settings()?)?;
            outcome = redis.start();
            if outcome.is_ok() {
                break;
            }
        }
        outcome.map(|()| redis)
    }

    fn configure(&self, more: &str) -> Result<(), Fault> {
        let mut text = String::new();
        if self.is_sentinel {
            text.push_str("bind 127.0.0.1\nprotected-mode no\n");
        } else {
            text.push_str(SETTINGS);
        }
        let daemonize = matches!(self.programs, Programs::Folder(_));
        let _ = write!(
            text,
            "port {}\ndir {folder}\npidfile {folder}/pid\nlogfile {folder}/log\ndaemonize {}\n{more}",
            self.port,
            if daemonize { "yes" } else { "no" },
            folder = self.folder.display(),
        );
        // A Sentinel writes into it.
        self.account.file(&self.folder.join("conf"), &text)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Starts it and waits until it takes connections.
    pub(crate) fn start(&self) -> Result<(), Fault> {
        let pid_file = self.folder.join("pid");
        // Of one that was killed: it would be taken for this one's, which has ended at once.
        let _ = fs::remove_file(&pid_file);
        let mut command = match &self.programs {
            Programs::Folder(programs) => self
                .account
                .command(&programs.join("redis-server"), &self.folder),
            Programs::Image(image) => containers::command(
                image,
                self.account,
                "redis-server",
                &self.folder,
                true,
                None,
            ),
        };
        command.arg(self.folder.join("conf"));
        if self.is_sentinel {
            command.arg("--sentinel");
        }
        let logged = self.log().len();
        succeed(command)?;
        let mut up = false;
        becomes(|| {
            up = process_of(&pid_file).is_some() && answers(self.port);
            up || has_ended(&pid_file) || self.gave_up(logged)
        });
        if up {
            return Ok(());
        }
        let report = self.log();
        // Whoever tries another port must not leave one behind that nobody knows of: a replica
        // would go on copying its primary.
        end(&self.folder, Signal::KILL);
        Err(Fault::Program {
            program: "redis-server".to_owned(),
            report,
        })
    }

    /// Whether it has logged since that it ends because its port is taken. It does so before it
    /// writes its id.
    fn gave_up(&self, logged: usize) -> bool {
        self.log()
            .get(logged..)
            .is_some_and(|said| said.contains("aborting"))
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Sends a signal; it is no fault where the server does not run.
    pub(crate) fn signal(&self, what: Signal) {
        if let Some(pid) = process_of(&self.folder.join("pid")) {
            signal(pid, what);
        }
    }

    /// Ends it by a signal and waits until it has gone.
    pub(crate) fn end(&self, how: Signal) -> Result<(), Fault> {
        if end(&self.folder, how) {
            return Ok(());
        }
        Err(Fault::Program {
            program: "redis-server".to_owned(),
            report: "it does not end".to_owned(),
        })
    }

    /// Sends a command and gives what comes back first: a line or so. Only for what tests and
    /// setting up ask: arguments must hold no space.
    pub(crate) fn ask(&self, command: &str) -> Result<String, Fault> {
        ask(self.port, command).map_err(Fault::at(format!("127.0.0.1:{}", self.port)))
    }
}

fn ask(port: u16, command: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut answer = String::new();
    read_answer(&mut BufReader::new(stream), &mut answer)?;
    Ok(answer.trim_end().to_owned())
}

/// Reads one answer, with those that it consists of.
fn read_answer(stream: &mut impl BufRead, answer: &mut String) -> io::Result<()> {
    let start = answer.len();
    if stream.read_line(answer)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = &answer[start..];
    let (kind, count) = (line.as_bytes()[0], line[1..].trim().parse::<u64>());
    match (kind, count) {
        (b'$', Ok(bytes)) => {
            stream.take(bytes + 2).read_to_string(answer)?;
        }
        (b'*', Ok(count)) => {
            for _ in 0..count {
                read_answer(stream, answer)?;
            }
        }
        // A line is all there is; nothing follows a length below nothing.
        _ => {}
    }
    Ok(())
}

/// Kills all that lie below `servers`, the last one first: Sentinels before what they watch, lest
/// they look for another primary meanwhile.
pub(crate) fn kill_all(servers: &Path) {
    let Ok(entries) = servers.read_dir() else {
        return;
    };
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders.into_iter().rev() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("redis-") {
            end(&folder, Signal::KILL);
        }
    }
}

fn end(folder: &Path, how: Signal) -> bool {
    let Some(pid) = process_of(&folder.join("pid")) else {
        return true;
    };
    signal(pid, how);
    becomes(|| !is_alive(pid))
}
