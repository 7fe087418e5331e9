//! What the tests need beside Rust: programs of servers, and somebody who holds what runs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use argala_servers::{BOUNCER_VARIABLE, Fault, POSTGRES_VARIABLE};

use crate::cargo::{run, works};

/// A package of Debian's that tests use, and how to know that it is not needed.
struct Need {
    package: &'static str,
    is_met: fn() -> bool,
    /// Whether an image has it, where a Docker engine answers; none has the others.
    is_in_image: fn() -> bool,
}

const NOWHERE: fn() -> bool = || false;

const NEEDS: &[Need] = &[
    Need {
        package: "postgresql",
        is_met: || {
            env::var_os(POSTGRES_VARIABLE).is_some() || argala_servers::postgres_programs().is_ok()
        },
        is_in_image: || argala_servers::look_for_postgres().is_ok(),
    },
    Need {
        package: "pgbouncer",
        is_met: || {
            env::var_os(BOUNCER_VARIABLE).is_some() || argala_servers::bouncer_program().is_ok()
        },
        is_in_image: || argala_servers::look_for_bouncer().is_ok(),
    },
    // Clusters and Sentinels are the same program; no variable takes its place, since some tests
    // pause and kill servers.
    Need {
        package: "redis-server",
        is_met: || argala_servers::redis_program().is_ok(),
        is_in_image: || argala_servers::look_for_redis().is_ok(),
    },
    // Replicas whose clocks differ.
    Need {
        package: "faketime",
        is_met: || {
            let below = |folder: &str| {
                let library = "faketime/libfaketime.so.1";
                Path::new("/usr/lib").join(folder).join(library).is_file()
            };
            ["x86_64-linux-gnu", "aarch64-linux-gnu", ""].map(below) != [false; 3]
        },
        is_in_image: NOWHERE,
    },
    Need {
        package: "haproxy",
        is_met: || argala_servers::balancer_program().is_ok(),
        is_in_image: NOWHERE,
    },
    Need {
        package: "nginx-light",
        is_met: || argala_servers::nginx_program().is_ok(),
        is_in_image: NOWHERE,
    },
    // For moto.
    Need {
        package: "python3-venv",
        is_met: || {
            let mut venv = Command::new("python3");
            venv.args(["-c", "import venv, ensurepip"]);
            works(venv)
        },
        is_in_image: NOWHERE,
    },
];

/// Sees to it that everything is there, installing it where we may.
///
/// # Errors
/// [`Missing`], which says what to type.
pub(crate) fn provide() -> Result<()> {
    let unmet = NEEDS.iter().filter(|need| !(need.is_met)());
    if may_install() {
        let missing: Vec<_> = unmet.map(|need| need.package).collect();
        return if missing.is_empty() {
            Ok(())
        } else {
            install(&missing)
        };
    }
    let (contained, missing): (Vec<_>, Vec<_>) = unmet.partition(|need| (need.is_in_image)());
    let packages = |needs: Vec<&Need>| needs.iter().map(|need| need.package).collect::<Vec<_>>();
    if !missing.is_empty() {
        return Err(Missing(packages(missing)).into());
    }
    if !contained.is_empty() {
        println!("{} out of Docker images", packages(contained).join(", "));
    }
    Ok(())
}

/// A command that succeeds where a Docker engine answers.
pub(crate) fn engine() -> Command {
    let mut engine = Command::new("docker");
    engine.arg("version");
    engine
}

/// Something is not there, and it is not ours to install.
#[derive(Debug)]
pub(crate) struct Missing(Vec<&'static str>);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let packages = self.0.join(" ");
        write!(
            f,
            "the tests need what is not on this machine: {packages}. On Debian:\n  \
             sudo apt-get install --no-install-recommends {packages}\n\
             or name servers in {POSTGRES_VARIABLE} and {BOUNCER_VARIABLE}; \
             `cargo xtask test --embedded` needs none"
        )
    }
}

impl std::error::Error for Missing {}

/// Whether this is Debian, or a child of it, and we are root.
fn may_install() -> bool {
    let debian = Path::new("/etc/debian_version").exists();
    argala_servers::is_root() && debian && {
        let mut apt = Command::new("apt-get");
        apt.arg("--version");
        works(apt)
    }
}

fn install(packages: &[&str]) -> Result<()> {
    println!("installing what tests need: {}", packages.join(", "));
    // Debian's packages start what they install; only the programs are wanted here.
    let _quiet = [
        Placed::new(
            "/etc/postgresql-common/createcluster.d/argala.conf",
            "create_main_cluster = false\n",
            0o644,
        )?,
        Placed::new("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)?,
    ];
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .arg("-qq")
            .args(arguments);
        run(command)
    };
    apt(&["update"])?;
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments)
}

/// A file that is there until this is dropped; one that was there before is left alone.
struct Placed(Option<PathBuf>);

impl Placed {
    fn new(path: &str, text: &str, mode: u32) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = PathBuf::from(path);
        if path.exists() {
            return Ok(Self(None));
        }
        let place = || {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
        };
        place().with_context(|| format!("{}", path.display()))?;
        Ok(Self(Some(path)))
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // It would only keep later packages from starting their services.
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether an error means that something is missing that somebody must install.
pub(crate) fn is_missing(error: &anyhow::Error) -> bool {
    error.is::<Missing>() || matches!(error.downcast_ref(), Some(Fault::Missing { .. }))
}
