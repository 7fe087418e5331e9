//! Redis for one owner: one server, a cluster, or servers that Sentinels watch.

use std::{fmt::Write as _, fs, path::PathBuf};

use rustix::process::Signal;

use crate::{
    Fault,
    ground::{becomes, free_port, memory_folder},
    private,
    redis::{self, Redis},
    watch::Use,
};

/// Names a Redis to use instead of one of our own, where a test does nothing to the server.
pub const REDIS_VARIABLE: &str = "ARGALA_TEST_REDIS_URL";

/// Redis servers that nobody else uses, and that their owner may stop, pause, kill and start again.
/// They are gone when this is dropped, or soon after their owner's process ended. Nothing that one
/// of them knew survives its end.
#[derive(Debug)]
pub struct PrivateRedis {
    /// Those that hold data first.
    servers: Vec<Redis>,
    url: String,
    /// What its Sentinels call what they watch. Nobody else's do: a port may have been that of
    /// servers which other Sentinels still look for, and these would be taken in by that name.
    service: String,
    folder: PathBuf,
    _use: Use,
}

impl PrivateRedis {
    /// Starts one server.
    ///
    /// # Errors
    /// Where there is no Redis, or it does not start.
    pub fn start() -> Result<Self, Fault> {
        let mut own = Self::empty()?;
        let port = own.add(false, || Ok(String::new()))?;
        own.url = format!("redis://127.0.0.1:{port}");
        Ok(own)
    }

