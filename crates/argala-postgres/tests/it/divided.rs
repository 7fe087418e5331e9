//! The store on tables that are divided by hash of the graph, as a cluster's database may have
//! them: nothing in the code knows.

use std::sync::Arc;

use argala_core::ports::SweepStore;
use argala_postgres::SCHEMA_VERSION;
use argala_testkit::{
    conformance::Fresh,
    servers::{Database, Session, postgres_from},
};

use crate::database::{handles, options};

/// What may be divided.
const TABLES: [&str; 4] = ["records", "wraps", "blobs", "blob_fetches"];

/// The schema, with those tables in eight parts.
fn divided() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/postgres");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "sql"))
        .collect();
    files.sort();
    let files = files
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap());
    let mut schema: String = files.collect();
    for table in TABLES {
        let begin = schema.find(&format!("CREATE TABLE {table} (")).unwrap();
        let end = begin + schema[begin..].find("\n);").unwrap();
        let mut parts = String::from("\n) PARTITION BY HASH (graph);\n");
        for part in 0..8 {
            parts.push_str(&format!(
                "CREATE TABLE {table}_{part} PARTITION OF {table}
                 FOR VALUES WITH (MODULUS 8, REMAINDER {part});\n"
            ));
        }
        schema.replace_range(end..end + "\n);".len(), &parts);
    }
    let end = format!("UPDATE relay_schema SET version = {SCHEMA_VERSION}, oldest = 1;");
    schema.push_str(&end);
    schema
}

async fn in_eight_parts() -> Database {
    postgres_from("divided", |url| async move {
        Session::open(&url).await.run(&divided()).await;
    })
    .await
}

async fn two_stores() -> Fresh<dyn SweepStore> {
    let database = in_eight_parts().await;
    let handles = handles(2, &options(database.url())).await;
    let handles = handles.into_iter().map(|it| it as Arc<dyn SweepStore>);
    Fresh::of(handles.collect(), database)
}

mod store {
    argala_testkit::store_conformance!(super::two_stores);
}

mod race {
    argala_testkit::race_conformance!(super::two_stores);
}

#[tokio::test]
async fn it_is_in_eight_parts() {
    let database = in_eight_parts().await;
    let beside = Session::open(&database.url()).await;
    let parts = beside
        .text("SELECT count(*) FROM pg_class WHERE relispartition AND relkind = 'r'")
        .await;
    // The slots of idempotency keys are parts too.
    assert_eq!(parts, (TABLES.len() * 8 + 4).to_string());
    let ciphertexts = beside
        .column(
            "SELECT DISTINCT attstorage FROM pg_attribute
             JOIN pg_class ON pg_class.oid = attrelid
             WHERE attname = 'ciphertext' AND relkind IN ('r', 'p')",
        )
        .await;
    assert_eq!(ciphertexts, [Some("e".to_owned())]);
}
