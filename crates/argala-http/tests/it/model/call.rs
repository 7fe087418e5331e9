//! Requests as a client makes them, before they become bytes and after.

use ciborium::Value as Cbor;
use http::Method;
use serde_json::{Map, Value};

use argala_wire::Sealed;

use crate::world::encoded;

/// A device by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Device {
    pub(super) member: String,
    pub(super) device: String,
}

impl Device {
    pub(super) fn new(member: &str, device: &str) -> Self {
        Self {
            member: member.to_owned(),
            device: device.to_owned(),
        }
    }

    pub(super) fn value(&self) -> Value {
        serde_json::json!({"memberId": self.member, "deviceId": self.device})
    }
}

/// The two forms of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Cbor,
}

impl Form {
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Cbor => "application/cbor",
        }
    }
}

/// The routes, with what stands in their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Register,
    Devices,
    Revoke(String),
    Graphs,
    Graph(String),
    GraphDevices(String),
    Wraps(String),
    Rotate(String),
    Grant(String),
    Push(String),
    Pull(String),
    PutBlob(String, String),
    GetBlob(String, String),
    HeadBlob(String, String),
    DeleteBlob(String, String),
    Limits,
}

impl Route {
    pub(super) fn method(&self) -> Method {
        match self {
            Self::Register | Self::Rotate(_) | Self::Grant(_) | Self::Push(_) => Method::POST,
            Self::Revoke(_) | Self::DeleteBlob(..) => Method::DELETE,
            Self::PutBlob(..) => Method::PUT,
            Self::HeadBlob(..) => Method::HEAD,
            _ => Method::GET,
        }
    }

    pub(super) fn path(&self) -> String {
        let of = |graph: &str, rest: &str| format!("/graphs/{}{rest}", encoded(graph));
        match self {
            Self::Register | Self::Devices => "/devices".to_owned(),
            Self::Revoke(device) => format!("/devices/{}", encoded(device)),
            Self::Graphs => "/graphs".to_owned(),
            Self::Graph(graph) => of(graph, ""),
            Self::GraphDevices(graph) => of(graph, "/devices"),
            Self::Wraps(graph) => of(graph, "/wraps"),
            Self::Rotate(graph) => of(graph, "/rotate"),
            Self::Grant(graph) => of(graph, "/grant"),
            Self::Push(graph) => of(graph, "/push"),
            Self::Pull(graph) => of(graph, "/pull"),
            Self::PutBlob(graph, blob)
            | Self::GetBlob(graph, blob)
            | Self::HeadBlob(graph, blob)
            | Self::DeleteBlob(graph, blob) => of(graph, &format!("/blobs/{}", encoded(blob))),
            Self::Limits => "/limits".to_owned(),
        }
    }

    /// The graph's address, on the routes about one.
    pub(super) fn graph(&self) -> Option<&str> {
        match self {
            Self::Register | Self::Devices | Self::Revoke(_) | Self::Graphs | Self::Limits => None,
            Self::Graph(graph)
            | Self::GraphDevices(graph)
            | Self::Wraps(graph)
            | Self::Rotate(graph)
            | Self::Grant(graph)
            | Self::Push(graph)
            | Self::Pull(graph)
            | Self::PutBlob(graph, _)
            | Self::GetBlob(graph, _)
            | Self::HeadBlob(graph, _)
            | Self::DeleteBlob(graph, _) => Some(graph),
        }
    }

    pub(super) const fn is_blob(&self) -> bool {
        matches!(
            self,
            Self::PutBlob(..) | Self::GetBlob(..) | Self::HeadBlob(..) | Self::DeleteBlob(..)
        )
    }

    pub(super) const fn bucket(&self) -> &'static str {
        match self {
            Self::Push(_) => "push",
            Self::Graphs | Self::Graph(_) | Self::Pull(_) | Self::Limits => "pull",
            Self::PutBlob(..) | Self::GetBlob(..) | Self::HeadBlob(..) | Self::DeleteBlob(..) => {
                "blobs"
            }
            _ => "keys",
        }
    }
}

