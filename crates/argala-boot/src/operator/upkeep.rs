//! Erasing graphs and members, recounting, and making a restored database fit to serve.
//!
//! Each may be cut off at any moment and run again: it goes on. What is done is written to the log,
//! stage by stage.

use std::{sync::Arc, time::Duration};

use argala_core::{
    erase::Eraser,
    ports::{
        ForgetReason, Random, SystemRandom,
        store::{Counters, Erased, Erasure, Revoke},
    },
};
use argala_wire::{MemberId, Owners, StorageKey, devices::DeviceRef};
use serde::Serialize;

use super::{Operator, OperatorError, PAGE};
use crate::logs::EventLog;

/// Rows at a time.
const BATCH: usize = 500;
/// How long removing one object may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// By how much a restored graph's epoch rises: more than it can have risen in the lost time.
const LOST_EPOCHS: u64 = 1_000;

/// Is told how much is done, of how much.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// A graph whose counters are not what its rows add up to.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Miscounted {
    /// The graph.
    pub storage_key: StorageKey,
    /// What its row says: live records, tombstones, bytes of ciphertext, bytes of blobs.
    pub stored: [u64; 4],
    /// What there is.
    pub counted: [u64; 4],
}

/// What came of a recount.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recounted {
    /// How many graphs were looked at.
    pub graphs: u64,
    /// Those whose counters were wrong.
    pub wrong: Vec<Miscounted>,
    /// Whether they were mended.
    pub fixed: bool,
}

/// What was done to a restored database.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    /// Graphs that have a new incarnation.
    pub graphs: u64,
    /// By how much the epochs of those with a key were raised.
    pub epochs: u64,
    /// What an operator still has to do.
    pub to_do: &'static str,
}

/// What was erased, or would be.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Erasal {
    /// Whether this only tells.
    pub dry_run: bool,
    /// Graphs that went as a whole.
    pub graphs: Vec<StorageKey>,
    /// Graphs that others share, from which a member's part went.
    pub shared: Vec<StorageKey>,
    /// Records.
    pub records: u64,
    /// Blobs.
    pub blobs: u64,
    /// Wraps, and what else there was about keys.
    pub wraps: u64,
    /// Idempotency keys.
    pub idempotency_keys: u64,
    /// Devices.
    pub devices: u64,
    /// What is left, and when it goes.
    pub left: Vec<String>,
}

impl Erasal {
    fn add(&mut self, erased: &Erased, blobs: usize) {
        self.records += erased.records;
        self.wraps += erased.wraps;
        self.idempotency_keys += erased.idempotency_keys;
        self.blobs += blobs as u64;
    }
}

const fn columns(counters: Counters) -> [u64; 4] {
    [
        counters.records,
        counters.tombstones,
        counters.ciphertext_bytes,
        counters.blob_bytes,
    ]
}

impl Operator {
    /// Every graph's storage key.
    async fn graph_keys(&self) -> Result<Vec<StorageKey>, OperatorError> {
        let mut all: Vec<StorageKey> = Vec::new();
        loop {
            let page = self.ports.upkeep.graph_keys(all.last(), PAGE).await?;
            let last = page.len() < PAGE;
            all.extend(page);
            if last {
                return Ok(all);
            }
        }
    }

    /// Compares the counters of one graph, or of all, with what there is; with `fix`, makes them
    /// that.
    ///
    /// # Errors
    /// Where the store fails; where there is no such graph.
    pub async fn recount(
        &self,
        graph: Option<&StorageKey>,
        fix: bool,
        progress: Progress<'_>,
    ) -> Result<Recounted, OperatorError> {
        let keys = match graph {
            Some(key) => vec![key.clone()],
            None => self.graph_keys().await?,
        };
        let mut told = Recounted {
            graphs: 0,
            wrong: Vec::new(),
            fixed: fix,
        };
        for (at, key) in keys.iter().enumerate() {
            let recount = if fix {
                self.ports.upkeep.mend(key).await?
            } else {
                self.ports.store.recount(key).await?
            };
            match recount {
                Some(recount) => {
                    told.graphs += 1;
                    if recount.stored != recount.counted {
                        if fix {
                            tracing::warn!(graph = %key, "an operator mended a graph's counters");
                        }
                        told.wrong.push(Miscounted {
                            storage_key: key.clone(),
                            stored: columns(recount.stored),
                            counted: columns(recount.counted),
                        });
                    }
                }
                None if graph.is_some() => return Err(OperatorError::NoGraph),
                // It has gone since it was listed.
                None => {}
            }
            progress(at as u64 + 1, keys.len() as u64);
        }
        Ok(told)
    }

