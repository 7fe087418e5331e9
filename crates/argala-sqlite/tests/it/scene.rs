//! A database in a folder of its own, and short ways to ask it for things.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
};

use argala_sqlite::{Options, Sqlite};
pub(crate) use argala_testkit::stock::*;
use tempfile::TempDir;

/// The statements that have run since they were last taken.
#[derive(Clone, Default)]
pub(crate) struct Statements(Arc<Mutex<Vec<String>>>);

impl Statements {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// How many operations each commit of the writer's carried.
#[derive(Clone, Default)]
pub(crate) struct Commits(Arc<Mutex<Vec<Vec<&'static str>>>>);

impl Commits {
    pub(crate) fn take(&self) -> Vec<Vec<&'static str>> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

pub(crate) struct Scene {
    pub(crate) stock: Stock<Sqlite>,
    pub(crate) statements: Statements,
    pub(crate) commits: Commits,
    pub(crate) folder: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(mut options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (statements, commits) = (Statements::default(), Commits::default());
        let told = statements.clone();
        options.statements = Some(Arc::new(move |sql| {
            told.0.lock().unwrap().push(sql.to_owned());
        }));
        let told = commits.clone();
        options.commits = Some(Arc::new(move |commit| {
            told.0.lock().unwrap().push(commit.operations.to_vec());
        }));
        let db = Sqlite::open(folder.path().join("relay.db"), &options).unwrap();
        Self {
            stock: Stock { db: Arc::new(db) },
            statements,
            commits,
            folder,
        }
    }

    /// A connection beside the relay's, as an operator's tool would open one.
    pub(crate) fn beside(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.folder.path().join("relay.db")).unwrap();
        rusqlite::vtab::array::load_module(&connection).unwrap();
        connection
    }
}

impl Deref for Scene {
    type Target = Stock<Sqlite>;

    fn deref(&self) -> &Self::Target {
        &self.stock
    }
}
