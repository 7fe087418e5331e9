//! Looking for what the relay must never hold, in every file and in every spelling.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use aho_corasick::{AhoCorasick, MatchKind};
use anyhow::{Context, Result};

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

/// Looks for secrets raw, in hex and in base64.
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
    all
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
