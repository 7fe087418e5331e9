//! Bringing a database's tables to what this build knows (`migrations/README.md`).

use refinery::{Migration, Runner};
use tokio_postgres::{Client, types::Type};

use crate::{OpenError, Options, address::Address, tls};

/// A migration: its name, the file, and the oldest schema that a build must know to serve the
/// database after it. The number is the place.
struct File {
    name: &'static str,
    sql: &'static str,
    oldest: u32,
}

/// Every migration.
const FILES: &[File] = &[
    File {
        name: "initial",
        sql: include_str!("../../../migrations/postgres/0001_initial.sql"),
        oldest: 1,
    },
    File {
        name: "objects_begun_at",
        sql: include_str!("../../../migrations/postgres/0002_objects_begun_at.sql"),
        oldest: 1,
    },
    File {
        name: "graphs_renewed",
        sql: include_str!("../../../migrations/postgres/0003_graphs_renewed.sql"),
        oldest: 1,
    },
    File {
        name: "sweeping",
        sql: include_str!("../../../migrations/postgres/0004_sweeping.sql"),
        oldest: 1,
    },
    File {
        name: "members_blobs",
        sql: include_str!("../../../migrations/postgres/0005_members_blobs.sql"),
        oldest: 1,
    },
];

/// The number of the newest migration, which is the schema that this build knows.
pub const SCHEMA_VERSION: u32 = FILES.len() as u32;

/// Held while a database is migrated: 'Arga' and a number of its own.
const LOCK: i64 = 0x4172_6761_0000_0001;

/// What a database has to do with this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaState {
    /// It has none of the relay's tables.
    Empty,
    /// It has an older schema, and is to be migrated.
    Behind {
        /// The schema it has.
        found: u32,
    },
    /// This build may serve it.
    Ready {
        /// The schema it has: this build's, or one that a newer build has expanded it to.
        found: u32,
    },
    /// It has been migrated beyond what this build may serve.
    Outgrown {
        /// The schema it has.
        found: u32,
        /// The oldest that a build must know to serve it.
        oldest: u32,
    },
}

/// What a migration has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The schema there was; 0 where the database was empty.
    pub from: u32,
    /// The schema there is.
    pub to: u32,
}

/// Tells what the database has to do with this build, and changes nothing.
///
/// # Errors
/// [`OpenError`] where it cannot be reached.
pub async fn check(options: &Options) -> Result<SchemaState, OpenError> {
    let client = connect(options).await?;
    Ok(state(&client).await?.0)
}

/// Migrates the database that `options` name, by the direct URL where there is one.
///
/// All that is missing is applied in one transaction. Of several that migrate at the same time one
/// does; the others wait for it and find nothing to do. A database that a newer build has migrated
/// is left as it is.
///
/// # Errors
/// [`OpenError`]; the database is then as it was.
pub async fn migrate(options: &Options) -> Result<Migrated, OpenError> {
    let mut client = connect(options).await?;
    // Whoever waits here waits for as long as the other migrates.
    client
        .batch_execute("SET statement_timeout = 0; SET lock_timeout = 0")
        .await?;
    client
        .query_typed("SELECT pg_advisory_lock($1)", &[(&LOCK, Type::INT8)])
        .await?;
    // The lock ends with the connection.
    let from = match state(&client).await?.0 {
        SchemaState::Empty => 0,
        SchemaState::Behind { found } => found,
        SchemaState::Ready { found } => {
            return Ok(Migrated {
                from: found,
                to: found,
            });
        }
        SchemaState::Outgrown { found, oldest } => {
            return Err(OpenError::Outgrown {
                found,
                oldest,
                known: SCHEMA_VERSION,
            });
        }
    };
    Runner::new(&migrations()?)
        .set_grouped(true)
        .run_async(&mut client)
        .await
        .map_err(|error| OpenError::Migrate(described(&error)))?;
    Ok(Migrated {
        from,
        to: SCHEMA_VERSION,
    })
}

/// An error with those below it: the first alone says little.
fn described(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        told.push_str(": ");
        told.push_str(&error.to_string());
        below = error.source();
    }
    told
}

async fn connect(options: &Options) -> Result<Client, OpenError> {
    let url = options.direct_url.as_ref().unwrap_or(&options.url);
    let address = Address::parse(url, options)?;
    let connector = tls::connector(&address)?;
    let (client, connection) = address.config.connect(connector).await?;
    // It ends with the client.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(
                error = %crate::failure::Told::of(&error),
                "the connection for migrations broke"
            );
        }
    });
    Ok(client)
}

/// What the database has to do with this build, and its instance id, where it has one.
pub(crate) async fn state(client: &Client) -> Result<(SchemaState, String), OpenError> {
    let there: bool = client
        .query_typed_one("SELECT to_regclass('relay_schema') IS NOT NULL", &[])
        .await?
        .try_get(0)?;
    if !there {
        return Ok((SchemaState::Empty, String::new()));
    }
    let row = client
        .query_typed_one("SELECT version, oldest, instance FROM relay_schema", &[])
        .await?;
    let number = |at: usize| -> Result<u32, OpenError> {
        u32::try_from(row.try_get::<_, i32>(at)?)
            .map_err(|_| OpenError::Database("its schema has no number".to_owned()))
    };
    let (found, oldest) = (number(0)?, number(1)?);
    let state = if oldest > SCHEMA_VERSION {
        SchemaState::Outgrown { found, oldest }
    } else if found < SCHEMA_VERSION {
        SchemaState::Behind { found }
    } else {
        SchemaState::Ready { found }
    };
    Ok((state, row.try_get(2)?))
}

fn migrations() -> Result<Vec<Migration>, OpenError> {
    let numbered = (1..).zip(FILES);
    numbered
        .map(|(number, File { name, sql, oldest })| {
            let sql =
                format!("{sql}\nUPDATE relay_schema SET version = {number}, oldest = {oldest};\n");
            Migration::unapplied(&format!("V{number}__{name}"), &sql)
        })
        .collect::<Result<_, _>>()
        .map_err(|error| OpenError::Migrate(error.to_string()))
}
