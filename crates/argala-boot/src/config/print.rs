//! Showing a configuration without its secrets.

use std::fmt::Write as _;

use toml::{Table, Value};

use super::{
    Origin,
    layers::{Layers, is_secret},
};

const REDACTED: &str = "[redacted]";

pub(super) fn toml(layers: &Layers) -> String {
    let mut out = String::new();
    section(layers, &layers.merged, "", &mut out);
    out
}

/// Values first, then the sections within: TOML knows no way back to an outer section.
fn section(layers: &Layers, table: &Table, path: &str, out: &mut String) {
    if !path.is_empty() {
        let gap = if out.is_empty() { "" } else { "\n" };
        let _ = writeln!(out, "{gap}[{path}]");
    }
    for (name, value) in table {
        let key = join(path, name);
        if value.is_table() {
            continue;
        }
        let shown = if is_secret(&key) {
            Value::from(REDACTED)
        } else {
            value.clone()
        };
        let _ = write!(out, "{name} = {shown}");
        match layers.origins.get(&key) {
            None | Some(Origin::Default) => {}
            Some(origin) => {
                let _ = write!(out, "  # {origin}");
            }
        }
        out.push('\n');
    }
    for (name, value) in table {
        if let Value::Table(inner) = value {
            section(layers, inner, &join(path, name), out);
        }
    }
}

pub(super) fn json(layers: &Layers) -> serde_json::Value {
    object(&layers.merged, "")
}

fn object(table: &Table, path: &str) -> serde_json::Value {
    let members = table.iter().map(|(name, value)| {
        let key = join(path, name);
        let shown = match value {
            Value::Table(inner) => object(inner, &key),
            _ if is_secret(&key) => REDACTED.into(),
            value => serde_json::to_value(value).expect("a setting has a JSON form"),
        };
        (name.clone(), shown)
    });
    serde_json::Value::Object(members.collect())
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
