//! The bytes that devices sign (protocol, section 5).
//!
//! Each message is a domain string, raw, followed by fields; a field is its length as four bytes,
//! big-endian, and then its bytes. Vectors for clients in other languages are in
//! `docs/test-vectors/`.

use sha2::{Digest, Sha256};

use crate::{
    RecordId, StorageKey,
    devices::{DeviceKind, DeviceRef, Suite},
};

const DEVICE_DOMAIN: &[u8] = b"argala/device/v1";
const RECORD_DOMAIN: &[u8] = b"argala/record/v1";

fn field(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a field is far below 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// What a device signs to prove that it holds the keys it registers.
#[must_use]
pub fn device_proof(
    device: &DeviceRef,
    kind: DeviceKind,
    suite: Suite,
    encryption_key: &[u8],
    signing_key: &[u8],
) -> Vec<u8> {
    let mut out = DEVICE_DOMAIN.to_vec();
    field(&mut out, device.member_id.as_str().as_bytes());
    field(&mut out, device.device_id.as_str().as_bytes());
    field(&mut out, kind.as_str().as_bytes());
    field(&mut out, suite.as_str().as_bytes());
    field(&mut out, encryption_key);
    field(&mut out, signing_key);
    out
}

/// What a device signs with each record: the graph's storage key, the epoch, the record's id,
/// whether it is a tombstone, and the SHA-256 of its ciphertext.
#[must_use]
pub fn record(
    graph: &StorageKey,
    epoch: u64,
    id: &RecordId,
    deleted: bool,
    ciphertext: &[u8],
) -> Vec<u8> {
    let mut out = RECORD_DOMAIN.to_vec();
    field(&mut out, graph.as_str().as_bytes());
    field(&mut out, &epoch.to_be_bytes());
    field(&mut out, id.as_str().as_bytes());
    field(&mut out, &[u8::from(deleted)]);
    field(&mut out, &Sha256::digest(ciphertext));
    out
}
