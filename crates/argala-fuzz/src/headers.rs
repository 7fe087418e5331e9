//! Headers of a request for a blob, of a PUT of one, and of a push: what the relay makes of them is
//! what a second reading of the standards makes of them.

use argala_wire::{Code, Problem};
use http::{HeaderValue, Method, header};
use sha2::{Digest as _, Sha256};

use crate::{
    Verdict,
    digests::{Announced, announced},
    ranges::{Wanted, known, lines, wanted},
    relay::{Answer, BLOB, BLOB_PATH, GRAPH, Small, lend},
};

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

/// A blob that is not there yet, and what is put there.
const ANOTHER: &str = "/graphs/d%3Asam/blobs/another-blob-of-ours";
const BYTES: &[u8] = b"bytes";

type Headers<'a> = [(&'a str, &'a str)];

/// Headers, one in a line.
pub fn headers(bytes: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Verdict::Refused;
    };
    let split = |line: &'_ str| -> Option<(&'static str, String)> {
        let (name, value) = line.split_once(':')?;
        let name = NAMES.iter().find(|known| **known == name.trim())?;
        // What no header can carry never comes so far.
        HeaderValue::from_bytes(value.trim().as_bytes()).ok()?;
        Some((name, value.trim().to_owned()))
    };
    let lines: Vec<_> = text.lines().take(8).filter_map(split).collect();
    let headers: Vec<(&str, &str)> = lines.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let (got, put, pushed) = lend(|relay| {
        let statuses = (
            get(relay, &headers),
            put(relay, &headers),
            push(relay, &headers),
        );
        // A push of nothing and a blob that is gone again leave nothing behind.
        let gone = relay.send(Method::DELETE, ANOTHER, &[], "").status.as_u16();
        (statuses, [204, 404].contains(&gone))
    });
    // No body can be of the type of both.
    Verdict::of(got < 400 && (put < 400 || pushed < 400))
}

fn get(relay: &Small, headers: &Headers<'_>) -> u16 {
    let tag = format!("\"{}\"", digest(BLOB).to_base64url());
    let size = BLOB.len();
    let asked = |method: Method| relay.send(method, BLOB_PATH, headers, "");
    let told = |answer: &Answer, name: header::HeaderName| -> Option<String> {
        let value = answer.headers.get(name)?;
        Some(value.to_str().expect("ASCII").to_owned())
    };

    let got = asked(Method::GET);
    let is_known = known(headers, &tag).unwrap_or_else(|| {
        // A list that cannot be read may be looked over, or for the tags that are in it.
        let named = |line: &&str| line.contains(&tag) || line.contains('*');
        got.status == 304 && lines(headers, "if-none-match").iter().any(named)
    });
    let wanted = wanted(headers, size, &tag);
    let (status, range, body) = match wanted {
        _ if is_known => (304, None, &BLOB[..0]),
        Wanted::Whole => (200, None, BLOB),
        Wanted::Part(first, last) => {
            let range = format!("bytes {first}-{last}/{size}");
            (206, Some(range), &BLOB[first..=last])
        }
        Wanted::Outside => (416, Some(format!("bytes */{size}")), &BLOB[..0]),
    };
    assert_eq!(got.status.as_u16(), status, "{wanted:?}: {got:?}");
    assert_eq!(told(&got, header::CONTENT_RANGE), range);
    if status == 416 {
        assert_eq!(code(&got), Some(Code::RangeNotSatisfiable));
    } else {
        assert_eq!(&got.body[..], body);
        assert_eq!(told(&got, header::ETAG).as_ref(), Some(&tag));
        assert_eq!(told(&got, header::ACCEPT_RANGES).as_deref(), Some("bytes"));
        if status != 304 {
            let length = body.len().to_string();
            assert_eq!(told(&got, header::CONTENT_LENGTH), Some(length));
        }
    }

    // HEAD knows no ranges: they are for GET alone (RFC 9110, section 14.2).
    let head = asked(Method::HEAD);
    assert_eq!(head.status.as_u16(), if is_known { 304 } else { 200 });
    assert_eq!(told(&head, header::CONTENT_RANGE), None);
    assert_eq!(told(&head, header::ETAG), Some(tag));
    assert!(head.body.is_empty());
    if !is_known {
        let length = size.to_string();
        assert_eq!(told(&head, header::CONTENT_LENGTH), Some(length));
    }
    status
}

fn put(relay: &Small, headers: &Headers<'_>) -> u16 {
    let length = ("content-length", "5");
    let put = relay.send(Method::PUT, ANOTHER, &[headers, &[length]].concat(), BYTES);
    let status = put.status.as_u16();
    let announced = announced(headers);
    let malformed = put.problem().is_some_and(|problem: Problem| {
        problem.code == Code::InvalidRequest && problem.field.as_deref() == Some("Content-Digest")
    });
    let ours = digest(BYTES);
    let as_announced = match announced {
        Announced::Nothing => status == 201,
        Announced::Sha256(digest) if digest == *ours.as_slice() => status == 201,
        Announced::Sha256(_) => code(&put) == Some(Code::DigestMismatch),
        Announced::NoSha256 | Announced::NoDictionary => malformed,
    };
    if is_octets(headers) {
        assert!(as_announced, "{announced:?}: {put:?}");
    } else {
        // Of two faults either is told.
        let fault = as_announced && status != 201;
        assert!(fault || status == 415, "{announced:?}: {put:?}");
    }

    // What was announced is what is there, or nothing is.
    let there = relay.send(Method::GET, ANOTHER, &[], "");
    match status {
        201 => assert_eq!((there.status.as_u16(), &there.body[..]), (200, BYTES)),
        _ => assert_eq!(there.status, 404, "{put:?}"),
    }
    status
}

/// Whether a body with these headers is of the type of a blob, and comes as it is.
fn is_octets(headers: &Headers<'_>) -> bool {
    let coded = lines(headers, "content-encoding")
        .iter()
        .any(|coding| !coding.eq_ignore_ascii_case("identity"));
    let octets = match lines(headers, "content-type")[..] {
        [] => true,
        [one] => {
            let essence = one.split(';').next().unwrap_or_default().trim();
            one.is_ascii() && essence.eq_ignore_ascii_case("application/octet-stream")
        }
        _ => false,
    };
    octets && !coded
}

fn push(relay: &Small, headers: &Headers<'_>) -> u16 {
    let path = format!("{GRAPH}/push");
    let push = relay.send(Method::POST, &path, headers, r#"{"records":[]}"#);
    let status = push.status.as_u16();
    let sent = |names: &[&str]| names.iter().any(|name| !lines(headers, name).is_empty());
    // Each is refused for what it says, and for nothing else.
    let why = match status {
        200 => true,
        // `{"records":[]}` is no CBOR.
        400 => sent(&["idempotency-key", "content-type"]),
        406 => sent(&["accept"]),
        415 => sent(&["content-type", "content-encoding"]),
        _ => false,
    };
    assert!(why, "{push:?}");
    status
}

fn digest(bytes: &[u8]) -> argala_wire::Sealed {
    argala_wire::Sealed(Sha256::digest(bytes).to_vec())
}

fn code(answer: &Answer) -> Option<Code> {
    answer.problem().map(|problem| problem.code)
}
