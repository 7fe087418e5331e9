//! A load balancer before relays: HAProxy, or nginx.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Signal;

use crate::{
    Fault,
    ground::{
        Account, answers, becomes, free_port, is_alive, process_of, run_folder, signal, succeed,
    },
    private,
    programs::{balancer_program, nginx_program},
    watch::Use,
};

/// How often a start is tried anew with another port.
const ATTEMPTS: usize = 5;

/// A process that requests are passed on to.
#[derive(Debug, Clone, Copy)]
pub struct Behind {
    /// The port of `127.0.0.1` that takes the requests.
    pub port: u16,
    /// The port of `127.0.0.1` that says on `/readyz` whether it should be sent any.
    pub health_port: u16,
}

/// A load balancer that passes each request on to the next of the processes behind it that is
/// ready. It is gone when this is dropped, or soon after its owner's process ended.
#[derive(Debug)]
pub struct Balancer {
    port: u16,
    pid_file: PathBuf,
    folder: PathBuf,
    _use: Use,
}

impl Balancer {
    /// Starts a HAProxy, which asks the processes themselves whether they are ready.
    ///
    /// # Errors
    /// Where there is no HAProxy, or it does not start.
    pub fn start(behind: &[Behind]) -> Result<Self, Fault> {
        let program = balancer_program()?;
        let how = How {
            program: &program,
            name: "haproxy",
            text: &|port, _| haproxy(port, behind),
            arguments: &|own, configuration| {
                vec![
                    "-q".into(),
                    "-D".into(),
                    "-p".into(),
                    own.join(PID),
                    "-f".into(),
                    configuration.into(),
                ]
            },
        };
        how.start()
    }

    /// Starts an nginx as it comes, with compression on for whoever asks for it.
    ///
    /// # Errors
    /// Where there is no nginx, or it does not start.
    pub fn start_nginx(behind: &[Behind]) -> Result<Self, Fault> {
        let program = nginx_program()?;
        let how = How {
            program: &program,
            name: "nginx",
            text: &|port, own| nginx(port, own, behind),
            arguments: &|own, configuration| {
                vec![
                    "-p".into(),
                    own.into(),
                    "-e".into(),
                    own.join("log"),
                    "-c".into(),
                    configuration.into(),
                ]
            },
        };
        how.start()
    }

    /// The port of `127.0.0.1` on which it takes requests.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The file with the process's id, in its folder.
const PID: &str = "pid";

/// How a program is started.
struct How<'a> {
    program: &'a Path,
    name: &'a str,
    /// The configuration for a port, in a folder.
    text: &'a dyn Fn(u16, &Path) -> String,
    /// What is typed, for a folder and a configuration.
    arguments: &'a dyn Fn(&Path, &Path) -> Vec<PathBuf>,
}

impl How<'_> {
    fn start(&self) -> Result<Balancer, Fault> {
        let account = Account::for_servers()?;
        let (folder, held) = private::folder_of_ones_own(&run_folder()?)?;
        let own = folder.join("server/balancer");
        account.folder(&own)?;
        let pid_file = own.join(PID);
        let configuration = own.join("configuration");
        let mut last = Ok(());
        for _ in 0..ATTEMPTS {
            let port = free_port()?;
            account.file(&configuration, &(self.text)(port, &own))?;
            let mut command = account.command(self.program, &own);
            command.args((self.arguments)(&own, &configuration));
            last = succeed(command);
            if last.is_ok() && becomes(|| process_of(&pid_file).is_some() && answers(port)) {
                return Ok(Balancer {
                    port,
                    pid_file,
                    folder,
                    _use: held,
                });
            }
        }
        last.and(Err(Fault::Program {
            program: self.name.to_owned(),
            report: "it does not take connections\n".to_owned(),
        }))
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        if let Some(pid) = process_of(&self.pid_file) {
            // At once, its workers with it.
            signal(pid, Signal::TERM);
            becomes(|| !is_alive(pid));
        }
        // What fails here is the watchdog's.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// HAProxy's configuration. A request is tried with another process only where the first could not even
/// be reached: what a process has begun to read it may have done. Streams of pokes are quiet for
/// longer than anything else, and say something every half minute.
fn haproxy(port: u16, behind: &[Behind]) -> String {
    let mut text = format!(
        "defaults
  mode http
  timeout connect 2s
  timeout client 90s
  timeout server 90s
  timeout tunnel 90s
  retries 3
  retry-on conn-failure
  option redispatch 1
  option forwardfor

frontend relays
  bind 127.0.0.1:{port}
  maxconn 4000
  default_backend relays

backend relays
  balance roundrobin
  option httpchk GET /readyz
  default-server check inter 200ms fall 2 rise 1
"
    );
    for (number, behind) in behind.iter().enumerate() {
        let Behind { port, health_port } = behind;
        let _ = writeln!(
            text,
            "  server relay-{number} 127.0.0.1:{port} port {health_port}"
        );
    }
    text
}

/// nginx's configuration: its own timeouts (60 s between two reads) and its own buffers, since those
/// are what a stream has to survive.
fn nginx(port: u16, own: &Path, behind: &[Behind]) -> String {
    let own = own.display();
    let mut text = format!(
        "daemon on;
pid {own}/{PID};
error_log {own}/log;
worker_processes 1;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {own}/body;
  proxy_temp_path {own}/proxy;
  fastcgi_temp_path {own}/fastcgi;
  uwsgi_temp_path {own}/uwsgi;
  scgi_temp_path {own}/scgi;
  client_max_body_size 32m;
  gzip on;
  gzip_min_length 1;
  gzip_proxied any;
  gzip_types text/event-stream application/json;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://relays;
      proxy_http_version 1.1;
      proxy_set_header Connection '';
      proxy_set_header Host $host;
    }}
  }}
  upstream relays {{
"
    );
    for Behind { port, .. } in behind {
        let _ = writeln!(text, "    server 127.0.0.1:{port};");
    }
    text.push_str("  }\n}\n");
    text
}
