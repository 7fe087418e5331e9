//! One Postgres in a folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::{Pid, Signal};

use crate::{
    Fault, containers,
    disk::{Small, SmallDisk, mount_point},
    ground::{Account, becomes, free_port, is_alive, process_of, signal, succeed},
    programs::Programs,
};

/// The role that tests connect as. It may do everything.
pub const ROLE: &str = "argala";
/// Its password: there is one so that URLs here look like URLs elsewhere.
pub const PASSWORD: &str = "test-password";

/// For many small databases that live for seconds, on a machine with few cores. What makes a
/// commit durable stays on, since tests ask about it.
pub const POSTGRES_SETTINGS: &[(&str, &str)] = &[
    ("max_connections", "400"),
    ("shared_buffers", "64MB"),
    ("max_wal_size", "1GB"),
    ("checkpoint_timeout", "1h"),
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("jit", "off"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("lc_messages", "C"),
];

/// Where a process of this machine listens.
const LISTEN: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
];

/// How often a start is tried anew with another port.
const ATTEMPTS: usize = 5;

/// A Postgres whose data lies in a folder; whether it runs is its own affair.
#[derive(Debug)]
pub(crate) struct Postgres {
    account: Account,
    programs: Programs,
    folder: PathBuf,
    port: u16,
    small_disk: Option<SmallDisk>,
}

