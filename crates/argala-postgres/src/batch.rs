//! Pushes to one graph, decided one after the other, each on what those before it have left.
//!
//! What they rest on was read under the graph's lock (`push`), or is what a replica remembers of
//! the graph (`versioned`). The rule that is called is the same.

use std::collections::{BTreeMap, HashMap};

use argala_core::{
    Rejection,
    ports::store::{Graph, Push, PushOutcome},
    rules::{
        self, PushDecision, PushView,
        push::{Existing, Write},
    },
};
use argala_wire::{
    RecordId, Timestamp,
    codec::Format,
    devices::{Device, DeviceRef},
    records::PushResponse,
};
use sha2::{Digest, Sha256};

use crate::columns::int;

/// What one of several pushes is told.
pub(crate) type Told = Result<PushOutcome, Rejection>;

/// Devices that push, and whether each has a wrap, not blanked, of the current epoch.
pub(crate) type Callers = HashMap<DeviceRef, (Device, bool)>;

/// A slot of idempotency keys, in milliseconds: half a day.
pub(crate) const SLOT: i64 = 12 * 60 * 60 * 1_000;
/// How many slots there are (`migrations/postgres/0001_initial.sql`): a day's, the one that is
/// being filled, and one to spare.
pub(crate) const SLOTS: i64 = 4;

fn slot(at: Timestamp) -> i16 {
    let slot = at.as_millis().div_euclid(SLOT).rem_euclid(SLOTS);
    i16::try_from(slot).expect("there are four")
}

/// Whose idempotency key, and which.
pub(crate) type Key<'a> = (&'a DeviceRef, &'a str);

/// What is kept under an idempotency key.
pub(crate) struct Kept {
    pub(crate) at: Timestamp,
    pub(crate) body: [u8; 32],
    pub(crate) answer: PushResponse,
}

/// A record as it stands, or will stand.
pub(crate) struct Standing<'a> {
    /// All but whether its ciphertext is the one that is being pushed.
    pub(crate) existing: Existing,
    pub(crate) content: Content<'a>,
}

pub(crate) enum Content<'a> {
    /// It is in the database; its hash, where it is as long as one that is pushed.
    Stored(Option<[u8; 32]>),
    /// A push of the same transaction has it.
    Pushed(&'a [u8]),
}

/// A record to write: which push, which of its records, and the seq that it is given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    push: usize,
    at: usize,
    seq: u64,
}

/// An answer to keep under the idempotency key of a push.
#[derive(Debug)]
pub(crate) struct Answered {
    push: usize,
    answer: Vec<u8>,
}

/// What the pushes rest on and what they come to, one after the other.
pub(crate) struct Batch<'a> {
    pub(crate) graph: Option<Graph>,
    pub(crate) callers: Callers,
    pub(crate) records: HashMap<&'a str, Standing<'a>>,
    pub(crate) kept: HashMap<Key<'a>, Kept>,
    pushes: &'a [Push],
    /// By id: what is pushed twice is written once, as the last one left it.
    written: BTreeMap<&'a str, Written>,
    /// Keys of this transaction's answers, and the pushes that have them.
    answered: HashMap<Key<'a>, usize>,
}

impl<'a> Batch<'a> {
    /// Pushes to one graph, of which nothing is known yet.
    pub(crate) fn new(pushes: &'a [Push]) -> Self {
        Self {
            graph: None,
            callers: HashMap::new(),
            records: HashMap::new(),
            kept: HashMap::new(),
            pushes,
            written: BTreeMap::new(),
            answered: HashMap::new(),
        }
    }

    /// What each push is told, in their order.
    pub(crate) fn decide_all(&mut self) -> Vec<Told> {
        (0..self.pushes.len()).map(|at| self.decide(at)).collect()
    }

    fn decide(&mut self, at: usize) -> Told {
        let pushes = self.pushes;
        let push = &pushes[at];
        let caller = self.callers.get(&push.by);
        let replay = push.idempotency.as_ref().and_then(|idempotency| {
            self.kept
                .get(&(&push.by, idempotency.key.as_str()))
                .filter(|kept| kept.at >= idempotency.since)
        });
        let existing = if replay.is_none() {
            self.existing(push)
        } else {
            HashMap::new()
        };
        let decision = rules::push(
            push,
            PushView {
                caller: caller.map(|(device, _)| device),
                graph: self.graph.as_ref(),
                holds_current: caller.is_some_and(|(_, holds)| *holds),
                existing: &existing,
                replay: replay.map(|kept| (&kept.body, &kept.answer)),
            },
        )?;
        match decision {
            PushDecision::Replay(outcome) => Ok(outcome),
            PushDecision::Write {
                writes,
                graph,
                outcome,
            } => {
                self.graph = Some(graph);
                for write in writes {
                    self.take(at, write);
                }
                if let Some(idempotency) = &push.idempotency {
                    let key = (&push.by, idempotency.key.as_str());
                    let kept = Kept {
                        at: push.now,
                        body: idempotency.body,
                        answer: outcome.answer.clone(),
                    };
                    self.kept.insert(key, kept);
                    self.answered.insert(key, at);
                }
                Ok(outcome)
            }
        }
    }

