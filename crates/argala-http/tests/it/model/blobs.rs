//! Routes 12 to 14 (protocol): blobs are put, fetched and deleted; and the sweep forgets them.

use std::collections::BTreeSet;

use argala_wire::Sealed;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    answer::{Answer, Body},
    call::Call,
    erase::forgotten,
    state::{Blob, Model, rfc3339},
};

const DAY: u64 = 24 * 60 * 60;

/// The SHA-256 of a blob as base64url: its `sha256`, and unquoted its tag.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sealed(Sha256::digest(bytes).to_vec()).to_base64url()
}

/// The SHA-256 of these bytes in the base64 of structured fields.
pub(super) fn sha256_of(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(Sha256::digest(bytes))
}

/// The `Content-Digest` of these bytes.
pub(super) fn content_digest(bytes: &[u8]) -> String {
    format!("sha-256=:{}:", sha256_of(bytes))
}

/// The SHA-256 that a `Content-Digest` announces, in base64 without padding; `Err` where it cannot
/// be read. No value here has a comma within.
fn announced_digest(header: &str) -> Result<Option<&str>, ()> {
    let mut digest = None;
    for member in header.split(", ") {
        let (key, value) = member.split_once('=').unwrap_or((member, ""));
        if key.chars().any(|c| c.is_ascii_uppercase()) {
            return Err(());
        }
        if key == "sha-256" {
            let bytes = value
                .strip_prefix(':')
                .and_then(|value| value.strip_suffix(':'));
            let bytes = bytes.ok_or(())?.trim_end_matches('=');
            // 32 bytes.
            if bytes.len() != 43 {
                return Err(());
            }
            digest = Some(bytes);
        }
    }
    Ok(digest)
}

fn told(blob: &Blob) -> Value {
    let mut told = json!({
        "blobId": blob.id,
        "size": blob.bytes.len(),
        "sha256": sha256(&blob.bytes),
        "policy": blob.policy,
    });
    if let Some(at) = blob.expires_at {
        told["expiresAt"] = rfc3339(at);
    }
    told
}

fn policy(call: &Call) -> &str {
    call.param("policy").unwrap_or("keep")
}

/// The bytes that are announced.
fn announced(call: &Call) -> u64 {
    let length = call.header("content-length").expect("checked before");
    length.parse().expect("a number")
}

/// What a sweep must come to.
#[derive(Debug, Default)]
pub(super) struct Swept {
    pub(super) events: Vec<Value>,
    /// Events that may be told as well.
    pub(super) maybe: Vec<Value>,
    pub(super) abandoned: u64,
    pub(super) tombstones: u64,
}

impl Model {
    pub(super) fn blob_id_faults(blob: &str) -> Vec<Answer> {
        let legal = (16..=128).contains(&blob.len())
            && blob
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        if legal {
            Vec::new()
        } else {
            vec![Answer::invalid("blobId")]
        }
    }

    pub(super) fn put_blob_faults(&self, call: &Call, key: &str, blob: &str) -> Vec<Answer> {
        let mut faults = Self::blob_id_faults(blob);
        let policy = policy(call);
        if !matches!(policy, "keep" | "expire" | "deliver") {
            faults.push(Answer::invalid("policy"));
        }
        let ttl = call.param("ttl").map(str::parse::<u64>);
        let is_wrong = match (policy, ttl) {
            (_, Some(Err(_))) | ("keep", Some(_)) | ("expire", None) => true,
            (_, Some(Ok(ttl))) => !(60..=365 * DAY).contains(&ttl),
            (_, None) => false,
        };
        if is_wrong {
            faults.push(Answer::invalid("ttl"));
        }
        let digest = call.header("content-digest").map(announced_digest);
        if digest.is_some_and(|digest| digest.is_err()) {
            faults.push(Answer::invalid("Content-Digest"));
        }
        match call.header("content-length") {
            None => faults.push(Answer::problem(411, "length_required", json!({}))),
            Some(length) => {
                let limit = self.settings.max_blob;
                if length.parse::<u64>().expect("a number") > limit {
                    let told =
                        json!({"memberId": call.by.member, "storageKey": key, "what": "blobBytes"});
                    faults.push(
                        Answer::problem(413, "blob_too_large", json!({"limit": limit}))
                            .event("quota.exceeded", told),
                    );
                }
            }
        }
        faults
    }

    fn live_blob(&self, key: &str, id: &str) -> Option<&Blob> {
        let blob = self.any_blob(key, id)?;
        let has_expired = blob.expires_at.is_some_and(|at| at <= self.now);
        (!has_expired).then_some(blob)
    }

