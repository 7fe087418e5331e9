//! Opening: what is migrated, what is refused.

use std::{collections::BTreeMap, fs, path::PathBuf};

use argala_core::ports::{Directory, DirectoryTables, Store};
use argala_postgres::{
    Migrated, OpenError, Options, Postgres, SCHEMA_VERSION, SchemaState, check, migrate,
};
use argala_testkit::{
    member,
    servers::{Session, postgres},
};
use futures_util::future::join_all;
use sha2::{Digest, Sha256};

use crate::{database::options, scene::Scene};

async fn refusal(options: &Options) -> OpenError {
    Postgres::open(options).await.map(drop).unwrap_err()
}

fn is_one_sentence(told: &str) {
    assert!(!told.contains('\n') && !told.contains(". "), "{told}");
}

#[tokio::test]
async fn what_is_stored_is_there_again() {
    let scene = Scene::new().await;
    scene.db.add_member(&member("sam")).await.unwrap();
    let instance = scene.db.instance();
    assert!(instance.len() == 32 && instance.bytes().all(|b| b.is_ascii_hexdigit()));
    scene.db.close().await;
    scene.db.ping().await.unwrap_err();
    let again = Postgres::open(&options(scene.database.url()))
        .await
        .unwrap();
    assert_eq!(again.instance(), instance);
    assert!(again.is_active_member(&member("sam")).await.unwrap());
    // The template of all tests has one, and so have its copies; another database has another.
    let other = postgres().await;
    migrate(&options(other.url())).await.unwrap();
    let other = Postgres::open(&options(other.url())).await.unwrap();
    assert_ne!(other.instance(), instance, "each has an id of its own");
}

#[tokio::test]
async fn what_is_not_migrated_is_refused_and_left_as_it_is() {
    let database = postgres().await;
    let options = options(database.url());
    assert_eq!(check(&options).await.unwrap(), SchemaState::Empty);
    let refused = refusal(&options).await;
    assert!(
        matches!(refused, OpenError::Unmigrated { found: 0, needed } if needed == SCHEMA_VERSION)
    );
    is_one_sentence(&refused.to_string());
    assert!(refused.to_string().contains("relay migrate"));
    let beside = Session::open(&database.url()).await;
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(beside.text(tables).await, "0");

    let migrated = migrate(&options).await.unwrap();
    let (from, to) = (0, SCHEMA_VERSION);
    assert_eq!(migrated, Migrated { from, to });
    let found = SCHEMA_VERSION;
    assert_eq!(check(&options).await.unwrap(), SchemaState::Ready { found });
    let newest = "SELECT max(version) FROM refinery_schema_history";
    assert_eq!(beside.text(newest).await, SCHEMA_VERSION.to_string());
    Postgres::open(&options)
        .await
        .unwrap()
        .ping()
        .await
        .unwrap();
}

#[tokio::test]
async fn of_several_that_migrate_at_once_one_does() {
    let database = postgres().await;
    let options = options(database.url());
    let migrated = join_all((0..6).map(|_| migrate(&options))).await;
    let migrated: Vec<_> = migrated.into_iter().map(Result::unwrap).collect();
    let did = migrated.iter().filter(|it| it.from == 0).count();
    assert_eq!(did, 1, "{migrated:?}");
    assert!(migrated.iter().all(|it| it.to == SCHEMA_VERSION));
}