    /// Makes a database fit to serve that was restored from a backup, or failed over to without its
    /// last changes: before any relay or sweeper starts on it.
    ///
    /// # Errors
    /// Where the store fails. Then run it again: that raises some epochs twice, which does no harm.
    pub async fn restored(&self, progress: Progress<'_>) -> Result<Restored, OperatorError> {
        let random: &dyn Random = &SystemRandom;
        let keys = self.graph_keys().await?;
        let mut graphs = 0;
        tracing::warn!(
            graphs = keys.len(),
            "an operator renews a restored database"
        );
        for page in keys.chunks(BATCH) {
            let renewed: Vec<_> = page
                .iter()
                .map(|key| (key.clone(), random.positive()))
                .collect();
            graphs += self.ports.upkeep.renew(&renewed, LOST_EPOCHS).await?;
            progress(graphs, keys.len() as u64);
        }
        tracing::warn!(graphs, "a restored database is renewed");
        Ok(Restored {
            graphs,
            epochs: LOST_EPOCHS,
            to_do: "revocations of the lost time are lost too: revoke those devices again before \
                    anybody is served; every graph owes a rotation",
        })
    }

    fn eraser(&self) -> Eraser {
        Eraser::new(
            Arc::clone(&self.ports.upkeep),
            Arc::clone(&self.ports.blobs),
            Arc::new(EventLog),
            PATIENCE,
        )
    }

    /// Erases a graph: it is gone for everybody at once, and what it held goes after that, stage by
    /// stage. Goes on with an erasure that was cut off.
    ///
    /// # Errors
    /// Where the store fails; where there is no such graph, and no such erasure.
    pub async fn erase_graph(
        &self,
        key: &StorageKey,
        dry_run: bool,
        progress: Progress<'_>,
    ) -> Result<Erasal, OperatorError> {
        let mut told = Erasal {
            dry_run,
            ..Erasal::default()
        };
        self.erase_whole(key, &mut told, progress).await?;
        if told.graphs.is_empty() {
            return Err(OperatorError::NoGraph);
        }
        told.left.push(
            "copies outside: backups of the database, logs, and what devices have pulled"
                .to_owned(),
        );
        Ok(told)
    }

    /// Those of the erasures under way that are of this key.
    async fn erasures_of(&self, key: &StorageKey) -> Result<Vec<Erasure>, OperatorError> {
        let mut all = self.ports.upkeep.erasures(usize::MAX).await?;
        all.retain(|erasure| erasure.graph == *key);
        Ok(all)
    }

    async fn erase_whole(
        &self,
        key: &StorageKey,
        told: &mut Erasal,
        progress: Progress<'_>,
    ) -> Result<(), OperatorError> {
        let graph = self.ports.store.graph(key).await?;
        let under_way = self.erasures_of(key).await?;
        if graph.is_none() && under_way.is_empty() {
            return Ok(());
        }
        told.graphs.push(key.clone());
        let counters = graph.map(|graph| graph.counters).unwrap_or_default();
        let total = counters.records + counters.tombstones;
        if told.dry_run {
            told.records += total;
            return Ok(());
        }
        let now = self.ports.clock.now();
        let begun = self
            .ports
            .upkeep
            .begin_erasure(key, ForgetReason::Requested, now)
            .await?;
        tracing::warn!(graph = %key, begun, "an operator erases a graph");
        let eraser = self.eraser();
        let mut failed = 0;
        for erasure in self.erasures_of(key).await? {
            loop {
                let (erased, removed) = eraser.step(&erasure, now, BATCH).await?;
                told.add(&erased, removed.forgotten.len());
                progress(told.records.min(total), total);
                failed += removed.failed;
                if !erased.more || removed.failed > 0 {
                    break;
                }
            }
        }
        if failed > 0 {
            told.left.push(format!(
                "{failed} objects of {key} could not be removed: run this again, or leave it to the \
                 sweep"
            ));
        }
        tracing::warn!(graph = %key, records = told.records, failed, "a graph is erased");
        Ok(())
    }