    fn any_blob(&self, key: &str, id: &str) -> Option<&Blob> {
        self.blobs
            .iter()
            .find(|blob| blob.key == key && blob.id == id)
    }

    fn remove_blob(&mut self, key: &str, id: &str) {
        self.blobs.retain(|blob| blob.key != key || blob.id != id);
    }

    pub(super) fn put_blob(&mut self, call: &Call, key: &str, id: &str) -> Vec<Answer> {
        if !self.graphs.contains_key(key) {
            return vec![Answer::problem(409, "graph_unkeyed", json!({}))];
        }
        let size = announced(call);
        let digest = call.header("content-digest").map(announced_digest);
        let digest = digest.and_then(|digest| digest.expect("checked before"));
        let is_as_announced = call.raw.len() as u64 == size
            && digest.is_none_or(|digest| digest == sha256_of(&call.raw).trim_end_matches('='));
        let mismatch = || vec![Answer::problem(400, "digest_mismatch", json!({}))];
        let put = |answer: Answer, blob: &Blob| {
            answer
                .header("etag", format!("\"{}\"", sha256(&blob.bytes)))
                .event(
                    "blob.put",
                    json!({
                        "memberId": call.by.member,
                        "storageKey": key,
                        "size": blob.bytes.len(),
                        "policy": blob.policy,
                    }),
                )
        };
        if let Some(blob) = self.live_blob(key, id) {
            // Nothing is reserved for a blob that is live: no quota is looked at.
            if !is_as_announced {
                return mismatch();
            }
            if blob.bytes != call.raw {
                return vec![Answer::problem(409, "blob_exists", json!({}))];
            }
            return vec![put(Answer::of(200, Body::Map(told(blob), true)), blob)];
        }
        let expired = self
            .any_blob(key, id)
            .map_or(0, |blob| blob.bytes.len() as u64);
        let used = self.blob_bytes(key) - expired;
        let limit = self.settings.max_blobs;
        if used + size > limit {
            let what = "blobBytesPerGraph";
            let members = json!({"what": what, "limit": limit, "used": used});
            return vec![Answer::problem(403, "quota_exceeded", members).event(
                "quota.exceeded",
                json!({"memberId": call.by.member, "storageKey": key, "what": what}),
            )];
        }
        if self.any_blob(key, id).is_some() {
            self.remove_blob(key, id);
            self.doomed.push((key.to_owned(), self.now));
        }
        if !is_as_announced {
            return mismatch();
        }
        let ttl = call
            .param("ttl")
            .map(|ttl| ttl.parse::<u64>().expect("a number"));
        let ttl = match policy(call) {
            "keep" => None,
            "deliver" => Some(ttl.unwrap_or(30 * DAY)),
            _ => ttl,
        };
        let millis = |ttl: u64| i64::try_from(ttl * 1_000).expect("at most a year");
        let blob = Blob {
            key: key.to_owned(),
            id: id.to_owned(),
            bytes: call.raw.clone(),
            policy: policy(call).to_owned(),
            expires_at: ttl.map(|ttl| self.now + millis(ttl)),
            by: call.by.clone(),
            fetched: BTreeSet::new(),
            look_at: None,
        };
        let answer = put(Answer::of(201, Body::Map(told(&blob), true)), &blob);
        self.blobs.push(blob);
        vec![answer]
    }

    /// A whole fetch of a `deliver` blob is noted, and gives it a turn to be looked at.
    fn note_fetched(&mut self, call: &Call, key: &str, id: &str) {
        let blob = self.blobs.iter_mut();
        let mut blob = blob.filter(|blob| blob.key == key && blob.id == id);
        if let Some(blob) = blob.next()
            && blob.policy == "deliver"
            && blob.fetched.insert(call.by.clone())
        {
            blob.look_at = Some(0);
        }
    }

