//! Who and what there is in a case, by small numbers.

use argala_wire::Sealed;
use serde_json::{Value, json};

use super::call::Device;

/// Names that hosts may have, and that a relay must not take apart.
pub(super) const MEMBERS: [&str; 3] = ["alex", "auth0|kim", "sam:50%"];
const DEVICES: [&str; 3] = ["laptop", "phone/ü", "tab: 1"];
pub(super) const GROUPS: [&str; 2] = ["acme", "team:ü"];
/// What is asked for; the last three are of no graph that anybody may use.
pub(super) const ADDRESSES: [&str; 8] = [
    "g:acme",
    "g:team:ü",
    "d:alex",
    "d:auth0|kim",
    "d:sam:50%",
    "d:nobody",
    "g:nowhere",
    "x:acme",
];
const BLOBS: [&str; 5] = [
    "blob-0_0123456789",
    "Blob-1_0123456789",
    "-blob-2_01234567",
    "_blob-3_01234567",
    "short",
];
/// Bytes of what is pushed and put; past the small ceilings at the end.
pub(super) const SIZES: [usize; 8] = [12, 12, 1, 30, 55, 64, 65, 0];

pub(super) fn pick<T>(items: &[T], n: u8) -> Option<&T> {
    items.get(usize::from(n) % items.len().max(1))
}

/// Content number `n`, told apart by its bytes.
pub(super) fn content(n: u8, sizes: &[usize]) -> Vec<u8> {
    let size = sizes[usize::from(n) % sizes.len()];
    (0..size).map(|at| n.wrapping_mul(31) ^ at as u8).collect()
}

pub(super) fn base64url(bytes: Vec<u8>) -> Value {
    json!(Sealed(bytes))
}

/// What a record of this number may be called; the last ones are no ids (protocol, section 2).
pub(super) fn record_name(n: u8) -> String {
    let longest = "r".repeat(126) + "ü";
    match n {
        0 => "a/b|c@d: ..😀".to_owned(),
        1 => longest,
        2 => "..".to_owned(),
        3 => longest + "r",
        4 => String::new(),
        5 => " x".to_owned(),
        6 => "x\u{3000}".to_owned(),
        7 => "a\u{85}b".to_owned(),
        _ => "a\u{1f}b".to_owned(),
    }
}

/// Whether a text is an id as section 2 of the protocol wants it.
pub(super) fn is_id(text: &str) -> bool {
    (1..=128).contains(&text.len()) && !text.chars().any(char::is_control) && text.trim() == text
}

pub(super) fn every_device() -> Vec<Device> {
    let of = |device: &&str| MEMBERS.map(|member| Device::new(member, device)).to_vec();
    DEVICES.iter().flat_map(of).collect()
}

pub(super) fn blob_id(n: u8) -> String {
    BLOBS[usize::from(n) % BLOBS.len()].to_owned()
}

/// A text with one letter changed, in its middle: its last one may hold bits that mean nothing.
pub(super) fn mangled(text: &str, n: u8) -> String {
    let at = usize::from(n) % (text.len() - 1);
    let letter = if text.as_bytes()[at] == b'A' {
        'B'
    } else {
        'A'
    };
    format!("{}{letter}{}", &text[..at], &text[at + 1..])
}
