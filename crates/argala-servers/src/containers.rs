//! Programs out of an image, where a Docker engine answers.
//!
//! The container is where a program comes from and nothing else: it shares the machine's network
//! and processes, the server's folder lies where it lies outside, and it runs under the same
//! account. So a port, a pid file, a signal and a data folder mean the same as of a program that is
//! installed.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use crate::ground::{Account, becomes_within};

/// How long getting an image may take: a test that waits for a network is worse than one that says
/// what is missing.
const PULL: std::time::Duration = std::time::Duration::from_secs(10);

/// An image, and the variable that names another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    variable: &'static str,
    default: &'static str,
}

pub(crate) const POSTGRES: Image = Image {
    variable: "ARGALA_TEST_POSTGRES_IMAGE",
    default: "postgres:17",
};

pub(crate) const BOUNCER: Image = Image {
    variable: "ARGALA_TEST_PGBOUNCER_IMAGE",
    default: "edoburu/pgbouncer:latest",
};

pub(crate) const REDIS: Image = Image {
    variable: "ARGALA_TEST_REDIS_IMAGE",
    default: "redis:7",
};

/// The image that a Postgres in a container is started from: what `ARGALA_TEST_POSTGRES_IMAGE`
/// names, else the official one.
#[must_use]
pub fn postgres_image() -> String {
    POSTGRES.name()
}

impl Image {
    fn name(self) -> String {
        env::var(self.variable).unwrap_or_else(|_| self.default.to_owned())
    }

    /// The image's name, if there is an engine that has it or can get it soon.
    pub(crate) fn at_hand(self) -> Option<String> {
        let name = self.name();
        let works = |arguments: &[&str]| {
            let mut docker = quiet(arguments);
            docker.status().is_ok_and(|status| status.success())
        };
        (works(&["version"]) && (works(&["image", "inspect", &name]) || pull(&name)))
            .then_some(name)
    }
}

fn quiet(arguments: &[&str]) -> Command {
    let mut docker = Command::new("docker");
    docker
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    docker
}

fn pull(name: &str) -> bool {
    let Ok(mut pull) = quiet(&["pull", "--quiet", name]).spawn() else {
        return false;
    };
    let mut outcome = None;
    becomes_within(PULL, || {
        outcome = pull.try_wait().ok().flatten();
        outcome.is_some()
    });
    if outcome.is_none() {
        // The engine goes on by itself: the next run may find the image.
        let _ = pull.kill();
        let _ = pull.wait();
    }
    outcome.is_some_and(|status| status.success())
}

/// `docker run` of a program of an image, up to the program's arguments. With a small disk, an
/// empty one of that many MiB lies at that path.
pub(crate) fn command(
    image: &str,
    account: Account,
    program: &str,
    folder: &Path,
    detached: bool,
    small_disk: Option<(&Path, u32)>,
) -> Command {
    let (user, group) = account.ids();
    let same_place = format!("{0}:{0}", folder.display());
    let mut docker = Command::new("docker");
    docker
        .args(["run", "--rm", "--network", "host", "--pid", "host"])
        .args(["--user", &format!("{user}:{group}")])
        .args(["--volume", &same_place, "--workdir"])
        .arg(folder)
        // A server asks for the name of the account that it runs under.
        .args(["--volume", "/etc/passwd:/etc/passwd:ro"])
        .args(["--env", "LC_ALL=C", "--entrypoint", program])
        .stdin(Stdio::null());
    if detached {
        docker.arg("--detach");
    }
    if let Some((mount_point, mebibytes)) = small_disk {
        docker.args([
            "--tmpfs",
            &format!(
                "{}:size={mebibytes}m,uid={user},gid={group},mode=0700",
                mount_point.display()
            ),
        ]);
    }
    docker.arg(image);
    docker
}

/// Removes the container that a file names, where there is one; what it kept is gone with it.
pub(crate) fn remove(named_in: &Path) {
    if let Ok(id) = std::fs::read_to_string(named_in) {
        // One that is gone already, or an engine that is: there is nothing more to be done.
        let _ = quiet(&["rm", "--force", "--volumes", id.trim()]).status();
    }
}
