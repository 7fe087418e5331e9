//! Redis stopped, hung, cut off and started anew, and what clients see of it: nothing.

use std::time::Duration;

use argala_testkit::servers::Passage;
use argala_wire::{MemberId, StorageKey};

use super::{redis, runtime, shared};
use crate::{
    device::TestDevice,
    http::Events,
    process::{SOON, Served, now},
};

/// How much longer than usual an answer may take.
const LATE: Duration = Duration::from_millis(250);
/// Pushes and pulls in each phase.
const ROUNDS: usize = 40;

const SETTINGS: [&str; 6] = [
    "--set",
    "rate_limits.push={ per_minute = 600000, burst = 600000 }",
    "--set",
    "rate_limits.pull={ per_minute = 600000, burst = 600000 }",
    "--set",
    "rate_limits.keys={ per_minute = 6, burst = 20 }",
];

/// A client that pushes and pulls, and knows how long it waited.
struct Client<'a> {
    served: &'a Served,
    sam: TestDevice,
    graph: StorageKey,
    pushed: usize,
}

impl Client<'_> {
    /// The longest wait of a number of pushes and pulls, all of which succeed.
    fn work(&mut self) -> Duration {
        let mut slowest = Duration::ZERO;
        for _ in 0..ROUNDS {
            let id = format!("record-{:05}", self.pushed);
            let record = self.sam.record(&self.graph, &id, b"sealed");
            let begun = now();
            let answer = self.sam.push(&self.served.public, "d:sam", &[record]);
            slowest = slowest.max(begun.elapsed());
            assert_eq!(answer.ok()["accepted"], 1, "{answer:?}");
            self.pushed += 1;
            let begun = now();
            let pulled = self
                .served
                .public
                .get("/graphs/d:sam/pull?limit=1", &self.sam.headers());
            slowest = slowest.max(begun.elapsed());
            assert_eq!(pulled.status, 200, "{pulled:?}");
        }
        slowest
    }

    /// How many of some requests about keys are allowed; the others are told to wait.
    fn ask_for_keys(&self, requests: usize) -> usize {
        let mut allowed = 0;
        for _ in 0..requests {
            match self
                .served
                .public
                .get("/devices", &self.sam.headers())
                .status
            {
                200 => allowed += 1,
                429 => {}
                other => panic!("{other}"),
            }
        }
        allowed
    }
}

#[test]
fn a_relay_whose_redis_goes_serves_on_and_comes_back_by_itself() {
    let runtime = runtime();
    let server = redis(&runtime);
    let passage = runtime.block_on(Passage::to(server.ports()[0]));
    let url = format!("redis://127.0.0.1:{}", passage.port());
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::dev_with(folder.path(), &shared(&url, &[]), &SETTINGS);
    served.wait_for_log("limits are shared");
    let sam = TestDevice::dev("sam", "laptop");
    sam.register(&served.public).ok();
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    let mut client = Client {
        served: &served,
        sam,
        graph: StorageKey::own(&MemberId::new("sam").unwrap()),
        pushed: 0,
    };
    client.work();
    let usual = client.work();
    let begun = now();
    let mut of_keys = client.ask_for_keys(30);

    for (name, goes, comes) in [
        (
            "stopped",
            Box::new(|| runtime.block_on(server.stop(0))) as Box<dyn Fn()>,
            Box::new(|| runtime.block_on(server.start_again(0))) as Box<dyn Fn()>,
        ),
        (
            "hung",
            Box::new(|| server.pause(0)),
            Box::new(|| server.resume(0)),
        ),
        (
            "cut off",
            Box::new(|| passage.close()),
            Box::new(|| passage.open()),
        ),
        (
            "cut off for ever",
            Box::new(|| passage.close()),
            Box::new(|| passage.open_for_new()),
        ),
        (
            "started anew",
            Box::new(|| {
                runtime.block_on(server.kill(0));
                runtime.block_on(server.start_again(0));
            }),
            Box::new(|| {}),
        ),
    ] {
        goes();
        let slowest = client.work();
        assert!(
            slowest <= usual + LATE,
            "{name}: {slowest:?}, {usual:?} otherwise"
        );
        let ready = served.admin.get("/readyz", &[]);
        assert_eq!(ready.status, 200, "{name}");
        of_keys += client.ask_for_keys(30);
        comes();
        let slowest = client.work();
        assert!(
            slowest <= usual + LATE,
            "{name}, and back: {slowest:?}, {usual:?} otherwise"
        );
        // Whatever is counted is counted by the same replica, so the rate holds throughout; a
        // server that has forgotten everything, as twice here, gives the burst once more.
        wait_until_shared(&server, &runtime, &client);
    }
    let worth = 3 * 20 + usize::try_from(begun.elapsed().as_secs() / 10).unwrap() + 1;
    assert!(of_keys <= worth, "{of_keys} of {worth}");
    drop(client);
    assert!(served.stop().0.success());
}

/// Waits until the relay's requests are counted by Redis again.
fn wait_until_shared(
    server: &argala_testkit::servers::PrivateRedis,
    runtime: &tokio::runtime::Runtime,
    client: &Client<'_>,
) {
    let until = now() + SOON;
    loop {
        let written = || runtime.block_on(server.ask(0, "GET argala:limit:pull:sam"));
        let before = written();
        client.served.public.get("/limits", &client.sam.headers());
        let after = written();
        if before != after {
            return;
        }
        assert!(now() < until, "Redis is not asked again");
        crate::load::pause();
    }
}

#[test]
fn a_relay_starts_without_redis_and_takes_it_when_it_is_there() {
    let runtime = runtime();
    let server = redis(&runtime);
    runtime.block_on(server.stop(0));
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::dev_with(folder.path(), &shared(server.url(), &[]), &SETTINGS);
    served.wait_for_log("Redis is away");
    assert_eq!(served.admin.get("/readyz", &[]).status, 200);
    let sam = TestDevice::dev("sam", "laptop");
    sam.register(&served.public).ok();
    // A stream opens, too, and is told to ask for everything once there is somebody to tell of it.
    let mut stream = Events::open(&served.public, &sam.headers());
    runtime.block_on(server.start_again(0));
    served.wait_for_log("Redis answers");
    assert!(stream.wait_for("argala.resync"));
    let (status, log) = served.stop();
    assert!(status.success());
    let told = log
        .lines()
        .filter(|line| line.contains("Redis is away: this replica limits"))
        .count();
    assert!(told <= 2, "once for each change:\n{log}");
}
