//! What a host's operator erases: a graph, or a member with all that was theirs alone. And what a
//! month without members makes of a group's graph.
//!
//! The protocol tells only what is seen of it: whose graph is not there finds none, a graph that
//! begins again has nothing of the one before, and old cursors are `ahead` of it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    answer::one_of,
    call::Device,
    state::{Blob, Going, Graph, Model, sides},
};

const DAY: i64 = 24 * 60 * 60 * 1_000;
/// How long tombstones are kept.
const TOMBSTONES_FOR: i64 = 90 * DAY;
/// How long a group is empty before its graph goes.
const ABANDONED_AFTER: i64 = 30 * DAY;
/// Two looks that lie further apart than this are no unbroken time.
const UNBROKEN_WITHIN: i64 = 3 * DAY;

/// What an erasure of a member must come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Erasal {
    /// Graphs of which a part or all of it was theirs, by key.
    pub(super) graphs: Vec<String>,
    /// How many of their devices are not there any more.
    pub(super) devices: u64,
    /// Graphs whose current epoch names a device of theirs still.
    pub(super) named: Vec<String>,
    /// What must be told of blobs.
    pub(super) events: Vec<Value>,
}

/// What is told of a blob that goes.
pub(super) fn forgotten(key: &str, reason: &str) -> Value {
    json!({"type": "blob.forget", "storageKey": key, "reason": reason})
}

/// Whether a graph is the member's own, or a pair's of theirs.
pub(super) fn is_theirs(key: &str, member: &str) -> bool {
    key.starts_with("d:") && sides(key).contains(member)
}

impl Model {
    pub(super) fn new_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    /// From here on the graph is not there; its blobs go one by one. Whether it was there.
    pub(super) fn begin_erasure(&mut self, key: &str, reason: &'static str) -> bool {
        if self.graphs.remove(key).is_none() {
            return false;
        }
        let blobs = self.blobs.extract_if(.., |blob| blob.key == key);
        let blobs: Vec<_> = blobs.collect();
        // Which of them goes first is not known, so the first moment is taken for each.
        let expires_at = blobs.iter().filter_map(|blob| blob.expires_at).min();
        let doomed = self.doomed.extract_if(.., |(of, _)| of == key);
        let reasons = blobs.iter().map(|_| reason);
        for reason in reasons.chain(doomed.map(|_| "expired")) {
            self.going.push(Going {
                key: key.to_owned(),
                reason,
                expires_at,
            });
        }
        self.replies.retain(|(_, of, _), _| of != key);
        true
    }

    /// What is told once every blob of the graphs of this key that are being erased has gone.
    pub(super) fn end_erasures(&mut self, key: &str) -> Vec<Value> {
        let gone = self.going.extract_if(.., |going| going.key == key);
        gone.map(|going| forgotten(&going.key, going.reason))
            .collect()
    }

    /// Whether a member has put or fetched a blob of a graph.
    fn has_blobs(&self, key: &str, member: &str) -> bool {
        let of_member = |device: &Device| device.member == member;
        let mut blobs = self.blobs.iter().filter(|blob| blob.key == key);
        blobs.any(|blob| of_member(&blob.by) || blob.fetched.iter().any(of_member))
    }

    /// Whether a member has done so with a graph of others of which no device of theirs ever had a
    /// key.
    pub(super) fn has_blobs_alone(&self, member: &str) -> bool {
        self.graphs.iter().any(|(key, graph)| {
            let is_holder = graph.wraps.keys().any(|(_, of)| of.member == member);
            !is_holder && !is_theirs(key, member) && self.has_blobs(key, member)
        })
    }

