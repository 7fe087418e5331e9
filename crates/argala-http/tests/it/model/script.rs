//! From a step to the request that it stands for, by what the model says there is.

use argala_testkit::TestDevice;
use argala_wire::Sealed;
use serde_json::{Value, json};

use super::{
    call::{Call, Device, Route, Slip},
    devices::test_device,
    names::{
        ADDRESSES, MEMBERS, SIZES, base64url, content, every_device, is_id, mangled, pick,
        record_name,
    },
    ops::{Given, Item, Manner, Nearby, Pushing, Roster, Size, Spot, Turn, What, Where, Who},
    push::signature,
    state::{List, Model, storage_key},
};

/// Puts requests together.
pub(super) struct Script<'a> {
    pub(super) model: &'a Model,
    /// Bytes that a record may have, by the number of its content.
    pub(super) sizes: Option<&'a [usize]>,
}

impl Script<'_> {
    fn device(&self, who: Who) -> Device {
        let all = every_device();
        let model = self.model;
        let may = |device: &&Device| {
            model.is_active_device(device) && model.is_active_member(&device.member)
        };
        let good: Vec<_> = all.iter().filter(may).collect();
        let found = if who.any {
            None
        } else {
            pick(&good, who.n).copied()
        };
        found
            .or(pick(&all, who.n))
            .expect("there are devices")
            .clone()
    }

    pub(super) fn address(&self, by: &Device, at: Where) -> String {
        let model = self.model;
        // Groups first: where several members meet, the most can happen.
        let good: Vec<_> = model
            .graphs
            .keys()
            .rev()
            .filter_map(|key| model.address_for(key, &by.member))
            .filter(|address| model.may(&by.member, address))
            .collect();
        let found = if at.any {
            None
        } else {
            pick(&good, at.n).cloned()
        };
        let any = pick(&ADDRESSES, at.n).expect("there are addresses");
        found.unwrap_or_else(|| (*any).to_owned())
    }

    pub(super) fn key(&self, by: &Device, address: &str) -> String {
        // What is no address has no key; any will do for what is refused before it matters.
        storage_key(address, &by.member).unwrap_or_else(|| "g:none".to_owned())
    }

    fn epoch(&self, key: &str, nearby: Nearby) -> u64 {
        let current = self.model.graphs.get(key).map_or(0, |graph| graph.epoch());
        match nearby {
            Nearby::Current => current,
            Nearby::Next => current + 1,
            Nearby::Previous => current.saturating_sub(1),
            Nearby::AfterNext => current + 2,
            Nearby::Zero => 0,
            Nearby::Greatest => u64::MAX,
        }
    }

    pub(super) fn call(&self, who: Who, what: &What, manner: Manner) -> Call {
        let by = &self.device(who);
        let mut call = match what {
            What::Register {
                other_keys,
                recovery,
                label,
                fault,
            } => {
                let generation = u64::from(*other_keys);
                register(by, generation, *recovery, *label, *fault)
            }
            What::Devices(turn) => {
                let call = Call::new(by, Route::Devices);
                self.paged(call, *turn, List::Devices, None, None)
            }
            What::Revoke { n, any } => Call::new(by, Route::Revoke(self.victim(by, *n, *any))),
            What::Graphs(turn) => {
                let call = Call::new(by, Route::Graphs);
                self.paged(call, *turn, List::Graphs, None, None)
            }
            What::Graph(at) => Call::new(by, Route::Graph(self.address(by, *at))),
            What::GraphDevices(at, revoked, turn) => {
                let address = self.address(by, *at);
                let key = self.key(by, &address);
                let revoked = match revoked {
                    0..4 => None,
                    4..7 => Some("include"),
                    _ => Some("only"),
                };
                let call = Call::new(by, Route::GraphDevices(address))
                    .with_query("revoked", revoked.map(str::to_owned));
                self.paged(call, *turn, List::GraphDevices, Some(&key), None)
            }
            What::Wraps(at, after, turn) => {
                let address = self.address(by, *at);
                let key = self.key(by, &address);
                let after = ["", "0", "1", "2", "18446744073709551615", "-1"][usize::from(*after)];
                let after = Some(after.to_owned()).filter(|after| !after.is_empty());
                let call = Call::new(by, Route::Wraps(address)).with_query("after", after);
                self.paged(call, *turn, List::Wraps, Some(&key), None)
            }
            What::Rotate {
                at,
                epoch,
                roster,
                content,
            } => self.rotate(by, *at, *epoch, *roster, *content),
            What::Grant(at, given, size) => self.grant(by, *at, given, *size),
            What::Push(at, pushing) => self.push(by, *at, pushing),
            What::Pull {
                at,
                turn,
                epoch,
                known,
            } => self.pull(by, *at, *turn, *epoch, *known),
            What::PutBlob { .. } => self.put_blob(by, what),
            What::GetBlob {
                at,
                blob,
                head,
                range,
                known,
            } => {
                let graph = self.address(by, *at);
                let blob = self.blob(by, &graph, *blob);
                self.get_blob(by, graph, blob, *head, *range, *known)
            }
            What::DeleteBlob(at, blob) => {
                let graph = self.address(by, *at);
                let blob = self.blob(by, &graph, *blob);
                Call::new(by, Route::DeleteBlob(graph, blob))
            }
            What::Limits => Call::new(by, Route::Limits),
        };
        call.form = manner.form;
        call.accept = manner.accept;
        call.slip = suited(manner.slip, &call);
        call.spelling = manner.spelling;
        call.seal()
    }

    /// A device to revoke: one of the caller's, or a name that is none of theirs.
    fn victim(&self, by: &Device, n: u8, any: bool) -> String {
        let devices = self.model.devices.keys();
        let own: Vec<_> = devices
            .filter(|device| device.member == by.member)
            .collect();
        match pick(&own, n) {
            Some(device) if !any => device.device.clone(),
            _ => ["laptop", "phone/ü", "tab: 1", "unknown", " x"][usize::from(n) % 5].to_owned(),
        }
    }

    fn paged(
        &self,
        call: Call,
        turn: Turn,
        list: List,
        key: Option<&str>,
        only: Option<u64>,
    ) -> Call {
        let cursors = &self.model.cursors;
        let of_list: Vec<_> = cursors
            .iter()
            .filter(|cursor| {
                cursor.list == list
                    && cursor.key.as_deref() == key
                    && cursor.only == only
                    && (key.is_some() || cursor.by.member == call.by.member)
            })
            .collect();
        let text = |n: u8| pick(cursors, n).map(|cursor| cursor.text.clone());
        let cursor = match turn.cursor {
            Spot::Start => None,
            Spot::Last => of_list.last().map(|cursor| cursor.text.clone()),
            Spot::Older(n) => pick(&of_list, n).map(|cursor| cursor.text.clone()),
            Spot::Any(n) => text(n),
            Spot::Mangled(n) => text(n).map(|text| mangled(&text, n)),
            Spot::Empty => Some(String::new()),
            Spot::Garbage => Some("AQ~garbage".to_owned()),
        };
        let limit = [
            "",
            "1",
            "2",
            "3",
            "1000",
            "0",
            "1001",
            "x",
            "18446744073709551615",
        ];
        let limit = limit[usize::from(turn.limit)];
        let limit = Some(limit.to_owned()).filter(|limit| !limit.is_empty());
        call.with_query("cursor", cursor).with_query("limit", limit)
    }

    fn rotate(&self, by: &Device, at: Where, epoch: Nearby, roster: Roster, content: u8) -> Call {
        let address = self.address(by, at);
        let key = self.key(by, &address);
        let mut devices: Vec<_> = self.model.roster(&key).into_iter().collect();
        let all = every_device();
        let without = |devices: &mut Vec<Device>, n: u8| {
            if !devices.is_empty() {
                devices.remove(usize::from(n) % devices.len());
            }
        };
        let with = |devices: &mut Vec<Device>, n: u8| {
            let more = pick(&all, n).expect("there are devices");
            if !devices.contains(more) {
                devices.push(more.clone());
            }
        };
        match roster {
            Roster::Without(n) => without(&mut devices, n),
            Roster::With(n) => with(&mut devices, n),
            Roster::Swapped(n) => {
                without(&mut devices, n);
                with(&mut devices, n);
            }
            Roster::Twice => devices.extend(devices.first().cloned()),
            Roster::Whole | Roster::EmptyWrap | Roster::LongWrap => {}
        }
        let mut wraps: Vec<_> = devices
            .iter()
            .map(|device| {
                let mut wrap = device.value();
                wrap["wrap"] = base64url(format!("{content} for {}", device.device).into_bytes());
                wrap
            })
            .collect();
        if let Some(last) = wraps.last_mut() {
            match roster {
                Roster::EmptyWrap => last["wrap"] = json!(""),
                Roster::LongWrap => last["wrap"] = base64url(vec![7; 4_097]),
                _ => {}
            }
        }
        let mut call = Call::new(by, Route::Rotate(address));
        call.body = Some(json!({"epoch": self.epoch(&key, epoch), "wraps": wraps}));
        call
    }

    fn grant(&self, by: &Device, at: Where, given: &[Given], size: Size) -> Call {
        let address = self.address(by, at);
        let key = self.key(by, &address);
        let model = self.model;
        let graph = model.graphs.get(&key);
        let current = graph.map_or(0, |graph| graph.epoch());
        let holders = graph.map(|graph| graph.holders()).unwrap_or_default();
        let owed: Vec<_> = model
            .roster(&key)
            .into_iter()
            .filter(|device| !holders.contains(device))
            .collect();
        let all = every_device();
        let mut wraps: Vec<_> = given
            .iter()
            .map(|given| {
                let owed = if given.any {
                    None
                } else {
                    pick(&owed, given.n)
                };
                let device = owed.or(pick(&all, given.n)).expect("there are devices");
                let epoch = match given.epoch {
                    0..4 => current,
                    4 => current + 1,
                    5 => current.saturating_sub(1),
                    _ => u64::from(given.n) % 3,
                };
                let mut wrap = device.value();
                wrap["epoch"] = json!(epoch);
                wrap["wrap"] = base64url(format!("{} for {}", given.content, device.device).into());
                wrap
            })
            .collect();
        let twice = wraps.first().cloned().filter(|_| size == Size::Twice);
        wraps.extend(twice);
        if let Some(last) = wraps.last_mut() {
            match size {
                Size::Empty => last["wrap"] = json!(""),
                Size::Longest => last["wrap"] = base64url(vec![7; 4_096]),
                Size::TooLong => last["wrap"] = base64url(vec![7; 4_097]),
                Size::Usual | Size::Twice | Size::TooMany => {}
            }
        }
        if size == Size::TooMany {
            wraps.extend((0..=20_000_u32).map(|n| {
                let mut wrap = Device::new(MEMBERS[0], &format!("device {n}")).value();
                wrap["epoch"] = json!(current);
                wrap["wrap"] = json!("AA");
                wrap
            }));
        }
        let mut call = Call::new(by, Route::Grant(address));
        call.body = Some(json!({"wraps": wraps}));
        call
    }

    fn push(&self, by: &Device, at: Where, pushing: &Pushing) -> Call {
        let address = self.address(by, at);
        let key = self.key(by, &address);
        let mut records: Vec<_> = pushing
            .records
            .iter()
            .zip(0_u8..)
            .map(|(item, nth)| {
                let usual = format!("rec:{}", pushing.start.wrapping_add(nth) % 7);
                let id = item.name.map_or(usual, record_name);
                self.record(by, &key, &id, *item)
            })
            .collect();
        if pushing.twice && records.len() > 1 {
            let first = records[0]["id"].clone();
            records.last_mut().expect("there are some")["id"] = first;
        }
        let mut body = json!({"records": records});
        let head = self.model.graphs.get(&key).map_or(0, |graph| graph.head);
        match pushing.if_head {
            0 => {}
            1 => body["ifHead"] = json!(head),
            2 => body["ifHead"] = json!(head + 1),
            _ => body["ifHead"] = json!(u64::MAX),
        }
        if pushing.atomic {
            body["atomic"] = json!(true);
        }
        let idempotency = match pushing.key {
            0 => None,
            n @ 1..4 => Some(format!("key/{n}")),
            4 => Some("~".repeat(128)),
            5 => Some("!".to_owned()),
            6 => Some("two words".to_owned()),
            7 => Some(String::new()),
            8 => Some("k".repeat(129)),
            9 => Some("k".repeat(256)),
            10 => Some("schlüssel".to_owned()),
            _ => Some("tab\tbed".to_owned()),
        };
        let mut call =
            Call::new(by, Route::Push(address)).with_header("idempotency-key", idempotency);
        call.body = Some(body);
        call
    }

    fn record(&self, by: &Device, key: &str, id: &str, item: Item) -> Value {
        let there = self
            .model
            .graphs
            .get(key)
            .and_then(|graph| graph.records.get(id));
        let mut epoch = self.epoch(key, item.epoch);
        let mut sealed = content(item.content, self.sizes.unwrap_or(&SIZES));
        let mut deleted = item.deleted;
        if let Some(there) = there.filter(|_| item.same) {
            (epoch, deleted) = (there.epoch, there.deleted);
            sealed.clone_from(&there.ciphertext);
        } else if sealed.is_empty() && item.sig == 0 {
            // Now and then it stays: nothing but a tombstone is empty.
            deleted = true;
        }
        let mut record = json!({"id": id, "epoch": epoch, "ciphertext": base64url(sealed)});
        if deleted {
            record["deleted"] = json!(true);
        }
        let generation = self.model.devices.get(by).map_or(0, |row| row.generation);
        // What has no id cannot be signed: it is refused for that.
        let named = |record: &Value, id: &str| {
            let mut other = record.clone();
            other["id"] = json!(id);
            other
        };
        let signed = |record: &Value| {
            let legal = is_id(id);
            let record = if legal {
                record.clone()
            } else {
                named(record, "none")
            };
            signature(by, generation, key, &record)
        };
        let with = |name: &str, value: Value| {
            let mut other = record.clone();
            other[name] = value;
            other
        };
        let sig = match item.sig {
            1 => None,
            2 => Some(json!(Sealed(vec![3; 64]))),
            3 => Some(json!(Sealed(vec![3; 63]))),
            // Good signatures of something else.
            4 => Some(signed(&with("epoch", json!(epoch.wrapping_add(1))))),
            5 => Some(signed(&with("deleted", json!(!deleted)))),
            _ if !is_id(id) => Some(signed(&record)),
            6 => Some(signature(by, generation, "g:elsewhere", &record)),
            7 => Some(signature(by, 1 - generation, key, &record)),
            8 => Some(signed(&named(&record, "rec:another"))),
            9 => Some(signed(&with("ciphertext", base64url(b"another".to_vec())))),
            10 => {
                let other = Device::new(&by.member, &format!("{} too", by.device));
                Some(signature(&other, generation, key, &record))
            }
            _ => Some(signed(&record)),
        };
        if let Some(sig) = sig {
            record["sig"] = sig;
        }
        let seq = there.map_or(0, |there| there.seq);
        match item.expect {
            0 => {}
            1 => record["expect"] = json!(seq),
            2 => record["expect"] = json!(0),
            3 => record["expect"] = json!(seq + 1),
            _ => record["expect"] = json!(u64::MAX),
        }
        record
    }

    fn pull(&self, by: &Device, at: Where, turn: Turn, epoch: u8, known: u8) -> Call {
        let address = self.address(by, at);
        let key = self.key(by, &address);
        let epoch = ["", "1", "2", "3", "0", "18446744073709551615", "one"][usize::from(epoch)];
        let only = epoch.parse().ok();
        let tags: Vec<_> = self
            .model
            .tags
            .iter()
            .filter(|(_, print)| print.key == key)
            .map(|(tag, _)| tag.clone())
            .collect();
        // A tag is opaque: which one is newest its order does not tell.
        let quoted = |n: usize| {
            tags.get(n % tags.len().max(1))
                .map(|tag| format!("\"{tag}\""))
        };
        let known = match known {
            0 => None,
            1 => quoted(0),
            2 => quoted(tags.len() / 2),
            3 => tags
                .iter()
                .map(|tag| format!("W/\"{tag}\""))
                .reduce(|a, b| format!("{a}, {b}")),
            4 => Some("*".to_owned()),
            _ => Some("\"none of ours\"".to_owned()),
        };
        let call = Call::new(by, Route::Pull(address))
            .with_query(
                "epoch",
                Some(epoch.to_owned()).filter(|epoch| !epoch.is_empty()),
            )
            .with_header("if-none-match", known);
        self.paged(call, turn, List::Records, Some(&key), only)
    }
}