impl Postgres {
    /// Makes a new one in `folder`, which must not exist, and starts it.
    pub(crate) fn create(
        folder: &Path,
        settings: &[(&str, &str)],
        small: Option<Small>,
    ) -> Result<Self, Fault> {
        let account = Account::for_servers()?;
        let programs = Programs::postgres()?;
        account.folder(folder)?;
        let password = folder.join("password");
        account.file(&password, PASSWORD)?;
        let small_disk = small
            .map(|small| SmallDisk::create(account, &programs, folder, small))
            .transpose()?;
        let mut postgres = Self {
            account,
            programs,
            folder: folder.to_owned(),
            port: 0,
            small_disk,
        };
        let mut initdb = postgres.command("initdb");
        initdb
            .args(["--username", ROLE, "--auth", "md5", "--encoding", "UTF8"])
            .args(["--locale", "C", "--no-sync", "--pwfile"])
            .arg(&password)
            .arg("--pgdata")
            .arg(folder.join("data"));
        if small.is_some_and(|small| small.log) {
            // In small segments, of which several find room.
            initdb
                .args(["--wal-segsize", "1", "--waldir"])
                .arg(postgres.small_disk().join("pg_wal"));
        }
        succeed(initdb)?;
        let mut outcome = Ok(());
        for _ in 0..ATTEMPTS {
            postgres.port = free_port()?;
            let port = postgres.port.to_string();
            // The last one counts where a name stands twice.
            let conf = postgres.data().join("argala.conf");
            account.file(&conf, "")?;
            postgres.configure("port", &port)?;
            for (name, value) in [POSTGRES_SETTINGS, LISTEN, settings].concat() {
                postgres.configure(name, value)?;
            }
            outcome = postgres.start();
            if outcome.is_ok() {
                break;
            }
        }
        outcome.map(|()| postgres)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Where the small disk is, where there is one.
    pub(crate) fn small_disk(&self) -> PathBuf {
        mount_point(&self.folder)
    }

    /// Makes the small disk larger.
    pub(crate) fn grow_small_disk(&self, mebibytes: u32) -> Result<(), Fault> {
        self.small_disk
            .as_ref()
            .map_or(Ok(()), |disk| disk.grow(mebibytes))
    }

    /// A program of the server's that ends by itself, and sees what the server sees.
    fn command(&self, name: &str) -> Command {
        let seeing = match (&self.programs, &self.small_disk) {
            (Programs::Folder(programs), Some(disk)) => {
                disk.command(&programs.join(name), &self.folder)
            }
            _ => None,
        };
        seeing.unwrap_or_else(|| self.programs.command(self.account, name, &self.folder))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// `postgres://…/database`.
    pub(crate) fn url(&self, database: &str) -> String {
        url(self.port, database)
    }

    /// Adds a line to the settings; in force after the next start.
    pub(crate) fn configure(&self, name: &str, value: &str) -> Result<(), Fault> {
        let path = self.data().join("argala.conf");
        let mut text = fs::read_to_string(&path).map_err(Fault::at(&path))?;
        text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        self.account.file(&path, &text)?;
        let main = self.data().join("postgresql.conf");
        let include = "include 'argala.conf'\n";
        let mut text = fs::read_to_string(&main).map_err(Fault::at(&main))?;
        if !text.ends_with(include) {
            text.push_str(include);
            self.account.file(&main, &text)?;
        }
        Ok(())
    }

    /// Writes a file beside the data, readable by the server alone, and tells its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> Result<PathBuf, Fault> {
        let path = self.folder.join(name);
        self.account.file(&path, text)?;
        Ok(path)
    }

    /// Starts it and waits until it takes connections.
    pub(crate) fn start(&self) -> Result<(), Fault> {
        let log = self.folder.join("log");
        let started = match &self.programs {
            Programs::Folder(_) => self.start_installed(&log),
            Programs::Image(image) => self.start_container(image, &log),
        };
        started.map_err(|fault| match fault {
            Fault::Program { program, report } => {
                let log = fs::read_to_string(&log).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(10).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                Fault::Program {
                    program,
                    report: format!("{report}{}", last.join("\n")),
                }
            }
            other => other,
        })
    }

    fn start_installed(&self, log: &Path) -> Result<(), Fault> {
        let mut start = self.command("pg_ctl");
        start
            .args(["start", "--wait", "--silent", "--timeout", "60", "--log"])
            .arg(log)
            .arg("--pgdata")
            .arg(self.data());
        succeed(start)
    }

    fn start_container(&self, image: &str, log: &Path) -> Result<(), Fault> {
        let mount_point = self.small_disk();
        let disk = self
            .small_disk
            .as_ref()
            .map(|disk| (mount_point.as_path(), disk.small.mebibytes));
        let mut start = containers::command(image, self.account, "sh", &self.folder, true, disk);
        start
            .args(["-c", r#"exec postgres -D "$0" >>"$1" 2>&1"#])
            .arg(self.data())
            .arg(log);
        succeed(start)?;
        // Its eighth line tells how far it is.
        let is_ready = |text: &String| text.lines().nth(7).is_some_and(|at| at.trim() == "ready");
        let ready = becomes(|| {
            process_of(&self.pid_file()).is_some()
                && fs::read_to_string(self.pid_file()).is_ok_and(|text| is_ready(&text))
        });
        ready.then_some(()).ok_or_else(|| Fault::Program {
            program: "postgres".to_owned(),
            report: "it does not take connections\n".to_owned(),
        })
    }

    fn pid_file(&self) -> PathBuf {
        self.data().join("postmaster.pid")
    }

    /// Stops it in order: sessions are ended, everything is written.
    pub(crate) fn stop(&self) -> Result<(), Fault> {
        self.end(Signal::INT)
    }

    /// Kills it: nothing is written, no session hears a word.
    pub(crate) fn kill(&self) -> Result<(), Fault> {
        self.end(Signal::KILL)
    }

    fn end(&self, how: Signal) -> Result<(), Fault> {
        end(&self.data(), how)
    }
}

/// Kills the one in `folder`, if there is one.
pub(crate) fn kill(folder: &Path) -> Result<(), Fault> {
    end(&folder.join("data"), Signal::KILL)
}

fn end(data: &Path, how: Signal) -> Result<(), Fault> {
    let pid_file = data.join("postmaster.pid");
    let Some(pid) = process_of(&pid_file) else {
        return Ok(());
    };
    if how == Signal::KILL {
        // Stopped, it makes no child that would be overlooked.
        signal(pid, Signal::STOP);
    }
    let children = children(pid);
    signal(pid, how);
    if how == Signal::KILL {
        // They would end by themselves, but not before their shared memory is asked for.
        for child in &children {
            signal(*child, how);
        }
    }
    let gone = becomes(|| !is_alive(pid) && !children.iter().any(|child| is_alive(*child)));
    if !gone {
        return Err(Fault::Program {
            program: "postgres".to_owned(),
            report: format!("process {} does not end", pid.as_raw_nonzero()),
        });
    }
    // Postgres takes a process that is dead and not yet buried for one that lives.
    match fs::remove_file(&pid_file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Fault::at(pid_file)(error)),
        _ => Ok(()),
    }
}

/// `postgres://…` of the server on a port.
pub(crate) fn url(port: u16, database: &str) -> String {
    format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{port}/{database}")
}

/// The processes whose parent is `parent`.
fn children(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = Path::new("/proc").read_dir() else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name, in parentheses, may hold anything; behind it: state, parent.
            let (_, rest) = stat.rsplit_once(") ")?;
            let its_parent: i32 = rest.split(' ').nth(1)?.parse().ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            (its_parent == parent.as_raw_nonzero().get()).then_some(Pid::from_raw(pid)?)
        })
        .collect()
}
