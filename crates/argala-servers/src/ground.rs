//! What all servers stand on: folders, the account they run under, ports, processes.

use std::{
    env, fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::statvfs;
use rustix::process::{Pid, Signal, getegid, geteuid, kill_process, test_kill_process};

use crate::Fault;

/// Longer than any server here takes to start or to stop on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The folder below which servers of this account lie, on a disk as far as the system's temporary
/// folder is on one.
pub(crate) fn run_folder() -> Result<PathBuf, Fault> {
    folder_below(&env::temp_dir())
}

/// The same in memory, where the system has room for it and nobody has named a folder: a database
/// for each test is mostly waiting for the disk, ten times as long as all the rest.
pub(crate) fn memory_folder() -> Result<PathBuf, Fault> {
    const MEMORY: &str = "/dev/shm";
    /// All of it, not what is free: every process must come to the same answer.
    const ROOM: u64 = 2 << 30;
    let has_room = env::var_os("TMPDIR").is_none()
        && statvfs(MEMORY).is_ok_and(|found| found.f_blocks.saturating_mul(found.f_frsize) >= ROOM);
    if has_room && let Ok(folder) = folder_below(Path::new(MEMORY)) {
        return Ok(folder);
    }
    run_folder()
}

fn folder_below(above: &Path) -> Result<PathBuf, Fault> {
    let folder = above.join(format!("argala-test-servers-{}", geteuid().as_raw()));
    fs::create_dir_all(&folder).map_err(Fault::at(&folder))?;
    // Its name can be guessed: another account must not have made it.
    let found = fs::symlink_metadata(&folder).map_err(Fault::at(&folder))?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        let other = io::Error::other("belongs to somebody else");
        return Err(Fault::at(&folder)(other));
    }
    let mode = fs::Permissions::from_mode(0o711);
    fs::set_permissions(&folder, mode).map_err(Fault::at(&folder))?;
    Ok(folder)
}

/// Whether this process may do everything on this machine.
#[must_use]
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// The account servers run under: none in particular, or where we are root an unprivileged one,
/// since Postgres and PgBouncer refuse to run as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account(Option<(u32, u32)>);

impl Account {
    pub(crate) fn for_servers() -> Result<Self, Fault> {
        if !is_root() {
            return Ok(Self(None));
        }
        let accounts = fs::read_to_string("/etc/passwd").map_err(Fault::at("/etc/passwd"))?;
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| ids(&accounts, name))
            .map(|ids| Self(Some(ids)))
            .ok_or(Fault::Missing {
                what: "an unprivileged account (postgres or nobody)",
                remedy: "run the tests as an ordinary user",
            })
    }

    /// Its user and group, where it is another one than ours.
    pub(crate) fn other(self) -> Option<(u32, u32)> {
        self.0
    }

    /// Its user and group.
    pub(crate) fn ids(self) -> (u32, u32) {
        self.0
            .unwrap_or_else(|| (geteuid().as_raw(), getegid().as_raw()))
    }

    /// A command that runs under this account, in `folder`.
    pub(crate) fn command(self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        // The caller's folder may be closed to the account.
        command
            .current_dir(folder)
            .stdin(Stdio::null())
            .env("LC_ALL", "C")
            .env("HOME", folder);
        if let Self(Some((user, group))) = self {
            command.uid(user).gid(group);
        }
        command
    }

    /// Makes a folder that this account alone may use.
    pub(crate) fn folder(self, folder: &Path) -> Result<(), Fault> {
        fs::create_dir(folder).map_err(Fault::at(folder))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
            .map_err(Fault::at(folder))?;
        self.give(folder)
    }

    /// Writes a file that this account alone may read.
    pub(crate) fn file(self, path: &Path, text: &str) -> Result<(), Fault> {
        fs::write(path, text).map_err(Fault::at(path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(Fault::at(path))?;
        self.give(path)
    }

    fn give(self, path: &Path) -> Result<(), Fault> {
        match self.0 {
            Some((user, group)) => chown(path, Some(user), Some(group)).map_err(Fault::at(path)),
            None => Ok(()),
        }
    }
}

/// User and group of `name` in the text of `/etc/passwd`.
fn ids(accounts: &str, name: &str) -> Option<(u32, u32)> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let user = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        Some((user, group))
    })
}

/// Runs a command to its end, and fails with all it said unless it succeeds.
pub(crate) fn succeed(mut command: Command) -> Result<(), Fault> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |report: String| Fault::Program { program, report };
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(format!(
            "{}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// A port of `127.0.0.1` that is free now. It may be taken the next moment: whoever asks must be
/// ready to ask again.
pub(crate) fn free_port() -> Result<u16, Fault> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Fault::at("127.0.0.1:0"))?;
    let address = listener.local_addr().map_err(Fault::at("127.0.0.1:0"))?;
    Ok(address.port())
}

/// Whether somebody listens on a port of `127.0.0.1`.
pub(crate) fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok()
}

/// Asks until it is so, for as long as [`PATIENCE`] lasts; tells whether it came to be.
pub(crate) fn becomes(condition: impl FnMut() -> bool) -> bool {
    becomes_within(PATIENCE, condition)
}

/// Asks until it is so, for as long as `patience` lasts; tells whether it came to be.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is waited for, and there is no runtime here to do it"
)]
pub(crate) fn becomes_within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > patience {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The process whose id is the first line of a file, while it lives.
pub(crate) fn process_of(pid_file: &Path) -> Option<Pid> {
    named_by(pid_file).filter(|pid| is_alive(*pid))
}

/// Whether the process that wrote its id into a file has ended since.
pub(crate) fn has_ended(pid_file: &Path) -> bool {
    named_by(pid_file).is_some_and(|pid| !is_alive(pid))
}

/// The process whose id is the first line of a file. A file without a whole line is one that is
/// still being written: it names nobody yet.
fn named_by(pid_file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(pid_file).ok()?;
    let (line, _) = text.split_once('\n')?;
    Pid::from_raw(line.trim().parse().ok()?)
}

pub(crate) fn is_alive(pid: Pid) -> bool {
    // A dead child of ours is still there until somebody asks how it ended.
    let zombie =
        fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).is_ok_and(|stat| {
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('Z'))
        });
    !zombie && test_kill_process(pid).is_ok()
}

/// Sends a signal; a process that is gone already is no fault.
pub(crate) fn signal(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    /// What a start makes of a file that holds `text`: whether the process runs, and whether it
    /// has ended.
    fn made_of(text: &str) -> (bool, bool) {
        let name = format!("argala-pid-{}-{}", process::id(), text.len());
        let file = env::temp_dir().join(name);
        fs::write(&file, text).expect("the temporary folder takes files");
        let made = (process_of(&file).is_some(), has_ended(&file));
        let _ = fs::remove_file(&file);
        made
    }

    #[test]
    fn a_file_that_is_still_written_names_nobody() {
        let own = process::id();
        assert_eq!(made_of(""), (false, false));
        assert_eq!(made_of(&format!("{own}")), (false, false));
        assert_eq!(made_of(&format!("{own}\n")), (true, false));
    }

    #[test]
    fn a_process_that_is_gone_has_ended() {
        let mut child = Command::new("true").spawn().expect("`true` starts");
        child.wait().expect("`true` ends");
        assert_eq!(made_of(&format!("{}\n", child.id())), (false, true));
    }
}
