//! What is checked before a route's own work, in the order of the protocol (section 4), and which
//! route's rules come then.

use serde_json::{Value, json};

use super::{
    answer::{Answer, maybe, text},
    call::{Call, Device, Route, Slip},
    state::{Model, storage_key},
};

impl Model {
    /// The answers that the protocol allows to this request; of what it changes, the model is
    /// changed. One and the same answer is told several times where only its course is free.
    pub(super) fn answer(&mut self, call: &Call) -> Vec<Answer> {
        if let Err(refused) = self.admit(call) {
            return refused;
        }
        let member = call.by.member.as_str();
        let key = match call.route.graph() {
            None => String::new(),
            Some(address) => match storage_key(address, member) {
                None => return vec![Answer::invalid("graphId")],
                Some(_) if !self.may(member, address) => {
                    return vec![Answer::problem(404, "graph_not_found", json!({}))];
                }
                Some(key) => key,
            },
        };
        let mut faults = malformed(call);
        // What else is wrong with the request alone is of the same rank: any one may be told.
        faults.extend(match &call.route {
            Route::Register => self.register_faults(call),
            Route::Devices => self.devices_faults(call),
            Route::Graphs => self.graphs_faults(call),
            Route::GraphDevices(_) => self.graph_devices_faults(call, &key),
            Route::Wraps(_) => self.wraps_faults(call, &key),
            Route::Rotate(_) | Route::Grant(_) => Self::wrap_faults(call),
            Route::Push(_) => self.push_faults(call, &key),
            Route::Pull(_) => self.pull_faults(call, &key),
            Route::PutBlob(_, blob) => self.put_blob_faults(call, &key, blob),
            Route::GetBlob(_, blob) | Route::HeadBlob(_, blob) | Route::DeleteBlob(_, blob) => {
                Self::blob_id_faults(blob)
            }
            Route::Revoke(device) => Self::revoke_faults(device),
            Route::Graph(_) | Route::Limits => Vec::new(),
        });
        if !faults.is_empty() {
            if matches!(call.route, Route::Pull(_)) {
                self.may_have_looked(&key);
            }
            return faults;
        }
        match &call.route {
            Route::Register => self.register(call),
            Route::Devices => self.devices(call),
            Route::Revoke(device) => self.revoke(call, device),
            Route::Graphs => self.graphs(call),
            Route::Graph(address) => self.graph(&key, address),
            Route::GraphDevices(_) => self.graph_devices(call, &key),
            Route::Wraps(_) => self.wraps(call, &key),
            Route::Rotate(_) => self.rotate(call, &key),
            Route::Grant(_) => self.grant(call, &key),
            Route::Push(_) => self.push(call, &key),
            Route::Pull(_) => self.pull(call, &key),
            Route::PutBlob(_, blob) => self.put_blob(call, &key, blob),
            Route::GetBlob(_, blob) => self.get_blob(call, &key, blob, false),
            Route::HeadBlob(_, blob) => self.get_blob(call, &key, blob, true),
            Route::DeleteBlob(_, blob) => self.delete_blob(&key, blob),
            Route::Limits => self.limits(),
        }
    }

    /// Identity, a revocation, the allowance, the device's and the member's state.
    fn admit(&mut self, call: &Call) -> Result<(), Vec<Answer>> {
        if call.slip == Slip::NoCredential {
            let answer = Answer::problem(401, "unauthenticated", json!({}))
                .header("www-authenticate", "Bearer")
                .event("auth.rejected", json!({"reason": text()}));
            return Err(vec![answer]);
        }
        let device = &call.by;
        let refused = |code: &str| {
            Answer::problem(403, code, json!({})).event("auth.rejected", json!({"reason": code}))
        };
        let row = self.devices.get(device);
        let is_registered = row.is_some();
        let is_revoked = row.is_some_and(|row| row.revoked_at.is_some());
        if self.known_revoked.contains(device) {
            return Err(vec![refused("device_revoked")]);
        }
        if let Some(refused) = self.spend(&device.member, call.route.bucket()) {
            return Err(vec![refused]);
        }
        if call.slip == Slip::Failing {
            let down = Answer::problem(503, "unavailable", json!({})).header("retry-after", "");
            if is_registered && !is_revoked {
                self.see(device, false);
            }
            return Err(vec![down]);
        }
        if is_revoked {
            // Revocation is final, so it may be remembered from here on.
            self.known_revoked.insert(device.clone());
            return Err(vec![refused("device_revoked")]);
        }
        let serves_anybody = matches!(call.route, Route::Register | Route::Limits);
        let is_active = self.is_active_member(&device.member);
        if is_registered {
            self.see(device, is_active);
        }
        let mut refusals = Vec::new();
        if !is_registered && !serves_anybody {
            refusals.push(refused("device_unregistered"));
        }
        if !is_active {
            refusals.push(refused("member_inactive"));
        }
        if refusals.is_empty() {
            Ok(())
        } else {
            Err(refusals)
        }
    }

