//! The files of `docs/test-vectors/`, written by this code and compared with it.
//!
//! `ARGALA_WRITE_VECTORS=1 cargo test -p argala-wire --test it` writes them anew. A change of a
//! vector that is out in the world breaks every client there is: do that for new ones only.

use std::{fs, path::PathBuf};

use argala_wire::{
    DeviceId, GraphAddress, MemberId, RecordId, Sealed, StorageKey,
    devices::{DeviceKind, DeviceRef, RegisterRequest, Suite},
    signing,
};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

fn check(name: &str, vectors: &Value) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/test-vectors");
    let path = folder.join(name);
    let text = format!(
        "{}\n",
        serde_json::to_string_pretty(vectors).expect("writes")
    );
    if std::env::var_os("ARGALA_WRITE_VECTORS").is_some() {
        fs::write(&path, &text).expect("writes");
    }
    let file = fs::read_to_string(&path).expect("there is such a file");
    assert!(file == text, "{name} is not what this code writes");
}

fn member(text: &str) -> MemberId {
    MemberId::new(text).expect("legal")
}

fn text(bytes: &[u8]) -> String {
    Sealed::from(bytes).to_base64url()
}

/// The unreserved characters of RFC 3986 stay as they are.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

#[test]
fn storage_keys() {
    let cases = [
        ("sam", "g:acme"),
        ("sam", "d:alex"),
        ("alex", "d:sam"),
        ("alex", "d:alex"),
        ("user:7", "d:auth0|42"),
        ("auth0|42", "d:user:7"),
        ("a", "d:b:c"),
        ("a:b", "d:c"),
        ("50%", "d:50%"),
        ("%3A", "d::"),
        ("sam", "g:a:b/c 100% ?#é"),
        ("Sam", "d:sam"),
        ("é", "d:e\u{301}"),
        ("🦀", "d:🚲"),
    ];
    let cases = cases.map(|(caller, graph)| {
        let address: GraphAddress = graph.parse().expect("legal");
        let key = address.storage_key(&member(caller));
        let told = key.graph_id_for(&member(caller)).expect("its own");
        assert_eq!(told, address.to_id());
        json!({
            "caller": caller,
            "graphId": graph,
            "pathSegment": utf8_percent_encode(graph, SEGMENT).to_string(),
            "storageKey": key,
        })
    });
    let refused = [
        "", "g", "g:", "d:", "x:acme", "G:acme", "acme", "d: sam", "g:a\u{7}",
    ];
    for graph in refused {
        assert!(graph.parse::<GraphAddress>().is_err(), "{graph:?}");
    }
    let no_keys = [
        "d:b:a", "d:a", "d:a:b:c", "g:a:b", "g:a%3a", "g:50%", "g:", "h:a",
    ];
    for key in no_keys {
        assert!(key.parse::<StorageKey>().is_err(), "{key:?}");
    }
    check(
        "storage-keys.json",
        &json!({
            "about": "A graph as a caller addresses it, the same as one segment of a URL's path, and \
                the key under which the relay stores it, which is what devices sign.",
            "cases": cases,
            "graphIdsRefused": refused,
            "notStorageKeys": no_keys,
        }),
    );
}

struct Device {
    device: DeviceRef,
    kind: DeviceKind,
    encryption: [u8; 32],
    signing: SigningKey,
}

impl Device {
    fn new(member_id: &str, device: &str, kind: DeviceKind) -> Self {
        let secret = |what: &str| -> [u8; 32] {
            let seed = format!("argala test vector, published, {member_id}/{device}, {what}");
            Sha256::digest(seed).into()
        };
        Self {
            device: DeviceRef {
                member_id: member(member_id),
                device_id: DeviceId::new(device).expect("legal"),
            },
            kind,
            encryption: secret("encryption"),
            signing: SigningKey::from_bytes(&secret("signing")),
        }
    }

    fn sam() -> Self {
        Self::new("sam", "sam-laptop", DeviceKind::Device)
    }

    fn alex() -> Self {
        Self::new("alex", "alex-phone", DeviceKind::Device)
    }

    fn vector(&self) -> Value {
        let suite = Suite::X25519Ed25519;
        let encryption_key = x25519(self.encryption, X25519_BASEPOINT_BYTES);
        let signing_key = self.signing.verifying_key().to_bytes();
        let message = signing::device_proof(
            &self.device,
            self.kind,
            suite,
            &encryption_key,
            &signing_key,
        );
        let proof = self.signing.sign(&message).to_bytes();
        let body = RegisterRequest {
            suite,
            encryption_key: Sealed::from(&encryption_key[..]),
            signing_key: Sealed::from(&signing_key[..]),
            kind: self.kind,
            label: None,
            proof: Sealed::from(&proof[..]),
        };
        json!({
            "memberId": self.device.member_id,
            "deviceId": self.device.device_id,
            "encryptionSecretKey": text(&self.encryption),
            "signingSecretKey": text(self.signing.as_bytes()),
            "messageHex": hex::encode(&message),
            "body": body,
        })
    }
}

