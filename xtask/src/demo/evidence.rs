//! What the relay must never hold, gathered from those who may hold it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::actor::Actor;
use super::folders::contents;
use super::search::{Find, Search, Secret};

/// How many bytes of a file are looked for at each place. Long enough to be no accident, short
/// enough to lie within one page of a database.
const SAMPLE: usize = 48;

/// A name or a content that is shorter says nothing by being found.
const TOO_SHORT: usize = 9;

/// Secrets, each with a name under which it may be spoken of.
#[derive(Default)]
pub(crate) struct Evidence {
    secrets: Vec<Secret>,
    known: BTreeSet<Vec<u8>>,
}

impl Evidence {
    /// Adds one secret, unless it is there or too short to tell anything.
    pub(crate) fn add(&mut self, name: impl Into<String>, bytes: &[u8]) {
        if bytes.len() >= TOO_SHORT && self.known.insert(bytes.to_vec()) {
            self.secrets.push(Secret {
                name: name.into(),
                bytes: bytes.to_vec(),
            });
        }
    }

    /// Adds the names and samples of the contents of every file in a folder.
    pub(crate) fn add_folder(&mut self, folder: &Path) -> Result<()> {
        for (path, bytes) in contents(folder)? {
            let shown = path.display();
            self.add(
                format!("the path {shown}"),
                path.as_os_str().as_encoded_bytes(),
            );
            if let Some(name) = path.file_name() {
                self.add(format!("the name of {shown}"), name.as_encoded_bytes());
            }
            let last = bytes.len().saturating_sub(SAMPLE);
            for start in [0, last / 3, last / 2, last] {
                let sample = &bytes[start..bytes.len().min(start + SAMPLE)];
                self.add(format!("bytes {start} and on of {shown}"), sample);
            }
        }
        Ok(())
    }

    /// Adds every secret key of a device: its own, and those of graphs.
    pub(crate) fn add_keys(&mut self, actor: &Actor) -> Result<()> {
        let keys = Keys::of(actor)?;
        let whose = actor.name();
        for (name, bytes) in keys.device {
            self.add(format!("{name} of {whose}"), &bytes);
        }
        for (graph, epoch, bytes) in keys.graphs {
            self.add(format!("the key of epoch {epoch} of {graph}"), &bytes);
        }
        Ok(())
    }

    /// How many secrets there are.
    pub(crate) fn len(&self) -> usize {
        self.secrets.len()
    }

    /// Ready to look for all of them.
    pub(crate) fn search(&self) -> Result<Search> {
        Search::new(&self.secrets)
    }

    /// Fails unless a folder holds every one of them: whoever searches has to know that the
    /// search finds.
    pub(crate) fn require_all(&self, folder: &Path, whose: &str) -> Result<()> {
        let (extent, finds) = self.search()?.folder(folder)?;
        let found: BTreeSet<&str> = finds.iter().map(|find| find.secret.as_str()).collect();
        let missed: Vec<&str> = self
            .secrets
            .iter()
            .map(|secret| secret.name.as_str())
            .filter(|name| !found.contains(name))
            .collect();
        ensure!(
            missed.is_empty(),
            "the search did not find, {whose}: {}",
            missed.join(", ")
        );
        println!(
            "    {whose}: all {} are found, in {} files ({} bytes)",
            self.len(),
            extent.files,
            extent.bytes
        );
        Ok(())
    }

    /// Fails if a folder holds any of them.
    pub(crate) fn require_none(&self, folder: &Path, whose: &str) -> Result<()> {
        let (extent, finds) = self.search()?.folder(folder)?;
        refuse(&finds, whose)?;
        ensure!(extent.files > 0, "{whose}: there was nothing to search");
        println!(
            "    {whose}: none of {} is found, in {} files ({} bytes)",
            self.len(),
            extent.files,
            extent.bytes
        );
        Ok(())
    }

    /// Fails if a text holds any of them.
    pub(crate) fn require_none_in(&self, text: &str, what: &str) -> Result<()> {
        refuse(
            &self.search()?.haystack(Path::new(what), text.as_bytes()),
            what,
        )?;
        println!(
            "    {what}: none of {} is found, in {} bytes",
            self.len(),
            text.len()
        );
        Ok(())
    }
}

