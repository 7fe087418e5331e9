//! Every target on its seeds, on neighbours of them, and on bytes of no kind.

#![cfg(test)]

use std::{fs, path::PathBuf};

use argala_fuzz::TARGETS;
use proptest::{collection::vec, prelude::*, sample::Index, test_runner::TestRunner};

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let entries = fs::read_dir(&folder).expect("each target has seeds");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(seeds.len() >= 3, "{name} has few seeds");
    seeds
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
    let seeds = corpus(name);
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
        fn every_target_is_run_here_and_has_a_program() {
            let here = [$(stringify!($name)),*];
            let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, here);
            let fuzz = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
            let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
            for name in names {
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
                assert!(fuzz.join("fuzz_targets").join(format!("{name}.rs")).is_file());
            }
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