    /// What there is under the ids of one push.
    fn existing(&self, push: &Push) -> HashMap<RecordId, Existing> {
        let mut existing = HashMap::new();
        if self.records.is_empty() {
            return existing;
        }
        for pushed in &push.records {
            let record = &pushed.record;
            let Some(standing) = self.records.get(record.id.as_str()) else {
                continue;
            };
            let ciphertext = record.ciphertext.as_slice();
            let same_ciphertext = match &standing.content {
                Content::Pushed(there) => *there == ciphertext,
                Content::Stored(digest) => {
                    standing.existing.bytes == ciphertext.len() as u64
                        && digest.is_some_and(|digest| digest[..] == Sha256::digest(ciphertext)[..])
                }
            };
            existing.insert(
                record.id.clone(),
                Existing {
                    same_ciphertext,
                    ..standing.existing.clone()
                },
            );
        }
        existing
    }

    fn take(&mut self, push: usize, Write { at, seq, .. }: Write) {
        let pushes = self.pushes;
        let by = &pushes[push].by;
        let record = &pushes[push].records[at].record;
        let id = record.id.as_str();
        self.written.insert(id, Written { push, at, seq });
        if push + 1 == pushes.len() {
            // Nobody comes after it who might find the record.
            return;
        }
        let existing = Existing {
            seq,
            epoch: record.epoch,
            by: by.clone(),
            deleted: record.deleted,
            bytes: record.ciphertext.len() as u64,
            same_ciphertext: false,
        };
        let content = Content::Pushed(record.ciphertext.as_slice());
        self.records.insert(id, Standing { existing, content });
    }

    /// The records to write, by id.
    pub(crate) fn written(&self) -> Vec<Written> {
        self.written.values().copied().collect()
    }

    /// The answers to keep, in the order of their pushes.
    pub(crate) fn answered(&self) -> Vec<Answered> {
        let mut answered: Vec<_> = self
            .answered
            .iter()
            .filter_map(|(key, push)| Some((*push, self.kept.get(key)?)))
            .map(|(push, kept)| Answered {
                push,
                answer: Format::Json.encode(&kept.answer),
            })
            .collect();
        answered.sort_unstable_by_key(|it| it.push);
        answered
    }
}

/// Records to write, column by column.
#[derive(Default)]
pub(crate) struct Records<'a> {
    /// Which graph: its place among those of one statement, or whatever number it is added by.
    pub(crate) places: Vec<i64>,
    pub(crate) ids: Vec<&'a str>,
    pub(crate) seqs: Vec<i64>,
    pub(crate) epochs: Vec<i64>,
    pub(crate) members: Vec<&'a str>,
    pub(crate) devices: Vec<&'a str>,
    pub(crate) times: Vec<i64>,
    pub(crate) deleted: Vec<bool>,
    pub(crate) sigs: Vec<Option<&'a [u8]>>,
    pub(crate) ciphertexts: Vec<&'a [u8]>,
}

impl<'a> Records<'a> {
    /// Adds those of one graph.
    pub(crate) fn add(&mut self, place: i64, pushes: &'a [Push], written: &[Written]) {
        for Written { push, at, seq } in written {
            let push = &pushes[*push];
            let record = &push.records[*at].record;
            self.places.push(place);
            self.ids.push(record.id.as_str());
            self.seqs.push(int(*seq));
            self.epochs.push(int(record.epoch));
            self.members.push(push.by.member_id.as_str());
            self.devices.push(push.by.device_id.as_str());
            self.times.push(push.now.as_millis());
            self.deleted.push(record.deleted);
            self.sigs
                .push(record.sig.as_ref().map(|sig| sig.as_slice()));
            self.ciphertexts.push(record.ciphertext.as_slice());
        }
    }
}

/// Answers to keep, column by column.
#[derive(Default)]
pub(crate) struct Answers<'a> {
    /// Which graph: its place among those of one statement, or whatever number it is added by.
    pub(crate) places: Vec<i64>,
    pub(crate) slots: Vec<i16>,
    pub(crate) members: Vec<&'a str>,
    pub(crate) devices: Vec<&'a str>,
    pub(crate) keys: Vec<&'a str>,
    pub(crate) times: Vec<i64>,
    pub(crate) bodies: Vec<&'a [u8]>,
    pub(crate) answers: Vec<&'a [u8]>,
}

impl<'a> Answers<'a> {
    /// Adds those of one graph.
    pub(crate) fn add(&mut self, place: i64, pushes: &'a [Push], answered: &'a [Answered]) {
        for Answered { push, answer } in answered {
            let push = &pushes[*push];
            let Some(idempotency) = &push.idempotency else {
                continue;
            };
            self.places.push(place);
            self.slots.push(slot(push.now));
            self.members.push(push.by.member_id.as_str());
            self.devices.push(push.by.device_id.as_str());
            self.keys.push(&idempotency.key);
            self.times.push(push.now.as_millis());
            self.bodies.push(&idempotency.body);
            self.answers.push(answer);
        }
    }
}
