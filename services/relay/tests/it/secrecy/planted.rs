//! What was planted, and looking for it in every spelling.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use argala_wire::Sealed;

/// How many bytes of something long are looked for: too many to be met by chance, few enough to
/// lie within one page of a database.
const SAMPLE: usize = 24;

/// What a planted thing is, which decides where it may be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    /// Tokens, secrets, keys, plaintext, proofs, and what callers put where it does not belong.
    Nowhere,
    /// What the database keeps and hands out to those who are entitled: ids of records and blobs,
    /// ciphertexts, signatures, sealed names.
    Store,
    /// Wraps, which the database keeps and hands out to one device alone.
    Wrap,
    /// The bytes of a blob, which lie in a file.
    Blob,
}

/// Something that was planted.
pub(crate) struct Planted {
    pub(crate) name: String,
    pub(crate) sort: Sort,
    spellings: Vec<Vec<u8>>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Garden(Vec<Planted>);

impl Garden {
    pub(crate) fn plant(&mut self, sort: Sort, name: impl Into<String>, bytes: &[u8]) {
        // The middle: ends may be shared, as those of tokens and sealed headers are.
        let from = (bytes.len().saturating_sub(SAMPLE)) / 2;
        let sample = &bytes[from..bytes.len().min(from + SAMPLE)];
        assert!(sample.len() >= 8, "too short to be told from chance");
        self.0.push(Planted {
            name: name.into(),
            sort,
            spellings: spellings(sample),
        });
    }

    /// The names of what is found in `bytes`.
    pub(crate) fn found(&self, bytes: &[u8]) -> BTreeSet<&str> {
        let found = |planted: &&Planted| planted.spellings.iter().any(|it| holds(bytes, it));
        let found = self.0.iter().filter(found);
        found.map(|planted| planted.name.as_str()).collect()
    }

    /// The names of all of a sort.
    pub(crate) fn all(&self, sort: Sort) -> BTreeSet<&str> {
        let of = self.0.iter().filter(|planted| planted.sort == sort);
        of.map(|planted| planted.name.as_str()).collect()
    }

    /// Fails where anything is found but what is of these sorts.
    #[track_caller]
    pub(crate) fn holds_only(&self, sorts: &[Sort], bytes: &[u8], place: &str) {
        let found = self.found(bytes);
        let allowed = |name: &&str| {
            let planted = self.0.iter().find(|planted| planted.name == **name);
            planted.is_some_and(|planted| sorts.contains(&planted.sort))
        };
        let wrong: Vec<_> = found.iter().filter(|name| !allowed(name)).collect();
        if wrong.is_empty() {
            return;
        }
        // For whoever has to mend it: the first place, with what is around it.
        let around = self
            .0
            .iter()
            .filter(|it| *wrong[0] == it.name)
            .find_map(|it| {
                let mut places = it.spellings.iter().filter_map(|it| find(bytes, it));
                let at = places.next()?;
                let span = &bytes[at.saturating_sub(300)..bytes.len().min(at + 200)];
                Some(String::from_utf8_lossy(span).into_owned())
            });
        panic!("{place} holds {wrong:?}: …{}…", around.unwrap_or_default());
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    // A first byte found fast: a log at trace level has many megabytes.
    let (&first, rest) = needle.split_first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|&byte| byte == first) {
        let at = from + at;
        if bytes[at + 1..].starts_with(rest) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    find(bytes, needle).is_some()
}

/// The ways in which bytes could be written down: as they are, in hexadecimal, in both base64 at
/// each of the three places in a group, as a list of numbers, escaped as Rust prints them.
fn spellings(bytes: &[u8]) -> Vec<Vec<u8>> {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    let mut all = vec![
        bytes.to_vec(),
        hex.to_uppercase().into_bytes(),
        hex.into_bytes(),
        numbers.join(",").into_bytes(),
        numbers.join(", ").into_bytes(),
        bytes.escape_ascii().to_string().into_bytes(),
    ];
    for before in 0..3 {
        let mut shifted = vec![0; before];
        shifted.extend_from_slice(bytes);
        let text = Sealed(shifted.clone()).to_base64url();
        // Without the characters that a neighbour has a part in.
        let first = (before * 8).div_ceil(6);
        let url = text[first..shifted.len() * 8 / 6].to_owned();
        all.push(url.replace('-', "+").replace('_', "/").into_bytes());
        all.push(url.into_bytes());
    }
    all.sort();
    all.dedup();
    all
}

/// Every file below a folder, with its bytes.
pub(crate) fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            all.push((path, bytes));
        }
    }
    all
}

#[test]
fn every_spelling_is_found_and_nothing_else() {
    let mut garden = Garden::default();
    let bytes = b"\xfb\xef\xbeAttack at dawn\x00\xff";
    garden.plant(Sort::Nowhere, "it", bytes);
    for before in 0..4 {
        let mut whole = vec![0x55; before];
        whole.extend_from_slice(bytes);
        whole.extend_from_slice(b"after");
        let url = Sealed(whole.clone()).to_base64url();
        let standard = url.replace('-', "+").replace('_', "/");
        let told = [
            whole.clone(),
            url.into_bytes(),
            standard.into_bytes(),
            format!("{whole:?}").into_bytes(),
            whole.escape_ascii().to_string().into_bytes(),
            whole
                .iter()
                .flat_map(|b| format!("{b:02X}").into_bytes())
                .collect(),
        ];
        for told in told {
            assert_eq!(garden.found(&told).len(), 1, "{}", told.escape_ascii());
        }
    }
    assert!(
        garden
            .found(b"\xfb\xef\xbeAttack at dusk\x00\xff")
            .is_empty()
    );
}