/// One thing that is wrong with a request as HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slip {
    None,
    /// It has no credential.
    NoCredential,
    /// It accepts nothing that there is.
    Accept,
    /// Its body is of a strange media type.
    ContentType,
    /// It has a parameter that nobody knows.
    Parameter,
    /// Its body has a field that nobody knows.
    Field,
    /// Its body has a field twice.
    Twice,
    /// Its body is cut off.
    Cut,
    /// Something follows its body.
    Trailing,
    /// The directory fails while it is served.
    Failing,
}

/// A request, ready to be sent, as often as one likes.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) by: Device,
    pub(super) route: Route,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) headers: Vec<(&'static str, String)>,
    /// The body as a map, where the route takes one.
    pub(super) body: Option<Value>,
    /// The body as it is sent.
    pub(super) raw: Vec<u8>,
    pub(super) form: Form,
    pub(super) accept: Form,
    pub(super) slip: Slip,
    /// How the media types are spelt.
    pub(super) spelling: u8,
}

impl Call {
    pub(super) fn new(by: &Device, route: Route) -> Self {
        Self {
            by: by.clone(),
            route,
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
            raw: Vec::new(),
            form: Form::Json,
            accept: Form::Json,
            slip: Slip::None,
            spelling: 0,
        }
    }

    /// What `Accept` says, where anything does: other words for the same form.
    pub(super) fn accept_header(&self) -> Option<&'static str> {
        let spellings: &[_] = match (self.slip, self.accept) {
            (Slip::Accept, _) => &[
                "text/html",
                "application/json;q=0",
                "application/cbor;q=0.000, application/json; q=0, image/*",
                "application/xml, text/*;q=0.9",
            ],
            // Where nothing is said, it is JSON.
            (_, Form::Json) => &[
                "",
                "application/json",
                "*/*",
                "application/*",
                "application/cbor;q=0.5, application/json",
                "text/html, */*;q=0.1",
                "Application/JSON; charset=utf-8",
                "application/cbor;q=0, */*",
            ],
            (_, Form::Cbor) => &[
                "application/cbor",
                "application/cbor, application/json;q=0.9",
                "APPLICATION/cbor;q=1.000",
                "*/*;q=0.2, application/cbor",
                "text/html,application/cbor;q=0.001",
            ],
        };
        let spelt = spellings[usize::from(self.spelling) % spellings.len()];
        Some(spelt).filter(|spelt| !spelt.is_empty())
    }

    /// What `Content-Type` says, where the body is a map, or is to be taken for something strange.
    pub(super) fn type_header(&self) -> Option<&'static str> {
        let spellings: &[_] = match (self.slip, self.form) {
            (Slip::ContentType, _) => &[
                "text/plain",
                "application/jsonx",
                "application/problem+json",
                "application/cbor, application/json",
                "*/*",
                "",
            ],
            _ if self.body.is_none() => return None,
            (_, Form::Json) => &[
                "application/json",
                "application/json; charset=utf-8",
                "Application/JSON;x=y",
            ],
            (_, Form::Cbor) => &[
                "application/cbor",
                "APPLICATION/CBOR",
                "application/cbor ; a=b",
            ],
        };
        Some(spellings[usize::from(self.spelling) % spellings.len()])
    }

    pub(super) fn with_query(mut self, name: &'static str, value: Option<String>) -> Self {
        self.query.extend(value.map(|value| (name, value)));
        self
    }

    pub(super) fn with_header(mut self, name: &'static str, value: Option<String>) -> Self {
        self.headers.extend(value.map(|value| (name, value)));
        self
    }

    pub(super) fn param(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(given, _)| *given == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(given, _)| *given == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The path and query, as they stand in the request.
    pub(super) fn target(&self) -> String {
        let mut target = self.route.path();
        let slip = (self.slip == Slip::Parameter).then(|| ("color", "1".to_owned()));
        for (at, (name, value)) in self.query.iter().cloned().chain(slip).enumerate() {
            target.push(if at == 0 { '?' } else { '&' });
            target.push_str(&format!("{name}={}", encoded(&value)));
        }
        target
    }

    /// Writes the body's map as bytes, with what is to be wrong with it.
    pub(super) fn seal(mut self) -> Self {
        let Some(Value::Object(body)) = &self.body else {
            return self;
        };
        let mut fields: Vec<_> = body.clone().into_iter().collect();
        match self.slip {
            Slip::Field => fields.push(("color".to_owned(), Value::from(1))),
            Slip::Twice => fields.push(fields[0].clone()),
            _ => {}
        }
        let mut raw = match self.form {
            Form::Json => json_text(&fields),
            Form::Cbor => cbor_bytes(&fields),
        };
        match self.slip {
            Slip::Cut => {
                raw.pop();
            }
            Slip::Trailing => raw.extend_from_slice(b"{}"),
            _ => {}
        }
        self.raw = raw;
        self
    }
}

