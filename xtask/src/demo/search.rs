//! Looking for what the relay must never hold, in every file and in every spelling.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use aho_corasick::{AhoCorasick, MatchKind};
use anyhow::{Context, Result};

/// How often strings of JSON may lie in each other.
const QUOTED: usize = 3;

/// Something to look for, and how to speak of it without saying it.
pub(crate) struct Secret {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// A secret that was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Find {
    pub(crate) secret: String,
    pub(crate) spelling: &'static str,
    pub(crate) file: PathBuf,
}

/// Looks for secrets raw, in hex, in base64, as lists of numbers, quoted and percent encoded.
pub(crate) struct Search {
    automaton: AhoCorasick,
    /// Of each pattern: the secret's name and the spelling.
    patterns: Vec<(String, &'static str)>,
}

/// What was looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
}

/// The same secret in one file is reported once per spelling.
pub(crate) type Report = (Extent, Vec<Find>);

impl Search {
    /// Prepares to look for all of them in one pass.
    pub(crate) fn new(secrets: &[Secret]) -> Result<Self> {
        let mut patterns = Vec::new();
        let mut needles: Vec<Vec<u8>> = Vec::new();
        for secret in secrets {
            for (spelling, needle) in spellings(&secret.bytes) {
                patterns.push((secret.name.clone(), spelling));
                needles.push(needle);
            }
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&needles)
            .context("the search could not be prepared")?;
        Ok(Self {
            automaton,
            patterns,
        })
    }

    /// Looks through every file below a folder, and at the names of the files themselves.
    pub(crate) fn folder(&self, folder: &Path) -> Result<Report> {
        let mut report = (Extent::default(), Vec::new());
        for file in files_below(folder)? {
            let bytes = match fs::read(&file) {
                Ok(bytes) => bytes,
                // A server that runs renames and removes files of its own.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    let searched = format!("{} could not be searched", file.display());
                    return Err(error).context(searched);
                }
            };
            report.0.files += 1;
            report.0.bytes += bytes.len() as u64;
            let shown = file.strip_prefix(folder).unwrap_or(&file);
            report
                .1
                .extend(self.haystack(shown, shown.as_os_str().as_encoded_bytes()));
            report.1.extend(self.haystack(shown, &bytes));
        }
        Ok(report)
    }

    /// Looks through one piece of text or bytes.
    pub(crate) fn haystack(&self, name: &Path, bytes: &[u8]) -> Vec<Find> {
        let mut seen = vec![false; self.patterns.len()];
        for found in self.automaton.find_overlapping_iter(bytes) {
            seen[found.pattern().as_usize()] = true;
        }
        let mut finds = Vec::new();
        for ((secret, spelling), _) in self.patterns.iter().zip(seen).filter(|(_, seen)| *seen) {
            let find = Find {
                secret: secret.clone(),
                spelling,
                file: name.to_path_buf(),
            };
            if !finds.contains(&find) {
                finds.push(find);
            }
        }
        finds
    }
}

