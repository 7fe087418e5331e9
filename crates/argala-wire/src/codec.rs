//! Reading and writing bodies: JSON and CBOR, strict on what a relay is sent.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, DeserializeOwned, value::MapAccessDeserializer},
};

/// The two forms a body may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `application/json`.
    #[default]
    Json,
    /// `application/cbor`.
    Cbor,
}

impl Format {
    /// The media type of this form.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => crate::JSON,
            Self::Cbor => crate::CBOR,
        }
    }

    /// Writes `value` in this form.
    ///
    /// # Panics
    /// Where `value` cannot be written, which none of this crate's types does.
    #[must_use]
    pub fn encode<T: Serialize>(self, value: &T) -> Vec<u8> {
        match self {
            Self::Json => serde_json::to_vec(value).expect("our own types have a JSON form"),
            Self::Cbor => {
                let mut out = Vec::with_capacity(256);
                ciborium::into_writer(value, &mut out).expect("our own types have a CBOR form");
                out
            }
        }
    }

    /// Reads a request's body: one map, its fields known and given once, nothing after it.
    ///
    /// # Errors
    /// [`DecodeError`] with the path of what is at fault.
    pub fn decode<T: DeserializeOwned>(self, body: &[u8]) -> Result<T, DecodeError> {
        let (value, rest) = self.read(body)?;
        if rest.is_empty() {
            Ok(value)
        } else {
            Err(DecodeError::TRAILING)
        }
    }

    /// Reads an answer. Unlike [`decode`](Self::decode) it takes no offence at what follows, and
    /// the types of answers ignore fields they do not know: a relay may grow.
    ///
    /// # Errors
    /// [`DecodeError`] with the path of what is at fault.
    pub fn decode_answer<T: DeserializeOwned>(self, body: &[u8]) -> Result<T, DecodeError> {
        self.read(body).map(|(value, _)| value)
    }

    /// Reads one value and tells what follows it, white space of JSON left out.
    fn read<T: DeserializeOwned>(self, body: &[u8]) -> Result<(T, &[u8]), DecodeError> {
        match self {
            Self::Json => {
                let mut values =
                    serde_json::Deserializer::from_slice(body).into_iter::<Tracked<T>>();
                let value = values.next().ok_or(DecodeError::NOT_A_MAP)?;
                let value = value.map_err(|_| DecodeError::NOT_A_MAP)?.0?;
                let rest = body[values.byte_offset()..].trim_ascii_start();
                Ok((value, rest))
            }
            Self::Cbor => {
                let mut rest = body;
                let value: Tracked<T> =
                    ciborium::de::from_reader_with_recursion_limit(&mut rest, CBOR_DEPTH)
                        .map_err(|_| DecodeError::NOT_A_MAP)?;
                Ok((value.0?, rest))
            }
        }
    }
}

/// How deep the maps and lists of a CBOR body may lie in each other; ours lie four deep.
const CBOR_DEPTH: usize = 16;

/// A body that is not what the route takes.
///
/// Tells where, and never what stood there: a body may hold what must not be logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DecodeError {
    /// The path of the field at fault (`records[3].ciphertext`); `None` where it is the body.
    pub field: Option<String>,
    /// What is wrong, without the body's content.
    pub detail: &'static str,
}

impl DecodeError {
    const NOT_A_MAP: Self = Self {
        field: None,
        detail: "the body is not the map that the route takes",
    };
    const TRAILING: Self = Self {
        field: None,
        detail: "something follows the body's value",
    };

    /// The fault that `error`, a reader's message, tells of at `path`. A reader that misses a
    /// field, or meets it twice, stands at the map and has the field's name in its message.
    fn at(path: &str, error: &str) -> Self {
        let named = |mark: &str| {
            let (_, rest) = error.split_once(mark)?;
            let (name, _) = rest.split_once('`')?;
            Some(if path == "." {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            })
        };
        let (path, detail) = if let Some(path) = named("missing field `") {
            (path, "the field is missing")
        } else if let Some(path) = named("duplicate field `") {
            (path, "the field is given twice")
        } else if error.contains("unknown field `") {
            (path.to_owned(), "the field is unknown")
        } else if path == "." {
            return Self::NOT_A_MAP;
        } else {
            (path.to_owned(), "the field is malformed")
        };
        if speakable(&path) {
            Self {
                field: Some(path),
                detail,
            }
        } else {
            Self {
                field: None,
                detail: "a field of the body is unknown or malformed",
            }
        }
    }
}

