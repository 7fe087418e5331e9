//! A disk of a few MiB, which a server can fill.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    Fault,
    ground::{Account, becomes, process_of, signal, succeed},
    programs::Programs,
};

/// How large a small disk is, and what lies on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Small {
    pub(crate) mebibytes: u32,
    /// Whether the log of changes does. Nothing else does by itself.
    pub(crate) log: bool,
}

/// A disk in memory. Nobody sees it but a process that holds it and those that are started to see
/// it: so nothing is left to be unmounted, and what is on it outlives the server.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    account: Account,
    mount_point: PathBuf,
    pub(crate) small: Small,
    /// None where the server is in a container: each start mounts an empty disk there.
    holder: Option<Child>,
}

impl SmallDisk {
    /// Makes one for the server whose folder this is.
    pub(crate) fn create(
        account: Account,
        programs: &Programs,
        server: &Path,
        small: Small,
    ) -> Result<Self, Fault> {
        let mut disk = Self {
            account,
            mount_point: mount_point(server),
            small,
            holder: None,
        };
        account.folder(&disk.mount_point)?;
        match programs {
            Programs::Folder(_) => disk.hold(&server.with_file_name(HOLDER))?,
            Programs::Image(_) if small.log => {
                return Err(Fault::Missing {
                    what: "a Postgres that is installed, for a log of changes on a small disk",
                    remedy: "install it (Debian: `apt-get install postgresql`)",
                });
            }
            Programs::Image(_) => {}
        }
        Ok(disk)
    }

    fn hold(&mut self, folder: &Path) -> Result<(), Fault> {
        fs::create_dir(folder).map_err(Fault::at(folder))?;
        let pid_file = folder.join("pid");
        let size = self.small.mebibytes;
        let mount = format!("mount -t tmpfs -o size={size}m,mode=0700");
        // Who is not root may mount where they are root of a world of their own.
        let (world, owner) = match self.account.other() {
            Some((user, group)) => (&["--mount"][..], format!(",uid={user},gid={group}")),
            None => (&["--user", "--map-root-user", "--mount"][..], String::new()),
        };
        let script = format!(
            r#"{mount}{owner} argala "$0" && echo $$ >"$1.new" && mv "$1.new" "$1" &&
               exec sleep infinity"#
        );
        let mut holder = Command::new("unshare")
            .args(world)
            .args(["sh", "-c", &script])
            .arg(&self.mount_point)
            .arg(&pid_file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Fault::at("unshare"))?;
        becomes(|| pid_file.exists() || !matches!(holder.try_wait(), Ok(None)));
        let stderr = holder.stderr.take();
        // Dropped with this, whatever comes next.
        self.holder = Some(holder);
        if pid_file.exists() {
            return Ok(());
        }
        self.end();
        let mut report = String::new();
        if let Some(mut stderr) = stderr {
            // What it said is told as far as it can be read.
            let _ = stderr.read_to_string(&mut report);
        }
        let program = "unshare".to_owned();
        Err(Fault::Program { program, report })
    }

    /// What enters where the disk is seen, and then runs what its further arguments say.
    fn entering(&self, holder: &Child) -> Command {
        let mut enter = Command::new("nsenter");
        enter
            .args(["--target", &holder.id().to_string(), "--mount"])
            .stdin(Stdio::null());
        if self.account.other().is_none() {
            enter.args(["--user", "--preserve-credentials"]);
        }
        enter
    }

    /// A command that sees the disk and runs under the server's account; none where the server is in
    /// a container.
    pub(crate) fn command(&self, program: &Path, server: &Path) -> Option<Command> {
        let mut command = self.entering(self.holder.as_ref()?);
        command.env("LC_ALL", "C").env("HOME", server);
        match self.account.other() {
            Some((user, group)) => command
                .arg("setpriv")
                .args([format!("--reuid={user}"), format!("--regid={group}")])
                .arg("--clear-groups"),
            // They become themselves again in another world within: servers refuse to run as root.
            None => {
                let (user, group) = self.account.ids();
                let ids = [format!("--map-user={user}"), format!("--map-group={group}")];
                command.args(["unshare", "--user"]).args(ids)
            }
        };
        command.arg(program);
        Some(command)
    }

    /// Makes the disk larger.
    pub(crate) fn grow(&self, mebibytes: u32) -> Result<(), Fault> {
        let Some(holder) = &self.holder else {
            return Err(Fault::Program {
                program: "mount".to_owned(),
                report: "the disk of a container stays as it is".to_owned(),
            });
        };
        let mut mount = self.entering(holder);
        // Its other options name accounts that there may not be where it is mounted.
        mount
            .args(["mount", "--options-mode", "ignore", "-o"])
            .arg(format!("remount,size={mebibytes}m"))
            .arg(&self.mount_point);
        succeed(mount)
    }

    fn end(&mut self) {
        if let Some(holder) = &mut self.holder {
            // Both fail only where it has ended already.
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where the small disk of a server lies.
pub(crate) fn mount_point(server: &Path) -> PathBuf {
    server.join("small-disk")
}

/// The folder, beside the server's, in which the watchdog finds who holds the disk.
const HOLDER: &str = "small-disk";

/// Ends the holder of the disk of a server whose owner is gone.
pub(crate) fn kill(server: &Path) {
    if let Some(pid) = process_of(&server.with_file_name(HOLDER).join("pid")) {
        signal(pid, Signal::KILL);
    }
}
