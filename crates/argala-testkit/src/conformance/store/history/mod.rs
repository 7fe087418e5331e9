//! Random histories, lived through by the store and by the reference side by side: every answer
//! is compared, and so is everything that can be read.

mod blobs;
mod keys;
mod reads;
mod records;

use std::{collections::BTreeMap, fmt};

use argala_core::{
    Fault, Outcome, Rejection,
    ports::{
        ObjectKey, Store, SweepStore,
        store::{CommitBlob, Push, Rotate},
    },
};
use argala_wire::{MemberId, StorageKey, Timestamp};

use super::{Scene, at};
use crate::{ReferenceStore, TestDevice, TestRandom, conformance::Fresh, group, member};

const STEPS: usize = 260;
const MEMBERS: [&str; 3] = ["sam", "alex", "user:7"];
const GROUPS: [&str; 2] = ["acme", "50%"];

/// Whatever the store was asked, as both told it; a fault of the store ends the case.
fn told<T>(outcome: Outcome<T>) -> Result<T, Rejection> {
    match outcome {
        Ok(answer) => Ok(answer),
        Err(Fault::Rejected(rejection)) => Err(rejection),
        Err(Fault::Store(error)) => panic!("the store failed: {error:?}"),
    }
}

struct History {
    scene: Scene,
    reference: ReferenceStore,
    random: TestRandom,
    devices: Vec<TestDevice>,
    graphs: Vec<StorageKey>,
    now: u64,
    /// What the last rotate of each graph was, so that it can be repeated.
    rotates: BTreeMap<StorageKey, Rotate>,
    /// The last push that had an idempotency key.
    keyed: Option<Push>,
    /// Uploads that were reserved, whatever has become of them.
    uploads: Vec<CommitBlob>,
    objects: Vec<(StorageKey, ObjectKey)>,
    /// Those of them that became live and were not swept since.
    live: Vec<ObjectKey>,
    log: Vec<String>,
}

impl History {
    fn new(fresh: Fresh<dyn SweepStore>, seed: u64) -> Self {
        let devices = MEMBERS
            .iter()
            .flat_map(|member| ["a", "b", "c"].map(|device| TestDevice::new(member, device)))
            .collect();
        let mut graphs: Vec<_> = GROUPS
            .iter()
            .map(|name| StorageKey::group(&group(name)))
            .collect();
        graphs.push(StorageKey::pair(&member("sam"), &member("alex")));
        Self {
            scene: Scene::new(fresh),
            reference: ReferenceStore::new(),
            random: TestRandom::new(seed),
            devices,
            graphs,
            now: 0,
            rotates: BTreeMap::new(),
            keyed: None,
            uploads: Vec::new(),
            objects: Vec::new(),
            live: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Compares what both told of one operation.
    fn same<T: fmt::Debug + PartialEq>(
        &mut self,
        what: &str,
        got: Outcome<T>,
        wanted: Outcome<T>,
    ) -> Result<T, Rejection> {
        let (got, wanted) = (told(got), told(wanted));
        self.log.push(format!("{what}: {wanted:?}"));
        assert!(
            got == wanted,
            "{what}\n got {got:?}\nwant {wanted:?}\nafter\n{}",
            self.log.join("\n")
        );
        wanted
    }

    fn device(&self) -> TestDevice {
        self.random.pick(&self.devices).clone()
    }

    fn graph(&self) -> StorageKey {
        self.random.pick(&self.graphs).clone()
    }

    fn at(&self) -> Timestamp {
        at(self.now)
    }

    /// Some of the members, mostly all.
    fn members(&self) -> Vec<MemberId> {
        let all = MEMBERS.iter().map(|name| member(name));
        all.filter(|_| !self.random.one_in(6)).collect()
    }

    async fn epoch(&self, key: &StorageKey) -> u64 {
        let graph = self.reference.graph(key).await.expect("it does not fail");
        graph.map_or(0, |graph| graph.epoch)
    }

    async fn step(&mut self) {
        self.now += self.random.below(20);
        match self.random.below(40) {
            0..=3 => self.register().await,
            4 => self.revoke().await,
            5..=8 => self.rotate().await,
            9..=11 => self.grant().await,
            12 => self.flag().await,
            13..=22 => self.push().await,
            23..=27 => self.pull().await,
            28..=31 => self.reserve().await,
            32..=34 => self.commit().await,
            35 => self.abandon().await,
            36 => self.forget().await,
            37 => self.fetch().await,
            38 => self.sweep().await,
            _ => self.see().await,
        }
    }
}

async fn live(fresh: Fresh<dyn SweepStore>, seed: u64) {
    let mut history = History::new(fresh, seed);
    // Most devices are there from the beginning, so that something happens.
    for _ in 0..6 {
        history.register().await;
    }
    for step in 0..STEPS {
        history.step().await;
        if step % 40 == 0 {
            history.read_everything().await;
        }
    }
    history.read_everything().await;
}

/// One history.
pub async fn a_random_history_is_the_references_1(fresh: Fresh<dyn SweepStore>) {
    live(fresh, 1).await;
}

/// Another.
pub async fn a_random_history_is_the_references_2(fresh: Fresh<dyn SweepStore>) {
    live(fresh, 2).await;
}

/// And another.
pub async fn a_random_history_is_the_references_3(fresh: Fresh<dyn SweepStore>) {
    live(fresh, 3).await;
}
