//! Bringing a database's tables to what this build knows (`migrations/README.md`).

use refinery::{Migration, Runner};
use rusqlite::{Connection, TransactionBehavior};

use crate::OpenError;

/// Tells the relay's databases from those of other programs.
const APPLICATION_ID: i32 = 0x4172_6761;

/// Every migration: its name, and the file. The number is the place.
const FILES: &[(&str, &str)] = &[
    (
        "initial",
        include_str!("../../../migrations/sqlite/0001_initial.sql"),
    ),
    (
        "objects_begun_at",
        include_str!("../../../migrations/sqlite/0002_objects_begun_at.sql"),
    ),
    (
        "sweeping",
        include_str!("../../../migrations/sqlite/0003_sweeping.sql"),
    ),
    (
        "members_blobs",
        include_str!("../../../migrations/sqlite/0004_members_blobs.sql"),
    ),
];

/// The number of the newest migration, which is the schema that this build knows.
pub const SCHEMA_VERSION: u32 = FILES.len() as u32;

/// Refuses what is not ours to migrate, before anything about it is changed.
pub(crate) fn check(connection: &Connection) -> Result<(), OpenError> {
    let found = version(connection)?;
    if found > SCHEMA_VERSION {
        return Err(OpenError::Newer {
            found,
            known: SCHEMA_VERSION,
        });
    }
    Ok(())
}

/// Migrates a database that has been [checked](check).
///
/// All that is missing is applied in one transaction, the version with it, so that a process that
/// dies in between leaves the database at the version it says it is.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    if version(connection)? == SCHEMA_VERSION {
        return Ok(());
    }
    connection.set_transaction_behavior(TransactionBehavior::Immediate);
    let ran = Runner::new(&migrations()?)
        .set_grouped(true)
        .run(connection);
    connection.set_transaction_behavior(TransactionBehavior::Deferred);
    match ran {
        Ok(_) => Ok(()),
        // Another process that opened the database at the same time was quicker.
        Err(_) if version(connection)? == SCHEMA_VERSION => Ok(()),
        Err(error) => Err(OpenError::Migrate(Box::new(error))),
    }
}

/// The number of the newest migration that the database has; 0 where it is empty.
fn version(connection: &Connection) -> Result<u32, OpenError> {
    // The record of migrations may be there before the first of them is.
    const OTHERS: &str =
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE tbl_name <> 'refinery_schema_history')";
    // Of one moment: another process may be migrating it just now.
    let tx = connection.unchecked_transaction()?;
    let version: i64 = tx.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let id: i32 = tx.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let has_tables: bool = tx.query_row(OTHERS, [], |row| row.get(0))?;
    tx.commit()?;
    match u32::try_from(version) {
        Ok(0) if has_tables => Err(OpenError::Foreign),
        Ok(0) => Ok(0),
        Ok(version) if id == APPLICATION_ID => Ok(version),
        // A negative number is nothing that a build of ours has written.
        _ => Err(OpenError::Foreign),
    }
}

fn migrations() -> Result<Vec<Migration>, OpenError> {
    let numbered = (1..).zip(FILES);
    numbered
        .map(|(number, (name, sql))| {
            let sql = format!("{sql}\nPRAGMA user_version = {number};\n");
            Migration::unapplied(&format!("V{number}__{name}"), &sql)
        })
        .collect::<Result<_, _>>()
        .map_err(|error| OpenError::Migrate(Box::new(error)))
}
