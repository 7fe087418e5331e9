//! A case: the same steps through the router and through the model, answer by answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use argala_core::{
    Relay,
    sweep::{Sweep, SweepOptions},
};
use argala_http::DevAuth;
use argala_testkit::{
    EventLog, MemoryDirectory, PokeLog, TestClock,
    conformance::{Fresh, relay::RelayPorts},
};
use argala_wire::limits::{Quotas, Rate, RateLimits, Signatures};
use axum::{Router, body::Body as HttpBody};
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use super::{
    answer::{Answer, Body, Poked, matches},
    call::{Call, Device, Form, Route, Slip, from_cbor},
    names::{GROUPS, MEMBERS},
    ops::{Change, Op},
    script::Script,
    state::{Directory, Model, Settings},
};
use crate::world::encoded;

/// Longer than the time within which equal pokes are one.
const POKES_SETTLE: Duration = Duration::from_millis(51);
/// How often a step looks whether the relay's own tasks are done, before it is given up.
const LOOKS: u32 = 20_000_000;

/// How a relay is set up, and what records it is given.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) settings: Settings,
    pub(super) sizes: Option<&'static [usize]>,
}

/// A relay, and the model of what it must do.
pub(super) struct Case {
    app: Router,
    pub(super) relay: Arc<Relay>,
    pub(super) sweep: Sweep,
    pub(super) clock: TestClock,
    pub(super) events: EventLog,
    pokes: PokeLog,
    pub(super) directory: MemoryDirectory,
    pub(super) model: Model,
    sizes: Option<&'static [usize]>,
    /// Requests that may be repeated.
    sent: Vec<Call>,
    /// How often each kind of answer was given: by route, status and what is told.
    pub(super) tally: BTreeMap<String, u64>,
    asked: u64,
    pub(super) ports: Fresh<RelayPorts>,
}

/// What came, read whole.
struct Got {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    events: Vec<Value>,
    pokes: Vec<Poked>,
}

impl Case {
    pub(super) fn new(ports: Fresh<RelayPorts>, setting: Setting) -> Self {
        let Setting { settings, sizes } = setting;
        let (clock, events, pokes) = (TestClock::new(), EventLog::new(), PokeLog::new());
        let directory = MemoryDirectory::of(
            &MEMBERS,
            &[(GROUPS[0], &MEMBERS), (GROUPS[1], &MEMBERS[..2])],
        );
        directory.set_lists_groups(settings.lists_groups);
        let rate = |(per_minute, burst)| Rate { per_minute, burst };
        let rates = settings.rates;
        let signatures = if settings.signatures_required {
            Signatures::Required
        } else {
            Signatures::Optional
        };
        let both = ports.replica(0);
        let (store, blobs) = (Arc::clone(&both.store), Arc::clone(&both.blobs));
        let sweep = Sweep::new(
            Arc::clone(&store),
            Arc::clone(&blobs),
            Arc::new(directory.clone()),
            SweepOptions::default(),
        )
        .clock(Arc::new(clock.clone()))
        .events(Arc::new(events.clone()));
        let relay = Relay::builder(store, blobs, Arc::new(directory.clone()))
            .clock(Arc::new(clock.clone()))
            .events(events.clone())
            .poke_sink(Arc::new(pokes.clone()))
            .quotas(Quotas {
                max_records_per_graph: settings.max_records,
                max_ciphertext_bytes_per_graph: settings.max_ciphertext,
                max_blob_bytes: settings.max_blob,
                max_blob_bytes_per_graph: settings.max_blobs,
                max_devices_per_member: settings.max_devices,
                max_push_bytes: settings.max_push,
                max_record_bytes: settings.max_record,
                max_records_per_push: settings.max_batch,
            })
            .rate_limits(RateLimits {
                push: rate(rates.push),
                pull: rate(rates.pull),
                blobs: rate(rates.blobs),
                keys: rate(rates.keys),
            })
            .signatures(signatures)
            .build();
        let all: BTreeSet<_> = MEMBERS.map(str::to_owned).into();
        let two = MEMBERS[..2].iter().map(|name| (*name).to_owned()).collect();
        let told = Directory {
            members: all.iter().map(|name| (name.clone(), true)).collect(),
            groups: [(GROUPS[0].to_owned(), all), (GROUPS[1].to_owned(), two)].into(),
        };
        let now = relay.clock().now().as_millis();
        Self {
            app: argala_http::router(Arc::clone(&relay), Arc::new(DevAuth)),
            relay,
            sweep,
            clock,
            events,
            pokes,
            directory,
            model: Model::new(settings, now, told),
            sizes,
            sent: Vec::new(),
            tally: BTreeMap::new(),
            asked: 0,
            ports,
        }
    }