    pub(super) fn get_blob(
        &mut self,
        call: &Call,
        key: &str,
        id: &str,
        is_head: bool,
    ) -> Vec<Answer> {
        let Some(blob) = self.live_blob(key, id) else {
            return vec![Answer::problem(404, "blob_not_found", json!({}))];
        };
        let tag = format!("\"{}\"", sha256(&blob.bytes));
        let size = blob.bytes.len();
        let known = call.header("if-none-match");
        let has = |known: &str| {
            let mut tags = known.split(',').map(str::trim);
            known == "*" || tags.any(|known| known.strip_prefix("W/").unwrap_or(known) == tag)
        };
        let answer = if known.is_some_and(has) {
            Answer::of(304, Body::Empty)
        } else if is_head {
            Answer::of(200, Body::Empty).header("content-length", size.to_string())
        } else {
            let still = call.header("if-range").is_none_or(|of| of == tag);
            let range = call.header("range").filter(|_| still);
            let range = range.and_then(|range| part(range, size));
            match range {
                None => Answer::of(200, Body::Bytes(blob.bytes.clone()))
                    .header("content-length", size.to_string()),
                Some(range) if range.is_empty() => {
                    return vec![
                        Answer::problem(416, "range_not_satisfiable", json!({}))
                            .header("content-range", format!("bytes */{size}")),
                    ];
                }
                Some(range) => {
                    let place = format!("bytes {}-{}/{size}", range.start, range.end - 1);
                    Answer::of(206, Body::Bytes(blob.bytes[range.clone()].to_vec()))
                        .header("content-length", range.len().to_string())
                        .header("content-range", place)
                }
            }
        };
        if answer.status == 200 && !is_head {
            self.note_fetched(call, key, id);
        }
        vec![answer.header("etag", tag).header("accept-ranges", "bytes")]
    }

    pub(super) fn delete_blob(&mut self, key: &str, id: &str) -> Vec<Answer> {
        if self.live_blob(key, id).is_none() {
            return vec![Answer::problem(404, "blob_not_found", json!({}))];
        }
        self.remove_blob(key, id);
        let told = json!({"storageKey": key, "reason": "requested"});
        vec![Answer::of(204, Body::Empty).event("blob.forget", told)]
    }

    /// One pass: what has expired is forgotten. What has been replaced since may be told of in
    /// any pass, and is in one that comes more than an hour later.
    pub(super) fn sweep(&mut self) -> Swept {
        let now = self.now;
        let mut swept = Swept::default();
        let (expired, kept): (Vec<_>, Vec<_>) = self
            .blobs
            .drain(..)
            .partition(|blob| blob.expires_at.is_some_and(|at| at <= now));
        self.blobs = kept;
        for blob in expired {
            swept.events.push(forgotten(&blob.key, "expired"));
        }
        for key in self.delivered() {
            swept.events.push(forgotten(&key, "delivered"));
        }
        swept.abandoned = self.abandon().len() as u64;
        swept.events.extend(self.end_all_erasures());
        swept.tombstones = self.drop_tombstones();
        for (key, since) in &self.doomed {
            if now - since > 60 * 60 * 1_000 {
                swept.events.push(forgotten(key, "expired"));
            } else {
                swept.maybe.push(forgotten(key, "expired"));
            }
        }
        swept
    }

    /// Forgets the `deliver` blobs whose turn it is and that every device of the roster beside the
    /// uploader's has fetched, where there is one; whose they were.
    fn delivered(&mut self) -> Vec<String> {
        let now = self.now;
        let mut delivered = Vec::new();
        for mut blob in std::mem::take(&mut self.blobs) {
            if blob.look_at.is_some_and(|at| at <= now) {
                blob.look_at = Some(now + 10 * 60 * 1_000);
                let mut roster = self.roster(&blob.key);
                roster.remove(&blob.by);
                if !roster.is_empty() && roster.is_subset(&blob.fetched) {
                    delivered.push(blob.key);
                    continue;
                }
            }
            self.blobs.push(blob);
        }
        delivered
    }

    /// Takes note of which of the events that a sweep may tell it has told.
    pub(super) fn swept(&mut self, told: &[Value]) {
        let now = self.now;
        self.doomed
            .retain(|(_, since)| now - since <= 60 * 60 * 1_000);
        for event in told {
            let at = self
                .doomed
                .iter()
                .position(|(key, _)| event["storageKey"] == json!(key));
            self.doomed
                .remove(at.expect("only what may be told is told"));
        }
    }
}

/// The part that `Range` names; `None` where all is to be sent. An empty one lies outside.
fn part(range: &str, size: usize) -> Option<std::ops::Range<usize>> {
    let (unit, range) = range.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.split_once('-')?;
    // However long it is, past the end is past the end.
    let number = |text: &str| {
        let number = text.parse::<u128>().ok();
        number.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
    };
    Some(match (first, last) {
        ("", last) => size.saturating_sub(number(last)?)..size,
        (first, "") => number(first)?..size,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..size.min(last.saturating_add(1))
        }
    })
}
