//! What the model says an answer must be, and how an answer is held against it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{call::Device, state::Learn};

/// One answer that the protocol allows, whole: what the caller sees, and what the host is told.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Body,
    /// Headers that must be there with this value; an empty one must be there with any.
    pub(super) headers: Vec<(&'static str, String)>,
    /// Events, in any order.
    pub(super) events: Vec<Value>,
    pub(super) pokes: Vec<Poked>,
    /// What the caller has in hand once this was the answer.
    pub(super) learn: Option<Learn>,
}

/// The body of an answer.
#[derive(Debug, Clone)]
pub(super) enum Body {
    /// Nothing; also what a HEAD sees.
    Empty,
    /// A map, in the form that was asked for; `true` where it is JSON whatever was asked for.
    Map(Value, bool),
    Bytes(Vec<u8>),
}

/// A graph's members were poked, but for the device that caused it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Poked {
    pub(super) key: String,
    pub(super) members: BTreeSet<String>,
    pub(super) except: Option<Device>,
}

/// Stands for any text that is not empty.
pub(super) fn text() -> Value {
    json!({"$": "text"})
}

/// Stands for a member that may be there or not.
pub(super) fn maybe() -> Value {
    json!({"$": "maybe"})
}

/// Stands for a list in any order.
pub(super) fn unordered(items: Vec<Value>) -> Value {
    json!({"$set": items})
}

/// Stands for any one of these.
pub(super) fn one_of(items: Vec<Value>) -> Value {
    json!({"$one": items})
}

impl Answer {
    pub(super) fn of(status: u16, body: Body) -> Self {
        Self {
            status,
            body,
            headers: Vec::new(),
            events: Vec::new(),
            pokes: Vec::new(),
            learn: None,
        }
    }

    pub(super) fn ok(body: Value) -> Self {
        Self::of(200, Body::Map(body, false))
    }

    /// A problem document with these members of its own.
    pub(super) fn problem(status: u16, code: &str, members: Value) -> Self {
        let mut body = json!({
            "type": format!("urn:argala:problem:{code}"),
            "title": text(),
            "status": status,
            "code": code,
            "detail": text(),
        });
        merge(&mut body, members);
        Self::of(status, Body::Map(body, false))
    }

    /// A malformed request, whose fault is at `field`.
    pub(super) fn invalid(field: &str) -> Self {
        Self::problem(400, "invalid_request", json!({"field": field}))
    }

    pub(super) fn event(mut self, name: &str, members: Value) -> Self {
        let mut event = json!({"type": name});
        merge(&mut event, members);
        self.events.push(event);
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn learn(mut self, learn: Learn) -> Self {
        self.learn = Some(learn);
        self
    }
}

/// Adds the members of one map to another.
pub(super) fn merge(into: &mut Value, members: Value) {
    let (Value::Object(into), Value::Object(members)) = (into, members) else {
        panic!("maps are merged");
    };
    into.extend(members);
}

/// Holds that `got` is what `want` describes; else tells where they differ.
pub(super) fn matches(want: &Value, got: &Value, path: &str) -> Result<(), String> {
    let differ = || Err(format!("{path}: {want} was to be, {got} is"));
    match (want, got) {
        (Value::Object(fields), got) if fields.contains_key("$") => match &fields["$"] {
            Value::String(kind) if kind == "text" => match got {
                Value::String(text) if !text.is_empty() => Ok(()),
                _ => differ(),
            },
            _ => Ok(()),
        },
        (Value::Object(fields), got) if fields.contains_key("$one") => {
            let any = list(&fields["$one"])
                .iter()
                .any(|want| matches(want, got, path).is_ok());
            if any { Ok(()) } else { differ() }
        }
        (Value::Object(fields), Value::Array(got)) if fields.contains_key("$set") => {
            unordered_matches(list(&fields["$set"]), got).map_or_else(differ, Ok)
        }
        (Value::Object(want), Value::Object(got)) => fields_match(want, got, path),
        (Value::Array(want), Value::Array(items)) => {
            if want.len() != items.len() {
                return differ();
            }
            let pairs = want.iter().zip(items).enumerate();
            for (at, (want, got)) in pairs {
                matches(want, got, &format!("{path}[{at}]"))?;
            }
            Ok(())
        }
        (want, got) if want == got => Ok(()),
        _ => differ(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn fields_match(
    want: &Map<String, Value>,
    got: &Map<String, Value>,
    path: &str,
) -> Result<(), String> {
    for (name, want) in want {
        match got.get(name) {
            Some(got) => matches(want, got, &format!("{path}.{name}"))?,
            None if may_be_absent(want) => {}
            None => return Err(format!("{path}.{name} is missing, {want} was to be")),
        }
    }
    match got.keys().find(|name| !want.contains_key(*name)) {
        Some(name) => Err(format!("{path}.{name} was not to be: {}", got[name])),
        None => Ok(()),
    }
}

fn may_be_absent(want: &Value) -> bool {
    *want == maybe()
        || want
            .get("$one")
            .is_some_and(|items| list(items).contains(&maybe()))
}

/// Whether each of `want` is one of `got` and the other way round.
pub(super) fn unordered_matches(want: &[Value], got: &[Value]) -> Option<()> {
    let mut left: Vec<_> = got.iter().collect();
    for want in want {
        let at = left.iter().position(|got| matches(want, got, "").is_ok())?;
        left.swap_remove(at);
    }
    left.is_empty().then_some(())
}
