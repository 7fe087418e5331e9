use std::{fs, path::Path};

use super::*;
use crate::sync::{Base, DiskTree, RelPath, state::Folder};

fn path(text: &str) -> RelPath {
    RelPath::parse(text).expect("legal")
}

fn base(seq: u64) -> StateOp {
    let base = Base {
        seq,
        content: None,
        local: Some(path("b")),
        parts: Vec::new(),
        by: Some("d0".into()),
        stamp: None,
    };
    StateOp::Base(path("a"), Box::new(base))
}

fn ops() -> Vec<StateOp> {
    let folder = Folder {
        graph: "g:acme".parse().expect("legal"),
        secret: super::super::FolderSecret::new([1; 32]),
        lost: None,
    };
    vec![
        StateOp::Folder(folder),
        base(1),
        StateOp::Grave(path("c"), 2),
        StateOp::Sent(path("a"), None),
        StateOp::Refused(
            argala_wire::RecordId::new("r").expect("legal"),
            super::super::RefusedRecord {
                seq: 3,
                by: "d1".into(),
                why: "unsigned".into(),
            },
        ),
        base(4),
    ]
}

fn applied(ops: &[StateOp]) -> State {
    let mut state = State::default();
    ops.iter().for_each(|op| state.apply(op.clone()));
    state
}

/// Loads the state as a new process would.
fn load(at: &Path) -> Result<State, SyncError> {
    let (_tree, mut journal) = DiskTree::open(at, false).expect("opens");
    journal.load()
}

fn append(at: &Path, ops: &[StateOp]) {
    let (_tree, mut journal) = DiskTree::open(at, false).expect("opens");
    journal.load().expect("loads");
    journal.append(ops, true).expect("appends");
}

fn own(at: &Path, name: &str) -> PathBuf {
    at.join(".argala-sync").join(name)
}

#[test]
fn what_was_appended_is_loaded() {
    let at = tempfile::tempdir().expect("a folder");
    append(at.path(), &ops()[..3]);
    append(at.path(), &ops()[3..]);
    assert_eq!(load(at.path()).expect("loads"), applied(&ops()));
}

/// Cut at whatever byte, the journal yields what was whole, and goes on from there.
#[test]
fn a_torn_journal_goes_on_where_it_is_whole() {
    let at = tempfile::tempdir().expect("a folder");
    append(at.path(), &ops());
    let journal = own(at.path(), "journal.0");
    let bytes = fs::read(&journal).expect("reads");
    for cut in 0..bytes.len() {
        fs::write(&journal, &bytes[..cut]).expect("writes");
        let whole = bytes[..cut].iter().filter(|b| **b == b'\n').count();
        assert_eq!(load(at.path()).expect("loads"), applied(&ops()[..whole]));
        append(at.path(), &[base(9)]);
        let mut expected = applied(&ops()[..whole]);
        expected.apply(base(9));
        assert_eq!(load(at.path()).expect("loads"), expected);
    }
}

#[test]
fn a_long_journal_becomes_a_snapshot() {
    let at = tempfile::tempdir().expect("a folder");
    let many: Vec<StateOp> = (0..8_000).map(base).collect();
    append(at.path(), &many);
    append(at.path(), &ops());
    assert!(own(at.path(), "state.json").exists());
    assert!(!own(at.path(), "journal.0").exists());
    let journal = fs::metadata(own(at.path(), "journal.1")).expect("there");
    assert!(journal.len() < 2_000);
    let mut expected = applied(&many);
    ops().into_iter().for_each(|op| expected.apply(op));
    assert_eq!(load(at.path()).expect("loads"), expected);
    // A journal of before, which a crash left there, is part of the snapshot and is not read.
    fs::write(own(at.path(), "journal.0"), "{\"grave\":[\"a\",0]}\n").expect("writes");
    assert_eq!(load(at.path()).expect("loads"), expected);
}

#[test]
fn a_damaged_or_newer_snapshot_is_never_overwritten() {
    let at = tempfile::tempdir().expect("a folder");
    append(at.path(), &ops());
    let snapshot = own(at.path(), "state.json");
    for (text, newer) in [
        ("{", false),
        ("", false),
        ("{\"v\":2}", true),
        ("{\"v\":1}", false),
    ] {
        fs::write(&snapshot, text).expect("writes");
        let error = load(at.path()).expect_err("refused");
        assert_eq!(matches!(error, SyncError::Newer), newer, "{text}");
        assert_eq!(matches!(error, SyncError::Damaged(_)), !newer, "{text}");
        assert_eq!(fs::read_to_string(&snapshot).expect("reads"), text);
    }
}

#[test]
fn the_state_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let at = tempfile::tempdir().expect("a folder");
    append(at.path(), &(0..8_000).map(base).collect::<Vec<_>>());
    append(at.path(), &ops());
    for name in ["state.json", "journal.1", "lock"] {
        let metadata = fs::metadata(own(at.path(), name)).expect("there");
        assert_eq!(metadata.permissions().mode() & 0o077, 0, "{name}");
    }
}
