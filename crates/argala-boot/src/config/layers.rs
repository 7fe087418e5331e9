//! Putting the sources on top of each other, leaf by leaf.
//!
//! Each leaf is read on its own against the defaults. That is what tells every fault at once,
//! and each with its own place.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
};

use secrecy::SecretString;
use serde::{Deserialize, de::IntoDeserializer};
use toml::{
    Table, Value,
    de::{DeTable, DeValue},
};

use super::{
    Config, ConfigError, DEFAULTS, Fault, Loaded, Origin,
    check::{self, Purpose},
};

/// Keys whose value is never shown.
const SECRETS: &[&str] = &[
    "auth.jwt.secret",
    "blobs.access_key_id",
    "blobs.secret_access_key",
    "redis.url",
    "store.url",
    "store.direct_url",
];

/// Whether the value at `key` is never shown.
pub(super) fn is_secret(key: &str) -> bool {
    SECRETS.contains(&key)
}

/// What has been put on top of each other so far.
#[derive(Clone)]
pub(super) struct Layers {
    defaults: Table,
    /// Only values that can be read; those that cannot are among the faults.
    pub(super) merged: Table,
    pub(super) origins: BTreeMap<String, Origin>,
    faults: Vec<Fault>,
    /// Keys whose newest value cannot be read: a check that rests on one would mislead.
    failed: BTreeSet<String>,
}

/// Tells which keys were given, and no value: secrets are among them.
impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers")
            .field("given", &self.origins.keys())
            .finish_non_exhaustive()
    }
}

