//! Whole requests to a router: none is the relay's fault, and both forms are answered alike.

use argala_wire::{
    codec::Format,
    devices::RegisterRequest,
    keys::{GrantRequest, RotateRequest},
    records::PushRequest,
};
use http::{Method, header};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::relay::{Answer, BLOB, BLOB_PATH, GRAPH, Small, lend};

/// Cursors of every list and walk.
pub fn cursors(bytes: &[u8]) {
    let Some((which, cursor)) = bytes.split_first() else {
        return;
    };
    let lists = ["/pull", "/pull?epoch=1", "/devices", "/wraps"];
    let path = match which % 6 {
        0 => "/devices".to_owned(),
        1 => "/graphs".to_owned(),
        at => format!("{GRAPH}{}", lists[usize::from(at) - 2]),
    };
    let mark = if path.contains('?') { '&' } else { '?' };
    let cursor = percent_encode(cursor, NON_ALPHANUMERIC).to_string();
    // A path that is longer than what `Uri` holds reaches no relay.
    if cursor.len() > 60_000 {
        return;
    }
    let path = format!("{path}{mark}cursor={cursor}");
    let answer = lend(|relay| (relay.send(Method::GET, &path, &[], ""), true));
    let status = answer.status.as_u16();
    assert!([200, 400, 410].contains(&status), "{answer:?}");
}

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
fn post<T: Serialize + DeserializeOwned>(path: &str, format: Format, body: &[u8]) {
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
}

/// The routes that take a body.
pub fn requests(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else {
        return;
    };
    let format = match first & 0x80 {
        0 => Format::Json,
        _ => Format::Cbor,
    };
    // A body that is too large is refused before it is read.
    if body.len() > 60_000 {
        return;
    }
    match first & 0x7f {
        0 => post::<RegisterRequest>("/devices", format, body),
        1 => post::<RotateRequest>(&format!("{GRAPH}/rotate"), format, body),
        2 => post::<GrantRequest>(&format!("{GRAPH}/grant"), format, body),
        _ => post::<PushRequest>(&format!("{GRAPH}/push"), format, body),
    }
}

/// Headers that a fuzzer may set.
const NAMES: &[&str] = &[
    "accept",
    "content-digest",
    "content-encoding",
    "content-type",
    "idempotency-key",
    "if-none-match",
    "if-range",
    "range",
    "x-request-id",
];

/// Headers, one in a line, of a request for a blob, of a PUT of one, and of a push.
pub fn headers(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let split = |line: &'_ str| -> Option<(&'static str, String)> {
        let (name, value) = line.split_once(':')?;
        let name = NAMES.iter().find(|known| **known == name.trim())?;
        Some((name, value.trim().to_owned()))
    };
    let lines: Vec<_> = text.lines().take(8).filter_map(split).collect();
    let headers: Vec<(&str, &str)> = lines.iter().map(|(n, v)| (*n, v.as_str())).collect();
    lend(|relay| {
        with_headers(relay, &headers);
        // A push of nothing and a blob that is gone again leave nothing behind.
        let gone = relay.send(Method::DELETE, ANOTHER, &[], "").status.as_u16();
        ((), [204, 404].contains(&gone))
    });
}

/// A blob that is not there yet.
const ANOTHER: &str = "/graphs/d%3Asam/blobs/another-blob-of-ours";

fn with_headers(relay: &Small, headers: &[(&str, &str)]) {
    let got = relay.send(Method::GET, BLOB_PATH, headers, "");
    match got.status.as_u16() {
        200 => assert_eq!(&got.body[..], BLOB),
        206 => {
            let told = got.headers[header::CONTENT_RANGE].to_str().expect("ASCII");
            let span = told
                .strip_prefix("bytes ")
                .and_then(|told| told.split_once('/'));
            let (span, size) = span.expect("a range");
            let (first, last) = span.split_once('-').expect("a range");
            let number = |text: &str| -> usize { text.parse().expect("a number") };
            assert_eq!(number(size), BLOB.len());
            assert_eq!(&got.body[..], &BLOB[number(first)..=number(last)]);
        }
        status => assert!([304, 406, 416].contains(&status), "{got:?}"),
    }

    let length = ("content-length", "5");
    let put = [headers, &[length]].concat();
    let put = relay.send(Method::PUT, ANOTHER, &put, "bytes");
    let status = put.status.as_u16();
    assert!([201, 400, 406, 415].contains(&status), "{put:?}");
    // What was announced is what is there, or nothing is.
    let there = relay.send(Method::GET, ANOTHER, &[], "");
    assert_eq!(there.status == 200, status == 201, "{put:?}");

    let push = relay.send(
        Method::POST,
        &format!("{GRAPH}/push"),
        headers,
        r#"{"records":[]}"#,
    );
    let status = push.status.as_u16();
    assert!([200, 400, 406, 415].contains(&status), "{push:?}");
}
