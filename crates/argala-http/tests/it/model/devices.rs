//! Routes 1 to 3 (protocol): devices register, are listed and are revoked.

use argala_testkit::{TestDevice, device_ref};
use argala_wire::Sealed;
use serde_json::{Value, json};

use super::{
    admit::{cursor_fault, limit, limit_fault, number, string},
    answer::{Answer, Poked, maybe, merge, one_of},
    call::{Call, Device},
    state::{Cursor, DeviceRow, Learn, List, Model, Place, rfc3339, storage_key},
};

/// The keys of one generation of a device, of one kind.
pub(super) fn test_device(device: &Device, generation: u64, recovery: bool) -> TestDevice {
    let keys = TestDevice::with_keys(device_ref(&device.member, &device.device), generation);
    if recovery { keys.recovery() } else { keys }
}

fn bytes(value: &Value) -> Vec<u8> {
    let text = string(value);
    Sealed::from_base64url(text).expect("base64url").0
}

impl Model {
    pub(super) fn own_graph(member: &str) -> String {
        storage_key(&format!("d:{member}"), member).expect("an address")
    }

    /// A device as everybody is told it.
    pub(super) fn told_device(&self, device: &Device) -> Value {
        let row = &self.devices[device];
        let mut told = device.value();
        merge(&mut told, row.keys.clone());
        merge(
            &mut told,
            json!({"registeredAt": rfc3339(row.registered_at)}),
        );
        if let Some(label) = &row.label {
            merge(&mut told, json!({"label": label}));
        }
        if let Some(at) = row.revoked_at {
            merge(&mut told, json!({"revokedAt": rfc3339(at)}));
        }
        told
    }

    pub(super) fn register_faults(&self, call: &Call) -> Vec<Answer> {
        let body = call.body.as_ref().expect("a body");
        let mut faults = Vec::new();
        if call.raw.len() > 64 * 1024 {
            faults.push(Answer::problem(
                413,
                "body_too_large",
                json!({"limit": 65_536}),
            ));
        }
        if body
            .get("suite")
            .is_some_and(|suite| suite != "x25519-ed25519")
        {
            faults.push(Answer::invalid("suite"));
        }
        for name in ["encryptionKey", "signingKey"] {
            if bytes(&body[name]).len() != 32 {
                faults.push(Answer::invalid(name));
            }
        }
        let label = body.get("label").filter(|label| !label.is_null());
        if label.is_some_and(|label| bytes(label).len() > 1_024) {
            faults.push(Answer::invalid("label"));
        }
        if !self.is_proven(call, body) {
            faults.push(Answer::invalid("proof"));
        }
        faults
    }

    /// Whether `proof` is what this device signs with these keys. Ed25519 signs the same bytes
    /// the same way each time, so nothing need be verified here.
    fn is_proven(&self, call: &Call, body: &Value) -> bool {
        let recovery = body.get("kind").is_some_and(|kind| kind == "recovery");
        (0..2).any(|generation| {
            let keys = test_device(&call.by, generation, recovery).register_request();
            body["signingKey"] == json!(keys.signing_key)
                && body["encryptionKey"] == json!(keys.encryption_key)
                && body["proof"] == json!(keys.proof)
        })
    }

    pub(super) fn register(&mut self, call: &Call) -> Vec<Answer> {
        let body = call.body.as_ref().expect("a body");
        let member = call.by.member.as_str();
        let keys = json!({
            "suite": "x25519-ed25519",
            "kind": body.get("kind").cloned().unwrap_or_else(|| json!("device")),
            "encryptionKey": body["encryptionKey"],
            "signingKey": body["signingKey"],
        });
        let label = body.get("label").filter(|label| !label.is_null()).cloned();
        let event = |answer: Answer, fresh| {
            answer.event(
                "device.register",
                json!({"memberId": member, "deviceId": call.by.device, "fresh": fresh}),
            )
        };
        if let Some(row) = self.devices.get_mut(&call.by) {
            if row.keys != keys {
                return vec![Answer::problem(409, "device_key_mismatch", json!({}))];
            }
            if label.is_some() {
                row.label = label;
            }
            let told = json!({"device": self.told_device(&call.by), "fresh": false});
            return vec![event(Answer::ok(told), false)];
        }
        let devices = self.devices.iter();
        let used = devices
            .filter(|(device, row)| device.member == member && row.revoked_at.is_none())
            .count() as u64;
        let limit = self.settings.max_devices;
        if used >= limit {
            let members = json!({"what": "devices", "limit": limit, "used": used});
            return vec![Answer::problem(403, "quota_exceeded", members).event(
                "quota.exceeded",
                json!({
                    "memberId": member,
                    "storageKey": Self::own_graph(member),
                    "what": "devices",
                }),
            )];
        }
        let other = test_device(&call.by, 1, false).public_signing_key();
        let row = DeviceRow {
            generation: u64::from(body["signingKey"] == json!(other)),
            keys,
            label,
            registered_at: self.now,
            revoked_at: None,
            is_left: false,
        };
        self.devices.insert(call.by.clone(), row);
        self.see(&call.by, true);
        let told = json!({"device": self.told_device(&call.by), "fresh": true});
        let mut answer = event(Answer::ok(told), true);
        answer.status = 201;
        answer
            .pokes
            .push(self.poked(&Self::own_graph(member), &call.by));
        vec![answer]
    }

