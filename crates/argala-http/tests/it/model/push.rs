//! Route 10 (protocol): records are pushed.

use std::collections::BTreeSet;

use argala_testkit::record_id;
use argala_wire::{Sealed, records::PushRecord};
use serde_json::{Value, json};

use super::{
    admit::{number, string},
    answer::Answer,
    call::{Call, Device},
    devices::{optional, test_device},
    names::is_id,
    state::{Graph, Model, Record, Reply},
};

/// How long an idempotency key is kept, in milliseconds.
const KEPT: i64 = 24 * 60 * 60 * 1_000;

fn records_of(call: &Call) -> &[Value] {
    let body = call.body.as_ref().expect("a body");
    body["records"].as_array().expect("a list")
}

fn ciphertext(record: &Value) -> Vec<u8> {
    let text = string(&record["ciphertext"]);
    Sealed::from_base64url(text).expect("base64url").0
}

fn is_deleted(record: &Value) -> bool {
    record
        .get("deleted")
        .is_some_and(|deleted| *deleted == json!(true))
}

/// The signature of a record, as base64url, by the keys of one generation of a device.
pub(super) fn signature(by: &Device, generation: u64, key: &str, record: &Value) -> Value {
    let mut signed = PushRecord {
        id: record_id(string(&record["id"])),
        epoch: number(&record["epoch"]),
        ciphertext: Sealed(ciphertext(record)),
        sig: None,
        deleted: is_deleted(record),
        expect: None,
    };
    let key = key.parse().expect("a storage key");
    test_device(by, generation, false).sign(&key, &mut signed);
    json!(signed.sig)
}

impl Model {
    pub(super) fn push_faults(&self, call: &Call, key: &str) -> Vec<Answer> {
        let mut faults = Vec::new();
        let limit = self.settings.max_push;
        if call.raw.len() as u64 > limit {
            let told = json!({
                "memberId": call.by.member,
                "storageKey": key,
                "what": "pushBytes",
            });
            faults.push(
                Answer::problem(413, "body_too_large", json!({"limit": limit}))
                    .event("quota.exceeded", told),
            );
        }
        if let Some(given) = call.header("idempotency-key") {
            let legal =
                (1..=128).contains(&given.len()) && given.bytes().all(|b| b.is_ascii_graphic());
            if !legal {
                faults.push(Answer::invalid("Idempotency-Key"));
            }
        }
        let records = records_of(call);
        if records.len() as u64 > self.settings.max_batch {
            faults.push(Answer::invalid("records"));
        }
        let mut ids = BTreeSet::new();
        for (at, record) in records.iter().enumerate() {
            if !ids.insert(string(&record["id"])) {
                faults.push(Answer::invalid(&format!("records[{at}].id")));
            }
            if !is_id(string(&record["id"])) {
                faults.push(Answer::invalid(&format!("records[{at}].id")));
            }
            if ciphertext(record).is_empty() && !is_deleted(record) {
                faults.push(Answer::invalid(&format!("records[{at}].ciphertext")));
            }
        }
        faults
    }

    pub(super) fn push(&mut self, call: &Call, key: &str) -> Vec<Answer> {
        let Some(graph) = self.graphs.get(key) else {
            return vec![Answer::problem(409, "graph_unkeyed", json!({}))];
        };
        let reply_key = call
            .header("idempotency-key")
            .map(|given| (call.by.clone(), key.to_owned(), given.to_owned()));
        if let Some(reply_key) = &reply_key
            && let Some(reply) = self.replies.get(reply_key)
            && self.now - reply.at < KEPT
        {
            return vec![if reply.raw == call.raw {
                reply.answer.clone()
            } else {
                Answer::problem(409, "idempotency_conflict", json!({}))
            }];
        }
        let body = call.body.as_ref().expect("a body");
        let records = records_of(call);
        let is_same = |record: &Value| is_same_content(graph, record, &call.by);
        if let Some(head) = optional(body, "ifHead")
            && head != graph.head
            && !records.iter().all(is_same)
        {
            return vec![Answer::problem(
                412,
                "head_moved",
                json!({"head": graph.head}),
            )];
        }
        let mut after = graph.clone();
        let mut results = Vec::new();
        let mut rejected = 0_u64;
        let mut bytes = 0;
        let mut exceeded = BTreeSet::new();
        for record in records {
            let id = string(&record["id"]);
            match self.verdict(call, key, &mut after, record) {
                Ok(seq) => {
                    bytes += ciphertext(record).len();
                    results.push(json!({"id": id, "seq": seq}));
                }
                Err(mut reason) => {
                    rejected += 1;
                    match reason["reason"].as_str() {
                        Some("quota_records") => exceeded.insert("records"),
                        Some("quota_bytes") => exceeded.insert("ciphertextBytes"),
                        _ => false,
                    };
                    reason["id"] = json!(id);
                    results.push(reason);
                }
            }
        }
        let told_quotas = |mut answer: Answer| {
            for what in &exceeded {
                answer = answer.event(
                    "quota.exceeded",
                    json!({"memberId": call.by.member, "storageKey": key, "what": what}),
                );
            }
            answer
        };
        if body
            .get("atomic")
            .is_some_and(|atomic| *atomic == json!(true))
            && rejected > 0
        {
            // What would have been taken appears as its id alone.
            for result in &mut results {
                if result.get("seq").is_some() && result.get("reason").is_none() {
                    *result = json!({"id": result["id"]});
                }
            }
            return vec![told_quotas(Answer::problem(
                409,
                "push_rejected",
                json!({"results": results}),
            ))];
        }
        let accepted = results.len() as u64 - rejected;
        let changed = after.head != graph.head;
        let head = after.head;
        self.graphs.insert(key.to_owned(), after);
        let mut answer = told_quotas(Answer::ok(json!({
            "head": head,
            "accepted": accepted,
            "rejected": rejected,
            "results": results,
        })))
        .event(
            "graph.push",
            json!({
                "memberId": call.by.member,
                "storageKey": key,
                "accepted": accepted,
                "rejected": rejected,
                "bytes": bytes,
            }),
        );
        if let Some(reply_key) = reply_key {
            let reply = Reply {
                raw: call.raw.clone(),
                at: self.now,
                answer: answer.clone(),
            };
            self.replies.insert(reply_key, reply);
        }
        if changed {
            answer.pokes.push(self.poked(key, &call.by));
        }
        vec![answer]
    }