fn json_text(fields: &[(String, Value)]) -> Vec<u8> {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
        .collect();
    format!("{{{}}}", fields.join(",")).into_bytes()
}

fn cbor_bytes(fields: &[(String, Value)]) -> Vec<u8> {
    let fields = fields
        .iter()
        .map(|(name, value)| (Cbor::from(name.as_str()), to_cbor(name, value)))
        .collect();
    let mut out = Vec::new();
    ciborium::into_writer(&Cbor::Map(fields), &mut out).expect("a vector takes it");
    out
}

/// Whether a field holds bytes: base64url in JSON, a byte string in CBOR (protocol, section 3).
fn holds_bytes(name: &str) -> bool {
    matches!(
        name,
        "ciphertext"
            | "sig"
            | "wrap"
            | "encryptionKey"
            | "signingKey"
            | "label"
            | "proof"
            | "sha256"
    )
}

fn to_cbor(name: &str, value: &Value) -> Cbor {
    match value {
        Value::String(text) if holds_bytes(name) => {
            Cbor::Bytes(Sealed::from_base64url(text).expect("base64url").0)
        }
        Value::Null => Cbor::Null,
        Value::Bool(yes) => Cbor::Bool(*yes),
        Value::Number(number) => Cbor::from(number.as_u64().expect("no number is negative")),
        Value::String(text) => Cbor::from(text.as_str()),
        Value::Array(items) => Cbor::Array(items.iter().map(|item| to_cbor(name, item)).collect()),
        Value::Object(fields) => {
            let fields = fields.iter();
            Cbor::Map(
                fields
                    .map(|(name, value)| (Cbor::from(name.as_str()), to_cbor(name, value)))
                    .collect(),
            )
        }
    }
}

/// A CBOR body as the JSON that says the same.
///
/// # Errors
/// Where bytes stand as a text, or a text as bytes, or there is what the protocol has none of.
pub(super) fn from_cbor(bytes: &[u8]) -> Result<Value, String> {
    let mut rest = bytes;
    let value: Cbor = ciborium::from_reader(&mut rest).map_err(|error| error.to_string())?;
    if !rest.is_empty() {
        return Err("something follows the body's value".to_owned());
    }
    read_cbor("", &value)
}

fn read_cbor(name: &str, value: &Cbor) -> Result<Value, String> {
    match value {
        Cbor::Bytes(bytes) if holds_bytes(name) => {
            Ok(Value::from(Sealed(bytes.clone()).to_base64url()))
        }
        Cbor::Text(text) if !holds_bytes(name) => Ok(Value::from(text.as_str())),
        Cbor::Bool(yes) => Ok(Value::from(*yes)),
        Cbor::Integer(number) => u64::try_from(*number)
            .map(Value::from)
            .map_err(|_| format!("{name} is negative")),
        Cbor::Array(items) => items.iter().map(|item| read_cbor(name, item)).collect(),
        Cbor::Map(fields) => {
            let mut read = Map::new();
            for (name, value) in fields {
                let name = name.as_text().ok_or("a key is no text")?;
                if read
                    .insert(name.to_owned(), read_cbor(name, value)?)
                    .is_some()
                {
                    return Err(format!("{name} is there twice"));
                }
            }
            Ok(Value::Object(read))
        }
        other => Err(format!("{name} holds {other:?}")),
    }
}
