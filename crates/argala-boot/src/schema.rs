//! The tables of a store on a server, and whether this build may serve them.

use std::error::Error;

use argala_postgres::{OpenError, SCHEMA_VERSION, SchemaState, check, migrate as migrate_server};
use serde::Serialize;

use crate::{
    config::{Config, StoreKind},
    ports::{OpenError as PortError, server_options},
};

/// What a store has to do with this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Whoever opens it migrates it: a file.
    Embedded,
    /// It has no tables yet.
    Empty,
    /// It has an older schema.
    Behind,
    /// This build may serve it.
    Ready,
    /// It was migrated beyond what this build may serve.
    Outgrown,
}

/// A store's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Schema {
    /// What it has to do with this build.
    pub state: State,
    /// The schema it has; 0 where it has none, `None` where nobody has looked.
    pub found: Option<u32>,
    /// The newest schema that this build knows.
    pub known: u32,
}

impl Schema {
    /// A file's: nobody looks before it is opened.
    const EMBEDDED: Self = Self {
        state: State::Embedded,
        found: None,
        known: argala_sqlite::SCHEMA_VERSION,
    };

    const fn of(state: State, found: u32) -> Self {
        Self {
            state,
            found: Some(found),
            known: SCHEMA_VERSION,
        }
    }

    /// Whether a relay of this build would serve it.
    #[must_use]
    pub const fn may_be_served(&self) -> bool {
        matches!(self.state, State::Embedded | State::Ready)
    }
}

/// What a migration has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Migrated {
    /// Whether anything was done.
    pub changed: bool,
    /// The schema there was; 0 where there was none, `None` where nobody has looked.
    pub from: Option<u32>,
    /// The schema there is.
    pub to: u32,
}

/// Tells what the store has to do with this build, and changes nothing.
///
/// # Errors
/// Where it cannot be reached.
pub async fn look(config: &Config) -> Result<Schema, PortError> {
    if config.store.kind == StoreKind::Sqlite {
        return Ok(Schema::EMBEDDED);
    }
    let state = check(&server_options(&config.store))
        .await
        .map_err(PortError::Postgres)?;
    Ok(match state {
        SchemaState::Empty => Schema::of(State::Empty, 0),
        SchemaState::Behind { found } => Schema::of(State::Behind, found),
        SchemaState::Ready { found } => Schema::of(State::Ready, found),
        SchemaState::Outgrown { found, .. } => Schema::of(State::Outgrown, found),
    })
}

/// Makes a server's tables, or brings them to what this build knows. A file is left to whoever
/// opens it.
///
/// # Errors
/// Where the server cannot be reached, or was migrated beyond what this build may serve.
pub async fn migrate(config: &Config) -> Result<Migrated, PortError> {
    if config.store.kind == StoreKind::Sqlite {
        return Ok(Migrated {
            changed: false,
            from: None,
            to: argala_sqlite::SCHEMA_VERSION,
        });
    }
    let migrated = migrate_server(&server_options(&config.store))
        .await
        .map_err(PortError::Postgres)?;
    Ok(Migrated {
        changed: migrated.from != migrated.to,
        from: Some(migrated.from),
        to: migrated.to,
    })
}

/// Whether an error says that a store's schema is none that this build may serve.
#[must_use]
pub fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    let server = matches!(
        error.downcast_ref(),
        Some(OpenError::Unmigrated { .. } | OpenError::Outgrown { .. })
    );
    let file = matches!(
        error.downcast_ref(),
        Some(argala_sqlite::OpenError::Newer { .. })
    );
    server || file
}