    /// Takes one record into the graph and tells its seq, or tells the first of its faults.
    fn verdict(
        &self,
        call: &Call,
        key: &str,
        graph: &mut Graph,
        record: &Value,
    ) -> Result<u64, Value> {
        let settings = &self.settings;
        let id = string(&record["id"]);
        let there = graph.records.get(id);
        if is_same_content(graph, record, &call.by) {
            return Ok(there.map_or(0, |there| there.seq));
        }
        let sealed = ciphertext(record);
        if sealed.len() as u64 > settings.max_record {
            return Err(json!({"reason": "record_too_large", "limit": settings.max_record}));
        }
        let (epoch, current) = (number(&record["epoch"]), graph.epoch());
        if epoch < current {
            return Err(json!({"reason": "stale_epoch", "epoch": current}));
        }
        if epoch > current {
            return Err(json!({"reason": "unknown_epoch", "epoch": current}));
        }
        if !graph.held(&call.by).contains(&epoch) {
            return Err(json!({"reason": "not_holder"}));
        }
        let sig = record.get("sig").filter(|sig| !sig.is_null());
        match sig {
            Some(sig) => {
                let generation = self.devices[&call.by].generation;
                if *sig != signature(&call.by, generation, key, record) {
                    return Err(json!({"reason": "signature_invalid"}));
                }
            }
            None if settings.signatures_required => {
                return Err(json!({"reason": "signature_missing"}));
            }
            None => {}
        }
        let seq = there.map_or(0, |there| there.seq);
        if optional(record, "expect").is_some_and(|expect| expect != seq) {
            return Err(json!({"reason": "conflict", "seq": seq}));
        }
        let deleted = is_deleted(record);
        let (was_live, was_bytes) = there.map_or((false, 0), |there| {
            (!there.deleted, there.ciphertext.len() as u64)
        });
        // Full of live records; or, for a new id, of live records and tombstones.
        let one_more = !deleted && !was_live;
        let limit = settings.max_records;
        let is_full = one_more && graph.live() >= limit;
        let is_crowded = there.is_none() && graph.records.len() as u64 >= limit * 2;
        if is_full || is_crowded {
            return Err(json!({"reason": "quota_records", "limit": limit}));
        }
        let length = sealed.len() as u64;
        let limit = settings.max_ciphertext;
        if length > was_bytes && graph.ciphertext_bytes() - was_bytes + length > limit {
            return Err(json!({"reason": "quota_bytes", "limit": limit}));
        }
        graph.head += 1;
        let record = Record {
            seq: graph.head,
            epoch,
            by: call.by.clone(),
            at: self.now,
            ciphertext: sealed,
            sig: sig.cloned(),
            deleted,
        };
        graph.records.insert(id.to_owned(), record);
        Ok(graph.head)
    }
}

/// Whether a record is there already: the same id, epoch, ciphertext, deleted flag and device.
fn is_same_content(graph: &Graph, record: &Value, by: &Device) -> bool {
    let there = graph.records.get(string(&record["id"]));
    there.is_some_and(|there| {
        there.epoch == number(&record["epoch"])
            && there.ciphertext == ciphertext(record)
            && there.deleted == is_deleted(record)
            && there.by == *by
    })
}
