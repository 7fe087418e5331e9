//! `relay migrate`: the tables of a store on a server.

use anyhow::Result;
use argala_boot::schema::{self, Migrated, Schema, State};

use crate::{cli::MigrateArgs, output::answer, run::sources};

/// A schema that no relay of this build would serve.
#[derive(Debug)]
pub(crate) struct Refused(Schema);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&told(&self.0))
    }
}

impl std::error::Error for Refused {}

/// Does what `args` ask and prints the answer.
pub(crate) async fn run(args: MigrateArgs) -> Result<()> {
    let mut sources = sources(&args.settings);
    sources.operating = true;
    let config = sources.load()?.config;
    if !args.check {
        let migrated = schema::migrate(&config).await?;
        return answer(args.output, &migrated, done);
    }
    let found = schema::look(&config).await?;
    let may_be_served = found.may_be_served();
    if may_be_served || args.output == crate::cli::Output::Json {
        answer(args.output, &found, told)?;
    }
    if may_be_served {
        Ok(())
    } else {
        Err(Refused(found).into())
    }
}

fn done(migrated: &Migrated) -> String {
    match migrated {
        Migrated { from: None, .. } => EMBEDDED.to_owned(),
        Migrated {
            changed: false, to, ..
        } => format!("nothing to do: the database has schema {to}"),
        Migrated {
            from: Some(from),
            to,
            ..
        } => format!("migrated from schema {from} to {to}"),
    }
}

const EMBEDDED: &str = "nothing to do: a SQLite store is migrated by the relay that opens it";

fn told(schema: &Schema) -> String {
    let Schema { state, known, .. } = schema;
    let found = schema.found.unwrap_or_default();
    match state {
        State::Embedded => EMBEDDED.to_owned(),
        State::Ready => format!("the database has schema {found}, which this build serves"),
        State::Empty => format!(
            "the database has no tables yet, and this build needs schema {known}: migrate it first (`relay migrate`)"
        ),
        State::Behind => format!(
            "the database has schema {found}, and this build needs {known}: migrate it first (`relay migrate`)"
        ),
        State::Outgrown => format!(
            "the database has schema {found}, which this build may not serve: it knows schemas up to {known}"
        ),
    }
}
