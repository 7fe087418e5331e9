//! The answers of the protocol, read a second time: which fields each has, and what is in them.

use std::fmt;

use argala_wire::codec::Format;
use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};

use crate::{names, plain::padded_base64};

/// A body as it stands there, its maps in order and with what is given twice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Number(u64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
    /// A number that is no count, say.
    Other,
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value))
    }

    fn visit_i64<E>(self, _value: i64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_f64<E>(self, _value: f64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Tree, E> {
        Ok(Tree::Bytes(bytes.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Tree::Map(fields))
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

impl Tree {
    /// What the body says; `None` where that is not for this reading to tell.
    pub(crate) fn of(format: Format, body: &[u8]) -> Option<Self> {
        // Pieces of a text or of bytes, and texts of many thousand bytes, need not be read.
        let odd = body.len() > 4_000 || body.contains(&0x5f) || body.contains(&0x7f);
        if format == Format::Cbor && odd {
            return None;
        }
        format.decode_answer(body).ok()
    }
}

/// What a place of a body holds.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// A count, up to this one.
    Number(u64),
    Bool,
    Text(fn(&str) -> bool),
    /// Base64url in JSON, a byte string in CBOR.
    Bytes,
    List(&'static Shape),
    Map(&'static [Field]),
    /// RFC 3339.
    Time,
    /// The verdict on one record of a push.
    Pushed,
    /// What a poke stream carries.
    Poke,
}

/// A field's name, whether it may be missing, and what it holds.
pub(crate) type Field = (&'static str, Need, Shape);

/// Whether a field has to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Must,
    /// Missing or `null`; then it is not written.
    May,
    /// Missing where it is false, and never `null`.
    True,
}

use Need::{May, Must, True};
use Shape::{Bool, Bytes, List, Map, Text, Time};

macro_rules! one_of {
    ($($name:literal),* $(,)?) => { Text(|text| [$($name),*].contains(&text)) };
}

/// How a body is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    /// The form that it has.
    pub(crate) format: Format,
    /// Whether the code that is tested wrote it. Of what it was given to read some may be at odds
    /// with the protocol, and some of that be written again: times of far off years.
    pub(crate) is_ours: bool,
}

impl Reader {
    /// What `tree` says, without the fields that are none of the shape's; `None` where it is not
    /// of the shape.
    pub(crate) fn read(self, shape: Shape, tree: &Tree) -> Option<Tree> {
        match (shape, tree) {
            (Shape::Number(most), Tree::Number(number)) if *number <= most => Some(tree.clone()),
            (Bool, Tree::Bool(_)) => Some(tree.clone()),
            (Text(legal), Tree::Text(text)) if legal(text) => Some(tree.clone()),
            (Time, Tree::Text(text)) if self.is_ours || is_time(text) => Some(tree.clone()),
            (Bytes, Tree::Bytes(_)) => Some(tree.clone()),
            (Bytes, Tree::Text(text)) if self.format == Format::Json => {
                let (bytes, is_exact) = padded_base64(text, *b"-_")?;
                is_exact.then_some(Tree::Bytes(bytes))
            }
            (List(shape), Tree::List(items)) => {
                let items = items.iter().map(|item| self.read(*shape, item));
                items.collect::<Option<_>>().map(Tree::List)
            }
            (Map(fields), Tree::Map(given)) => self.map(fields, given),
            (Shape::Pushed, Tree::Map(given)) => {
                let reason = get(given, "reason").ok()?;
                let fields: &[Field] = match (reason, get(given, "seq").ok()?) {
                    (Some(Tree::Text(reason)), _) => {
                        REASONS.iter().find(|(name, _)| name == reason)?.1
                    }
                    (Some(_), _) => return None,
                    (None, Some(_)) => &[("id", Must, NAME), ("seq", Must, COUNT)],
                    (None, None) => &[("id", Must, NAME)],
                };
                self.map(fields, given)
            }
            (Shape::Poke, Tree::Map(given)) => {
                let fields: &[Field] = match get(given, "type").ok()? {
                    Some(Tree::Text(kind)) if kind == "argala.poke" => {
                        &[("type", Must, ANY_TEXT), ("graphId", Must, GRAPH_ID)]
                    }
                    _ => &[("type", Must, one_of!("argala.hello", "argala.resync"))],
                };
                self.map(fields, given)
            }
            _ => None,
        }
    }

    fn map(self, fields: &[Field], given: &[(String, Tree)]) -> Option<Tree> {
        let mut told = Vec::new();
        for (name, need, shape) in fields {
            let value = match get(given, name).ok()? {
                None if *need == Must => return None,
                None => continue,
                Some(Tree::Null) if *need == May => continue,
                Some(value) => self.read(*shape, value)?,
            };
            if *need != True || value != Tree::Bool(false) {
                told.push(((*name).to_owned(), value));
            }
        }
        Some(Tree::Map(told))
    }
}

/// The field `name`; an error where it is given twice.
fn get<'a>(given: &'a [(String, Tree)], name: &str) -> Result<Option<&'a Tree>, ()> {
    let mut of = given.iter().filter(|(key, _)| key == name);
    match (of.next(), of.next()) {
        (found, None) => Ok(found.map(|(_, value)| value)),
        _ => Err(()),
    }
}

const COUNT: Shape = Shape::Number(u64::MAX);
const NAME: Shape = Text(names::is_name);
const DEVICE_ID: Shape = Text(|text| names::is_name(text) && text != "." && text != "..");
const GRAPH_ID: Shape = Text(names::is_address);
const ANY_TEXT: Shape = Text(|_| true);

/// RFC 3339, UTC, milliseconds. The last year that four digits can tell is left out: it has not all
/// of its days.
fn is_time(text: &str) -> bool {
    let form = "dddd-dd-ddTdd:dd:dd.dddZ";
    let alike = |(c, as_c): (char, char)| c == as_c || (as_c == 'd' && c.is_ascii_digit());
    if text.len() != form.len() || !text.chars().zip(form.chars()).all(alike) {
        return false;
    }
    let number = |from: usize, to: usize| text[from..to].parse::<u32>().unwrap_or(u32::MAX);
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    let time = number(11, 13) < 24 && number(14, 16) < 60 && number(17, 19) < 60;
    year < 9_999 && (1..=days).contains(&day) && time
}

const DEVICE_REF: &[Field] = &[("memberId", Must, NAME), ("deviceId", Must, DEVICE_ID)];
const REFS: Shape = List(&Map(DEVICE_REF));

const DEVICE: &[Field] = &[
    ("memberId", Must, NAME),
    ("deviceId", Must, DEVICE_ID),
    ("kind", Must, one_of!("device", "recovery")),
    ("suite", Must, one_of!("x25519-ed25519")),
    ("encryptionKey", Must, Bytes),
    ("signingKey", Must, Bytes),
    ("label", May, Bytes),
    ("registeredAt", Must, Time),
    ("revokedAt", May, Time),
    ("lastSeenAt", May, Time),
];

const REASONS: &[(&str, &[Field])] = &[
    (
        "record_too_large",
        &[
            ("id", Must, NAME),
            ("reason", Must, ANY_TEXT),
            ("limit", Must, COUNT),
        ],
    ),
    (
        "stale_epoch",
        &[
            ("id", Must, NAME),
            ("reason", Must, ANY_TEXT),
            ("epoch", Must, COUNT),
        ],
    ),
    (
        "unknown_epoch",
        &[
            ("id", Must, NAME),
            ("reason", Must, ANY_TEXT),
            ("epoch", Must, COUNT),
        ],
    ),
    (
        "not_holder",
        &[("id", Must, NAME), ("reason", Must, ANY_TEXT)],
    ),
    (
        "signature_missing",
        &[("id", Must, NAME), ("reason", Must, ANY_TEXT)],
    ),
    (
        "signature_invalid",
        &[("id", Must, NAME), ("reason", Must, ANY_TEXT)],
    ),
    (
        "conflict",
        &[
            ("id", Must, NAME),
            ("reason", Must, ANY_TEXT),
            ("seq", Must, COUNT),
        ],
    ),
    (
        "quota_records",
        &[
            ("id", Must, NAME),
            ("reason", Must, ANY_TEXT),
            ("limit", Must, COUNT),
        ],
    ),
    (
        "quota_bytes",
        &[
            ("id", Must, NAME),
            ("reason", Must, ANY_TEXT),
            ("limit", Must, COUNT),
        ],
    ),
];

const QUOTAS: Shape = Map(&[
    ("maxRecordsPerGraph", Must, COUNT),
    ("maxCiphertextBytesPerGraph", Must, COUNT),
    ("maxBlobBytes", Must, COUNT),
    ("maxBlobBytesPerGraph", Must, COUNT),
    ("maxDevicesPerMember", Must, COUNT),
    ("maxPushBytes", Must, COUNT),
    ("maxRecordBytes", Must, COUNT),
    ("maxRecordsPerPush", Must, COUNT),
]);

const RATE: Shape = Map(&[
    ("perMinute", Must, Shape::Number(u32::MAX as u64)),
    ("burst", Must, Shape::Number(u32::MAX as u64)),
]);

/// Route 1.
pub(crate) const REGISTER: Shape = Map(&[("device", Must, Map(DEVICE)), ("fresh", Must, Bool)]);
/// Routes 2 and 6.
pub(crate) const DEVICES: Shape = Map(&[
    ("devices", Must, List(&Map(DEVICE))),
    ("cursor", Must, ANY_TEXT),
    ("more", Must, Bool),
]);
/// Route 3.
pub(crate) const REVOKE: Shape = Map(&[
    ("graphsFlagged", Must, COUNT),
    ("graphs", Must, List(&GRAPH_ID)),
]);
/// Route 4.
pub(crate) const GRAPHS: Shape = Map(&[
    (
        "graphs",
        Must,
        List(&Map(&[
            ("graphId", Must, GRAPH_ID),
            ("epoch", Must, COUNT),
            ("head", Must, COUNT),
            ("rotationOwed", Must, Bool),
            ("behind", Must, Bool),
        ])),
    ),
    ("cursor", Must, ANY_TEXT),
    ("more", Must, Bool),
]);
/// Route 5.
pub(crate) const GRAPH: Shape = Map(&[
    ("graphId", Must, GRAPH_ID),
    ("epoch", Must, COUNT),
    ("head", Must, COUNT),
    ("records", Must, COUNT),
    ("ciphertextBytes", Must, COUNT),
    ("blobBytes", Must, COUNT),
    ("quotas", Must, QUOTAS),
    ("rotationOwed", Must, Bool),
    (
        "rotationReasons",
        Must,
        List(&Map(&[
            ("memberId", Must, NAME),
            ("deviceId", Must, DEVICE_ID),
            (
                "reason",
                Must,
                one_of!("device_revoked", "member_removed", "member_inactive"),
            ),
        ])),
    ),
    ("grantsOwed", Must, REFS),
]);
/// Route 7.
pub(crate) const WRAPS: Shape = Map(&[
    ("epoch", Must, COUNT),
    (
        "wraps",
        Must,
        List(&Map(&[
            ("epoch", Must, COUNT),
            ("wrap", Must, Bytes),
            ("by", Must, Map(DEVICE_REF)),
            ("at", Must, Time),
            ("firstSeq", Must, COUNT),
        ])),
    ),
    ("cursor", Must, ANY_TEXT),
    ("more", Must, Bool),
]);
/// Route 8.
pub(crate) const ROTATE: Shape = Map(&[
    ("epoch", Must, COUNT),
    ("firstSeq", Must, COUNT),
    ("devices", Must, COUNT),
]);
/// Route 9.
pub(crate) const GRANT: Shape = Map(&[
    ("granted", Must, COUNT),
    (
        "rejected",
        Must,
        List(&Map(&[
            ("epoch", Must, COUNT),
            ("memberId", Must, NAME),
            ("deviceId", Must, DEVICE_ID),
            (
                "reason",
                Must,
                one_of!(
                    "not_on_roster",
                    "unknown_epoch",
                    "not_holder",
                    "wrap_exists"
                ),
            ),
        ])),
    ),
]);
/// Route 10.
pub(crate) const PUSH: Shape = Map(&[
    ("head", Must, COUNT),
    ("accepted", Must, COUNT),
    ("rejected", Must, COUNT),
    ("results", Must, List(&Shape::Pushed)),
]);
/// Route 11.
pub(crate) const PULL: Shape = Map(&[
    (
        "records",
        Must,
        List(&Map(&[
            ("id", Must, NAME),
            ("seq", Must, COUNT),
            ("epoch", Must, COUNT),
            ("by", Must, Map(DEVICE_REF)),
            ("at", Must, Time),
            ("ciphertext", Must, Bytes),
            ("sig", May, Bytes),
            ("deleted", True, Bool),
        ])),
    ),
    ("cursor", Must, ANY_TEXT),
    ("more", Must, Bool),
    ("head", Must, COUNT),
    ("epoch", Must, COUNT),
    ("filtered", Must, COUNT),
    ("rotationOwed", Must, Bool),
]);
/// Route 12.
pub(crate) const BLOB: Shape = Map(&[
    ("blobId", Must, Text(names::is_blob_id)),
    ("size", Must, COUNT),
    ("sha256", Must, Bytes),
    ("policy", Must, one_of!("keep", "expire", "deliver")),
    ("expiresAt", May, Time),
]);
/// `GET /limits`.
pub(crate) const LIMITS: Shape = Map(&[
    ("quotas", Must, QUOTAS),
    (
        "rateLimits",
        Must,
        Map(&[
            ("push", Must, RATE),
            ("pull", Must, RATE),
            ("blobs", Must, RATE),
            ("keys", Must, RATE),
        ]),
    ),
    (
        "pages",
        Must,
        Map(&[
            ("maxLimit", Must, COUNT),
            ("defaultPullLimit", Must, COUNT),
            ("defaultListLimit", Must, COUNT),
            ("maxPullBytes", Must, COUNT),
            ("maxFiltered", Must, COUNT),
        ]),
    ),
    ("suites", Must, List(&one_of!("x25519-ed25519"))),
    ("signatures", Must, one_of!("required", "optional")),
    ("maxWrapBytes", Must, COUNT),
    ("maxWraps", Must, COUNT),
    ("maxKeysBytes", Must, COUNT),
    ("maxBodyBytes", Must, COUNT),
    ("maxLabelBytes", Must, COUNT),
    ("maxStreamsPerMember", Must, COUNT),
]);
/// What every error is told as.
pub(crate) const PROBLEM: Shape = Map(&[
    ("type", Must, ANY_TEXT),
    ("title", Must, ANY_TEXT),
    ("status", Must, Shape::Number(u16::MAX as u64)),
    (
        "code",
        Must,
        one_of!(
            "invalid_request",
            "digest_mismatch",
            "unauthenticated",
            "device_unregistered",
            "device_revoked",
            "member_inactive",
            "quota_exceeded",
            "graph_not_found",
            "blob_not_found",
            "device_not_found",
            "not_found",
            "method_not_allowed",
            "not_acceptable",
            "unsupported_media_type",
            "device_key_mismatch",
            "epoch_conflict",
            "graph_unkeyed",
            "push_rejected",
            "blob_exists",
            "idempotency_conflict",
            "cursor_invalid",
            "length_required",
            "head_moved",
            "body_too_large",
            "blob_too_large",
            "range_not_satisfiable",
            "rotation_incomplete",
            "rate_limited",
            "internal",
            "unavailable",
        ),
    ),
    ("detail", Must, ANY_TEXT),
    ("field", May, ANY_TEXT),
    ("what", May, ANY_TEXT),
    ("limit", May, COUNT),
    ("used", May, COUNT),
    ("epoch", May, COUNT),
    ("results", May, List(&Shape::Pushed)),
    (
        "reason",
        May,
        one_of!("malformed", "foreign", "ahead", "expired"),
    ),
    ("head", May, COUNT),
    ("missing", May, REFS),
    ("extra", May, REFS),
    ("bucket", May, one_of!("push", "pull", "blobs", "keys")),
    ("retryAfterMs", May, COUNT),
]);
