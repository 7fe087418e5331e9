//! Devices with true keys before a true relay, and every answer kept.

use std::{cell::RefCell, io::Write as _, time::Duration};

use argala_client::crypto::{DeviceKeys, GraphKey, wrap};
use argala_http::{JwtConfig, JwtKey, mint};
use argala_wire::{
    StorageKey, Timestamp,
    codec::Format,
    devices::DeviceRef,
    keys::{GrantWrap, RotateWrap},
};
use serde::Serialize;

use super::planted::{Garden, Sort};
use crate::{
    http::{Answer, answer_to, header},
    process::Served,
};

/// What the host signs its tokens with.
pub(crate) const SECRET: &str = "the-hosts-own-secret-that-no-line-may-hold";

/// A device, its keys, and its token.
pub(crate) struct Actor {
    pub(crate) of: DeviceRef,
    pub(crate) keys: DeviceKeys,
    pub(crate) token: String,
}

impl Actor {
    pub(crate) fn new(garden: &mut Garden, member: &str, device: &str, now: Timestamp) -> Self {
        let of = DeviceRef {
            member_id: member.parse().unwrap(),
            device_id: device.parse().unwrap(),
        };
        let config = JwtConfig {
            keys: vec![JwtKey::Secret(SECRET.as_bytes().to_vec())],
            ..JwtConfig::default()
        };
        let token = mint(&config, &of, now, Duration::from_secs(36_000)).unwrap();
        let keys = DeviceKeys::generate();
        let (encryption, signing) = keys.to_secrets();
        let about = format!("of {member}/{device}");
        for (part, name) in token.split('.').zip(["head", "claims", "signature"]) {
            garden.plant(
                Sort::Nowhere,
                format!("token, {name}, {about}"),
                part.as_bytes(),
            );
        }
        garden.plant(
            Sort::Nowhere,
            format!("secret X25519 key {about}"),
            &encryption[..],
        );
        garden.plant(
            Sort::Nowhere,
            format!("secret Ed25519 key {about}"),
            &signing[..],
        );
        Self { of, keys, token }
    }

    /// The key of an epoch, sealed by this device for another.
    pub(crate) fn seal(
        &self,
        graph: &StorageKey,
        epoch: u64,
        key: &GraphKey,
        to: &Self,
    ) -> RotateWrap {
        let context = wrap::WrapContext {
            graph,
            epoch,
            to: &to.of,
            by: &self.of,
        };
        let sealed = wrap::seal(&context, key, &self.keys, &to.keys.public());
        RotateWrap {
            member_id: to.of.member_id.clone(),
            device_id: to.of.device_id.clone(),
            wrap: sealed.unwrap(),
        }
    }
}

pub(crate) fn granted(epoch: u64, wrap: RotateWrap) -> GrantWrap {
    GrantWrap {
        epoch,
        member_id: wrap.member_id,
        device_id: wrap.device_id,
        wrap: wrap.wrap,
    }
}

/// What was asked and answered.
pub(crate) struct Told {
    pub(crate) by: Option<DeviceRef>,
    pub(crate) asked: String,
    pub(crate) status: u16,
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// A relay, and all that it has said.
pub(crate) struct Stage {
    pub(crate) served: Served,
    pub(crate) told: RefCell<Vec<Told>>,
}

/// A request that is being put together.
pub(crate) struct Ask<'a> {
    stage: &'a Stage,
    by: Option<&'a Actor>,
    method: &'a str,
    path: String,
    headers: Vec<(&'a str, String)>,
    body: Vec<u8>,
}

impl Stage {
    /// The relay's own idea of the time, so that tokens are good and no clock of the test is asked.
    pub(crate) fn now(&self) -> Timestamp {
        let answer = self.served.admin.get("/healthz", &[]);
        let date = header(&answer.head, "date").expect("a date");
        httpdate(date).parse().unwrap()
    }

    pub(crate) fn ask<'a>(
        &'a self,
        by: impl Into<Option<&'a Actor>>,
        method: &'a str,
        path: &str,
    ) -> Ask<'a> {
        let by = by.into();
        let bearer = by.map(|by| ("authorization", format!("Bearer {}", by.token)));
        Ask {
            stage: self,
            by,
            method,
            path: path.to_owned(),
            headers: bearer.into_iter().collect(),
            body: Vec::new(),
        }
    }
}

impl<'a> Ask<'a> {
    pub(crate) fn header(mut self, name: &'a str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn bytes(mut self, media_type: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = bytes.into();
        self.header("content-type", media_type)
    }

    pub(crate) fn body<T: Serialize>(self, format: Format, body: &T) -> Self {
        let bytes = format.encode(body);
        self.bytes(format.media_type(), bytes)
    }

    /// Sends it and tells the status, which is one of these.
    #[track_caller]
    pub(crate) fn status_of(self, expected: &[u16]) -> u16 {
        self.send(|status| expected.contains(&status)).status
    }

    /// Sends it and keeps the answer, whatever it is.
    #[track_caller]
    pub(crate) fn answered(self) {
        self.send(|_| true);
    }

    /// Sends it, keeps the answer, and holds it to the status that is expected.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Answer {
        self.send(|it| it == status)
    }

    #[track_caller]
    fn send(self, is_expected: impl Fn(u16) -> bool) -> Answer {
        let length = self.body.len().to_string();
        let mut headers = vec![("connection", "close"), ("content-length", length.as_str())];
        headers.extend(
            self.headers
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        );
        let target = &self.stage.served.public;
        let mut stream = target.begin(self.method, &self.path, &headers);
        // One that is refused early may be cut off while it still sends.
        let _ = stream.write_all(&self.body);
        let answer = answer_to(self.method, stream).expect("an answer");
        let asked = format!("{} {}", self.method, self.path);
        let status = answer.status;
        assert!(
            is_expected(status),
            "{asked}: {status} {}",
            String::from_utf8_lossy(&answer.body)
        );
        self.stage.told.borrow_mut().push(Told {
            by: self.by.map(|by| by.of.clone()),
            asked,
            status,
            head: answer.head.clone().into_bytes(),
            body: answer.body.clone(),
        });
        answer
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` as RFC 3339.
fn httpdate(date: &str) -> String {
    let parts: Vec<&str> = date.split(' ').collect();
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = months.find(parts[2]).expect("a month") / 3 + 1;
    format!("{}-{month:02}-{}T{}.000Z", parts[3], parts[1], parts[4])
}
