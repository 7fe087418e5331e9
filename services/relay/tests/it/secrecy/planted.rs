//! What was planted, and looking for it in every spelling.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use aho_corasick::AhoCorasick;

use super::spelling::{readings, spellings};

/// How many bytes of something long are looked for: too many to be met by chance, few enough to
/// lie within one page of a database.
const SAMPLE: usize = 24;

/// How many bytes of each end are looked for, for what is cut short: few enough to be told from the
/// sixteen characters that are shown of something long, be it in base64.
const END: usize = 12;

/// What a planted thing is, which decides where it may be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    /// Tokens, secrets, keys, plaintext, proofs, and what callers put where it does not belong.
    Nowhere,
    RecordId,
    Ciphertext,
    Signature,
    /// The sealed name of a device.
    Label,
    BlobId,
    /// An idempotency key.
    RequestKey,
    Cursor,
    Wrap,
    /// The bytes of a blob, which lie in a file.
    Bytes,
}

/// What the database keeps.
pub(crate) const STORED: [Sort; 7] = [
    Sort::RecordId,
    Sort::Ciphertext,
    Sort::Signature,
    Sort::Label,
    Sort::BlobId,
    Sort::RequestKey,
    Sort::Wrap,
];

/// Something that was planted.
struct Planted {
    name: String,
    sort: Sort,
    /// Its middle, by which it is known, and its ends, which others may share.
    samples: Vec<Vec<u8>>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Garden(Vec<Planted>);

impl Garden {
    pub(crate) fn plant(&mut self, sort: Sort, name: impl Into<String>, bytes: &[u8]) {
        assert!(bytes.len() >= 8, "too short to be told from chance");
        let from = (bytes.len().saturating_sub(SAMPLE)) / 2;
        let middle = &bytes[from..bytes.len().min(from + SAMPLE)];
        let mut samples = vec![middle.to_vec()];
        if bytes.len() > END {
            samples.push(bytes[..END].to_vec());
            samples.push(bytes[bytes.len() - END..].to_vec());
        }
        self.0.push(Planted {
            name: name.into(),
            sort,
            samples,
        });
    }

    /// The names of all of these sorts.
    pub(crate) fn all(&self, sorts: &[Sort]) -> BTreeSet<&str> {
        let of = self
            .0
            .iter()
            .filter(|planted| sorts.contains(&planted.sort));
        of.map(|planted| planted.name.as_str()).collect()
    }

    /// What the thing of this name is.
    pub(crate) fn sort_of(&self, name: &str) -> Sort {
        let named = self.0.iter().find(|planted| planted.name == name);
        named.expect("it is planted").sort
    }

    /// Ready to look for all of them in one pass.
    pub(crate) fn search(&self) -> Search<'_> {
        let mut owners: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        for (at, planted) in self.0.iter().enumerate() {
            for sample in &planted.samples {
                owners.entry(sample).or_default().push(at);
            }
        }
        let (mut needles, mut whose) = (Vec::new(), Vec::new());
        for (sample, owners) in owners {
            let sort = |at: usize| self.0[at].sort;
            if owners.iter().any(|&at| sort(at) != sort(owners[0])) {
                // An end of things that belong in different places says nothing.
                assert!(owners.iter().all(|&at| self.0[at].samples[0] != sample));
                continue;
            }
            for spelling in spellings(sample) {
                needles.push(spelling);
                whose.push(owners.clone());
            }
        }
        Search {
            garden: self,
            automaton: AhoCorasick::new(needles).unwrap(),
            whose,
        }
    }
}

/// A search for all that was planted.
pub(crate) struct Search<'a> {
    garden: &'a Garden,
    automaton: AhoCorasick,
    /// Of each pattern: what it is a spelling of.
    whose: Vec<Vec<usize>>,
}

/// Where something was found: its name, and what is around it.
type Found<'a> = BTreeMap<&'a str, String>;

impl<'a> Search<'a> {
    fn places(&self, bytes: &[u8]) -> Found<'a> {
        let mut found = Found::new();
        for text in readings(bytes) {
            for place in self.automaton.find_overlapping_iter(&text) {
                for &at in &self.whose[place.pattern().as_usize()] {
                    let around = || {
                        let from = place.start().saturating_sub(300);
                        let span = &text[from..text.len().min(place.end() + 200)];
                        String::from_utf8_lossy(span).into_owned()
                    };
                    let name = self.garden.0[at].name.as_str();
                    found.entry(name).or_insert_with(around);
                }
            }
        }
        found
    }

    /// The names of what is found in `bytes`.
    pub(crate) fn found(&self, bytes: &[u8]) -> BTreeSet<&'a str> {
        self.places(bytes).into_keys().collect()
    }

    /// Fails where anything is found but what is of these sorts; what was found.
    #[track_caller]
    pub(crate) fn holds_only(
        &self,
        sorts: &[Sort],
        bytes: &[u8],
        place: &str,
    ) -> BTreeSet<&'a str> {
        let found = self.places(bytes);
        let allowed = self.garden.all(sorts);
        let wrong: Vec<_> = found
            .keys()
            .filter(|name| !allowed.contains(*name))
            .collect();
        if let Some(first) = wrong.first() {
            // For whoever has to mend it: the first place, with what is around it.
            panic!("{place} holds {wrong:?}: …{}…", found[**first]);
        }
        found.into_keys().collect()
    }
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

