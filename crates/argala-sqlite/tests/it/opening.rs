//! Opening: what is created, what is migrated, what is refused.

use std::{collections::BTreeMap, fs, path::PathBuf};

use argala_core::ports::{Directory, DirectoryTables, Store};
use argala_sqlite::{OpenError, Options, SCHEMA_VERSION, Sqlite};
use argala_testkit::member;
use sha2::{Digest, Sha256};

use crate::scene::Scene;

fn refusal(path: &std::path::Path) -> OpenError {
    let before = fs::read(path).unwrap();
    let refused = Sqlite::open(path, &Options::default()).unwrap_err();
    assert_eq!(fs::read(path).unwrap(), before, "it is left as it was");
    refused
}

#[tokio::test]
async fn what_is_stored_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/below/relay.db");
    let instance = {
        let db = Sqlite::open(&path, &Options::default()).unwrap();
        db.add_member(&member("sam")).await.unwrap();
        db.instance().to_owned()
    };
    assert!(instance.len() == 32 && instance.bytes().all(|b| b.is_ascii_hexdigit()));
    let db = Sqlite::open(&path, &Options::default()).unwrap();
    assert_eq!(db.instance(), instance);
    assert!(db.is_active_member(&member("sam")).await.unwrap());
    assert_ne!(
        Scene::new().db.instance(),
        instance,
        "each has an id of its own"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_is_its_owners() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/relay.db");
    let db = Sqlite::open(&path, &Options::default()).unwrap();
    db.add_member(&member("sam")).await.unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    let mut files = 0;
    for entry in fs::read_dir(path.parent().unwrap()).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
        files += 1;
    }
    assert_eq!(files, 3, "the database, its log and the log's index");
}

#[tokio::test]
async fn the_version_is_the_newest_migrations() {
    let scene = Scene::new();
    let connection = scene.beside();
    let version = |name: &str| -> u32 {
        connection
            .pragma_query_value(None, name, |row| row.get(0))
            .unwrap()
    };
    assert_eq!(version("user_version"), SCHEMA_VERSION);
    let newest = "SELECT max(version) FROM refinery_schema_history";
    let newest: u32 = connection.query_row(newest, [], |row| row.get(0)).unwrap();
    assert_eq!(newest, SCHEMA_VERSION);
    let log: String = connection
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .unwrap();
    assert_eq!(log, "wal");
}

#[tokio::test]
async fn a_newer_builds_database_is_refused_in_one_sentence() {
    let scene = Scene::new();
    let path = scene.folder.path().join("relay.db");
    scene.db.close().await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .pragma_update(None, "user_version", SCHEMA_VERSION + 41)
        .unwrap();
    connection.close().unwrap();
    let refused = refusal(&path);
    assert!(matches!(refused, OpenError::Newer { found, known }
        if found == SCHEMA_VERSION + 41 && known == SCHEMA_VERSION));
    let told = refused.to_string();
    assert!(told.contains(&(SCHEMA_VERSION + 41).to_string()), "{told}");
    assert!(!told.contains('\n') && !told.contains(". "), "{told}");
}

#[test]
fn other_files_are_refused_and_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE t (a)").unwrap();
    connection.close().unwrap();
    assert!(matches!(refusal(&path), OpenError::Foreign));
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .pragma_update(None, "user_version", SCHEMA_VERSION)
        .unwrap();
    connection.close().unwrap();
    assert!(matches!(refusal(&path), OpenError::Foreign));

    let path = folder.path().join("text.db");
    fs::write(
        &path,
        "not a database, but long enough to be looked at".repeat(100),
    )
    .unwrap();
    assert!(matches!(refusal(&path), OpenError::Database(_)));
    let path = folder.path().join("file");
    fs::write(&path, "").unwrap();
    let below = Sqlite::open(path.join("relay.db"), &Options::default());
    assert!(matches!(below, Err(OpenError::File(_))));
}

/// A migration that has been shipped is never edited: databases have it in them.
#[test]
fn shipped_migrations_are_as_they_were() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../migrations/sqlite");
    let sums = fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    let listed: BTreeMap<_, _> = sums
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(sum, name)| (name.to_owned(), sum.to_owned()))
        .collect();
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "sql") {
            let sum = Sha256::digest(fs::read(&path).unwrap());
            let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
            found.insert(
                path.file_name().unwrap().to_string_lossy().into_owned(),
                sum,
            );
        }
    }
    assert_eq!(
        found, listed,
        "add a migration instead, and its line to SHA256SUMS"
    );
    let numbers: Vec<u32> = found
        .keys()
        .map(|name| name[..4].parse().unwrap())
        .collect();
    assert_eq!(
        numbers,
        (1..=SCHEMA_VERSION).collect::<Vec<_>>(),
        "each is embedded"
    );
}
