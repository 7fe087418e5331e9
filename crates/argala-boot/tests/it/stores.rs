//! Settings of the store, and which of them fit together.

use std::fs;

use argala_boot::config::{Config, Fault, Sources, StatementsKind, StoreKind, TimeoutsKind};
use secrecy::ExposeSecret;

const URL: &str = "postgres://relay:a-password@db.internal:5432/relay?sslmode=verify-full";

/// What an operator's command would read: nothing but the store is of interest here.
fn read(text: &str) -> Result<argala_boot::config::Loaded, Vec<Fault>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relay.toml");
    fs::write(&file, text).unwrap();
    let sources = Sources {
        file: Some(file),
        operating: true,
        ..Sources::default()
    };
    sources.load().map_err(|error| error.faults)
}

fn config(text: &str) -> Config {
    read(text).expect("good").config
}

/// Key and message of the only fault.
fn fault(text: &str) -> (String, String) {
    let faults = read(text).expect_err("faulty");
    assert_eq!(faults.len(), 1, "{faults:?}");
    (faults[0].key.clone(), faults[0].message.clone())
}

#[test]
fn a_server_is_named_by_its_url_and_the_rest_has_defaults() {
    let store = config(&format!("[store]\nkind = \"postgres\"\nurl = \"{URL}\"\n")).store;
    assert_eq!(store.kind, StoreKind::Postgres);
    assert_eq!(store.url.unwrap().expose_secret(), URL);
    assert!(store.direct_url.is_none());
    assert_eq!(store.connections, 16);
    assert_eq!(store.timeouts, TimeoutsKind::Connection);
    assert_eq!(store.statements, StatementsKind::Prepared);
}

#[test]
fn every_setting_of_a_server_can_be_given() {
    let store = config(&format!(
        "[store]
kind = \"postgres\"
url = \"{URL}\"
direct_url = \"postgresql://relay@db.internal/relay\"
connections = 4
connection_wait = \"1s\"
connect_timeout = \"2s\"
statement_timeout = \"3s\"
lock_timeout = \"4s\"
idle_in_transaction_timeout = \"5s\"
operation_timeout = \"6s\"
timeouts = \"transaction\"
statements = \"unnamed\"
"
    ))
    .store;
    let seconds = [
        store.connection_wait,
        store.connect_timeout,
        store.statement_timeout,
        store.lock_timeout,
        store.idle_in_transaction_timeout,
        store.operation_timeout,
    ]
    .map(|span| span.0.as_secs());
    assert_eq!(seconds, [1, 2, 3, 4, 5, 6]);
    assert_eq!(store.connections, 4);
    assert_eq!(store.timeouts, TimeoutsKind::Transaction);
    assert_eq!(store.statements, StatementsKind::Unnamed);
    let direct = store.direct_url.unwrap();
    assert_eq!(
        direct.expose_secret(),
        "postgresql://relay@db.internal/relay"
    );
}

#[test]
fn urls_may_lie_in_files_and_are_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (url, direct) = (folder.path().join("url"), folder.path().join("direct"));
    fs::write(&url, format!("{URL}\n")).unwrap();
    fs::write(
        &direct,
        "postgres://relay:another-password@db.internal/relay",
    )
    .unwrap();
    let text =
        format!("[store]\nkind = \"postgres\"\nurl_file = {url:?}\ndirect_url_file = {direct:?}\n");
    let store = config(&text).store;
    assert_eq!(store.url.unwrap().expose_secret(), URL);
    assert!(store.direct_url.is_some());

    for text in [
        text,
        format!(
            "[store]\nkind = \"postgres\"\nurl = \"{URL}\"\n\
             direct_url = \"postgres://relay:another-password@db/relay\"\n"
        ),
    ] {
        let loaded = read(&text).unwrap();
        let shown = format!(
            "{}{}{:?}",
            loaded.to_toml(),
            loaded.to_json(),
            loaded.config
        );
        assert!(!shown.contains("password"), "{shown}");
    }
}

#[test]
fn a_server_and_a_file_are_not_mixed_up() {
    for key in ["url", "direct_url"] {
        let (at, message) = fault(&format!("[store]\n{key} = \"{URL}\"\n"));
        assert_eq!(at, format!("store.{key}"));
        assert!(message.contains("store.kind \"postgres\""), "{message}");
        assert!(!message.contains("password"), "{message}");
    }
    let (at, message) = fault("[store]\nkind = \"postgres\"\n");
    assert_eq!(at, "store.kind");
    assert!(message.contains("store.url"), "{message}");
}

#[test]
fn what_no_server_can_be_is_refused_without_repeating_it() {
    for url in ["mysql://root:a-password@db/relay", "a-password", ""] {
        let (at, message) = fault(&format!("[store]\nkind = \"postgres\"\nurl = \"{url}\"\n"));
        assert_eq!(at, "store.url");
        assert!(message.contains("postgres://"), "{message}");
        assert!(!message.contains("password"), "{message}");
    }
    let given = format!("[store]\nkind = \"postgres\"\nurl = \"{URL}\"\n");
    let (at, _) = fault(&format!("{given}connections = 0\n"));
    assert_eq!(at, "store.connections");
    for key in [
        "connection_wait",
        "connect_timeout",
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_timeout",
        "operation_timeout",
    ] {
        // To a server, none is for ever.
        let (at, _) = fault(&format!("{given}{key} = \"0s\"\n"));
        assert_eq!(at, format!("store.{key}"));
    }
    for (key, value) in [("statements", "named"), ("timeouts", "session")] {
        let (at, message) = fault(&format!("{given}{key} = \"{value}\"\n"));
        assert_eq!(at, format!("store.{key}"));
        assert!(message.contains("there is"), "{message}");
    }
    let faults = read(&format!(
        "[store]\nkind = \"postgres\"\nurl = [\"{URL}\"]\n"
    ))
    .unwrap_err();
    assert!(!format!("{faults:?}").contains("password"), "{faults:?}");
}
