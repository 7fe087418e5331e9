//! Routes 7 to 9 (protocol): a device's own wraps, rotating and granting.

use std::collections::{BTreeMap, BTreeSet};

use argala_wire::Sealed;
use serde_json::{Value, json};

use super::{
    admit::{cursor_fault, limit, limit_fault, number, string},
    answer::{Answer, Poked, unordered},
    call::{Call, Device},
    devices::page,
    state::{Epoch, Graph, List, Model, Place, Wrap, rfc3339},
};

fn target(wrap: &Value) -> Device {
    Device::new(string(&wrap["memberId"]), string(&wrap["deviceId"]))
}

fn wraps_of(call: &Call) -> &[Value] {
    let body = call.body.as_ref().expect("a body");
    body["wraps"].as_array().expect("a list")
}

impl Model {
    pub(super) fn wraps_faults(&self, call: &Call, key: &str) -> Vec<Answer> {
        let cursor = self.cursor(call, List::Wraps, Some(key), None);
        let after = call
            .param("after")
            .filter(|text| text.parse::<u64>().is_err());
        let faults = [
            limit_fault(call),
            cursor.err().map(cursor_fault),
            after.map(|_| Answer::invalid("after")),
        ];
        faults.into_iter().flatten().collect()
    }

    pub(super) fn wraps(&self, call: &Call, key: &str) -> Vec<Answer> {
        let limit = limit(call, 1_000);
        let cursor = self.cursor(call, List::Wraps, Some(key), None);
        let passed = match cursor.expect("checked before").map(|cursor| &cursor.place) {
            None => 0,
            Some(Place::Epoch(epoch)) => *epoch,
            Some(other) => panic!("{other:?} in a list of wraps"),
        };
        let after = call
            .param("after")
            .map_or(0, |after| after.parse().expect("a number"));
        let mut place = after.max(passed);
        let mut told = Vec::new();
        let mut more = false;
        let mut current = 0;
        if let Some(graph) = self.graphs.get(key) {
            current = graph.epoch();
            for ((epoch, of), wrap) in &graph.wraps {
                if *of != call.by || wrap.blanked || *epoch <= after.max(passed) {
                    continue;
                }
                if told.len() == limit {
                    more = true;
                    break;
                }
                place = *epoch;
                let at = usize::try_from(*epoch - 1).expect("an epoch there was");
                told.push(json!({
                    "epoch": epoch,
                    "wrap": wrap.wrap,
                    "by": wrap.by.value(),
                    "at": rfc3339(wrap.at),
                    "firstSeq": graph.epochs[at].first_seq,
                }));
            }
        }
        vec![page(
            json!({"epoch": current, "wraps": told}),
            more,
            call,
            (List::Wraps, Some(key)),
            Place::Epoch(place),
        )]
    }

    /// What the body of a rotate or a grant alone shows: a target twice, a wrap of a size that
    /// none has.
    pub(super) fn wrap_faults(call: &Call) -> Vec<Answer> {
        if wraps_of(call).len() > 20_000 {
            return vec![Answer::invalid("wraps")];
        }
        let mut faults = Vec::new();
        let mut targets = BTreeSet::new();
        for (at, wrap) in wraps_of(call).iter().enumerate() {
            let bytes = Sealed::from_base64url(string(&wrap["wrap"])).expect("base64url");
            if !(1..=4_096).contains(&bytes.len()) {
                faults.push(Answer::invalid(&format!("wraps[{at}].wrap")));
            }
            let epoch = wrap.get("epoch").map_or(0, number);
            if !targets.insert((epoch, target(wrap))) {
                faults.push(Answer::invalid(&format!("wraps[{at}]")));
            }
        }
        faults
    }