    /// Starts a cluster of three.
    ///
    /// # Errors
    /// Where there is no Redis, or the cluster does not come to be.
    pub fn start_cluster() -> Result<Self, Fault> {
        let mut own = Self::empty()?;
        let mut ports = Vec::new();
        for _ in 0..3 {
            // The second port would be the first one and 10,000, which is often beyond the last.
            let settings = || {
                let bus = free_port()?;
                Ok(format!(
                    "cluster-enabled yes\ncluster-port {bus}\ncluster-node-timeout 2000\n"
                ))
            };
            ports.push(own.add(false, settings)?);
        }
        for (at, range) in ["0 5460", "5461 10922", "10923 16383"].iter().enumerate() {
            let server = &own.servers[at];
            server.ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1))?;
            server.ask(&format!("CLUSTER ADDSLOTSRANGE {range}"))?;
        }
        let first = &own.servers[0];
        for other in &own.servers[1..] {
            // ":0 myself,master - 0 0 1 connected", and before it "id 127.0.0.1:port@bus".
            let nodes = other.ask("CLUSTER NODES")?;
            let bus = nodes
                .split('@')
                .nth(1)
                .and_then(|rest| rest.split([',', ' ']).next())
                .unwrap_or_default();
            first.ask(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port()))?;
        }
        own.until("the cluster is whole", |own| {
            own.servers.iter().all(|server| {
                server.ask("CLUSTER INFO").is_ok_and(|info| {
                    info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
                })
            })
        })?;
        own.url = format!(
            "redis-cluster://127.0.0.1:{}?node=127.0.0.1:{}&node=127.0.0.1:{}",
            ports[0], ports[1], ports[2]
        );
        Ok(own)
    }

    /// Starts a primary and two replicas, and three Sentinels that watch them.
    ///
    /// # Errors
    /// Where there is no Redis, or the servers do not find each other.
    pub fn start_sentinels() -> Result<Self, Fault> {
        let mut own = Self::empty()?;
        let service = own.service.clone();
        let primary = own.add(false, || Ok("repl-diskless-sync-delay 0\n".to_owned()))?;
        for _ in 0..2 {
            own.add(false, || {
                Ok(format!(
                    "repl-diskless-sync-delay 0\nreplicaof 127.0.0.1 {primary}\n"
                ))
            })?;
        }
        let mut ports = Vec::new();
        for _ in 0..3 {
            ports.push(own.add(true, || {
                Ok(format!(
                    "sentinel monitor {service} 127.0.0.1 {primary} 2
sentinel down-after-milliseconds {service} 60000
sentinel failover-timeout {service} 5000
sentinel parallel-syncs {service} 2
"
                ))
            })?);
        }
        own.until("the Sentinels know all of them", |own| {
            own.servers[0]
                .ask("INFO replication")
                .is_ok_and(|told| told.matches("state=online").count() == 2)
                && own.servers[3..].iter().all(|sentinel| {
                    let told = sentinel.ask("INFO sentinel").unwrap_or_default();
                    told.contains("status=ok,") && told.contains("slaves=2,sentinels=3")
                })
        })?;
        // Only now: on a busy machine one of them may be slow to answer while it starts, and would
        // be given up before the test has begun.
        for sentinel in &own.servers[3..] {
            sentinel.ask(&format!(
                "SENTINEL SET {service} down-after-milliseconds 500"
            ))?;
        }
        own.url = format!(
            "redis-sentinel://127.0.0.1:{}?sentinelServiceName={service}\
             &node=127.0.0.1:{}&node=127.0.0.1:{}",
            ports[0], ports[1], ports[2]
        );
        Ok(own)
    }

    fn empty() -> Result<Self, Fault> {
        // A Sentinel waits for the disk whenever it learns of another, and a replica when it has
        // its copy: on a busy disk that is a minute, and nothing here outlives its server anyway.
        let (folder, held) = private::folder_of_ones_own(&memory_folder()?)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            servers: Vec::new(),
            url: String::new(),
            service: format!("argala-{name}"),
            folder,
            _use: held,
        })
    }

    fn add(
        &mut self,
        is_sentinel: bool,
        settings: impl Fn() -> Result<String, Fault>,
    ) -> Result<u16, Fault> {
        let name = format!("server/redis-{}", self.servers.len());
        let server = Redis::create(&self.folder.join(name), is_sentinel, settings)?;
        let port = server.port();
        self.servers.push(server);
        Ok(port)
    }

    fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) -> Result<(), Fault> {
        becomes(|| condition(self))
            .then_some(())
            .ok_or_else(|| Fault::Program {
                program: "redis-server".to_owned(),
                report: format!("{what}: not in time\n{}", self.told()),
            })
    }

    /// What each server says of itself and has logged, for whoever has to find out why.
    fn told(&self) -> String {
        let mut all = String::new();
        for server in &self.servers {
            let topics = ["replication", "sentinel", "cluster"];
            let told = topics.map(|topic| server.ask(&format!("INFO {topic}")).unwrap_or_default());
            let _ = writeln!(
                all,
                "--- {}\n{}\n{}",
                server.port(),
                told.concat(),
                server.log()
            );
        }
        all
    }

    /// `redis://…`, `redis-cluster://…` or `redis-sentinel://…`; the same after each start.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The ports of `127.0.0.1` on which the servers listen, those that hold data first.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(Redis::port).collect()
    }

    /// Which server the Sentinels call the primary.
    ///
    /// # Errors
    /// Where no Sentinel answers.
    pub fn primary(&self) -> Result<usize, Fault> {
        let told = self.servers[self.servers.len() - 1].ask(&format!(
            "SENTINEL GET-MASTER-ADDR-BY-NAME {}",
            self.service
        ))?;
        let port = told
            .lines()
            .last()
            .and_then(|line| line.trim().parse().ok());
        self.servers
            .iter()
            .position(|server| Some(server.port()) == port)
            .ok_or_else(|| Fault::Program {
                program: "redis-server".to_owned(),
                report: format!("no primary: {told}"),
            })
    }

    /// Sends a command whose arguments hold no space to the server `at`; gives its answer as it
    /// came.
    ///
    /// # Errors
    /// Where the server does not answer.
    pub fn ask(&self, at: usize, command: &str) -> Result<String, Fault> {
        self.servers[at].ask(command)
    }

    /// Stops the server `at` in order.
    ///
    /// # Errors
    /// Where it does not end.
    pub fn stop(&self, at: usize) -> Result<(), Fault> {
        self.servers[at].end(Signal::TERM)
    }

    /// Kills the server `at` with SIGKILL.
    ///
    /// # Errors
    /// Where it does not end.
    pub fn kill(&self, at: usize) -> Result<(), Fault> {
        self.servers[at].end(Signal::KILL)
    }

    /// Stops the server `at` with SIGSTOP: the system still takes its connections, and nobody
    /// answers.
    pub fn pause(&self, at: usize) {
        self.servers[at].signal(Signal::STOP);
    }

    /// Lets the server `at` go on.
    pub fn resume(&self, at: usize) {
        self.servers[at].signal(Signal::CONT);
    }

    /// Starts the server `at` again, empty, on its port.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start_again(&self, at: usize) -> Result<(), Fault> {
        self.servers[at].start()
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        redis::kill_all(&self.folder.join("server"));
        // What fails here is the watchdog's.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
