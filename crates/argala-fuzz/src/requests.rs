//! Whole requests to a router: none is the relay's fault, and both forms are answered alike.

use argala_wire::{
    codec::Format,
    devices::RegisterRequest,
    keys::{GrantRequest, RotateRequest},
    records::PushRequest,
};
use http::{Method, header};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Verdict,
    relay::{Answer, GRAPH, lend},
};

/// The answer as a value that no form has a part in.
fn told(answer: &Answer) -> (u16, Option<Value>) {
    let cbor = answer
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == argala_wire::CBOR);
    let value = match cbor {
        // Bytes are byte strings here, and told apart below.
        true => None,
        false => serde_json::from_slice(&answer.body).ok(),
    };
    (answer.status.as_u16(), value)
}

/// Sends the body as it came; where it can be read, the same in both forms to relays of their own.
fn post<T: Serialize + DeserializeOwned>(path: &str, format: Format, body: &[u8]) -> Verdict {
    let ask = |format: Format, body: &[u8]| {
        let headers = [
            ("content-type", format.media_type()),
            ("accept", argala_wire::JSON),
        ];
        let (answer, pull) = lend(|relay| {
            let pull = || relay.send(Method::GET, &format!("{GRAPH}/pull"), &[], "");
            let before = pull();
            let answer = relay.send(Method::POST, path, &headers, body.to_vec());
            // Whatever it was, the relay goes on; and where it was refused, nothing was done.
            let after = pull();
            assert_eq!(after.status, 200, "{after:?}");
            let refused = answer.status.as_u16() >= 400;
            if refused {
                assert_eq!(
                    told(&before),
                    told(&after),
                    "a refused request has done something"
                );
            }
            ((answer, after), refused)
        });
        (told(&answer), told(&pull))
    };
    let first = ask(format, body);
    if let Ok(value) = format.decode::<T>(body) {
        let other = match format {
            Format::Json => Format::Cbor,
            Format::Cbor => Format::Json,
        };
        let again = ask(other, &other.encode(&value));
        assert_eq!(first, again, "the forms are answered differently");
    } else {
        assert_eq!(first.0.0, 400, "{first:?}");
    }
    Verdict::of(first.0.0 < 300)
}

/// The routes that take a body.
pub fn requests(bytes: &[u8]) -> Verdict {
    let Some((first, body)) = bytes.split_first() else {
        return Verdict::Refused;
    };
    let format = match first & 0x80 {
        0 => Format::Json,
        _ => Format::Cbor,
    };
    // A body that is too large is refused before it is read.
    if body.len() > 60_000 {
        return Verdict::Refused;
    }
    match first & 0x7f {
        0 => post::<RegisterRequest>("/devices", format, body),
        1 => post::<RotateRequest>(&format!("{GRAPH}/rotate"), format, body),
        2 => post::<GrantRequest>(&format!("{GRAPH}/grant"), format, body),
        _ => post::<PushRequest>(&format!("{GRAPH}/push"), format, body),
    }
}
