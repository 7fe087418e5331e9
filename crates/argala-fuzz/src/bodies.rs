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

use crate::{
    Verdict,
    shapes::{self, Reader, Shape, Tree},
};

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

fn request<T: Serialize + DeserializeOwned>(format: Format, body: &[u8]) -> Verdict {
    match format.decode::<T>(body) {
        Ok(value) => {
            both_ways(&value);
            // Strict on what follows, in what was read and in what is written.
            for format in [Format::Json, Format::Cbor] {
                let mut longer = format.encode(&value);
                longer.push(b'0');
                assert!(format.decode::<T>(&longer).is_err(), "a tail is taken");
            }
            Verdict::Taken
        }
        Err(fault) => {
            // It tells where, by names of our own and numbers, and never what stood there.
            let field = fault.field.unwrap_or_default();
            let ours = |c: char| c.is_ascii_alphanumeric() || "._-[]".contains(c);
            assert!(field.chars().all(ours), "{field:?}");
            assert!(!fault.detail.is_empty());
            Verdict::Refused
        }
    }
}

/// What a relay is sent.
pub fn bodies(bytes: &[u8]) -> Verdict {
    let Some((which, format, body)) = split(bytes) else {
        return Verdict::Refused;
    };
    match which % 4 {
        0 => request::<RegisterRequest>(format, body),
        1 => request::<RotateRequest>(format, body),
        2 => request::<GrantRequest>(format, body),
        _ => request::<PushRequest>(format, body),
    }
}

/// An answer: whatever the second reading finds legal is taken for what that says, and what is
/// taken, legal or not, is written as one that is.
fn answer<T: Serialize + DeserializeOwned>(format: Format, body: &[u8], shape: Shape) -> Verdict {
    let read = |format: Format, body: &[u8], is_ours: bool| {
        let reader = Reader { format, is_ours };
        Tree::of(format, body).map(|tree| reader.read(shape, &tree))
    };
    let legal = read(format, body, false).flatten();
    let Ok(value) = format.decode_answer::<T>(body) else {
        assert_eq!(legal, None, "refused, and legal");
        return Verdict::Refused;
    };
    both_ways(&value);
    for format in [Format::Json, Format::Cbor] {
        if let Some(written) = read(format, &format.encode(&value), true) {
            assert!(written.is_some(), "taken, and not written as it should be");
            if legal.is_some() {
                assert_eq!(written, legal, "read as something else");
            }
        }
    }
    Verdict::Taken
}

/// What a client is answered.
pub fn answers(bytes: &[u8]) -> Verdict {
    let Some((which, format, body)) = split(bytes) else {
        return Verdict::Refused;
    };
    match which % 14 {
        0 => answer::<RegisterResponse>(format, body, shapes::REGISTER),
        1 => answer::<DevicesResponse>(format, body, shapes::DEVICES),
        2 => answer::<RevokeResponse>(format, body, shapes::REVOKE),
        3 => answer::<GraphsResponse>(format, body, shapes::GRAPHS),
        4 => answer::<GraphResponse>(format, body, shapes::GRAPH),
        5 => answer::<WrapsResponse>(format, body, shapes::WRAPS),
        6 => answer::<RotateResponse>(format, body, shapes::ROTATE),
        7 => answer::<GrantResponse>(format, body, shapes::GRANT),
        8 => answer::<PushResponse>(format, body, shapes::PUSH),
        9 => answer::<PullResponse>(format, body, shapes::PULL),
        10 => answer::<BlobResponse>(format, body, shapes::BLOB),
        11 => answer::<LimitsResponse>(format, body, shapes::LIMITS),
        12 => answer::<Problem>(format, body, shapes::PROBLEM),
        _ => answer::<PokeMessage>(format, body, Shape::Poke),
    }
}
