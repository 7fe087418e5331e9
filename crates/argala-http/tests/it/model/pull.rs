//! Route 11 (protocol): records are pulled.

use std::collections::BTreeSet;

use argala_wire::Sealed;
use serde_json::{Value, json};

use super::{
    admit::{cursor_fault, limit, limit_fault},
    answer::{Answer, Body, text},
    call::Call,
    state::{Cursor, Graph, Learn, List, Model, NEVER, Place, Print, Record, rfc3339},
};

/// Bytes of ciphertext at which a page ends.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// One course that a page may take.
struct Page {
    records: Vec<Value>,
    filtered: u64,
    more: bool,
    place: u64,
}

fn only(call: &Call) -> Option<u64> {
    call.param("epoch").and_then(|epoch| epoch.parse().ok())
}

fn told(id: &str, record: &Record) -> Value {
    let mut told = json!({
        "id": id,
        "seq": record.seq,
        "epoch": record.epoch,
        "by": record.by.value(),
        "at": rfc3339(record.at),
        "ciphertext": Sealed(record.ciphertext.clone()),
    });
    if let Some(sig) = &record.sig {
        told["sig"] = sig.clone();
    }
    if record.deleted {
        told["deleted"] = json!(true);
    }
    told
}

impl Model {
    pub(super) fn pull_faults(&self, call: &Call, key: &str) -> Vec<Answer> {
        let epoch = call.param("epoch");
        let legal = epoch.is_none_or(|epoch| epoch.parse::<u64>().is_ok_and(|epoch| epoch > 0));
        let cursor = self.cursor(call, List::Records, Some(key), only(call));
        let reason = match cursor {
            Ok(cursor) => cursor.and_then(|cursor| self.outlived(cursor, key)),
            Err(reason) => Some(reason),
        };
        let faults = [
            limit_fault(call),
            (!legal).then(|| Answer::invalid("epoch")),
            reason.map(cursor_fault),
        ];
        faults.into_iter().flatten().collect()
    }

    /// Why a walk over records cannot go on where it was left off, if it cannot: the graph has
    /// begun another life, or tombstones have gone that the walk has not seen.
    fn outlived(&self, cursor: &Cursor, key: &str) -> Option<&'static str> {
        let Place::Seq(Some(seq)) = cursor.place else {
            return None;
        };
        let (life, began) = cursor.walk;
        let nothing = Graph::default();
        let graph = self.graphs.get(key).unwrap_or(&nothing);
        if life != graph.life || seq > graph.head {
            Some("ahead")
        } else if graph.floor > began && graph.floor > seq {
            Some("expired")
        } else {
            None
        }
    }

    /// Each course that is free (how far a page goes past records that are held back, how old
    /// the directory's part of the flag is) is an answer of its own.
    pub(super) fn pull(&mut self, call: &Call, key: &str) -> Vec<Answer> {
        let limit = limit(call, 500);
        let only = only(call);
        let cursor = self.cursor(call, List::Records, Some(key), only);
        let cursor = cursor.expect("checked before");
        let (start, began) = match cursor.map(|cursor| (&cursor.place, cursor.walk.1)) {
            // A cursor of before the first rotate stays good: the walk begins with the graph.
            None | Some((Place::Seq(None), _)) => (0, None),
            Some((Place::Seq(Some(seq)), began)) => (*seq, Some(began)),
            Some((other, _)) => panic!("{other:?} in a pull"),
        };
        let nothing = Graph::default();
        let graph = self.graphs.get(key);
        let flags = match graph {
            None => vec![false],
            Some(_) => {
                let (earliest, latest) = self.looks.get(key).copied().unwrap_or((NEVER, NEVER));
                let is_due = self.now - latest >= 60_000;
                let since = if is_due {
                    self.now
                } else {
                    earliest.max(self.now - 60_000)
                };
                if is_due {
                    // A look that is due is made before the answer.
                    vec![self.is_owed_now(key)]
                } else {
                    self.told_flags(key, since)
                }
            }
        };
        let is_born = graph.is_some();
        let graph = graph.unwrap_or(&nothing);
        let held = graph.held(&call.by);
        let pages = pages(graph, &held, start, limit, only);
        let (head, epoch) = (graph.head, graph.epoch());
        let (life, floor) = (graph.life, graph.floor);
        let known = self.known(call);
        let mut answers = Vec::new();
        let is_certain = flags.len() == 1;
        for owed in flags {
            let print = Print {
                key: key.to_owned(),
                media_type: call.accept.media_type(),
                query: (call.param("cursor").map(str::to_owned), limit as u64, only),
                life,
                floor,
                head,
                epoch,
                owed,
                held: held.clone(),
            };
            let has_it = call.header("if-none-match") == Some("*") || known.contains(&print);
            if has_it {
                answers.push(self.unchanged(call, key, print, is_certain));
                continue;
            }
            answers.extend(pages.iter().map(|page| {
                let body = json!({
                    "records": page.records,
                    "cursor": text(),
                    "more": page.more,
                    "head": head,
                    "epoch": epoch,
                    "filtered": page.filtered,
                    "rotationOwed": owed,
                });
                let returned = page.records.len() as u64;
                let cursor = Cursor {
                    text: String::new(),
                    list: List::Records,
                    key: Some(key.to_owned()),
                    only,
                    place: Place::Seq(is_born.then_some(page.place)),
                    by: call.by.clone(),
                    walk: (life, began.unwrap_or(head)),
                };
                Answer::ok(body)
                    .header("etag", "")
                    .event("graph.pull", pulled(call, key, returned, page.filtered))
                    .learn(Learn {
                        cursor: Some(cursor),
                        print: Some(print.clone()),
                    })
            }));
        }
        self.look(key);
        answers
    }

    fn is_owed_now(&self, key: &str) -> bool {
        let holders = self.graphs[key].holders();
        holders
            .into_iter()
            .any(|device| self.off_roster(key, device).is_some())
    }

    /// What the tags of `If-None-Match` stand for.
    fn known(&self, call: &Call) -> BTreeSet<Print> {
        let tags = call.header("if-none-match").unwrap_or_default();
        let tags = tags.split(',').map(|tag| {
            let tag = tag.trim();
            tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"')
        });
        tags.filter_map(|tag| self.tags.get(tag)).cloned().collect()
    }

    /// The caller has this page. Its tag is the one that was told before, where it was; where the
    /// flag in it cannot be told from the answer, nothing can be learned from a new one.
    fn unchanged(&self, call: &Call, key: &str, print: Print, is_certain: bool) -> Answer {
        let known = self.tags.iter().find(|(_, of)| **of == print);
        let tag = known.map(|(tag, _)| format!("\"{tag}\""));
        let mut answer = Answer::of(304, Body::Empty)
            .header("etag", tag.unwrap_or_default())
            .event("graph.pull", pulled(call, key, 0, 0));
        answer.learn = is_certain.then_some(Learn {
            cursor: None,
            print: Some(print),
        });
        answer
    }
}