    /// One step, on both sides.
    ///
    /// # Errors
    /// How the relay differs from the model.
    pub(super) async fn step(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Ask(who, what, manner) => {
                let script = Script {
                    model: &self.model,
                    sizes: self.sizes,
                };
                let call = script.call(*who, what, *manner);
                self.ask(call).await
            }
            Op::Again(n) => match self.sent.len() {
                0 => Ok(()),
                // The newest ones most of the time.
                sent => {
                    let back = usize::from(*n) % sent.min(6);
                    self.ask(self.sent[sent - 1 - back].clone()).await
                }
            },
            Op::Directory(change) => {
                self.change(*change);
                Ok(())
            }
            Op::Wait(n) => {
                // Odd milliseconds, so that no moment is met to the millisecond by chance: at the
                // very end of a time the protocol lets a relay decide either way.
                let waits = [
                    3,
                    1_007,
                    10_011,
                    61_013,
                    61_017,
                    3_661_019,
                    90_000_023,
                    2_700_000_029,
                ];
                let wait = waits[usize::from(*n) % waits.len()];
                self.wait(Duration::from_millis(wait));
                Ok(())
            }
            Op::Sweep => self.sweep().await,
            Op::Season => {
                self.wait(Duration::from_millis(7_900_000_031));
                self.sweep().await
            }
            Op::Month(group) => self.month(*group).await,
            Op::Fetch(n) => self.fetch(*n).await,
            Op::Erase(gone) => self.erase(*gone).await,
        }
    }

    /// Sends a request, and holds the answer against those that the model allows.
    pub(super) async fn ask(&mut self, call: Call) -> Result<(), String> {
        let wanted = self.model.answer(&call);
        self.model.note_owed();
        let got = self.send(&call).await?;
        let mut faults = Vec::new();
        let mut found = None;
        for want in wanted {
            match compare(&call, &want, &got) {
                Ok(body) => {
                    found = Some((want, body));
                    break;
                }
                Err(fault) => faults.push(fault),
            }
        }
        let Some((want, body)) = found else {
            let body = String::from_utf8_lossy(&got.body);
            return Err(format!(
                "{call:?}\nwas answered {} {body}\n{}",
                got.status,
                faults.join("\n")
            ));
        };
        self.count_answer(&call.route, got.status, &body);
        if let Some(learn) = want.learn {
            let tag = got.headers.get(header::ETAG);
            let tag = tag.map(|tag| tag.to_str().expect("text").trim_matches('"'));
            self.model
                .take_in(learn, &body, tag)
                .map_err(|fault| format!("{call:?}\n{fault}"))?;
        }
        let may_repeat = matches!(
            call.route,
            Route::Register
                | Route::Rotate(_)
                | Route::Grant(_)
                | Route::Push(_)
                | Route::Revoke(_)
                | Route::PutBlob(..)
                | Route::DeleteBlob(..)
        );
        if may_repeat && call.slip == Slip::None {
            self.sent.push(call);
        }
        Ok(())
    }

    pub(super) fn count(&mut self, kind: String) {
        *self.tally.entry(kind).or_default() += 1;
    }

    fn count_answer(&mut self, route: &Route, status: u16, body: &Value) {
        let name = format!("{route:?}");
        let name = name.split('(').next().expect("a name");
        let mut kinds = vec![format!("{name} {status}")];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(code) = text(&body["code"]) {
            let rest = ["what", "reason", "bucket"]
                .into_iter()
                .find_map(|it| text(&body[it]));
            let rest = rest.map_or_else(String::new, |rest| format!(" {rest}"));
            kinds.push(format!("{name} {code}{rest}"));
            kinds.push(code);
        }
        for list in ["results", "rejected", "rotationReasons"] {
            let items = body[list].as_array().into_iter().flatten();
            kinds.extend(items.map(|item| {
                format!(
                    "{name} {list} {}",
                    text(&item["reason"]).unwrap_or_default()
                )
            }));
        }
        for (field, least) in [("filtered", 1), ("graphsFlagged", 1), ("granted", 1)] {
            if body[field].as_u64().is_some_and(|number| number >= least) {
                kinds.push(format!("{name} {field}"));
            }
        }
        for field in ["more", "rotationOwed", "behind", "fresh"] {
            if body[field] == Value::Bool(true) {
                kinds.push(format!("{name} {field}"));
            }
        }
        for kind in kinds {
            self.count(kind);
        }
    }

    async fn send(&mut self, call: &Call) -> Result<Got, String> {
        self.asked += 1;
        let request_id = format!("case.{}", self.asked);
        let mut request = Request::new(HttpBody::from(call.raw.clone()));
        *request.method_mut() = call.route.method();
        *request.uri_mut() = call.target().parse().map_err(|error| format!("{error}"))?;
        let headers = request.headers_mut();
        let mut put = |name: &str, value: &str| {
            let name = HeaderName::try_from(name).expect("a header's name");
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header's value");
            headers.insert(name, value);
        };
        put("x-request-id", &request_id);
        if call.slip != Slip::NoCredential {
            let (member, device) = (encoded(&call.by.member), encoded(&call.by.device));
            put("authorization", &format!("Dev {member}/{device}"));
        }
        if let Some(accept) = call.accept_header() {
            put("accept", accept);
        }
        if let Some(media_type) = call.type_header() {
            put("content-type", media_type);
        }
        for (name, value) in &call.headers {
            put(name, value);
        }
        self.directory.set_failing(call.slip == Slip::Failing);
        let app = self.app.clone();
        let response = app.oneshot(request).await.expect("routers do not fail");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?;
        self.settle().await?;
        self.directory.set_failing(false);
        let told_id = parts.headers.get("x-request-id").map(HeaderValue::as_bytes);
        if told_id != Some(request_id.as_bytes()) {
            return Err(format!("the request's id came back as {told_id:?}"));
        }
        let pokes = self.pokes.take().into_iter().map(|poke| Poked {
            key: poke.storage_key.to_string(),
            members: poke.members.iter().map(ToString::to_string).collect(),
            except: poke
                .except
                .map(|device| Device::new(device.member_id.as_str(), device.device_id.as_str())),
        });
        Ok(Got {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.to_bytes().to_vec(),
            pokes: pokes.collect(),
            events: self.events.take().iter().map(told).collect(),
        })
    }

    /// Waits for what the relay does beside its answers: pokes, and notes that it makes. One task
    /// remains, the one that writes down sightings; its time never comes.
    pub(super) async fn settle(&self) -> Result<(), String> {
        for look in 0..LOOKS {
            if self.relay.background_tasks() <= 1 {
                return Ok(());
            }
            if look == 8 {
                tokio::time::advance(POKES_SETTLE).await;
            }
            if look > 8 {
                std::thread::yield_now();
            }
            tokio::task::yield_now().await;
        }
        Err("the relay does not come to rest".to_owned())
    }

    /// What must be so at the end: every graph's counters are the sums of what it holds, and each
    /// holder is handed all that it may have, page by page.
    pub(super) async fn end(&mut self) -> Result<(), String> {
        for member in MEMBERS {
            self.change(Change::Member {
                n: index(member),
                to: Some(true),
            });
        }
        let devices: Vec<_> = self.model.devices.keys().cloned().collect();
        let keys: Vec<_> = self.model.graphs.keys().cloned().collect();
        for key in &keys {
            self.recount(key).await?;
            for by in &devices {
                let Some(address) = self.model.address_for(key, &by.member) else {
                    continue;
                };
                self.ask(Call::new(by, Route::Graph(address.clone())))
                    .await?;
                self.pull_all(by, &address).await?;
                self.ask(Call::new(by, Route::Wraps(address))).await?;
            }
        }
        for by in &devices {
            self.ask(Call::new(by, Route::Graphs)).await?;
            self.ask(Call::new(by, Route::Devices)).await?;
        }
        Ok(())
    }

    /// The store's own count, beside the sums of the model.
    async fn recount(&self, key: &str) -> Result<(), String> {
        let storage_key = key.parse().expect("a storage key");
        let recount = self.relay.store().recount(&storage_key).await;
        let recount = recount.map_err(|error| error.to_string())?;
        let recount = recount.ok_or_else(|| format!("{key} is not there"))?;
        let graph = &self.model.graphs[key];
        let want = (
            graph.live(),
            graph.records.len() as u64 - graph.live(),
            graph.ciphertext_bytes(),
            self.model.blob_bytes(key),
        );
        for counters in [recount.stored, recount.counted] {
            let got = (
                counters.records,
                counters.tombstones,
                counters.ciphertext_bytes,
                counters.blob_bytes,
            );
            if got != want {
                return Err(format!("{key} counts {got:?}, and holds {want:?}"));
            }
        }
        Ok(())
    }

    async fn pull_all(&mut self, by: &Device, address: &str) -> Result<(), String> {
        let mut cursor = None;
        loop {
            let call = Call::new(by, Route::Pull(address.to_owned()))
                .with_query("cursor", cursor.take())
                .with_query("limit", Some("3".to_owned()));
            let before = self.model.cursors.len();
            self.ask(call).await?;
            let place = |cursor: &super::state::Cursor| (cursor.place.clone(), cursor.text.clone());
            let last = self.model.cursors[before..].last().map(place);
            // Refused, or at its end: a page that moves no further has no other behind it.
            match (last, self.model.cursors[..before].last().map(place)) {
                (Some((to, text)), from) if from.as_ref().is_none_or(|(from, _)| *from != to) => {
                    cursor = Some(text);
                }
                _ => return Ok(()),
            }
        }
    }
}

