//! One PgBouncer before a Postgres.

use std::{fs, path::Path};

use rustix::process::Signal;

use crate::{
    Fault, containers,
    ground::{
        Account, answers, becomes, free_port, has_ended, is_alive, process_of, signal, succeed,
    },
    postgres::{PASSWORD, ROLE},
    programs::Programs,
};

/// How often a start is tried anew with another port.
const ATTEMPTS: usize = 5;

/// Starts one in `folder`, which must not exist, for all databases of the Postgres on a port.
///
/// Transaction mode, and nothing made easier than PgBouncer comes: a session's state must not be
/// relied upon, nor may a client ask for what PgBouncer refuses by default.
pub(crate) fn start(folder: &Path, postgres_port: u16) -> Result<u16, Fault> {
    let account = Account::for_servers()?;
    let programs = Programs::bouncer()?;
    account.folder(folder)?;
    let users = folder.join("users");
    account.file(&users, &format!("\"{ROLE}\" \"{PASSWORD}\"\n"))?;
    let ini = folder.join("pgbouncer.ini");
    let pid_file = folder.join("pid");
    let log = folder.join("log");
    for _ in 0..ATTEMPTS {
        let port = free_port()?;
        let text = format!(
            "[databases]
* = host=127.0.0.1 port={postgres_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = md5
auth_file = {users}
pool_mode = transaction
default_pool_size = 20
max_client_conn = 2000
server_idle_timeout = 5
server_login_retry = 1
logfile = {log}
pidfile = {pid_file}
",
            users = users.display(),
            log = log.display(),
            pid_file = pid_file.display(),
        );
        account.file(&ini, &text)?;
        let mut command = match &programs {
            Programs::Folder(programs) => {
                let mut command = account.command(&programs.join("pgbouncer"), folder);
                command.arg("--daemon");
                command
            }
            Programs::Image(image) => {
                containers::command(image, account, "pgbouncer", folder, true, None)
            }
        };
        command.arg("--quiet").arg(&ini);
        // Of an attempt before: its process would be taken for this one's.
        kill(folder);
        let _ = fs::remove_file(&pid_file);
        let _ = fs::remove_file(&log);
        succeed(command)?;
        let mut up = false;
        becomes(|| {
            up = process_of(&pid_file).is_some() && answers(port);
            // One whose port is taken ends before it writes its id.
            up || has_ended(&pid_file)
                || fs::read_to_string(&log).is_ok_and(|said| said.contains(" FATAL "))
        });
        if up {
            return Ok(port);
        }
    }
    Err(Fault::Program {
        program: "pgbouncer".to_owned(),
        report: fs::read_to_string(&log).unwrap_or_default(),
    })
}

/// Kills the one in `folder`, if there is one: it keeps nothing.
pub(crate) fn kill(folder: &Path) {
    if let Some(pid) = process_of(&folder.join("pid")) {
        signal(pid, Signal::KILL);
        becomes(|| !is_alive(pid));
    }
}