/// Bytes that each spelling treats in ways of its own, too few for ends besides.
#[cfg(test)]
const SECRET: &[u8; END] = b"\xfb\xef\xbe'+\" \\\n\x07\x001";

/// `bytes` as programs write them.
#[cfg(test)]
fn told(bytes: &[u8]) -> Vec<String> {
    use argala_wire::Sealed;
    use hyper::body::Bytes;

    let shared = Bytes::copy_from_slice(bytes);
    let url = Sealed(bytes.to_vec()).to_base64url();
    let each = |one: &dyn Fn(u8) -> String| bytes.iter().map(|&byte| one(byte)).collect::<String>();
    let hex = |byte: u8| format!("{byte:02x}");
    let spaced: Vec<String> = bytes.iter().map(|&byte| hex(byte)).collect();
    let percent = each(&|byte| format!("%{byte:02X}"));
    let in_a_path = each(&|byte| match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'\'' | b'+' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    vec![
        url.replace('-', "+").replace('_', "/"),
        url,
        each(&hex),
        each(&hex).to_uppercase(),
        spaced.join(" "),
        spaced.join(":"),
        format!("{bytes:?}"),
        format!("{bytes:#?}"),
        format!("{bytes:02x?}"),
        format!("{bytes:#04x?}"),
        bytes.escape_ascii().to_string(),
        format!("{shared:?}"),
        format!("{:?}", Some(&shared)),
        format!("{:?}", format!("{shared:?}")),
        percent.to_lowercase(),
        in_a_path.replace('+', "%2B").replace("%20", "+"),
        percent,
        in_a_path,
    ]
}

#[test]
fn every_spelling_is_found_in_a_string_of_json_too() {
    let mut garden = Garden::default();
    garden.plant(Sort::Nowhere, "it", SECRET);
    let search = garden.search();
    let among_others = |secret: &[u8], before: usize| {
        let before = &[0x55, 0x0a, 0xff, 0x00][..before];
        [before, secret, b"after"].concat()
    };
    let mut other = *SECRET;
    other[END - 1] = b'Q';
    for before in 0..4 {
        let whole = among_others(SECRET, before);
        assert_eq!(search.found(&whole).len(), 1);
        for text in told(&whole) {
            let line = serde_json::json!({"level": "TRACE", "span": {"what": [text.clone()]}});
            let twice = serde_json::json!({ "body": line.to_string() });
            for text in [text, line.to_string(), twice.to_string()] {
                assert_eq!(search.found(text.as_bytes()).len(), 1, "{text}");
            }
        }
        for text in told(&among_others(&other, before)) {
            assert!(search.found(text.as_bytes()).is_empty(), "{text}");
        }
    }
}

#[test]
fn a_text_is_found_however_it_is_quoted() {
    let text = "say \"what\"\tis\u{7}meant,\nd\u{e9}j\u{e0} vu\\";
    let mut garden = Garden::default();
    garden.plant(Sort::Nowhere, "it", text.as_bytes());
    let search = garden.search();
    for told in [
        text.to_owned(),
        format!("{text:?}"),
        text.escape_default().to_string(),
        serde_json::json!({ text: 1 }).to_string(),
        serde_json::json!([format!("{text:?}")]).to_string(),
    ] {
        assert_eq!(search.found(told.as_bytes()).len(), 1, "{told}");
    }
}

#[test]
fn what_is_cut_short_is_found_by_either_end() {
    let bytes: Vec<u8> = (0..200).map(|at: u8| at.wrapping_mul(151) ^ 0x5a).collect();
    let mut garden = Garden::default();
    garden.plant(Sort::Nowhere, "it", &bytes);
    let search = garden.search();
    for part in [&bytes[..16], &bytes[184..], &bytes[80..120]] {
        assert_eq!(search.found(part).len(), 1);
        for text in told(part) {
            assert_eq!(search.found(text.as_bytes()).len(), 1, "{text}");
        }
    }
    let text = argala_wire::Sealed(bytes).to_base64url();
    assert_eq!(search.found(&text.as_bytes()[..16]).len(), 1);
}

#[test]
fn an_end_that_belongs_in_two_places_is_not_looked_for() {
    let mut garden = Garden::default();
    garden.plant(Sort::Wrap, "a wrap", b"the same header, one content of it");
    garden.plant(
        Sort::Label,
        "a label",
        b"the same header, and another inside",
    );
    let search = garden.search();
    assert!(
        search
            .found(b"the same header, of something else")
            .is_empty()
    );
    let found = search.found(b"the same header, one content of it");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a wrap"]);
}