fn refuse(finds: &[Find], whose: &str) -> Result<()> {
    if finds.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = finds
        .iter()
        .map(|find| {
            format!(
                "{} ({}) in {}",
                find.secret,
                find.spelling,
                find.file.display()
            )
        })
        .collect();
    bail!("{whose}: {}", told.join("; "))
}

/// The secrets in a key file.
pub(crate) struct Keys {
    /// Name and bytes of the device's own.
    pub(crate) device: Vec<(&'static str, Vec<u8>)>,
    /// Graph, epoch and key.
    pub(crate) graphs: Vec<(String, u64, Vec<u8>)>,
}

impl Keys {
    /// Reads a device's key file.
    pub(crate) fn of(actor: &Actor) -> Result<Self> {
        let path = actor.key_file();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        let file: Value = serde_json::from_str(&text).context("the key file is no JSON")?;
        Self::read(&file).with_context(|| format!("the key file of {}", actor.name()))
    }

    fn read(file: &Value) -> Result<Self> {
        let secret = |value: &Value| {
            let bytes = value
                .as_str()
                .and_then(base64url)
                .context("a secret is missing")?;
            ensure!(bytes.len() == 32, "a secret has {} bytes", bytes.len());
            Ok(bytes)
        };
        let device = vec![
            ("the encryption key", secret(&file["encryptionSecret"])?),
            ("the signing key", secret(&file["signingSecret"])?),
            ("the key of held writes", secret(&file["heldSecret"])?),
        ];
        let mut graphs = Vec::new();
        for (graph, held) in file["graphs"].as_object().context("no graphs")? {
            for (epoch, key) in held["epochs"].as_object().context("no epochs")? {
                let epoch = epoch.parse().context("an epoch is no number")?;
                graphs.push((graph.clone(), epoch, secret(&key["key"])?));
            }
        }
        Ok(Self { device, graphs })
    }
}

/// Unpadded base64url.
pub(crate) fn base64url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0u32);
    for character in text.bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        held = (held << 6 | u32::from(value)) & 0xfff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::folders::{noise, write};
    use super::*;

    #[test]
    fn base64url_is_read() {
        assert_eq!(base64url("-_-_").unwrap(), [0xfb, 0xff, 0xbf]);
        assert_eq!(base64url("QXR0YWNrIGF0IGRhd24").unwrap(), b"Attack at dawn");
        assert!(base64url("QXR0YWNr=").is_none());
    }

    #[test]
    fn every_secret_of_a_key_file_is_read_and_no_public_key() {
        let key = |byte: u8| {
            "ABCDEFGHIJ"
                .chars()
                .nth(usize::from(byte))
                .unwrap()
                .to_string()
                .repeat(43)
        };
        let file = json!({
            "encryptionSecret": key(0), "signingSecret": key(1), "heldSecret": key(2),
            "known": [{"encryptionKey": key(3), "signingKey": key(4)}],
            "graphs": {"g:acme": {"epochs": {"1": {"key": key(5), "firstSeq": 1}, "2": {"key": key(6)}}}},
        });
        let keys = Keys::read(&file).unwrap();
        assert_eq!(keys.device.len(), 3);
        let epochs: Vec<u64> = keys.graphs.iter().map(|(_, epoch, _)| *epoch).collect();
        assert_eq!(epochs, [1, 2]);
        assert!(Keys::read(&json!({"graphs": {}})).is_err());
    }

    #[test]
    fn what_leaks_is_found_and_what_does_not_is_not() {
        let stage = tempfile::tempdir().unwrap();
        let (client, relay) = (stage.path().join("client"), stage.path().join("relay"));
        write(&client, "notes/a long name.txt", &noise(4_000, 3)).unwrap();
        let mut evidence = Evidence::default();
        evidence.add_folder(&client).unwrap();
        // Path, name, four samples.
        assert_eq!(evidence.len(), 6);
        evidence.require_all(&client, "client").unwrap();
        write(&relay, "store", &noise(9_000, 4)).unwrap();
        evidence.require_none(&relay, "relay").unwrap();
        assert!(evidence.require_all(&relay, "relay").is_err());
        let mut leak = noise(9_000, 4);
        leak[5_000..5_048].copy_from_slice(&noise(4_000, 3)[3_952..]);
        write(&relay, "store", &leak).unwrap();
        let told = evidence
            .require_none(&relay, "relay")
            .unwrap_err()
            .to_string();
        assert!(told.contains("bytes 3952 and on of"), "{told}");
    }
}
