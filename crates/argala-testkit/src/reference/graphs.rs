//! Graphs and their keys.

use std::collections::{BTreeMap, BTreeSet};

use argala_core::{
    Rejection,
    ports::store::{
        Counters, Epoch, Grant, Granted, Graph, GraphListing, GraphsQuery, Holder, Recount, Rotate,
        Rotated, Standing, WrapsPage, WrapsQuery,
    },
    rules::{self, GrantView, RotateView, Rotation},
};
use argala_wire::{
    MemberId, Owners, RecordId, Sealed, StorageKey, Timestamp, devices::DeviceRef, keys::Wrap,
    records::PulledRecord,
};

use super::{State, records::Kept};

/// A graph and all that is its own.
#[derive(Debug)]
pub(super) struct Shelf {
    pub graph: Graph,
    pub epochs: BTreeMap<u64, Epoch>,
    pub wraps: BTreeMap<(u64, DeviceRef), WrapRow>,
    pub records: BTreeMap<RecordId, PulledRecord>,
    pub kept: BTreeMap<(DeviceRef, String), Kept>,
}

/// A wrap, or where one was before its device was revoked.
#[derive(Debug, Clone)]
pub(super) struct WrapRow {
    pub wrap: Option<Sealed>,
    pub by: DeviceRef,
    pub at: Timestamp,
}

