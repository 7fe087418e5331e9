//! Media types: what a caller accepts, and what a body is.

use argala_wire::{CBOR, JSON, OCTET_STREAM, PROBLEM_JSON, codec::Format};
use axum::{
    extract::FromRequestParts,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use serde::Serialize;

use crate::{
    Api,
    error::{ApiError, Refusal},
};

/// What a caller thinks of each form that an answer can have: a weight of RFC 9110, section
/// 12.5.1, in thousandths; 0 where the form is not acceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepts {
    json: u16,
    cbor: u16,
    problem_json: u16,
}

impl Accepts {
    /// What the `Accept` headers say; all is welcome where there are none.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut ranges = Vec::new();
        for value in headers.get_all(header::ACCEPT) {
            let Ok(value) = value.to_str() else { continue };
            ranges.extend(value.split(',').filter(|part| !part.trim().is_empty()));
        }
        if ranges.is_empty() {
            return Self {
                json: 1_000,
                cbor: 1_000,
                problem_json: 1_000,
            };
        }
        let ranges: Vec<_> = ranges.into_iter().filter_map(MediaRange::parse).collect();
        let weight = |media_type| {
            let of = |range: &MediaRange<'_>| range.specificity(media_type).map(|s| (s, range.q));
            // The most specific range decides, and of two as specific the kinder one.
            ranges.iter().filter_map(of).max().map_or(0, |(_, q)| q)
        };
        Self {
            json: weight(JSON),
            cbor: weight(CBOR),
            problem_json: weight(PROBLEM_JSON),
        }
    }

    /// The form of an answer; JSON where both are as welcome, `None` where neither is.
    fn answer(self) -> Option<Format> {
        match (self.json, self.cbor) {
            (0, 0) => None,
            (json, cbor) if cbor > json => Some(Format::Cbor),
            _ => Some(Format::Json),
        }
    }

    /// The form of a problem, which is told even to callers who accept neither.
    pub(crate) fn problem(self) -> Format {
        if self.cbor > self.json.max(self.problem_json) {
            Format::Cbor
        } else {
            Format::Json
        }
    }
}

/// One element of an `Accept` header.
struct MediaRange<'a> {
    kind: &'a str,
    subtype: &'a str,
    q: u16,
}

impl<'a> MediaRange<'a> {
    /// Parameters other than the weight are looked over: our types have none that matter.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let mut q = 1_000;
        for parameter in parts {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if name.trim().eq_ignore_ascii_case("q") {
                q = weight(value.trim())?;
            }
        }
        Some(Self { kind, subtype, q })
    }

    /// How closely the range names `media_type`; `None` where it does not cover it.
    fn specificity(&self, media_type: &str) -> Option<u8> {
        let (kind, subtype) = media_type.split_once('/')?;
        if self.kind == "*" {
            return (self.subtype == "*").then_some(0);
        }
        if !self.kind.eq_ignore_ascii_case(kind) {
            return None;
        }
        if self.subtype == "*" {
            return Some(1);
        }
        self.subtype.eq_ignore_ascii_case(subtype).then_some(2)
    }
}

/// A weight, in thousandths: 0 to 1 with at most three decimals.
fn weight(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let legal = decimals.len() <= 3 && decimals.bytes().all(|b| b.is_ascii_digit());
    let whole = match whole {
        "0" => 0,
        "1" => 1_000,
        _ => return None,
    };
    let thousandths = format!("{decimals:0<3}")
        .parse::<u16>()
        .ok()
        .filter(|_| legal)?;
    Some(whole + thousandths).filter(|q| *q <= 1_000)
}

/// The form that a route's answer takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accept(pub(crate) Format);

impl FromRequestParts<Api> for Accept {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self, ApiError> {
        let accepts = Accepts::of(&parts.headers);
        accepts
            .answer()
            .map(Self)
            .ok_or_else(|| Refusal::NotAcceptable.into())
    }
}

impl Accept {
    /// A 200 with this body.
    pub(crate) fn ok<T: Serialize>(self, body: &T) -> Response {
        self.answer(StatusCode::OK, body)
    }

    /// An answer with this body, which nobody may store.
    pub(crate) fn answer<T: Serialize>(self, status: StatusCode, body: &T) -> Response {
        let headers = [
            (
                header::CONTENT_TYPE,
                HeaderValue::from_static(self.0.media_type()),
            ),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
            (header::VARY, HeaderValue::from_static("accept")),
        ];
        (status, headers, self.0.encode(body)).into_response()
    }
}

