//! Devices with real keys.

use argala_wire::{
    DeviceId, MemberId, Sealed, StorageKey,
    devices::{DeviceKind, DeviceRef, Suite},
    signing,
};
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};

use crate::http::{Answer, Target};

/// A device, and what it says of itself in every request.
pub(crate) struct TestDevice {
    pub(crate) of: DeviceRef,
    pub(crate) credential: String,
    key: SigningKey,
}

impl TestDevice {
    /// A device of the development server; its keys follow from its name.
    pub(crate) fn dev(member: &str, device: &str) -> Self {
        Self::with_credential(member, device, &format!("Dev {member}/{device}"))
    }

    pub(crate) fn with_credential(member: &str, device: &str, credential: &str) -> Self {
        let of = DeviceRef {
            member_id: MemberId::new(member).unwrap(),
            device_id: DeviceId::new(device).unwrap(),
        };
        let mut seed = [7; 32];
        for (byte, at) in member.bytes().chain(device.bytes()).zip(0..) {
            seed[at % 32] ^= byte;
        }
        Self {
            of,
            credential: credential.to_owned(),
            key: SigningKey::from_bytes(&seed),
        }
    }

    pub(crate) fn headers(&self) -> [(&str, &str); 1] {
        [("authorization", &self.credential)]
    }

    /// The body of `POST /devices`.
    pub(crate) fn registration(&self) -> Value {
        let signing_key = self.key.verifying_key().to_bytes();
        let encryption_key = [9; 32];
        let proof = signing::device_proof(
            &self.of,
            DeviceKind::Device,
            Suite::X25519Ed25519,
            &encryption_key,
            &signing_key,
        );
        json!({
            "encryptionKey": Sealed(encryption_key.to_vec()).to_base64url(),
            "signingKey": Sealed(signing_key.to_vec()).to_base64url(),
            "proof": Sealed(self.key.sign(&proof).to_bytes().to_vec()).to_base64url(),
        })
    }

    pub(crate) fn register(&self, target: &Target) -> Answer {
        target.post("/devices", &self.headers(), &self.registration())
    }

    /// Begins the first epoch of a graph for these devices.
    pub(crate) fn rotate(&self, target: &Target, graph: &str, devices: &[&Self]) -> Answer {
        let wraps: Vec<_> = devices
            .iter()
            .map(|device| {
                json!({
                    "memberId": device.of.member_id,
                    "deviceId": device.of.device_id,
                    "wrap": "d3JhcA",
                })
            })
            .collect();
        let body = json!({"epoch": 1, "wraps": wraps});
        target.post(&format!("/graphs/{graph}/rotate"), &self.headers(), &body)
    }

    /// A signed record of the first epoch.
    pub(crate) fn record(&self, graph: &StorageKey, id: &str, content: &[u8]) -> Value {
        let record = id.parse().unwrap();
        let signed = signing::record(graph, 1, &record, false, content);
        json!({
            "id": id,
            "epoch": 1,
            "ciphertext": Sealed(content.to_vec()).to_base64url(),
            "sig": Sealed(self.key.sign(&signed).to_bytes().to_vec()).to_base64url(),
        })
    }

    pub(crate) fn push(&self, target: &Target, graph: &str, records: &[Value]) -> Answer {
        let body = json!({"records": records});
        target.post(&format!("/graphs/{graph}/push"), &self.headers(), &body)
    }

    /// Every record of a graph.
    pub(crate) fn pull_all(&self, target: &Target, graph: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut query = String::new();
        loop {
            let answer = target.get(&format!("/graphs/{graph}/pull{query}"), &self.headers());
            let page = answer.ok();
            all.extend(page["records"].as_array().unwrap().iter().cloned());
            if page["more"] == false {
                return all;
            }
            query = format!("?cursor={}", page["cursor"].as_str().unwrap());
        }
    }
}
