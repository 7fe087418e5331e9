//! A database of a test's own, and short ways to ask it for things.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
};

use argala_postgres::{Options, Postgres};
use argala_testkit::servers::{Database, Session};
pub(crate) use argala_testkit::stock::*;

use crate::database::{migrated, options};

/// The statements that have been sent since they were last taken.
#[derive(Clone, Default)]
pub(crate) struct Statements(Arc<Mutex<Vec<String>>>);

impl Statements {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// How many pushes each transaction of pushes carried.
#[derive(Clone, Default)]
pub(crate) struct Commits(Arc<Mutex<Vec<usize>>>);

impl Commits {
    pub(crate) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

pub(crate) struct Scene {
    pub(crate) stock: Stock<Postgres>,
    pub(crate) statements: Statements,
    pub(crate) commits: Commits,
    pub(crate) database: Database,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let database = migrated().await;
        let (statements, commits) = (Statements::default(), Commits::default());
        let mut options = options(database.url());
        let told = statements.clone();
        options.probe = Some(Arc::new(move |sql| {
            told.0.lock().unwrap().push(sql.to_owned());
        }));
        let told = commits.clone();
        options.commits = Some(Arc::new(move |commit| {
            told.0.lock().unwrap().push(commit.pushes);
        }));
        change(&mut options);
        let db = Postgres::open(&options).await.unwrap();
        Self {
            stock: Stock { db: Arc::new(db) },
            statements,
            commits,
            database,
        }
    }

    /// A connection beside the relay's, as an operator's tool would open one.
    pub(crate) async fn beside(&self) -> Session {
        Session::open(&self.database.url()).await
    }
}

impl Deref for Scene {
    type Target = Stock<Postgres>;

    fn deref(&self) -> &Self::Target {
        &self.stock
    }
}
