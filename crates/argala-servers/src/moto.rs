//! A moto, which plays S3 in a process of Python's.

use std::{
    env,
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::{
    Fault,
    ground::{answers, becomes, free_port, run_folder, succeed},
};

/// Exactly this one: others behave otherwise.
const REQUIREMENT: &str = "moto[server]==5.2.5";

/// Ends with its standard input, which whoever started it holds: however that ends.
const PROGRAM: &str = "
import os, sys, threading
def watch():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=watch, daemon=True).start()
from moto.server import main
main(['-H', '127.0.0.1', '-p', sys.argv[1]])
";

/// An S3 that nobody else uses. It keeps everything in memory, believes every key, and is gone when
/// this is dropped.
#[derive(Debug)]
pub struct Moto {
    child: Child,
    port: u16,
}

impl Moto {
    /// Starts one. The first on a machine fetches it, which takes a minute.
    ///
    /// # Errors
    /// Where there is no Python with `venv`, or moto cannot be fetched or does not start.
    pub fn start() -> Result<Self, Fault> {
        let python = moto_python()?;
        let port = free_port()?;
        let mut command = Command::new(&python);
        command
            .args(["-c", PROGRAM, &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(Fault::at(&python))?;
        let mut moto = Self { child, port };
        let started = becomes(|| answers(port) || !moto.lives());
        if started && moto.lives() {
            return Ok(moto);
        }
        Err(Fault::Program {
            program: "moto".to_owned(),
            report: format!("it does not listen on port {port}"),
        })
    }

    /// The port of `127.0.0.1` on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The Python of an environment with moto in it. It is made once, by whoever comes first.
///
/// # Errors
/// Where there is no Python with `venv`, or moto cannot be fetched.
pub fn moto_python() -> Result<PathBuf, Fault> {
    let home = tools()?.join("moto-python");
    let python = home.join("bin").join("python");
    let made_for = home.join("made-for.txt");
    let is_made = || fs::read_to_string(&made_for).is_ok_and(|made| made == REQUIREMENT);
    if is_made() {
        return Ok(python);
    }
    let lock = home.with_extension("lock");
    let lock = File::create(&lock).map_err(Fault::at(&lock))?;
    lock.lock().map_err(Fault::at(&home))?;
    if is_made() {
        return Ok(python);
    }
    let mut command = Command::new("python3");
    command.args(["-m", "venv", "--clear"]).arg(&home);
    succeed(command).map_err(|_| Fault::Missing {
        what: "Python 3.10 or newer with its venv",
        remedy: "install it (Debian: `apt-get install python3-venv`)",
    })?;
    let mut command = Command::new(&python);
    command
        .args(["-m", "pip", "install", "--quiet"])
        .args(["--disable-pip-version-check", REQUIREMENT]);
    succeed(command)?;
    fs::write(&made_for, REQUIREMENT).map_err(Fault::at(&made_for))?;
    Ok(python)
}

/// Where what was fetched is kept: in the target folder, if that is where we run.
fn tools() -> Result<PathBuf, Fault> {
    let program = env::current_exe().map_err(Fault::at("the running program"))?;
    let target = program
        .ancestors()
        .find(|above| above.join("CACHEDIR.TAG").is_file());
    let tools = match target {
        Some(target) => target.join("tools"),
        None => run_folder()?.join("tools"),
    };
    fs::create_dir_all(&tools).map_err(Fault::at(&tools))?;
    Ok(tools)
}