pub(super) fn index(member: &str) -> u8 {
    let at = MEMBERS.iter().position(|name| *name == member);
    u8::try_from(at.expect("one of them")).expect("few")
}

pub(super) fn told(event: &argala_core::ports::Event) -> Value {
    serde_json::to_value(event).expect("writes")
}

/// Holds an answer against one that is allowed; gives its body back.
fn compare(call: &Call, want: &Answer, got: &Got) -> Result<Value, String> {
    if got.status != want.status {
        return Err(format!("{} was to be, by {want:?}", want.status));
    }
    for (name, value) in &want.headers {
        let there = got.headers.get(*name).map(HeaderValue::as_bytes);
        let good = there.is_some_and(|there| value.is_empty() || there == value.as_bytes());
        if !good {
            return Err(format!("{name} is {there:?}, {value:?} was to be"));
        }
    }
    let body = match &want.body {
        // A HEAD sees the head alone, of a problem too.
        _ if matches!(call.route, Route::HeadBlob(..)) && got.body.is_empty() => Value::Null,
        Body::Empty if got.body.is_empty() => Value::Null,
        Body::Bytes(bytes) if *bytes == got.body => {
            told_as(got, "application/octet-stream")?;
            Value::Null
        }
        Body::Empty | Body::Bytes(_) => return Err("the body is another".to_owned()),
        Body::Map(want, always_json) => {
            let is_json = *always_json || call.accept == Form::Json || call.slip == Slip::Accept;
            let body = if is_json {
                let is_problem = got.status >= 400;
                told_as(
                    got,
                    if is_problem {
                        "application/problem+json"
                    } else {
                        "application/json"
                    },
                )?;
                serde_json::from_slice(&got.body).map_err(|error| error.to_string())?
            } else {
                told_as(got, "application/cbor")?;
                from_cbor(&got.body)?
            };
            matches(want, &body, "")?;
            body
        }
    };
    let events = super::answer::unordered_matches(&want.events, &got.events);
    events.ok_or_else(|| format!("events {:?}, {:?} were to be", got.events, want.events))?;
    let (mut poked, mut pokes) = (got.pokes.clone(), want.pokes.clone());
    poked.sort();
    pokes.sort();
    if poked != pokes {
        return Err(format!("pokes {poked:?}, {pokes:?} were to be"));
    }
    Ok(body)
}

fn told_as(got: &Got, media_type: &str) -> Result<(), String> {
    let there = got.headers.get(header::CONTENT_TYPE);
    if there.is_some_and(|there| there == media_type) {
        Ok(())
    } else {
        Err(format!(
            "the body is told as {there:?}, {media_type} was to be"
        ))
    }
}