    /// Erases a member: their devices, their graphs, and their part of the others'. What an epoch
    /// in force names stays, revoked, until somebody rotates.
    pub(super) fn erase_member(&mut self, member: &str) -> Erasal {
        let theirs: Vec<_> = self
            .devices
            .iter()
            .filter(|(device, row)| device.member == member && row.revoked_at.is_none())
            .map(|(device, _)| device.clone())
            .collect();
        for device in &theirs {
            let row = self.devices.get_mut(device).expect("just listed");
            row.revoked_at = Some(self.now);
            self.blank(device);
        }
        let of_member = |device: &Device| device.member == member;
        let keys: Vec<_> = self
            .graphs
            .iter()
            .filter(|(key, graph)| {
                let is_holder = graph.wraps.keys().any(|(_, of)| of_member(of));
                is_theirs(key, member) || is_holder || self.has_blobs(key, member)
            })
            .map(|(key, _)| key.clone())
            .collect();
        let mut events = Vec::new();
        for key in &keys {
            if is_theirs(key, member) {
                self.begin_erasure(key, "requested");
            } else {
                events.extend(self.erase_from(key, member));
            }
        }
        // What an erasure of before has left of theirs goes as well.
        let left = self.going.iter().map(|going| going.key.clone());
        let left: BTreeSet<_> = left.filter(|key| is_theirs(key, member)).collect();
        for key in left {
            events.extend(self.end_erasures(&key));
        }
        let named: Vec<_> = self
            .graphs
            .iter()
            .filter(|(_, graph)| graph.wraps.keys().any(|(_, of)| of_member(of)))
            .map(|(key, _)| key.clone())
            .collect();
        let mut held = BTreeSet::new();
        for key in &named {
            let of_graph = self.graphs[key].wraps.keys().map(|(_, of)| of);
            held.extend(of_graph.filter(|of| of_member(of)).cloned());
        }
        let before = self.devices.len();
        self.devices
            .retain(|device, _| device.member != member || held.contains(device));
        for device in &held {
            let row = self.devices.get_mut(device).expect("a holder is a device");
            row.is_left = true;
        }
        let devices = &self.devices;
        self.seen.retain(|device, _| devices.contains_key(device));
        Erasal {
            graphs: keys,
            devices: (before - self.devices.len()) as u64,
            named,
            events,
        }
    }

    /// Takes a member out of a graph that others share; what is told of their blobs.
    fn erase_from(&mut self, key: &str, member: &str) -> Vec<Value> {
        let life = self.new_life();
        let graph = self.graphs.get_mut(key).expect("just listed");
        let before = graph.records.len();
        graph.records.retain(|_, record| record.by.member != member);
        if graph.records.len() < before {
            // Every device is to start over, and so to drop what went.
            graph.life = life;
        }
        let epoch = graph.epoch();
        graph
            .wraps
            .retain(|(of, device), _| *of == epoch || device.member != member);
        self.replies
            .retain(|(by, of, _), _| of != key || by.member != member);
        let theirs = |blob: &mut Blob| blob.key == key && blob.by.member == member;
        let gone = self.blobs.extract_if(.., theirs);
        let events = gone.map(|blob| forgotten(&blob.key, "requested")).collect();
        for blob in self.blobs.iter_mut().filter(|blob| blob.key == key) {
            blob.fetched.retain(|device| device.member != member);
        }
        events
    }

    /// The sweep's look at groups: the graph of one that has been empty for a month, whenever it
    /// was looked at, is erased. Which ones.
    pub(super) fn abandon(&mut self) -> Vec<String> {
        let now = self.now;
        let keys: Vec<_> = self.graphs.keys().cloned().collect();
        let mut abandoned = Vec::new();
        for key in keys.into_iter().filter(|key| key.starts_with("g:")) {
            let is_empty = self.members_of(&key).is_empty();
            let graph = self.graphs.get_mut(&key).expect("just listed");
            if graph.ask_at > now {
                continue;
            }
            graph.ask_at = now + DAY;
            graph.empty = is_empty.then(|| match graph.empty {
                Some((since, until)) if now - until <= UNBROKEN_WITHIN => (since, now),
                _ => (now, now),
            });
            if graph
                .empty
                .is_some_and(|(since, until)| until - since >= ABANDONED_AFTER)
            {
                self.begin_erasure(&key, "abandoned");
                abandoned.push(key);
            }
        }
        abandoned
    }

    /// What the sweep tells once it has ended all erasures. A blob that had expired before it was
    /// its turn is told of as one or the other.
    pub(super) fn end_all_erasures(&mut self) -> Vec<Value> {
        let now = self.now;
        let gone = self.going.drain(..).map(|going| {
            let mut told = forgotten(&going.key, going.reason);
            if going.expires_at.is_some_and(|at| at <= now) {
                told["reason"] = one_of(vec![json!(going.reason), json!("expired")]);
            }
            told
        });
        gone.collect()
    }

    /// Drops tombstones whose time is over; how many.
    pub(super) fn drop_tombstones(&mut self) -> u64 {
        let before = self.now - TOMBSTONES_FOR;
        let mut dropped = 0;
        for graph in self.graphs.values_mut() {
            let Graph { records, floor, .. } = graph;
            records.retain(|_, record| {
                let goes = record.deleted && record.at < before;
                if goes {
                    dropped += 1;
                    *floor = record.seq.max(*floor);
                }
                !goes
            });
        }
        dropped
    }
}
