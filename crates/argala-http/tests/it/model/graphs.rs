//! Routes 4 to 6 (protocol): which graphs there are, what one holds and owes, and its devices.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    admit::{cursor_fault, limit, limit_fault},
    answer::{Answer, one_of, unordered},
    call::{Call, Device},
    devices::page,
    state::{List, Model, Place},
};

impl Model {
    pub(super) fn graphs_faults(&self, call: &Call) -> Vec<Answer> {
        let cursor = self.cursor(call, List::Graphs, None, None);
        let fault = cursor.err().map(cursor_fault);
        limit_fault(call).into_iter().chain(fault).collect()
    }

    /// Whether a graph is in a member's list, were they to be allowed to read it: of a group's
    /// those that the directory lists, or else those of which a device of theirs ever held a
    /// wrap.
    fn is_listed(&self, key: &str, member: &str) -> bool {
        if key.starts_with("d:") || self.settings.lists_groups {
            return self.members_of(key).contains(member);
        }
        let wraps = self.graphs[key].wraps.keys();
        wraps.into_iter().any(|(_, of)| of.member == member)
    }

    pub(super) fn graphs(&mut self, call: &Call) -> Vec<Answer> {
        let limit = limit(call, 1_000);
        let cursor = self.cursor(call, List::Graphs, None, None);
        let places = match cursor.expect("checked before").map(|cursor| &cursor.place) {
            None => vec![None],
            Some(Place::Graph(after, passed)) => {
                let passed = passed.iter().cloned().map(Some);
                [after.clone()].into_iter().chain(passed).collect()
            }
            Some(other) => panic!("{other:?} in a list of graphs"),
        };
        let pages = places
            .into_iter()
            .map(|after| self.graphs_after(call, limit, after));
        let pages: Vec<_> = pages.collect();
        let in_all = |key: &String| pages.iter().all(|(told, _)| told.contains(key));
        let told: BTreeSet<_> = pages.iter().flat_map(|(told, _)| told).cloned().collect();
        let (looked, perhaps): (Vec<_>, Vec<_>) = told.into_iter().partition(in_all);
        for key in looked {
            self.look(&key);
        }
        for key in perhaps {
            self.may_have_looked(&key);
        }
        pages.into_iter().map(|(_, answer)| answer).collect()
    }

    /// The page after a key, and which graphs are in it.
    fn graphs_after(
        &self,
        call: &Call,
        limit: usize,
        after: Option<String>,
    ) -> (Vec<String>, Answer) {
        let member = &call.by.member;
        // The protocol leaves the order to the relay, which goes by the storage keys' bytes.
        let listed: Vec<_> = self
            .graphs
            .keys()
            .filter(|key| after.as_ref().is_none_or(|after| *key > after))
            .filter(|key| self.is_listed(key, member))
            .cloned()
            .collect();
        let mut readable = listed.iter().filter_map(|key| {
            let address = self.address_for(key, member)?;
            self.may(member, &address).then_some((key.clone(), address))
        });
        let told: Vec<_> = readable.by_ref().take(limit).collect();
        let next = readable.next().map(|(key, _)| key);
        let more = next.is_some();
        // A page that is the last has passed all that there is, what the member may not read now
        // included.
        let place = match next {
            Some(next) => {
                let last = told.last().map(|(key, _)| key.clone());
                let passed = listed.iter().filter(|key| Some(*key) > last.as_ref());
                let passed = passed.take_while(|key| **key != next).cloned().collect();
                Place::Graph(last, passed)
            }
            None => Place::Graph(listed.last().cloned().or(after), Vec::new()),
        };
        let summaries: Vec<_> = told
            .iter()
            .map(|(key, address)| {
                let graph = &self.graphs[key];
                let flags = self.told_flags(key, self.looked_since(key));
                json!({
                    "graphId": address,
                    "epoch": graph.epoch(),
                    "head": graph.head,
                    "rotationOwed": one_of(flags.into_iter().map(Value::from).collect()),
                    "behind": !graph.held(&call.by).contains(&graph.epoch()),
                })
            })
            .collect();
        let answer = page(
            json!({"graphs": summaries}),
            more,
            call,
            (List::Graphs, None),
            place,
        );
        (told.into_iter().map(|(key, _)| key).collect(), answer)
    }

    pub(super) fn graph(&mut self, key: &str, address: &str) -> Vec<Answer> {
        let mut told = json!({
            "graphId": address,
            "epoch": 0,
            "head": 0,
            "records": 0,
            "ciphertextBytes": 0,
            "blobBytes": 0,
            "quotas": self.settings.quotas(),
            "rotationOwed": false,
            "rotationReasons": [],
            "grantsOwed": [],
        });
        if let Some(graph) = self.graphs.get(key) {
            let reasons: Vec<_> = graph
                .holders()
                .into_iter()
                .filter_map(|device| {
                    let reason = self.off_roster(key, device)?;
                    let mut told = device.value();
                    told["reason"] = json!(reason);
                    Some(told)
                })
                .collect();
            let holders: BTreeSet<_> = graph.holders().into_iter().cloned().collect();
            let owed = self
                .roster(key)
                .difference(&holders)
                .map(Device::value)
                .collect();
            let is_owed = !reasons.is_empty();
            super::answer::merge(
                &mut told,
                json!({
                    "epoch": graph.epoch(),
                    "head": graph.head,
                    "records": graph.live(),
                    "ciphertextBytes": graph.ciphertext_bytes(),
                    "blobBytes": self.blob_bytes(key),
                    "rotationOwed": is_owed,
                    "rotationReasons": unordered(reasons),
                    "grantsOwed": unordered(owed),
                }),
            );
            self.look_now(key);
        }
        vec![Answer::ok(told)]
    }

    pub(super) fn graph_devices_faults(&self, call: &Call, key: &str) -> Vec<Answer> {
        let cursor = self.cursor(call, List::GraphDevices, Some(key), None);
        let revoked = call.param("revoked").filter(|value| *value != "include");
        let faults = [
            limit_fault(call),
            cursor.err().map(cursor_fault),
            revoked.map(|_| Answer::invalid("revoked")),
        ];
        faults.into_iter().flatten().collect()
    }

    pub(super) fn graph_devices(&self, call: &Call, key: &str) -> Vec<Answer> {
        let limit = limit(call, 1_000);
        let cursor = self.cursor(call, List::GraphDevices, Some(key), None);
        let after = match cursor.expect("checked before").map(|cursor| &cursor.place) {
            None => None,
            Some(Place::GraphDevice(after)) => after.clone(),
            Some(other) => panic!("{other:?} in a list of a graph's devices"),
        };
        let mut all = self.roster(key);
        if call.param("revoked").is_some()
            && let Some(graph) = self.graphs.get(key)
        {
            all.extend(graph.wraps.keys().map(|(_, of)| of.clone()));
        }
        // By member and device: the protocol leaves the order to the relay.
        let mut left = all
            .into_iter()
            .filter(|device| after.as_ref().is_none_or(|after| device > after));
        let told: Vec<_> = left.by_ref().take(limit).collect();
        let more = left.next().is_some();
        let place = told.last().cloned().or_else(|| after.clone());
        let devices: Vec<_> = told.iter().map(|device| self.told_device(device)).collect();
        vec![page(
            json!({"devices": devices}),
            more,
            call,
            (List::GraphDevices, Some(key)),
            Place::GraphDevice(place),
        )]
    }
}
