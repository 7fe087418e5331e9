//! Bodies in both forms: what is read in one is read the same in the other.

use argala_wire::{
    Problem,
    blobs::BlobResponse,
    codec::Format,
    devices::{DevicesResponse, RegisterRequest, RegisterResponse, RevokeResponse},
    graphs::{GraphResponse, GraphsResponse},
    keys::{GrantRequest, GrantResponse, RotateRequest, RotateResponse, WrapsResponse},
    limits::LimitsResponse,
    pokes::PokeMessage,
    records::{PullResponse, PushRequest, PushResponse},
};
use serde::{Serialize, de::DeserializeOwned};

/// The form and the body that the first byte and the rest stand for.
fn split(bytes: &[u8]) -> Option<(u8, Format, &[u8])> {
    let (first, body) = bytes.split_first()?;
    let format = match first & 0x80 {
        0 => Format::Json,
        _ => Format::Cbor,
    };
    Some((first & 0x7f, format, body))
}

/// Written in either form it reads as what it was.
fn both_ways<T: Serialize + DeserializeOwned>(value: &T) {
    let json = Format::Json.encode(value);
    for format in [Format::Json, Format::Cbor] {
        let read: T = format
            .decode_answer(&format.encode(value))
            .expect("reads what it wrote");
        assert!(
            Format::Json.encode(&read) == json,
            "another value came back"
        );
    }
}

fn request<T: Serialize + DeserializeOwned>(format: Format, body: &[u8]) {
    match format.decode::<T>(body) {
        Ok(value) => {
            both_ways(&value);
            // Strict on what follows, in what was read and in what is written.
            for format in [Format::Json, Format::Cbor] {
                let mut longer = format.encode(&value);
                longer.push(b'0');
                assert!(format.decode::<T>(&longer).is_err(), "a tail is taken");
            }
        }
        Err(fault) => {
            // It tells where, by names of our own and numbers, and never what stood there.
            let field = fault.field.unwrap_or_default();
            let ours = |c: char| c.is_ascii_alphanumeric() || "._-[]".contains(c);
            assert!(field.chars().all(ours), "{field:?}");
            assert!(!fault.detail.is_empty());
        }
    }
}

/// What a relay is sent.
pub fn bodies(bytes: &[u8]) {
    let Some((which, format, body)) = split(bytes) else {
        return;
    };
    match which % 4 {
        0 => request::<RegisterRequest>(format, body),
        1 => request::<RotateRequest>(format, body),
        2 => request::<GrantRequest>(format, body),
        _ => request::<PushRequest>(format, body),
    }
}

fn answer<T: Serialize + DeserializeOwned>(format: Format, body: &[u8]) {
    if let Ok(value) = format.decode_answer::<T>(body) {
        both_ways(&value);
    }
}

/// What a client is answered.
pub fn answers(bytes: &[u8]) {
    let Some((which, format, body)) = split(bytes) else {
        return;
    };
    match which % 13 {
        0 => answer::<RegisterResponse>(format, body),
        1 => answer::<DevicesResponse>(format, body),
        2 => answer::<RevokeResponse>(format, body),
        3 => answer::<GraphsResponse>(format, body),
        4 => answer::<GraphResponse>(format, body),
        5 => answer::<WrapsResponse>(format, body),
        6 => answer::<RotateResponse>(format, body),
        7 => answer::<GrantResponse>(format, body),
        8 => answer::<PushResponse>(format, body),
        9 => answer::<PullResponse>(format, body),
        10 => answer::<BlobResponse>(format, body),
        11 => answer::<LimitsResponse>(format, body),
        _ => {
            answer::<Problem>(format, body);
            answer::<PokeMessage>(format, body);
        }
    }
}