/// Whether the path of a field, or the name of a parameter, may be repeated to whoever sent it. It
/// is where its names could be ours: a client's mistake may put anything into a key.
#[must_use]
pub fn speakable(path: &str) -> bool {
    path.len() <= 128
        && path
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'[' | b']' | b'_'))
}

/// What was read, or where reading failed. A value of its own, because of our two readers one
/// cannot be had apart from the call that reads.
struct Tracked<T>(Result<T, DecodeError>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Tracked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        Ok(Self(match Object::<T>::deserialize(tracked) {
            Ok(object) => Ok(object.0),
            Err(error) => Err(DecodeError::at(
                &track.path().to_string(),
                &error.to_string(),
            )),
        }))
    }
}

/// Takes a map and nothing else. What serde derives for a struct takes a list as well, which would
/// give every body a second, undocumented form.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Visitor(std::marker::PhantomData))
    }
}

/// Reads a list of maps; see [`Object`].
pub(crate) fn objects<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let objects: Vec<Object<T>> = Vec::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|object| object.0).collect())
}

/// Reads an optional field that has a default; `null` is the same as leaving it out.
pub(crate) fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        RecordId, Sealed,
        devices::RegisterRequest,
        keys::RotateRequest,
        records::{PushReason, PushRecord, PushRequest, PushResult},
    };

    fn push(body: &str) -> Result<PushRequest, DecodeError> {
        Format::Json.decode(body.as_bytes())
    }

    fn field(body: &str) -> Option<String> {
        push(body).expect_err("malformed").field
    }

    #[test]
    fn one_map_and_nothing_after_it() {
        assert!(push(r#" {"records": []} "#).is_ok());
        for body in [
            "",
            "[]",
            "[[]]",
            "null",
            "{}",
            "1",
            r#"{"records":[]} x"#,
            r#"{"records":[]}{}"#,
            "{\"records\":[]",
        ] {
            assert!(push(body).is_err(), "{body}");
        }
    }

    #[test]
    fn a_record_has_one_form() {
        assert!(push(r#"{"records":[["a",1,"AAAA"]]}"#).is_err());
        let suite =
            r#"{"suite":{"x25519-ed25519":null},"encryptionKey":"","signingKey":"","proof":""}"#;
        assert!(
            Format::Json
                .decode::<RegisterRequest>(suite.as_bytes())
                .is_err()
        );
    }

    #[test]
    fn null_is_the_same_as_nothing_where_a_field_is_optional() {
        let record =
            r#"{"id":"a","epoch":1,"ciphertext":"AA","sig":null,"deleted":null,"expect":null}"#;
        let body = format!(r#"{{"records":[{record}],"ifHead":null,"atomic":null}}"#);
        let read = push(&body).expect("well formed");
        assert!(!read.atomic && !read.records[0].deleted);
        assert!(push(r#"{"records":null}"#).is_err());
        let body = r#"{"suite":null,"kind":null,"label":null,"encryptionKey":"","signingKey":"","proof":""}"#;
        assert!(
            Format::Json
                .decode::<RegisterRequest>(body.as_bytes())
                .is_ok()
        );
    }

    #[test]
    fn the_fault_is_named_by_its_path() {
        let record = |extra: &str| {
            format!(r#"{{"records":[{{"id":"a","epoch":1,"ciphertext":"AA"{extra}}}]}}"#)
        };
        assert!(push(&record("")).is_ok());
        assert_eq!(
            field(&record(r#","color":1"#)).as_deref(),
            Some("records[0].color")
        );
        assert_eq!(
            field(&record(r#","epoch":1"#)).as_deref(),
            Some("records[0].epoch")
        );
        assert_eq!(
            field(&record(r#","deleted":"yes""#)).as_deref(),
            Some("records[0].deleted")
        );
        assert_eq!(
            field(r#"{"records":[],"ifHead":-1}"#).as_deref(),
            Some("ifHead")
        );
        assert_eq!(
            field(r#"{"records":[],"if\u0048ead":1,"ifHead":1}"#).as_deref(),
            Some("ifHead")
        );
    }

    #[test]
    fn a_key_that_might_be_content_is_not_repeated() {
        let error = push(r#"{"records":[],"Dear Alex, ":1}"#).expect_err("unknown field");
        assert_eq!(error.field, None);
        assert!(!error.to_string().contains("Alex"));
    }

    #[test]
    fn cbor_carries_large_ciphertexts_and_ends_where_it_ends() {
        let request = PushRequest {
            records: vec![PushRecord {
                id: RecordId::new("x".repeat(128)).expect("legal"),
                epoch: 1,
                ciphertext: Sealed(vec![7; 1 << 20]),
                sig: None,
                deleted: false,
                expect: Some(u64::MAX),
            }],
            if_head: None,
            atomic: true,
        };
        let mut body = Format::Cbor.encode(&request);
        let read: PushRequest = Format::Cbor.decode(&body).expect("our own");
        assert_eq!(read.records, request.records);
        body.push(0);
        assert!(Format::Cbor.decode::<PushRequest>(&body).is_err());
        body.truncate(1000);
        assert!(Format::Cbor.decode::<PushRequest>(&body).is_err());
    }

    #[test]
    fn cbor_is_as_strict_as_json() {
        use ciborium::cbor;
        let bytes = |value: &ciborium::Value| {
            let mut out = Vec::new();
            ciborium::into_writer(value, &mut out).expect("writes");
            out
        };
        let as_text = cbor!({"records" => [{"id" => "a", "epoch" => 1, "ciphertext" => "AAAA"}]});
        let unknown = cbor!({"records" => [], "color" => 1});
        let listed = cbor!({"epoch" => 1, "wraps" => [["sam", "one", "x"]]});
        for value in [as_text, unknown, listed] {
            let body = bytes(&value.expect("a value"));
            assert!(Format::Cbor.decode::<PushRequest>(&body).is_err());
            assert!(Format::Cbor.decode::<RotateRequest>(&body).is_err());
        }
        // {"records": [], "records": []}
        let twice = b"\xa2\x67records\x80\x67records\x80";
        assert!(Format::Cbor.decode::<PushRequest>(twice).is_err());
        // A field's position is not its name: {0: []}
        assert!(Format::Cbor.decode::<PushRequest>(b"\xa1\x00\x80").is_err());
    }

    #[test]
    fn verdicts_read_back() {
        let id = RecordId::new("a").expect("legal");
        let results = vec![
            PushResult::Accepted {
                id: id.clone(),
                seq: 3,
            },
            PushResult::Rejected {
                id: id.clone(),
                reason: PushReason::Conflict { seq: 0 },
            },
            PushResult::Rejected {
                id: id.clone(),
                reason: PushReason::NotHolder,
            },
            PushResult::Acceptable { id },
        ];
        let text = serde_json::to_string(&results).expect("writes");
        assert_eq!(
            text,
            r#"[{"id":"a","seq":3},{"id":"a","reason":"conflict","seq":0},{"id":"a","reason":"not_holder"},{"id":"a"}]"#
        );
        for format in [Format::Json, Format::Cbor] {
            let read: Vec<PushResult> = match format {
                Format::Json => serde_json::from_str(&text).expect("reads"),
                Format::Cbor => {
                    ciborium::from_reader(format.encode(&results).as_slice()).expect("reads")
                }
            };
            assert_eq!(read, results);
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(body: Vec<u8>) {
            for format in [Format::Json, Format::Cbor] {
                let _ = format.decode::<PushRequest>(&body);
                let _ = format.decode::<RegisterRequest>(&body);
            }
        }
    }
}