impl Shelf {
    fn new(key: &StorageKey, incarnation: u64) -> Self {
        Self {
            graph: Graph {
                key: key.clone(),
                epoch: 0,
                head: 0,
                counters: Counters::default(),
                incarnation,
                floor: 0,
                revocation_owed: false,
                directory_owed: false,
            },
            epochs: BTreeMap::new(),
            wraps: BTreeMap::new(),
            records: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    /// The epochs of which `device` has a wrap.
    pub(super) fn held_by(&self, device: &DeviceRef) -> BTreeSet<u64> {
        let rows = self.wraps.iter();
        rows.filter(|((_, of), row)| of == device && row.wrap.is_some())
            .map(|((epoch, _), _)| *epoch)
            .collect()
    }
}

impl State {
    pub(super) fn graphs_of(&self, query: &GraphsQuery) -> Vec<GraphListing> {
        let member = &query.device.member_id;
        let is_theirs = |shelf: &Shelf| match (shelf.graph.key.owners(), &query.groups) {
            (Owners::Pair(low, high), _) => low == *member || high == *member,
            (Owners::Group(group), Some(groups)) => groups.contains(&group),
            (Owners::Group(_), None) => {
                let mut holders = shelf.wraps.keys();
                holders.any(|(_, device)| device.member_id == *member)
            }
        };
        let shelves = self.graphs.values();
        shelves
            .filter(|shelf| is_theirs(shelf))
            .filter(|shelf| {
                query
                    .after
                    .as_ref()
                    .is_none_or(|after| shelf.graph.key > *after)
            })
            .take(query.limit)
            .map(|shelf| GraphListing {
                graph: shelf.graph.clone(),
                holds_current: shelf.held_by(&query.device).contains(&shelf.graph.epoch),
            })
            .collect()
    }

    pub(super) fn standing(&self, key: &StorageKey, members: &[MemberId]) -> Option<Standing> {
        let shelf = self.graphs.get(key)?;
        let holders = shelf.wraps.keys();
        let holders = holders.filter(|(epoch, _)| *epoch == shelf.graph.epoch);
        Some(Standing {
            graph: shelf.graph.clone(),
            holders: holders
                .map(|(_, device)| Holder {
                    revoked: !self.devices[device].is_active(),
                    device: device.clone(),
                })
                .collect(),
            roster: self.roster(members),
        })
    }

    pub(super) fn wraps(&self, query: &WrapsQuery) -> WrapsPage {
        let Some(shelf) = self.graphs.get(&query.key) else {
            return WrapsPage {
                epoch: 0,
                wraps: Vec::new(),
            };
        };
        let told = |((epoch, device), row): (&(u64, DeviceRef), &WrapRow)| {
            let wanted = *device == query.device && *epoch > query.after;
            wanted.then_some(())?;
            Some(Wrap {
                epoch: *epoch,
                wrap: row.wrap.clone()?,
                by: row.by.clone(),
                at: row.at,
                first_seq: shelf.epochs[epoch].first_seq,
            })
        };
        let wraps = shelf.wraps.iter().filter_map(told);
        WrapsPage {
            epoch: shelf.graph.epoch,
            wraps: wraps.take(query.limit).collect(),
        }
    }

    pub(super) fn rotate(&mut self, request: &Rotate) -> Result<Rotated, Rejection> {
        let shelf = self.graphs.get(&request.key);
        let view = RotateView {
            caller: self.devices.get(&request.by),
            graph: shelf.map(|shelf| &shelf.graph),
            roster: &self.roster(&request.members),
            past: shelf.and_then(|shelf| shelf.epochs.get(&request.epoch)),
        };
        let epoch = match rules::rotate(request, view)? {
            Rotation::Replay(rotated) => return Ok(rotated),
            Rotation::Begin(epoch) => epoch,
        };
        let shelf = self.graphs.entry(request.key.clone());
        let shelf = shelf.or_insert_with(|| Shelf::new(&request.key, request.incarnation));
        shelf.graph.epoch = epoch.epoch;
        shelf.graph.revocation_owed = false;
        shelf.graph.directory_owed = false;
        for wrap in &request.wraps {
            let target = DeviceRef {
                member_id: wrap.member_id.clone(),
                device_id: wrap.device_id.clone(),
            };
            let row = WrapRow {
                wrap: Some(wrap.wrap.clone()),
                by: request.by.clone(),
                at: request.now,
            };
            shelf.wraps.insert((epoch.epoch, target), row);
        }
        let rotated = Rotated {
            epoch: epoch.epoch,
            first_seq: epoch.first_seq,
            devices: epoch.devices,
            replay: false,
        };
        shelf.epochs.insert(epoch.epoch, epoch);
        Ok(rotated)
    }

    pub(super) fn grant(&mut self, request: &Grant) -> Result<Granted, Rejection> {
        let roster: BTreeSet<_> = self.roster(&request.members).into_iter().collect();
        let shelf = self.graphs.get(&request.key);
        let held = shelf.map(|shelf| shelf.held_by(&request.by));
        let existing: BTreeMap<_, _> = shelf
            .iter()
            .flat_map(|shelf| &shelf.wraps)
            .map(|(target, row)| (target.clone(), row.wrap.clone()))
            .collect();
        let view = GrantView {
            caller: self.devices.get(&request.by),
            graph: shelf.map(|shelf| &shelf.graph),
            roster: &roster,
            held: &held.unwrap_or_default(),
            existing: &existing,
        };
        let decision = rules::grant(request, view)?;
        let shelf = self.graphs.get_mut(&request.key).expect("the rule saw it");
        for at in decision.insert {
            let wrap = &request.wraps[at];
            let target = DeviceRef {
                member_id: wrap.member_id.clone(),
                device_id: wrap.device_id.clone(),
            };
            let row = WrapRow {
                wrap: Some(wrap.wrap.clone()),
                by: request.by.clone(),
                at: request.now,
            };
            shelf.wraps.insert((wrap.epoch, target), row);
        }
        Ok(decision.outcome)
    }

    pub(super) fn flag_directory(&mut self, key: &StorageKey, epoch: u64, owed: bool) {
        if let Some(shelf) = self.graphs.get_mut(key)
            && shelf.graph.epoch == epoch
        {
            shelf.graph.directory_owed = owed;
        }
    }

    pub(super) fn recount(&self, key: &StorageKey) -> Option<Recount> {
        let shelf = self.graphs.get(key)?;
        let records = || shelf.records.values();
        let tombstones = records().filter(|record| record.deleted).count() as u64;
        let blobs = self.blobs.values().filter(|row| row.counts_for(key));
        Some(Recount {
            stored: shelf.graph.counters,
            counted: Counters {
                records: records().count() as u64 - tombstones,
                tombstones,
                ciphertext_bytes: records().map(|record| record.ciphertext.len() as u64).sum(),
                blob_bytes: blobs.map(|row| row.size()).sum(),
            },
        })
    }
}