    /// Erases a member: their own graph and those of their pairs as a whole, their part of what
    /// others share, their devices, and themselves from the table directory. Goes on where it was
    /// cut off.
    ///
    /// # Errors
    /// Where the store fails; where the directory still has them as active.
    pub async fn erase_member(
        &self,
        member: &MemberId,
        dry_run: bool,
        progress: Progress<'_>,
    ) -> Result<Erasal, OperatorError> {
        let mut told = Erasal {
            dry_run,
            ..Erasal::default()
        };
        let devices = self.devices(member).await?;
        if dry_run {
            told.devices = devices.len() as u64;
        } else {
            // First of all: nobody may come back in the middle.
            self.ports.directory.remove_member(member).await?;
            if self.ports.directory.is_active_member(member).await? {
                return Err(OperatorError::StillActive);
            }
            tracing::warn!(member = %member, "an operator erases a member");
            for device in devices.iter().filter(|device| device.is_active()) {
                let revoke = Revoke {
                    by: DeviceRef {
                        member_id: member.clone(),
                        device_id: device.device_id.clone(),
                    },
                    device_id: device.device_id.clone(),
                    now: self.ports.clock.now(),
                };
                self.ports.store.revoke(revoke).await?;
            }
        }
        let mut keys: Vec<StorageKey> = Vec::new();
        loop {
            let upkeep = &self.ports.upkeep;
            let page = upkeep.graphs_with(member, keys.last(), PAGE).await?;
            let last = page.len() < PAGE;
            keys.extend(page);
            if last {
                break;
            }
        }
        // Those of an erasure that was cut off are not listed any more.
        for erasure in self.ports.upkeep.erasures(usize::MAX).await? {
            if is_theirs(&erasure.graph, member) && !keys.contains(&erasure.graph) {
                keys.push(erasure.graph);
            }
        }
        for (at, key) in keys.iter().enumerate() {
            if is_theirs(key, member) {
                self.erase_whole(key, &mut told, &|_, _| {}).await?;
            } else {
                told.shared.push(key.clone());
                if !dry_run {
                    self.erase_part(key, member, &mut told).await?;
                }
            }
            progress(at as u64 + 1, keys.len() as u64);
        }
        if !dry_run {
            let (gone, named) = self.ports.upkeep.erase_member(member).await?;
            told.devices = gone;
            for key in named {
                told.left.push(format!(
                    "{key}: its current epoch names devices of theirs, without wraps, until somebody \
                     rotates it; run this again then"
                ));
            }
            tracing::warn!(
                member = %member,
                graphs = told.graphs.len(),
                records = told.records,
                devices = gone,
                "a member is erased"
            );
        }
        told.left.extend(
            [
                "in graphs that others share: their id beside epochs they began and wraps they \
                 sealed for others",
                "rate limits: they lapse within minutes",
                "answers to pushes that they gave an Idempotency-Key, in graphs of which no device of \
                 theirs ever had a key: they lapse within two days",
                "what a replica that remembers them as active lets in meanwhile, for as long as \
                 directory.cache_ttl and a credential of theirs are good: run this again after that",
                "the host's own directory, logs, and backups of the database",
            ]
            .map(str::to_owned),
        );
        Ok(told)
    }

    async fn erase_part(
        &self,
        key: &StorageKey,
        member: &MemberId,
        told: &mut Erasal,
    ) -> Result<(), OperatorError> {
        let random: &dyn Random = &SystemRandom;
        let eraser = self.eraser();
        let mut failed = 0;
        // One time for all steps: what could not be removed is put off to it, and does not come again.
        let now = self.ports.clock.now();
        loop {
            let upkeep = &self.ports.upkeep;
            let erased = upkeep
                .erase_from(key, member, random.positive(), now, BATCH)
                .await?;
            let removed = eraser.remove(&erased.doomed, now).await?;
            failed += removed.failed;
            told.add(&erased, removed.forgotten.len());
            if !erased.more {
                break;
            }
        }
        if failed > 0 {
            told.left.push(format!(
                "{failed} objects of {key} could not be removed yet: the sweep tries again"
            ));
        }
        tracing::warn!(graph = %key, "a member's part of a graph is erased");
        Ok(())
    }
}

/// Whether a graph is a member's own, or that of a pair of theirs.
fn is_theirs(key: &StorageKey, member: &MemberId) -> bool {
    match key.owners() {
        Owners::Pair(low, high) => low == *member || high == *member,
        Owners::Group(_) => false,
    }
}