#[tokio::test]
async fn a_migrator_waits_for_another() {
    let database = postgres().await;
    let options = options(database.url());
    let beside = Session::open(&database.url()).await;
    // The lock of whoever migrates: 'Arga' and a number of its own.
    beside
        .run(&format!(
            "SELECT pg_advisory_lock({})",
            0x4172_6761_0000_0001_i64
        ))
        .await;
    let migrating = tokio::spawn({
        let options = options.clone();
        async move { migrate(&options).await }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event = 'advisory'";
    argala_testkit::eventually("the migrator waits", || async {
        (beside.text(waits).await == "1").then_some(())
    })
    .await;
    assert_eq!(check(&options).await.unwrap(), SchemaState::Empty);
    drop(beside);
    assert_eq!(migrating.await.unwrap().unwrap().from, 0);
}

#[tokio::test]
async fn a_migration_that_fails_leaves_the_database_as_it_was() {
    let database = postgres().await;
    let options = options(database.url());
    let beside = Session::open(&database.url()).await;
    // Another program's, which has a table of a name of ours.
    beside.run("CREATE TABLE chunks (a text)").await;
    let refused = migrate(&options).await.unwrap_err();
    assert!(matches!(refused, OpenError::Migrate(_)), "{refused}");
    assert!(refused.to_string().contains("chunks"), "{refused}");
    let tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
    let left: Vec<_> = beside.column(tables).await.into_iter().flatten().collect();
    assert_eq!(left, ["chunks", "refinery_schema_history"]);
    assert_eq!(check(&options).await.unwrap(), SchemaState::Empty);
}

#[tokio::test]
async fn a_schema_that_was_only_expanded_is_served_on() {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 1).await;
    let key = crate::scene::graph("acme");
    scene.rotate(&key, 1, &devices).await;
    let beside = scene.beside().await;
    let newer = SCHEMA_VERSION + 1;
    // As a newer release's migration does it, while this one runs.
    beside
        .run(&format!(
            "BEGIN;
             ALTER TABLE records ADD COLUMN newer text NOT NULL DEFAULT '';
             ALTER TABLE graphs ADD COLUMN newer bigint NOT NULL DEFAULT 0;
             UPDATE relay_schema SET version = {newer}, oldest = {SCHEMA_VERSION};
             COMMIT"
        ))
        .await;
    let records = crate::scene::records(&key, &devices[0], 3, "content");
    scene.push(&key, &devices[0], records).await;
    assert_eq!(scene.pull_all(&key, &devices[0]).await.len(), 3);
    let options = options(scene.database.url());
    assert_eq!(
        check(&options).await.unwrap(),
        SchemaState::Ready { found: newer }
    );
    let (from, to) = (newer, newer);
    assert_eq!(migrate(&options).await.unwrap(), Migrated { from, to });
    Postgres::open(&options)
        .await
        .unwrap()
        .ping()
        .await
        .unwrap();
}

#[tokio::test]
async fn an_outgrown_schema_is_refused_in_one_sentence() {
    let scene = Scene::new().await;
    let (newer, oldest) = (SCHEMA_VERSION + 41, SCHEMA_VERSION + 40);
    scene
        .beside()
        .await
        .run(&format!(
            "UPDATE relay_schema SET version = {newer}, oldest = {oldest}"
        ))
        .await;
    let options = options(scene.database.url());
    for refused in [
        refusal(&options).await,
        migrate(&options).await.unwrap_err(),
    ] {
        let told = refused.to_string();
        assert!(matches!(refused, OpenError::Outgrown { .. }), "{told}");
        assert!(told.contains(&newer.to_string()) && told.contains(&oldest.to_string()));
        is_one_sentence(&told);
    }
    assert_eq!(
        check(&options).await.unwrap(),
        SchemaState::Outgrown {
            found: newer,
            oldest
        }
    );
}

#[tokio::test]
async fn a_server_that_forgets_commits_is_refused() {
    let scene = Scene::new().await;
    let name = scene.database.name();
    scene
        .beside()
        .await
        .run(&format!(
            "ALTER DATABASE {name} SET synchronous_commit = off"
        ))
        .await;
    let refused = refusal(&options(scene.database.url())).await;
    assert!(matches!(
        refused,
        OpenError::NotDurable("synchronous_commit")
    ));
    is_one_sentence(&refused.to_string());
}

#[tokio::test]
async fn migrations_take_the_direct_url() {
    let database = postgres().await;
    // Nothing listens there: what goes by the pooler's URL fails.
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let mut options = options(format!("postgres://relay:secret@127.0.0.1:{nobody}/relay"));
    options.direct_url = Some(database.url());
    assert_eq!(migrate(&options).await.unwrap().from, 0);
    let refused = refusal(&options).await;
    assert!(matches!(refused, OpenError::Unreachable(_)), "{refused}");
    assert!(!format!("{refused:?} {refused}").contains("secret"));
}

#[tokio::test]
async fn roles_with_other_defaults_change_nothing() {
    let scene = Scene::new().await;
    let name = scene.database.name();
    scene
        .beside()
        .await
        .run(&format!(
            "ALTER DATABASE {name} SET default_transaction_isolation = 'serializable';
             ALTER DATABASE {name} SET default_transaction_read_only = on"
        ))
        .await;
    let db = Postgres::open(&options(scene.database.url()))
        .await
        .unwrap();
    assert!(db.add_member(&member("sam")).await.unwrap());
    assert!(db.is_active_member(&member("sam")).await.unwrap());
}

/// A migration that has been shipped is never edited: databases have it in them.
#[test]
fn shipped_migrations_are_as_they_were() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../migrations/postgres");
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