    pub(super) fn rotate(&mut self, call: &Call, key: &str) -> Vec<Answer> {
        let epoch = number(&call.body.as_ref().expect("a body")["epoch"]);
        let wraps: BTreeMap<_, _> = wraps_of(call)
            .iter()
            .map(|wrap| (target(wrap), wrap["wrap"].clone()))
            .collect();
        let graph = self.graphs.get(key);
        let (current, head) = graph.map_or((0, 0), |graph| (graph.epoch(), graph.head));
        let devices = wraps.len();
        let rotated = |first_seq: u64| {
            let told = json!({"epoch": epoch, "firstSeq": first_seq, "devices": devices});
            Answer::ok(told).event(
                "graph.rotate",
                json!({
                    "memberId": call.by.member,
                    "storageKey": key,
                    "epoch": epoch,
                    "devices": devices,
                }),
            )
        };
        if epoch != current + 1 {
            // The epoch keeps who began it and with what: the same again is told the same again.
            let past = epoch
                .checked_sub(1)
                .and_then(|at| graph?.epochs.get(usize::try_from(at).ok()?));
            return vec![match past {
                Some(past) if past.by == call.by && past.wraps == wraps => rotated(past.first_seq),
                _ => Answer::problem(409, "epoch_conflict", json!({"epoch": current})),
            }];
        }
        let roster = self.roster(key);
        let given: BTreeSet<_> = wraps.keys().cloned().collect();
        if given != roster {
            let missing = roster.difference(&given).map(Device::value).collect();
            let extra = given.difference(&roster).map(Device::value).collect();
            return vec![Answer::problem(
                422,
                "rotation_incomplete",
                json!({"missing": unordered(missing), "extra": unordered(extra)}),
            )];
        }
        let now = self.now;
        if !self.graphs.contains_key(key) {
            let life = self.new_life();
            let graph = Graph {
                life,
                ..Graph::default()
            };
            self.graphs.insert(key.to_owned(), graph);
        }
        let graph = self.graphs.get_mut(key).expect("there, or just made");
        for (device, wrap) in &wraps {
            let wrap = Wrap {
                wrap: wrap.clone(),
                by: call.by.clone(),
                at: now,
                blanked: false,
            };
            graph.wraps.insert((epoch, device.clone()), wrap);
        }
        graph.epochs.push(Epoch {
            first_seq: head + 1,
            by: call.by.clone(),
            wraps,
        });
        graph.directory_owes = vec![(now, false)];
        let mut answer = rotated(head + 1);
        answer.pokes.push(self.poked(key, &call.by));
        vec![answer]
    }

    pub(super) fn grant(&mut self, call: &Call, key: &str) -> Vec<Answer> {
        let roster = self.roster(key);
        let now = self.now;
        let Some(graph) = self.graphs.get_mut(key) else {
            return vec![Answer::problem(409, "graph_unkeyed", json!({}))];
        };
        let current = graph.epoch();
        let held = graph.held(&call.by);
        let mut rejected = Vec::new();
        let mut devices = BTreeSet::new();
        let mut members = BTreeSet::new();
        for wrap in wraps_of(call) {
            let (epoch, device) = (number(&wrap["epoch"]), target(wrap));
            let there = graph.wraps.get(&(epoch, device.clone()));
            let reason = if !roster.contains(&device) {
                Some("not_on_roster")
            } else if epoch == 0 || epoch > current {
                Some("unknown_epoch")
            } else if !held.contains(&epoch) {
                Some("not_holder")
            } else if there.is_some_and(|there| there.wrap != wrap["wrap"]) {
                Some("wrap_exists")
            } else {
                None
            };
            if let Some(reason) = reason {
                let mut told = device.value();
                told["epoch"] = json!(epoch);
                told["reason"] = json!(reason);
                rejected.push(told);
                continue;
            }
            if there.is_none() {
                members.insert(device.member.clone());
                let wrap = Wrap {
                    wrap: wrap["wrap"].clone(),
                    by: call.by.clone(),
                    at: now,
                    blanked: false,
                };
                graph.wraps.insert((epoch, device.clone()), wrap);
            }
            devices.insert(device);
        }
        let granted = wraps_of(call).len() - rejected.len();
        let mut answer = Answer::ok(json!({"granted": granted, "rejected": rejected})).event(
            "graph.grant",
            json!({
                "memberId": call.by.member,
                "storageKey": key,
                "epoch": current,
                "devices": devices.len(),
            }),
        );
        if !members.is_empty() {
            answer.pokes.push(Poked {
                key: key.to_owned(),
                members,
                except: Some(call.by.clone()),
            });
        }
        vec![answer]
    }
}
