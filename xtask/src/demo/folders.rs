//! The folder that is synced: real documents, a large file, edits, and byte for byte
//! comparison.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::search::files_below;

/// The size of the large file: far above what fits into a record.
pub(crate) const LARGE: usize = 20 * 1024 * 1024;

/// The large file's name.
pub(crate) const LARGE_NAME: &str = "recordings/board meeting.bin";

/// What the names of the client's own files in a synced folder begin with.
const OWN: &[u8] = b".argala-";

/// Copies this repository's documents and adds what real folders have: a large file, an
/// empty one, names with spaces and letters beyond ASCII, names that differ in case only.
pub(crate) fn seed(folder: &Path, repository: &Path) -> Result<()> {
    for document in documents(repository)? {
        let bytes = fs::read(repository.join(&document))
            .with_context(|| format!("{} cannot be read", document.display()))?;
        write(folder, &document, &bytes)?;
    }
    write(folder, LARGE_NAME, &noise(LARGE, 7))?;
    write(folder, "empty.txt", b"")?;
    write(folder, "agenda.txt", b"1. Last week\n2. This week\n")?;
    write(
        folder,
        "Reisepläne/Zürich – Mai.txt",
        "Treffpunkt: Hauptbahnhof, 9 Uhr 40\n".as_bytes(),
    )?;
    write(
        folder,
        "minutes.txt",
        b"The minutes of the meeting in spring, lower case.\n",
    )?;
    write(
        folder,
        "Minutes.txt",
        b"The minutes of the meeting in autumn, upper case.\n",
    )
}

/// The documents that git tracks; without git, all that lie at the top and in `docs`.
fn documents(repository: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--", "*.md", "docs"])
        .current_dir(repository)
        .output();
    let mut documents: Vec<PathBuf> = match listed {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout)
            .context("git listed a name that is not UTF-8")?
            .split_terminator('\0')
            .map(PathBuf::from)
            .collect(),
        _ => files_below(&repository.join("docs"))?
            .into_iter()
            .filter_map(|path| path.strip_prefix(repository).ok().map(Path::to_path_buf))
            .chain(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from))
            .collect(),
    };
    documents.retain(|path| repository.join(path).is_file());
    if documents.is_empty() {
        bail!("no documents were found in {}", repository.display());
    }
    Ok(documents)
}

/// Bytes that no compression shrinks and that are the same in every run.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // SplitMix64: passes the usual tests of randomness in three lines.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes a file, and the folders above it.
pub(crate) fn write(folder: &Path, name: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    let parent = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
    fs::write(&path, bytes).with_context(|| format!("{} cannot be written", path.display()))
}

/// Everything in a folder by its name, without what a client keeps there for itself.
pub(crate) fn contents(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for path in files_below(folder)? {
        let name = path.strip_prefix(folder).unwrap_or(&path).to_path_buf();
        if name
            .components()
            .any(|part| part.as_os_str().as_encoded_bytes().starts_with(OWN))
        {
            continue;
        }
        let bytes =
            fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        all.insert(name, bytes);
    }
    Ok(all)
}

/// Fails, naming the files, unless two folders hold the same files with the same bytes.
pub(crate) fn require_equal(left: &Path, right: &Path) -> Result<(usize, u64)> {
    let (one, other) = (contents(left)?, contents(right)?);
    let mut differences = Vec::new();
    for (name, bytes) in &one {
        match other.get(name) {
            None => differences.push(format!("{} is missing on the right", name.display())),
            Some(there) if there != bytes => {
                differences.push(format!("{} differs", name.display()));
            }
            Some(_) => {}
        }
    }
    for name in other.keys().filter(|name| !one.contains_key(*name)) {
        differences.push(format!("{} is missing on the left", name.display()));
    }
    if !differences.is_empty() {
        bail!(
            "{} and {}: {}",
            left.display(),
            right.display(),
            differences.join(", ")
        );
    }
    if one.is_empty() {
        bail!("{} and {} are both empty", left.display(), right.display());
    }
    Ok((
        one.len(),
        one.values().map(|bytes| bytes.len() as u64).sum(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_compared_byte_for_byte() {
        let stage = tempfile::tempdir().unwrap();
        let (left, right) = (stage.path().join("left"), stage.path().join("right"));
        for folder in [&left, &right] {
            write(folder, "a/b.txt", b"one").unwrap();
        }
        assert_eq!(require_equal(&left, &right).unwrap(), (1, 3));
        write(&right, "a/b.txt", b"two").unwrap();
        write(&left, "left.txt", b"").unwrap();
        write(&right, "right.txt", b"").unwrap();
        let told = require_equal(&left, &right).unwrap_err().to_string();
        for word in [
            "b.txt differs",
            "left.txt is missing on the right",
            "right.txt is missing on the left",
        ] {
            assert!(told.contains(word), "{told}");
        }
    }

    #[test]
    fn two_empty_folders_prove_nothing() {
        let stage = tempfile::tempdir().unwrap();
        assert!(require_equal(stage.path(), stage.path()).is_err());
    }

    #[test]
    fn noise_is_repeatable_and_has_no_pattern() {
        let bytes = noise(1 << 16, 7);
        assert_eq!(bytes, noise(1 << 16, 7));
        assert_ne!(bytes, noise(1 << 16, 8));
        let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
        assert!((250_000..275_000).contains(&ones), "{ones}");
    }
}
