//! Pushers that remember what was acknowledged to them.

use std::{
    collections::BTreeSet,
    net::TcpStream,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, Scope, ScopedJoinHandle},
    time::Duration,
};

use argala_wire::StorageKey;
use serde_json::json;

use crate::{
    device::TestDevice,
    http::{Answer, Target, answer, header},
    process::SOON,
};

const PUSHERS: usize = 8;

/// So that pushers are not held up by what every member may ask.
pub(crate) const GENEROUS: [&str; 2] = [
    "--set",
    "rate_limits.push={ per_minute = 1000000, burst = 1000000 }",
];

/// Several pushers on the graph of sam's own devices.
///
/// Each pushes two records a time, and repeats under the same idempotency key what was answered
/// with 503. Any other answer than that and a success fails the test.
pub(crate) struct Load<'a> {
    device: &'a TestDevice,
    /// Whether somebody stands between who may answer for a relay that is gone.
    is_balanced: bool,
    acknowledged: Mutex<BTreeSet<String>>,
    count: AtomicUsize,
    unavailable: AtomicUsize,
    done: AtomicBool,
    successes: Mutex<Sender<usize>>,
    heard: Mutex<Receiver<usize>>,
}

impl<'a> Load<'a> {
    pub(crate) fn by(device: &'a TestDevice) -> Self {
        let (successes, heard) = channel();
        Self {
            device,
            is_balanced: false,
            acknowledged: Mutex::default(),
            count: AtomicUsize::new(0),
            unavailable: AtomicUsize::new(0),
            done: AtomicBool::new(false),
            successes: Mutex::new(successes),
            heard: Mutex::new(heard),
        }
    }

    /// The same through a load balancer: what it answers for a relay that died, or what breaks with
    /// that relay, is repeated.
    pub(crate) fn through_a_balancer(device: &'a TestDevice) -> Self {
        Self {
            is_balanced: true,
            ..Self::by(device)
        }
    }

    /// Starts the pushers; they stop when they are told to, or when nobody answers any more.
    pub(crate) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        target: &'scope Target,
    ) -> Vec<ScopedJoinHandle<'scope, ()>> {
        let pushers = (0..PUSHERS).map(|pusher| scope.spawn(move || self.push(target, pusher)));
        pushers.collect()
    }

    fn push(&self, target: &Target, pusher: usize) {
        let graph: StorageKey = "d:sam:sam".parse().unwrap();
        let successes = self.successes.lock().unwrap().clone();
        for number in 0.. {
            // Two a push: one of them alone would be half a push.
            let ids = [0, 1].map(|half| format!("{pusher}-{number}-{half}"));
            let records = ids
                .clone()
                .map(|id| self.device.record(&graph, &id, id.as_bytes()));
            let body = json!({"records": records}).to_string();
            let key = format!("{pusher}-{number}");
            loop {
                if self.done.load(Ordering::Relaxed) {
                    return;
                }
                match try_push(target, self.device, &key, &body) {
                    None if self.is_balanced => {}
                    // It is dead.
                    None => return,
                    Some(answer) if self.is_balanced && matches!(answer.status, 502..=504) => {}
                    Some(answer) if answer.status == 503 => {
                        assert!(header(&answer.head, "retry-after").is_some(), "{answer:?}");
                    }
                    Some(answer) => {
                        assert_eq!(answer.ok()["accepted"], 2);
                        break;
                    }
                }
                self.unavailable.fetch_add(1, Ordering::Relaxed);
                pause();
            }
            self.acknowledged.lock().unwrap().extend(ids);
            self.count.fetch_add(1, Ordering::Relaxed);
            let _ = successes.send(pusher);
        }
    }

    /// Waits until this many pushes more have been acknowledged.
    pub(crate) fn wait_for_more(&self, pushes: usize) {
        let enough = self.count.load(Ordering::Relaxed) + pushes;
        while self.count.load(Ordering::Relaxed) < enough {
            assert!(!self.done.load(Ordering::Relaxed));
            pause();
        }
    }

    /// Waits until somebody has been told 503.
    pub(crate) fn wait_for_refusal(&self) {
        while self.unavailable() == 0 {
            pause();
        }
    }

    /// Waits until every pusher has been answered well once more, with no more than `within`
    /// between two answers.
    pub(crate) fn wait_for_all(&self, within: Duration) {
        let heard = self.heard.lock().unwrap();
        // What came before is no answer to the question.
        while heard.try_recv().is_ok() {}
        let mut waited_for: BTreeSet<usize> = (0..PUSHERS).collect();
        while !waited_for.is_empty() {
            let pusher = heard.recv_timeout(within);
            waited_for.remove(&pusher.unwrap_or_else(|_| panic!("{waited_for:?} never came back")));
        }
    }

    /// How many pushes were answered with 503.
    pub(crate) fn unavailable(&self) -> usize {
        self.unavailable.load(Ordering::Relaxed)
    }

    /// Tells the pushers to stop.
    pub(crate) fn stop(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    /// Holds what is there against what was acknowledged: all of it, no half of a push, each once.
    pub(crate) fn reconcile(&self, target: &Target) {
        let acknowledged = self.acknowledged.lock().unwrap();
        let records = self.device.pull_all(target, "d:sam");
        let there: BTreeSet<_> = records
            .iter()
            .map(|record| record["id"].as_str().unwrap().to_owned())
            .collect();
        let lost: Vec<_> = acknowledged.difference(&there).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        for id in &there {
            let other = match id.rsplit_once('-').unwrap() {
                (push, "0") => format!("{push}-1"),
                (push, _) => format!("{push}-0"),
            };
            assert!(there.contains(&other), "half of a push: {id}");
        }
        let state = target.get("/graphs/d:sam", &self.device.headers()).ok();
        assert_eq!(state["records"], there.len());
        assert_eq!(state["head"], there.len(), "each was written once");
    }
}

/// A moment between two looks at something that another process does.
pub(crate) fn pause() {
    thread::park_timeout(Duration::from_millis(5));
}

/// Sends a push; `None` where nobody answers any more.
fn try_push(target: &Target, device: &TestDevice, key: &str, body: &str) -> Option<Answer> {
    use std::io::Write as _;
    let mut stream = TcpStream::connect(&target.address).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    let request = format!(
        "POST {}/graphs/d:sam/push HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nidempotency-key: {key}\r\n\
         connection: close\r\n\r\n{body}",
        target.prefix,
        target.address,
        device.credential,
        body.len(),
    );
    stream.write_all(request.as_bytes()).ok()?;
    answer(stream)
}