#[test]
fn devices() {
    let devices = [
        Device::sam(),
        Device::alex(),
        Device::new("sam", "sam-phone", DeviceKind::Device),
        Device::new("sam", "recovery-1", DeviceKind::Recovery),
        Device::new("auth0|42", "a/b:c", DeviceKind::Device),
    ];
    check(
        "devices.json",
        &json!({
            "about": "Devices with their secret keys, which are published here and good for \
                nothing but tests; the bytes that each signs as its proof, in hexadecimal; and \
                the body of POST /devices. Keys and signatures are base64url. An X25519 secret is \
                clamped before use (RFC 7748).",
            "devices": devices.map(|device| device.vector()),
        }),
    );
}

struct Record<'a> {
    graph: &'a str,
    epoch: u64,
    id: &'a str,
    deleted: bool,
    ciphertext: &'a [u8],
}

impl Record<'_> {
    fn message(&self) -> Vec<u8> {
        let graph: StorageKey = self.graph.parse().expect("legal");
        let id = RecordId::new(self.id).expect("legal");
        signing::record(&graph, self.epoch, &id, self.deleted, self.ciphertext)
    }

    fn vector(&self, device: &Device, signature: &[u8]) -> Value {
        json!({
            "by": device.device,
            "signingKey": text(device.signing.verifying_key().as_bytes()),
            "storageKey": self.graph,
            "epoch": self.epoch,
            "id": self.id,
            "deleted": self.deleted,
            "ciphertext": text(self.ciphertext),
            "messageHex": hex::encode(self.message()),
            "sig": text(signature),
        })
    }
}

fn is_good(key: &VerifyingKey, message: &[u8], signature: &[u8]) -> bool {
    let signature = Signature::from_slice(signature).expect("64 bytes");
    key.verify_strict(message, &signature).is_ok()
}

/// The order of Ed25519's group, little-endian.
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

/// The same signature with its scalar one group order higher: what a lax verifier takes too.
fn above_the_order(mut signature: [u8; 64]) -> [u8; 64] {
    let mut carry = 0;
    for (byte, order) in signature[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        *byte = u8::try_from(sum & 255).expect("masked");
        carry = sum >> 8;
    }
    assert_eq!(carry, 0);
    signature
}

#[test]
fn records() {
    let (sam, alex) = (Device::sam(), Device::alex());
    let records = [
        Record {
            graph: "g:acme",
            epoch: 1,
            id: "hello",
            deleted: false,
            ciphertext: b"opaque",
        },
        Record {
            graph: "d:alex:sam",
            epoch: 2,
            id: "a/b:c",
            deleted: false,
            ciphertext: &[0, 255, 128],
        },
        Record {
            graph: "d:auth0|42:user%3A7",
            epoch: 1,
            id: "é",
            deleted: false,
            ciphertext: b"x",
        },
        Record {
            graph: "g:acme",
            epoch: 1,
            id: "hello",
            deleted: true,
            ciphertext: b"",
        },
        Record {
            graph: "g:50%25",
            epoch: u64::MAX,
            id: "🦀",
            deleted: false,
            ciphertext: &[7; 300],
        },
    ];
    let mut cases = Vec::new();
    for (at, record) in records.iter().enumerate() {
        let device = if at % 2 == 0 { &sam } else { &alex };
        let message = record.message();
        let signature = device.signing.sign(&message).to_bytes();
        assert!(is_good(
            &device.signing.verifying_key(),
            &message,
            &signature
        ));
        cases.push(record.vector(device, &signature));
    }

    let record = &records[0];
    let message = record.message();
    let good = sam.signing.sign(&message).to_bytes();
    let mut bent = good;
    bent[0] ^= 1;
    let mut of_tombstone = records[3].vector(&sam, &good);
    of_tombstone["why"] = "the signature of the same id while it was no tombstone".into();
    assert!(!is_good(
        &sam.signing.verifying_key(),
        &records[3].message(),
        &good
    ));
    let mut refused = vec![of_tombstone];
    for (why, signature) in [
        ("a bit is flipped", bent),
        (
            "another device's signature",
            alex.signing.sign(&message).to_bytes(),
        ),
        (
            "the scalar is above the group's order",
            above_the_order(good),
        ),
        ("all zero", [0; 64]),
    ] {
        assert!(
            !is_good(&sam.signing.verifying_key(), &message, &signature),
            "{why}"
        );
        let mut vector = record.vector(&sam, &signature);
        vector["why"] = why.into();
        refused.push(vector);
    }
    // A point of small order as the key, under which one signature is good for any message where
    // the verifier does not look at the key.
    let mut small = Value::Null;
    let mut identity = [0; 32];
    identity[0] = 1;
    if let Ok(key) = VerifyingKey::from_bytes(&identity) {
        let mut signature = [0; 64];
        signature[0] = 1;
        assert!(!is_good(&key, &message, &signature));
        small = record.vector(&sam, &signature);
        small["signingKey"] = text(&identity).into();
        small["why"] = "the signing key is a point of small order".into();
    }
    refused.push(small);

    check(
        "records.json",
        &json!({
            "about": "What devices sign with a record: the bytes, in hexadecimal, and the \
                signature. Ciphertexts, keys and signatures are base64url; the devices are those \
                of devices.json. A verifier takes every one of `cases` and none of `refused`.",
            "cases": cases,
            "refused": refused,
        }),
    );
}
