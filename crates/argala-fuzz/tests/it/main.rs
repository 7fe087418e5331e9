//! Every target on its seeds, on neighbours of them, and on bytes of no kind.

#![cfg(test)]

use std::{collections::BTreeSet, fs, path::PathBuf};

use argala_fuzz::{TARGETS, Verdict};
use proptest::{collection::vec, prelude::*, sample::Index, test_runner::TestRunner};

fn fuzz() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The names of what is in a folder, in order.
fn names_in(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz().join(folder)).expect("a folder");
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// The seeds of a target, by their names.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = format!("corpus/{name}");
    let read = |seed: String| {
        let bytes = fs::read(fuzz().join(&folder).join(&seed)).unwrap();
        (seed, bytes)
    };
    names_in(&folder).into_iter().map(read).collect()
}

/// Whether libFuzzer named the seed: such a one is kept for what it makes the code do.
fn is_find(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[test]
fn each_seed_is_taken_or_refused_as_its_name_says() {
    let mut faults = Vec::new();
    for (name, target) in TARGETS {
        for (seed, bytes) in corpus(name) {
            let want = match seed.starts_with("no-") {
                true => Verdict::Refused,
                false => Verdict::Taken,
            };
            if target(&bytes) != want && !is_find(&seed) {
                faults.push(format!("{name}/{seed} is not {want:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_corpus_stays_small() {
    for (name, _) in TARGETS {
        let seeds = corpus(name);
        let of_ours = seeds.iter().filter(|(seed, _)| !is_find(seed)).count();
        assert!((3..=60).contains(&of_ours), "{name} has {of_ours} seeds");
        // Of libFuzzer's, `cargo xtask fuzz --keep` keeps two hundred.
        assert!(seeds.len() <= 260, "{name} has {} seeds", seeds.len());
        for (seed, bytes) in seeds {
            assert!(bytes.len() <= 4_096, "{name}/{seed} is large");
        }
    }
}

#[test]
fn each_target_has_a_program_and_seeds_and_nothing_else_has() {
    let targets: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len(), "two targets of one name");
    assert_eq!(names_in("corpus"), targets);
    let files: BTreeSet<_> = targets.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(names_in("fuzz_targets"), files);
    for name in &targets {
        let program = fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        let call = format!("argala_fuzz::{name}(bytes);");
        assert!(program.contains(&call), "{name} runs another target");
    }
    // One table for each, and the manifest has no others.
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let programs = manifest.split("[[bin]]").skip(1);
    let value = |table: &str, key: &str| -> String {
        let mut lines = table.lines().filter_map(|line| line.split_once(" = "));
        let (_, value) = lines.find(|(known, _)| *known == key).expect("a value");
        value.trim_matches('"').to_owned()
    };
    let named: Vec<_> = programs
        .map(|table| (value(table, "name"), value(table, "path")))
        .collect();
    let meant = |name: &String| (name.clone(), format!("fuzz_targets/{name}.rs"));
    let meant: BTreeSet<_> = targets.iter().map(meant).collect();
    assert_eq!(named.len(), meant.len(), "a program is named twice");
    assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), meant);
}

/// What is done to a seed: bytes replaced, put in, taken out, or a piece of another put in.
#[derive(Debug, Clone)]
enum Edit {
    Replace(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, Index),
    Splice(Index, Index, Index),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let any_index = any::<Index>;
    let edit = prop_oneof![
        (any_index(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        (any_index(), vec(any::<u8>(), 1..4)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any_index(), "[\\[\\]{}\":,.%/d-g0-9-]{1,6}")
            .prop_map(|(at, text)| Edit::Insert(at, text.into_bytes())),
        (any_index(), any_index()).prop_map(|(from, to)| Edit::Remove(from, to)),
        (any_index(), any_index(), any_index())
            .prop_map(|(at, of, from)| Edit::Splice(at, of, from)),
    ];
    vec(edit, 0..6)
}

fn edited(seeds: &[Vec<u8>], seed: Index, edits: &[Edit]) -> Vec<u8> {
    let mut bytes = seed.get(seeds).clone();
    for edit in edits {
        match edit {
            Edit::Replace(at, byte) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Edit::Insert(at, new) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, new.iter().copied());
            }
            Edit::Remove(from, to) if !bytes.is_empty() => {
                let (one, other) = (from.index(bytes.len()), to.index(bytes.len()));
                // A few at a time, or hardly anything is left after some edits.
                let (from, to) = (one.min(other), one.max(other).min(one.min(other) + 4));
                bytes.drain(from..to);
            }
            Edit::Splice(at, of, from) => {
                let other = of.get(seeds);
                let from = from.index(other.len() + 1);
                let at = at.index(bytes.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            Edit::Replace(..) | Edit::Remove(..) => {}
        }
    }
    bytes
}

/// Runs one target on all of it, `cases` times beyond the seeds.
fn run(name: &str, cases: u32) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let seeds: Vec<_> = corpus(name).into_iter().map(|(_, bytes)| bytes).collect();
    for seed in &seeds {
        target(seed);
    }
    let config = ProptestConfig {
        cases,
        // What is found goes into the corpus, where every driver has it.
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let bytes = prop_oneof![
        4 => (any::<Index>(), edits()).prop_map(move |(seed, edits)| edited(&seeds, seed, &edits)),
        1 => vec(any::<u8>(), 0..80),
    ];
    let outcome = TestRunner::new(config).run(&bytes, |bytes| {
        target(&bytes);
        Ok(())
    });
    if let Err(fault) = outcome {
        panic!("{name}: {fault}");
    }
}

macro_rules! targets {
    ($($name:ident: $cases:literal,)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), $cases);
        })*

        #[test]
        fn every_target_is_run_here() {
            let here = [$(stringify!($name)),*];
            let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, here);
        }
    };
}

targets! {
    ids: 4_000,
    graphs: 4_000,
    storage_keys: 4_000,
    cursors: 2_000,
    bodies: 4_000,
    answers: 4_000,
    requests: 300,
    credentials: 2_000,
    headers: 1_000,
}