/// The form of a body, by its `Content-Type`; JSON where there is none.
pub(super) fn body_format(headers: &HeaderMap) -> Result<Format, ApiError> {
    let takes = "application/json and application/cbor";
    let unsupported = || ApiError::from(Refusal::UnsupportedMediaType { takes });
    match content_type(headers, takes)? {
        None => Ok(Format::Json),
        Some(essence) if essence.eq_ignore_ascii_case(JSON) => Ok(Format::Json),
        Some(essence) if essence.eq_ignore_ascii_case(CBOR) => Ok(Format::Cbor),
        Some(_) => Err(unsupported()),
    }
}

/// Refuses a body that says it is anything but bytes.
pub(crate) fn require_octets(headers: &HeaderMap) -> Result<(), ApiError> {
    match content_type(headers, OCTET_STREAM)? {
        None => Ok(()),
        Some(essence) if essence.eq_ignore_ascii_case(OCTET_STREAM) => Ok(()),
        Some(_) => Err(Refusal::UnsupportedMediaType {
            takes: OCTET_STREAM,
        }
        .into()),
    }
}

/// What `Content-Type` says, parameters left out. A coding over it (gzip, say) is refused: what
/// limits and digests speak of are the bytes as they come.
fn content_type<'a>(
    headers: &'a HeaderMap,
    takes: &'static str,
) -> Result<Option<&'a str>, ApiError> {
    let unsupported = || ApiError::from(Refusal::UnsupportedMediaType { takes });
    let encodings = headers.get_all(header::CONTENT_ENCODING);
    if encodings
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(unsupported());
    }
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let value = value.to_str().map_err(|_| unsupported())?;
    if values.next().is_some() {
        return Err(unsupported());
    }
    Ok(Some(value.split(';').next().unwrap_or_default().trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &header::HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, value.parse().expect("a header's value"));
        }
        headers
    }

    fn accepts(values: &[&str]) -> Accepts {
        Accepts::of(&headers(&header::ACCEPT, values))
    }

    #[test]
    fn the_answer_takes_the_form_that_is_most_welcome() {
        let (json, cbor) = (Some(Format::Json), Some(Format::Cbor));
        for (values, want) in [
            (&[][..], json),
            (&[""][..], json),
            (&["*/*"][..], json),
            (&["application/*"][..], json),
            (&["application/cbor"][..], cbor),
            (&["Application/CBOR"][..], cbor),
            (&["application/json, application/cbor"][..], json),
            (
                &["application/json;q=0.5, application/cbor;q=0.501"][..],
                cbor,
            ),
            (&["application/json;q=0.5", "application/cbor"][..], cbor),
            (&["*/*;q=0.1, application/cbor"][..], cbor),
            (&["*/*, application/json;q=0"][..], cbor),
            (&["application/*;q=0, application/json; Q=0.3"][..], json),
            (&["application/json;charset=utf-8"][..], json),
            (&["text/html"][..], None),
            (&["application/problem+json"][..], None),
            (&["application/json;q=0"][..], None),
            (&["*/*;q=0"][..], None),
            (&["garbage"][..], None),
            (&["application/json;q=7"][..], None),
            (&["*/json"][..], None),
        ] {
            assert_eq!(accepts(values).answer(), want, "{values:?}");
        }
    }

    #[test]
    fn a_problem_is_told_to_everybody() {
        for (value, want) in [
            ("application/cbor", Format::Cbor),
            ("text/html", Format::Json),
            ("application/octet-stream", Format::Json),
            (
                "application/cbor;q=0.9, application/problem+json",
                Format::Json,
            ),
            ("application/cbor, application/json;q=0.9", Format::Cbor),
            ("*/*", Format::Json),
        ] {
            assert_eq!(accepts(&[value]).problem(), want, "{value}");
        }
    }

    #[test]
    fn weights_are_those_of_the_standard() {
        for (text, want) in [
            ("0", Some(0)),
            ("1", Some(1_000)),
            ("1.000", Some(1_000)),
            ("0.25", Some(250)),
            ("0.", Some(0)),
            ("1.001", None),
            ("0.1234", None),
            (".5", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(weight(text), want, "{text:?}");
        }
    }

    #[test]
    fn a_body_is_what_it_says() {
        let of = |values: &[&str]| body_format(&headers(&header::CONTENT_TYPE, values)).ok();
        assert_eq!(of(&[]), Some(Format::Json));
        assert_eq!(of(&["application/json; charset=utf-8"]), Some(Format::Json));
        assert_eq!(of(&["application/CBOR"]), Some(Format::Cbor));
        for values in [
            &["text/plain"][..],
            &[""][..],
            &["application/json", "application/cbor"][..],
        ] {
            assert_eq!(of(values), None, "{values:?}");
        }
        let mut zipped = headers(&header::CONTENT_TYPE, &[JSON]);
        zipped.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(body_format(&zipped).is_err());
        assert!(require_octets(&headers(&header::CONTENT_TYPE, &[OCTET_STREAM])).is_ok());
        assert!(require_octets(&headers(&header::CONTENT_TYPE, &[JSON])).is_err());
    }
}