    pub(super) fn see(&mut self, device: &Device, served: bool) {
        let now = self.now;
        self.seen
            .entry(device.clone())
            .or_default()
            .push((now, served));
    }

    /// Takes one request out of a member's bucket (protocol, section 6 and 429): a bucket of the
    /// burst's size, which fills at the rate.
    fn spend(&mut self, member: &str, bucket: &'static str) -> Option<Answer> {
        const ONE: u64 = 60_000;
        let (rate, burst) = self.settings.rates.of(bucket);
        let (rate, full) = (u64::from(rate), u64::from(burst) * ONE);
        let now = self.now;
        let allowance = self
            .allowances
            .entry((member.to_owned(), bucket))
            .or_insert((full, now));
        let passed = u64::try_from(now - allowance.1).expect("time goes on");
        let left = full.min(allowance.0 + passed * rate);
        *allowance = (left, now);
        if left >= ONE {
            allowance.0 -= ONE;
            return None;
        }
        let wait = (ONE - left).div_ceil(rate);
        Some(
            Answer::problem(
                429,
                "rate_limited",
                json!({"bucket": bucket, "retryAfterMs": wait}),
            )
            .header("retry-after", wait.div_ceil(1_000).to_string())
            .event(
                "ratelimit.hit",
                json!({"memberId": member, "bucket": bucket}),
            ),
        )
    }

    fn limits(&self) -> Vec<Answer> {
        let rate = |bucket| {
            let (rate, burst) = self.settings.rates.of(bucket);
            json!({"perMinute": rate, "burst": burst})
        };
        let signatures = if self.settings.signatures_required {
            "required"
        } else {
            "optional"
        };
        vec![Answer::ok(json!({
            "quotas": self.settings.quotas(),
            "rateLimits": {
                "push": rate("push"),
                "pull": rate("pull"),
                "blobs": rate("blobs"),
                "keys": rate("keys"),
            },
            "pages": {
                "maxLimit": 1_000,
                "defaultPullLimit": 500,
                "defaultListLimit": 1_000,
                "maxPullBytes": 4 * 1024 * 1024,
                "maxFiltered": 10_000,
            },
            "suites": ["x25519-ed25519"],
            "signatures": signatures,
            "maxWrapBytes": 4_096,
            "maxWraps": 20_000,
            "maxKeysBytes": 16 * 1024 * 1024,
            "maxBodyBytes": 64 * 1024,
            "maxLabelBytes": 1_024,
            "maxStreamsPerMember": maybe(),
        }))]
    }
}

/// What is wrong with a request as HTTP.
fn malformed(call: &Call) -> Vec<Answer> {
    let fault = match call.slip {
        Slip::None | Slip::NoCredential | Slip::Failing => None,
        Slip::Accept if call.route.is_blob() => None,
        Slip::Accept => Some(Answer::problem(406, "not_acceptable", json!({}))),
        Slip::ContentType => Some(Answer::problem(415, "unsupported_media_type", json!({}))),
        Slip::Parameter => Some(Answer::invalid("color")),
        Slip::Field | Slip::Twice | Slip::Cut | Slip::Trailing => Some(Answer::problem(
            400,
            "invalid_request",
            json!({"field": maybe()}),
        )),
    };
    fault.into_iter().collect()
}

/// What is wrong with a `limit`, if anything.
pub(super) fn limit_fault(call: &Call) -> Option<Answer> {
    let limit = call.param("limit")?;
    let legal = limit
        .parse::<u64>()
        .is_ok_and(|number| (1..=1_000).contains(&number));
    (!legal).then(|| Answer::invalid("limit"))
}

/// The limit of a list.
pub(super) fn limit(call: &Call, default: usize) -> usize {
    call.param("limit")
        .map_or(default, |limit| limit.parse().expect("checked before"))
}

/// A cursor is refused for this reason.
pub(super) fn cursor_fault(reason: &str) -> Answer {
    Answer::problem(410, "cursor_invalid", json!({"reason": reason}))
}

/// A field of a body, as a number.
pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().expect("a whole number")
}

/// A field of a body, as text.
pub(super) fn string(value: &Value) -> &str {
    value.as_str().expect("a text")
}
