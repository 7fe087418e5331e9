//! Three replicas behind a load balancer, on a Postgres and a Redis that they share.

mod clocks;
mod killed;
mod limits;
mod pokes;
mod proxies;
mod pushes;
mod revoked;

use std::thread;

use argala_servers::{Balancer, Behind};
use argala_testkit::servers::{Database, RedisServer, Session, redis};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    device::TestDevice,
    http::Target,
    load::GENEROUS,
    postgres::{migrated, on, runtime},
    process::Served,
};

/// Replicas: three tell apart "the other" from "all others".
const REPLICAS: usize = 3;

/// Replicas, and all that they share.
struct Cluster {
    replicas: Vec<Served>,
    balancer: Balancer,
    database: Database,
    _redis: RedisServer,
    _folders: Vec<TempDir>,
    runtime: Runtime,
}

impl Cluster {
    /// Starts replicas with these settings.
    fn start(args: &[&str]) -> Self {
        Self::start_each(args, |_| Vec::new())
    }

    /// Starts replicas with these settings, each with variables of its own in its environment.
    fn start_each(args: &[&str], own: impl Fn(usize) -> Vec<(&'static str, String)>) -> Self {
        let runtime = runtime();
        let database = migrated(&runtime);
        let redis = runtime.block_on(redis());
        let folders: Vec<_> = (0..REPLICAS)
            .map(|_| tempfile::tempdir().unwrap())
            .collect();
        let url = database.url();
        let replicas: Vec<_> = (0..REPLICAS)
            .map(|number| {
                let own = own(number);
                let mut variables = on(&url).to_vec();
                variables.extend([
                    ("ARGALA__REDIS__URL", redis.url()),
                    ("ARGALA__LIMITER__KIND", "redis"),
                    ("ARGALA__POKES__KIND", "redis"),
                ]);
                variables.extend(own.iter().map(|(name, value)| (*name, value.as_str())));
                Served::dev_with(folders[number].path(), &variables, args)
            })
            .collect();
        let behind: Vec<_> = replicas
            .iter()
            .map(|replica| Behind {
                port: port(&replica.public),
                health_port: port(&replica.admin),
            })
            .collect();
        Self {
            balancer: Balancer::start(&behind).expect("a load balancer"),
            replicas,
            database,
            _redis: redis,
            _folders: folders,
            runtime,
        }
    }

    /// The load balancer.
    fn public(&self) -> Target {
        Target {
            address: format!("127.0.0.1:{}", self.balancer.port()),
            prefix: self.replicas[0].public.prefix.clone(),
        }
    }

    /// One replica.
    fn at(&self, number: usize) -> &Target {
        &self.replicas[number].public
    }

    /// Each replica.
    fn targets(&self) -> Vec<Target> {
        let targets = self.replicas.iter();
        targets.map(|replica| replica.public.clone()).collect()
    }

    /// The answer to a question to the database, as text.
    fn stored(&self, question: &str) -> String {
        let asked = async {
            let session = Session::open(&self.database.url()).await;
            session.text(question).await
        };
        self.runtime.block_on(asked)
    }

    /// Ends all replicas in order.
    fn stop(mut self) {
        for replica in &mut self.replicas {
            let (status, log) = replica.stop();
            assert!(status.success(), "{log}");
        }
    }
}

/// A cluster, and sam's laptop with the graph of its own keyed.
fn keyed(args: &[&str]) -> (Cluster, TestDevice) {
    let cluster = Cluster::start(&[&GENEROUS[..], args].concat());
    let sam = key(&cluster);
    (cluster, sam)
}

fn key(cluster: &Cluster) -> TestDevice {
    let sam = TestDevice::dev("sam", "laptop");
    sam.register(cluster.at(0)).ok();
    sam.rotate(cluster.at(1), "d:sam", &[&sam]).ok();
    sam
}

/// Pulls a graph on and on until it has `until` says so; every record that came, in its order.
fn follow(
    device: &TestDevice,
    target: &Target,
    graph: &str,
    until: impl Fn(&[Value]) -> bool,
) -> Vec<Value> {
    let mut all = Vec::new();
    let mut query = "?limit=50".to_owned();
    loop {
        let path = format!("/graphs/{graph}/pull{query}");
        let page = target.get(&path, &device.headers()).ok();
        let records = page["records"].as_array().unwrap();
        all.extend(records.iter().cloned());
        query = format!("?limit=50&cursor={}", page["cursor"].as_str().unwrap());
        if page["more"] == false {
            if until(&all) {
                return all;
            }
            thread::yield_now();
        }
    }
}

/// The port of an address.
fn port(target: &Target) -> u16 {
    target.address.rsplit(':').next().unwrap().parse().unwrap()
}

/// The sequence numbers of records.
fn seqs(records: &[Value]) -> Vec<u64> {
    let seq = |record: &Value| record["seq"].as_u64().unwrap();
    records.iter().map(seq).collect()
}