/// Every file below a folder, in order; links are not followed.
pub(crate) fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("{} cannot be read", folder.display()))?;
        if entry.file_type()?.is_dir() {
            files.extend(files_below(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The ways in which bytes could lie in a file.
///
/// In base64 the same bytes read differently at each of the three positions in a group of
/// three, so all three are looked for, without the characters that depend on a neighbour.
fn spellings(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let mut all = vec![
        ("raw", bytes.to_vec()),
        ("hex", hex.to_uppercase().into_bytes()),
        ("hex", hex.into_bytes()),
    ];
    for offset in 0..3 {
        let standard = base64_inside(bytes, offset);
        let url: Vec<u8> = standard
            .iter()
            .map(|character| match character {
                b'+' => b'-',
                b'/' => b'_',
                other => *other,
            })
            .collect();
        if url != standard {
            all.push(("base64url", url));
        }
        all.push(("base64", standard));
    }
    for between in [",", ", "] {
        let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
        all.push(("numbers", numbers.join(between).into_bytes()));
    }
    // All of it, as a component of a URL, and as a path.
    for safe in [None, Some(&b"-._~"[..]), Some(b"-._~/!$&'()*+,;=:@")] {
        let is_safe = |byte: u8| {
            safe.is_some_and(|safe| byte.is_ascii_alphanumeric() || safe.contains(&byte))
        };
        let upper = |byte| (!is_safe(byte)).then(|| format!("%{byte:02X}"));
        let lower = |byte| (!is_safe(byte)).then(|| format!("%{byte:02x}"));
        all.push(("percent", replaced(bytes, upper)));
        all.push(("percent", replaced(bytes, lower)));
    }
    all.extend(quoted(bytes).into_iter().map(|needle| ("quoted", needle)));
    // What has nothing to quote is itself.
    all.retain(|(spelling, needle)| *spelling == "raw" || needle != bytes);
    all
}

/// As Rust prints bytes and strings and as JSON does, and each of them in strings of JSON: a log in
/// JSON quotes what was quoted already.
fn quoted(bytes: &[u8]) -> BTreeSet<Vec<u8>> {
    let printed = |byte| match byte {
        0 => Some("\\0".to_owned()),
        1..b' ' | 0x7f.. => short_escape(byte).or_else(|| Some(format!("\\x{byte:02x}"))),
        _ => short_escape(byte),
    };
    let in_a_string = |byte| match byte {
        0 => Some("\\0".to_owned()),
        1..b' ' | 0x7f => short_escape(byte).or_else(|| Some(format!("\\u{{{byte:x}}}"))),
        _ => short_escape(byte),
    };
    let in_json = |byte| match byte {
        8 => Some("\\b".to_owned()),
        12 => Some("\\f".to_owned()),
        0..b' ' => short_escape(byte).or_else(|| Some(format!("\\u{byte:04x}"))),
        _ => short_escape(byte),
    };
    let mut forms = vec![
        bytes.to_vec(),
        bytes.escape_ascii().to_string().into_bytes(),
        replaced(bytes, printed),
        replaced(bytes, in_a_string),
    ];
    let mut all = BTreeSet::new();
    for _ in 0..QUOTED {
        let inside: Vec<_> = forms.iter().map(|form| replaced(form, in_json)).collect();
        all.extend(std::mem::replace(&mut forms, inside));
    }
    all.extend(forms);
    all
}

/// What Rust and JSON both escape.
fn short_escape(byte: u8) -> Option<String> {
    let escape = match byte {
        b'\n' => "\\n",
        b'\r' => "\\r",
        b'\t' => "\\t",
        b'"' => "\\\"",
        b'\\' => "\\\\",
        _ => return None,
    };
    Some(escape.to_owned())
}

/// With some bytes replaced by what stands for them.
fn replaced(bytes: &[u8], by: impl Fn(u8) -> Option<String>) -> Vec<u8> {
    let each = |&byte: &u8| by(byte).map_or_else(|| vec![byte], String::into_bytes);
    bytes.iter().flat_map(each).collect()
}

/// The base64 of bytes that begin `offset` bytes into a group of three, cut down to the
/// characters that they alone decide.
fn base64_inside(bytes: &[u8], offset: usize) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bit = |index: usize| {
        index
            .checked_sub(offset * 8)
            .and_then(|own| bytes.get(own / 8).map(|byte| byte >> (7 - own % 8) & 1))
    };
    (0..(offset + bytes.len()) * 8 / 6)
        .filter_map(|group| {
            (group * 6..group * 6 + 6).try_fold(0, |value, index| Some(value << 1 | bit(index)?))
        })
        .map(|value: u8| ALPHABET[usize::from(value)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Vec<Secret> {
        vec![Secret {
            name: "the key".into(),
            bytes: b"\xfb\xef\xbeAttack at dawn".to_vec(),
        }]
    }

    fn found(haystack: &[u8]) -> Vec<&'static str> {
        let finds = Search::new(&secret())
            .unwrap()
            .haystack(Path::new("x"), haystack);
        finds.into_iter().map(|find| find.spelling).collect()
    }

    #[test]
    fn every_spelling_is_found() {
        assert_eq!(found(b"..\xfb\xef\xbeAttack at dawn.."), ["raw"]);
        assert_eq!(found(b"FBEFBE41747461636B206174206461776E"), ["hex"]);
        assert_eq!(found(b"fbefbe41747461636b206174206461776e"), ["hex"]);
        assert_eq!(found(b"++++QXR0YWNrIGF0IGRhd24="), ["base64"]);
        assert_eq!(found(b"----QXR0YWNrIGF0IGRhd24"), ["base64url"]);
    }

    #[test]
    fn every_spelling_is_found_in_a_string_of_json_too() {
        // Bytes that each spelling treats in ways of its own.
        let bytes: &[u8] = b"\xfb\xc3\xa9 'A+/\" \\\n\x07\x7f\x001";
        let text = "caf\u{e9} 'A+/\" \\\n\u{7}\u{8}\u{7f}\u{0}1.txt";
        let secrets = [("bytes", bytes), ("text", text.as_bytes())].map(|(name, bytes)| Secret {
            name: name.into(),
            bytes: bytes.to_vec(),
        });
        let search = Search::new(&secrets).unwrap();
        // As the crate for shared buffers prints them, which the standard library does not.
        let printed = r#"b"\xfb\xc3\xa9 'A+/\" \\\n\x07\x7f\01""#;
        let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
        let told = [
            ("bytes", bytes.escape_ascii().to_string()),
            ("bytes", printed.to_owned()),
            ("bytes", format!("{bytes:?}")),
            ("bytes", numbers.join(",")),
            ("bytes", "%FB%C3%A9%20'A+/%22%20%5C%0A%07%7F%001".to_owned()),
            (
                "bytes",
                "%fb%c3%a9%20%27A%2b%2f%22%20%5c%0a%07%7f%001".to_owned(),
            ),
            ("text", text.to_owned()),
            ("text", format!("{text:?}")),
            ("text", serde_json::json!(text).to_string()),
        ];
        for (name, told) in told {
            let line = serde_json::json!({"message": told.clone()}).to_string();
            let twice = serde_json::json!({ "body": line }).to_string();
            for told in [told, line, twice] {
                let finds = search.haystack(Path::new("x"), told.as_bytes());
                assert!(finds.iter().any(|find| find.secret == name), "{told}");
            }
        }
        let other = format!("{:?}", b"\xfb\xc3\xa9 'A+/\" \\\n\x07\x7f\x002");
        assert!(search.haystack(Path::new("x"), other.as_bytes()).is_empty());
    }

    #[test]
    fn base64_is_found_at_every_position_of_its_group() {
        let bytes = b"\xfb\xef\xbeAttack at dawn";
        for before in 0..6 {
            for after in 0..4 {
                let mut whole = vec![0x55; before];
                whole.extend_from_slice(bytes);
                whole.extend(std::iter::repeat_n(0x33, after));
                let encoded = base64_inside(&whole, 0);
                assert!(
                    !found(&encoded).is_empty(),
                    "{before} before, {after} after"
                );
            }
        }
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        assert_eq!(found(b"Attack at dusk"), Vec::<&str>::new());
    }
}
