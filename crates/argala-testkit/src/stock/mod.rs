//! A database with something in it: short ways to ask it for things, and every operation of every
//! port once. For what an adapter's own tests are about: statements, plans, memory.

mod everything;
mod requests;

use std::sync::Arc;

use argala_core::{
    Outcome,
    ports::{
        SweepStore,
        store::{Pulled, PushOutcome, Rotated},
    },
};
use argala_wire::{
    StorageKey,
    records::{PulledRecord, PushRecord, PushResponse},
};

pub use everything::run_everything;
pub use requests::{
    devices_query, grant, graph, graphs_query, members_of, object, pull, push, records, reserve,
    rotate, wraps_query,
};

use crate::{EPOCH, TestDevice};

/// A database, and short ways to ask it for things.
#[derive(Debug)]
pub struct Stock<D> {
    /// The database itself.
    pub db: Arc<D>,
}

impl<D: SweepStore> Stock<D> {
    /// Registered devices `d0`, `d1` … of one member, with no ceiling on how many.
    ///
    /// # Panics
    /// Where the database refuses, here as in all that follows.
    pub async fn devices(&self, member: &str, count: usize) -> Vec<TestDevice> {
        let mut devices = Vec::with_capacity(count);
        for at in 0..count {
            let device = TestDevice::new(member, &format!("d{at}"));
            let mut request = device.register(EPOCH);
            request.max_devices = u64::MAX;
            self.db.register(request).await.expect("answered");
            devices.push(device);
        }
        devices
    }

    /// Begins `epoch` of `key` for `holders`, the first of which asks.
    pub async fn rotate(&self, key: &StorageKey, epoch: u64, holders: &[TestDevice]) -> Rotated {
        self.db
            .rotate(rotate(key, epoch, holders))
            .await
            .expect("answered")
    }

    /// Pushes records of one epoch, whatever is there.
    pub async fn push(
        &self,
        key: &StorageKey,
        by: &TestDevice,
        records: Vec<PushRecord>,
    ) -> PushResponse {
        let pushed: Outcome<PushOutcome> = self.db.push(push(key, by, records)).await;
        pushed.expect("answered").answer
    }

    /// Every record that `by` may read.
    pub async fn pull_all(&self, key: &StorageKey, by: &TestDevice) -> Vec<PulledRecord> {
        let mut request = pull(key, by, 1_000);
        let mut records = Vec::new();
        loop {
            let Pulled::Page(page) = self.db.pull(request.clone()).await.expect("answered") else {
                panic!("nothing is known");
            };
            records.extend(page.page.records);
            request.cursor = Some(page.page.cursor);
            if !page.page.more {
                return records;
            }
        }
    }

    /// Holds that the graph's counters are the sums that they stand for.
    pub async fn counters_are_exact(&self, key: &StorageKey) {
        let recount = self
            .db
            .recount(key)
            .await
            .expect("answered")
            .expect("a graph");
        assert_eq!(recount.stored, recount.counted);
    }
}