impl Layers {
    pub(super) fn new() -> Self {
        let defaults: Table = DEFAULTS.parse().expect("the defaults are TOML");
        Self {
            merged: defaults.clone(),
            defaults,
            origins: BTreeMap::new(),
            faults: Vec::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Lays a file on top.
    pub(super) fn file(&mut self, path: &Path) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("cannot be read: {error}");
                return self.fault_in_file(path, 1, message);
            }
        };
        let (document, errors) = DeTable::parse_recoverable(&text);
        let mut broken = BTreeSet::new();
        for error in errors {
            let line = error.span().map_or(1, |span| line_of(&text, span.start));
            broken.insert(line);
            // Not its `Display`: that repeats the line, and a secret may stand in it.
            self.fault_in_file(path, line, error.message().to_owned());
        }
        let mut leaves = Vec::new();
        collect(
            document.get_ref(),
            &self.defaults,
            &mut String::new(),
            &mut leaves,
        );
        leaves.sort_by_key(|leaf| leaf.at);
        for leaf in leaves {
            let line = line_of(&text, leaf.at);
            // What the parser made of a line that it could not read is no fault of its own.
            if !broken.contains(&line) {
                let origin = Origin::File(path.to_path_buf(), line);
                self.lay(&leaf.key, vec![leaf.value], &origin);
            }
        }
    }

    fn fault_in_file(&mut self, path: &Path, line: usize, message: String) {
        self.faults.push(Fault {
            origin: Some(Origin::File(path.to_path_buf(), line)),
            key: String::new(),
            message,
        });
    }

    /// Lays one value on top that was given as text. The text itself is tried first, so that a
    /// secret of digits stays what it is; then what it says as TOML. A list is meant as one.
    pub(super) fn text(&mut self, key: &str, text: &str, origin: &Origin) {
        let mut candidates = vec![Value::String(text.to_owned())];
        if let Ok(value) = DeValue::parse(text)
            && let Ok(value) = Value::deserialize(value.into_deserializer())
            && !value.is_str()
        {
            let at = usize::from(!value.is_array());
            candidates.insert(at, value);
        }
        self.lay(key, candidates, origin);
    }

    /// Takes the first of `candidates` that can be read.
    fn lay(&mut self, key: &str, candidates: Vec<Value>, origin: &Origin) {
        if let Some(message) = self.misplaced(key, &candidates) {
            return self.fail(key, message, origin);
        }
        let mut message = String::new();
        for candidate in candidates {
            let mut alone = self.defaults.clone();
            put(&mut alone, key, candidate.clone());
            match Config::deserialize(Value::Table(alone)) {
                Ok(_) => {
                    put(&mut self.merged, key, candidate);
                    self.origins.insert(key.to_owned(), origin.clone());
                    self.failed.remove(key);
                    return;
                }
                Err(error) => message = error.message().to_owned(),
            }
        }
        if is_secret(key) {
            // The reader's own words would hold the value.
            "must be a text".clone_into(&mut message);
        }
        let message = message.replacen("unknown field", "unknown key", 1);
        self.fail(key, message, origin);
    }

    /// Why `key` cannot take a value at all: it is a section. The reader would repeat the value.
    fn misplaced(&self, key: &str, candidates: &[Value]) -> Option<String> {
        let section = lookup(&self.defaults, key)?;
        let names: Vec<_> = section.keys().map(String::as_str).collect();
        (!candidates.iter().any(Value::is_table))
            .then(|| format!("is a section, with keys such as {}", names.join(", ")))
    }

    fn fail(&mut self, key: &str, message: String, origin: &Origin) {
        self.failed.insert(key.to_owned());
        self.faults.push(Fault {
            origin: Some(origin.clone()),
            key: key.to_owned(),
            message,
        });
    }

    /// Reads the whole, takes secrets out of their files, and checks what single values cannot
    /// tell.
    pub(super) fn finish(mut self, purpose: Purpose) -> Result<Loaded, ConfigError> {
        let merged = Value::Table(self.merged.clone());
        let mut config = match Config::deserialize(merged) {
            Ok(config) => config,
            Err(error) => {
                // Leaves that are right alone are right together, for no type spans two of them.
                self.faults.push(Fault {
                    origin: None,
                    key: String::new(),
                    message: error.message().to_owned(),
                });
                return Err(ConfigError {
                    faults: self.faults,
                });
            }
        };
        let (store, blobs, redis) = (&mut config.store, &mut config.blobs, &mut config.redis);
        for (key, secret, file) in [
            ("store.url", &mut store.url, &store.url_file),
            (
                "store.direct_url",
                &mut store.direct_url,
                &store.direct_url_file,
            ),
            (
                "blobs.access_key_id",
                &mut blobs.access_key_id,
                &blobs.access_key_id_file,
            ),
            (
                "blobs.secret_access_key",
                &mut blobs.secret_access_key,
                &blobs.secret_access_key_file,
            ),
            ("redis.url", &mut redis.url, &redis.url_file),
        ] {
            if let Some(text) = self.read_secret(key, secret.is_some(), file.clone()) {
                *secret = Some(SecretString::from(text));
            }
        }
        let jwt = &mut config.auth.jwt;
        let secret_file = jwt.secret_file.clone();
        if let Some(text) = self.read_secret("auth.jwt.secret", jwt.secret.is_some(), secret_file) {
            jwt.secret = Some(SecretString::from(text));
        }
        let key_file = jwt.public_key_file.clone();
        if let Some(text) =
            self.read_secret("auth.jwt.public_key", jwt.public_key.is_some(), key_file)
        {
            jwt.public_key = Some(text);
        }
        for (key, message) in check::faults(&config, purpose) {
            if self.rests_on_failed(key) {
                continue;
            }
            self.faults.push(Fault {
                origin: self.origin_of(key),
                key: key.to_owned(),
                message,
            });
        }
        if self.faults.is_empty() {
            Ok(Loaded {
                config,
                layers: self,
            })
        } else {
            Err(ConfigError {
                faults: self.faults,
            })
        }
    }

    /// The content of the file that `KEY_file` names, without the line's end that editors add.
    fn read_secret(&mut self, key: &str, given: bool, file: Option<PathBuf>) -> Option<String> {
        let file = file?;
        let file_key = format!("{key}_file");
        let message = if given {
            format!("give {key} or {file_key}, not both")
        } else {
            match std::fs::read_to_string(&file) {
                Ok(text) => return Some(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => format!("{} cannot be read: {error}", file.display()),
            }
        };
        let origin = self.origin_of(&file_key).unwrap_or(Origin::Default);
        self.failed.insert(key.to_owned());
        self.fail(&file_key, message, &origin);
        None
    }

    /// Where `key`, or the nearest thing around or below it, was given.
    fn origin_of(&self, key: &str) -> Option<Origin> {
        let below = format!("{key}.");
        self.origins
            .get(key)
            .or_else(|| {
                let mut inner = self.origins.range(below.clone()..);
                inner
                    .next()
                    .filter(|(name, _)| name.starts_with(&below))
                    .map(|(_, origin)| origin)
            })
            .cloned()
    }

    /// Whether a fault of `key` may only follow from one that has been told.
    fn rests_on_failed(&self, key: &str) -> bool {
        self.failed.iter().any(|failed| {
            failed == key
                || failed.strip_suffix("_file") == Some(key)
                || failed.starts_with(&format!("{key}."))
        })
    }
}

struct Leaf {
    key: String,
    at: usize,
    value: Value,
}

/// Every value of `table` that is no section, with its place.
fn collect(table: &DeTable<'_>, defaults: &Table, path: &mut String, leaves: &mut Vec<Leaf>) {
    for (key, value) in table {
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(key.get_ref());
        match (value.get_ref(), defaults.get(key.get_ref().as_ref())) {
            (DeValue::Table(inner), Some(Value::Table(section))) => {
                collect(inner, section, path, leaves);
            }
            _ => {
                if let Ok(read) = Value::deserialize(value.clone().into_deserializer()) {
                    leaves.push(Leaf {
                        key: path.clone(),
                        at: key.span().start,
                        value: read,
                    });
                }
            }
        }
        path.truncate(length);
    }
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

fn put(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = table
                .entry(section)
                .or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                // Refused by the reader, which tells what belongs there.
                *inner = Value::Table(Table::new());
            }
            if let Value::Table(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

fn lookup<'a>(table: &'a Table, key: &str) -> Option<&'a Table> {
    key.split('.')
        .try_fold(table, |table, part| table.get(part)?.as_table())
}