    /// All members of a graph are poked about what `by` did.
    pub(super) fn poked(&self, key: &str, by: &Device) -> Poked {
        Poked {
            key: key.to_owned(),
            members: self.active_members_of(key),
            except: Some(by.clone()),
        }
    }

    pub(super) fn devices_faults(&self, call: &Call) -> Vec<Answer> {
        let cursor = self.cursor(call, List::Devices, None, None);
        let fault = cursor.err().map(cursor_fault);
        limit_fault(call).into_iter().chain(fault).collect()
    }

    /// When a device was last seen may be told two minutes late, and never too early.
    fn told_sightings(&self, device: &Device) -> Value {
        let seen = self.seen.get(device).map_or(&[][..], Vec::as_slice);
        let served = seen.iter().filter(|(_, served)| *served);
        let last = served.map(|(at, _)| *at).max().expect("it was registered");
        let told = seen.iter().filter(|(at, _)| *at >= last - 120_000);
        let mut told: Vec<_> = told.map(|(at, _)| rfc3339(*at)).collect();
        if self.devices[device].is_left {
            // Erased with its member, as far as it had been written down.
            told.push(maybe());
        }
        one_of(told)
    }

    pub(super) fn devices(&self, call: &Call) -> Vec<Answer> {
        let limit = limit(call, 1_000);
        let cursor = self.cursor(call, List::Devices, None, None);
        let mut place = match cursor.expect("checked before").map(|cursor| &cursor.place) {
            None => None,
            Some(Place::Device(place)) => place.clone(),
            Some(other) => panic!("{other:?} in a list of devices"),
        };
        // Oldest first; which of two of the same moment comes first is the relay's choice, and it
        // goes by their ids.
        let mut left: Vec<_> = self
            .devices
            .iter()
            .filter(|(device, _)| device.member == call.by.member)
            .map(|(device, row)| ((row.registered_at, device.device.clone()), device))
            .filter(|(at, _)| place.as_ref().is_none_or(|place| at > place))
            .collect();
        left.sort();
        let more = left.len() > limit;
        left.truncate(limit);
        place = left.last().map(|(at, _)| at.clone()).or(place);
        let devices: Vec<_> = left
            .into_iter()
            .map(|(_, device)| {
                let mut told = self.told_device(device);
                merge(
                    &mut told,
                    json!({"lastSeenAt": self.told_sightings(device)}),
                );
                told
            })
            .collect();
        vec![page(
            json!({"devices": devices}),
            more,
            call,
            (List::Devices, None),
            Place::Device(place),
        )]
    }

    /// Blanks all wraps of a device; the graphs whose current epoch it held.
    pub(super) fn blank(&mut self, target: &Device) -> Vec<String> {
        let mut held = Vec::new();
        for (key, graph) in &mut self.graphs {
            if graph.held(target).contains(&graph.epoch()) {
                held.push(key.clone());
            }
            for ((_, of), wrap) in &mut graph.wraps {
                wrap.blanked |= of == target;
            }
        }
        held
    }

    /// What is wrong with the request alone.
    pub(super) fn revoke_faults(device: &str) -> Vec<Answer> {
        if device.is_empty() || matches!(device, "." | "..") || device.trim() != device {
            return vec![Answer::invalid("deviceId")];
        }
        Vec::new()
    }

    pub(super) fn revoke(&mut self, call: &Call, device: &str) -> Vec<Answer> {
        let member = call.by.member.as_str();
        let target = Device::new(member, device);
        let now = self.now;
        let Some(row) = self.devices.get_mut(&target) else {
            return vec![Answer::problem(404, "device_not_found", json!({}))];
        };
        let fresh = row.revoked_at.is_none();
        let mut flagged = if fresh {
            row.revoked_at = Some(now);
            self.blank(&target)
        } else {
            Vec::new()
        };
        self.known_revoked.insert(target);
        let graphs: Vec<_> = flagged
            .iter()
            .filter_map(|key| self.address_for(key, member))
            .map(Value::from)
            .collect();
        let mut answer = Answer::ok(json!({
            "graphsFlagged": flagged.len(),
            "graphs": super::answer::unordered(graphs),
        }))
        .event(
            "device.revoke",
            json!({"memberId": member, "deviceId": device, "graphsFlagged": flagged.len()}),
        );
        if fresh {
            let own = Self::own_graph(member);
            flagged.retain(|key| *key != own);
            flagged.push(own);
            let poked = flagged.iter().map(|key| self.poked(key, &call.by));
            answer.pokes = poked.collect();
        }
        vec![answer]
    }
}

/// One page of a list.
pub(super) fn page(
    mut body: Value,
    more: bool,
    call: &Call,
    (list, key): (List, Option<&str>),
    place: Place,
) -> Answer {
    merge(
        &mut body,
        json!({"cursor": super::answer::text(), "more": more}),
    );
    Answer::ok(body).learn(Learn {
        cursor: Some(Cursor {
            text: String::new(),
            list,
            key: key.map(str::to_owned),
            only: None,
            place,
            by: call.by.clone(),
            walk: (0, 0),
        }),
        print: None,
    })
}

/// Whether a number of the body is there, and what it is.
pub(super) fn optional(value: &Value, name: &str) -> Option<u64> {
    value.get(name).filter(|value| !value.is_null()).map(number)
}