/// The slip, where a request of this kind can have it.
fn suited(slip: Slip, call: &Call) -> Slip {
    let has_map = call.body.is_some();
    let can = match slip {
        Slip::None | Slip::NoCredential | Slip::Parameter | Slip::Failing => true,
        Slip::Accept => !call.route.is_blob(),
        Slip::ContentType => has_map || matches!(call.route, Route::PutBlob(..)),
        Slip::Field | Slip::Twice | Slip::Cut | Slip::Trailing => has_map,
    };
    if can { slip } else { Slip::None }
}

/// A registration, with one thing wrong where `fault` says so.
fn register(by: &Device, generation: u64, recovery: bool, label: u8, fault: u8) -> Call {
    let keys: TestDevice = test_device(by, generation, recovery);
    let mut body = serde_json::to_value(keys.register_request()).expect("writes");
    match label {
        0 => {}
        1 => body["label"] = base64url(b"sealed name".to_vec()),
        2 => body["label"] = base64url(vec![1; 1_024]),
        _ => body["label"] = Value::Null,
    }
    match fault {
        1 => body["proof"] = base64url(vec![9; 64]),
        2 => body["encryptionKey"] = base64url(vec![9; 31]),
        3 => body["label"] = base64url(vec![9; 1_025]),
        4 => body["suite"] = json!("x448-ed448"),
        5 => body["proof"] = base64url(Vec::new()),
        _ => {}
    }
    let mut call = Call::new(by, Route::Register);
    call.body = Some(body);
    call
}