fn pulled(call: &Call, key: &str, returned: u64, filtered: u64) -> Value {
    json!({
        "memberId": call.by.member,
        "storageKey": key,
        "returned": returned,
        "filtered": filtered,
    })
}

/// The courses that a page after `start` may take: it has to go on to the record that fills it,
/// and may pass over what is held back behind that.
fn pages(
    graph: &Graph,
    held: &BTreeSet<u64>,
    start: u64,
    limit: usize,
    only: Option<u64>,
) -> Vec<Page> {
    // One epoch's records lie between its first seq and the next one's.
    let (first, last) = match only {
        None => (1, graph.head),
        Some(epoch) => {
            let at = usize::try_from(epoch - 1).unwrap_or(usize::MAX);
            match graph.epochs.get(at) {
                None => (1, 0),
                Some(this) => {
                    let next = graph.epochs.get(at + 1);
                    (
                        this.first_seq,
                        next.map_or(graph.head, |next| next.first_seq - 1),
                    )
                }
            }
        }
    };
    let start = start.max(first - 1);
    let mut rows: Vec<_> = graph
        .records
        .iter()
        .filter(|(_, record)| start < record.seq && record.seq <= last)
        .collect();
    rows.sort_by_key(|(_, record)| record.seq);

    let mut records = Vec::new();
    let (mut bytes, mut filtered, mut place) = (0, 0, start);
    let mut tail = Vec::new();
    let mut is_full = false;
    for (id, record) in rows {
        if !held.contains(&record.epoch) {
            tail.push(record.seq);
            continue;
        }
        let length = record.ciphertext.len();
        if records.len() == limit || (!records.is_empty() && bytes + length > PAGE_BYTES) {
            is_full = true;
            break;
        }
        bytes += length;
        records.push(told(id, record));
        filtered += tail.len() as u64;
        tail.clear();
        place = record.seq;
    }
    let whole = Page {
        records: records.clone(),
        filtered: filtered + tail.len() as u64,
        more: is_full,
        place: if is_full {
            tail.last().copied().unwrap_or(place)
        } else {
            place.max(start).max(last)
        },
    };
    let mut pages = vec![whole];
    if is_full || records.len() == limit {
        for passed in 0..tail.len() {
            pages.push(Page {
                records: records.clone(),
                filtered: filtered + passed as u64,
                more: true,
                place: passed.checked_sub(1).map_or(place, |at| tail[at]),
            });
        }
    }
    pages
}
