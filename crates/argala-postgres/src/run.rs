//! Running work: in a transaction, tried again where the database took it back; or as a read.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use argala_core::{Outcome, StoreResult, ports::Random};
use deadpool_postgres::Pool;
use tokio_postgres::Row;

use crate::{
    Options, Statements, Usage,
    failure::{Failure, Work, unrefused},
    probe::StatementProbe,
    session::{Args, Beginning, Call, Session, Sql, Tx, exactly},
};

/// How often work is tried at the most.
const TRIES: u32 = 5;
/// The longest pause after a first failure; it doubles with each.
const PAUSE: Duration = Duration::from_millis(20);

/// A piece of work inside a transaction.
pub(crate) type Running<'a, T> = Pin<Box<dyn Future<Output = Work<T>> + Send + 'a>>;

/// A pool of connections, and how they are used.
pub(crate) struct Database {
    pool: Pool,
    statements: Statements,
    writes: Beginning,
    snapshots: Beginning,
    /// Whether single reads need a transaction too, for its timeouts.
    reads_in_transactions: bool,
    operation_timeout: Duration,
    random: Arc<dyn Random>,
    probe: Option<StatementProbe>,
    retries: AtomicU64,
}

impl Database {
    pub(crate) fn new(pool: Pool, options: &Options) -> Self {
        let local = options.timeouts == crate::Timeouts::Transaction;
        let beginning = |how: &str| {
            let mut text = format!("BEGIN ISOLATION LEVEL {how}");
            if local {
                text.push_str("; ");
                text.push_str(&options.timeouts_sql("LOCAL"));
            }
            Beginning(text.into())
        };
        Self {
            pool,
            statements: options.statements,
            // Spelled out: a role may have other defaults, and the order of locks and reads rests
            // on each statement's having a snapshot of its own.
            writes: beginning("READ COMMITTED READ WRITE"),
            snapshots: beginning("REPEATABLE READ READ ONLY"),
            reads_in_transactions: local,
            operation_timeout: options.operation_timeout,
            random: Arc::clone(&options.random),
            probe: options.probe.clone(),
            retries: AtomicU64::new(0),
        }
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }

    pub(crate) fn usage(&self) -> Usage {
        let status = self.pool.status();
        Usage {
            connections: status.size,
            idle: status.available,
            waiting: status.waiting,
            retries: self.retries.load(Ordering::Relaxed),
        }
    }

    async fn session(&self) -> Work<Session> {
        let client = self.pool.get().await?;
        Ok(Session::new(client, self.statements, self.probe.clone()))
    }

    /// Runs `work` on `request` in a transaction, and answers once what it wrote is durable.
    ///
    /// `work` may run several times; each time but the last has then left nothing behind. Where
    /// the future is dropped, the change is whole or absent.
    pub(crate) async fn write<R: Sync + ?Sized, T: Send>(
        &self,
        operation: &'static str,
        request: &R,
        work: for<'t> fn(&'t Tx, &'t R) -> Running<'t, T>,
    ) -> Outcome<T> {
        self.tries(request, work)
            .await
            .map_err(|failure| failure.into_fault(operation))
    }

    /// The same, for whoever asks what went wrong.
    pub(crate) async fn tries<R: Sync + ?Sized, T: Send>(
        &self,
        request: &R,
        work: for<'t> fn(&'t Tx, &'t R) -> Running<'t, T>,
    ) -> Work<T> {
        let tries = async {
            let mut tried = 0;
            loop {
                let failure = match self.attempt(request, work).await {
                    Ok(value) => return Ok(value),
                    Err(failure) => failure,
                };
                tried += 1;
                if tried == TRIES || !failure.may_be_tried_again() {
                    return Err(failure);
                }
                self.retries.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(self.pause(tried)).await;
            }
        };
        self.in_time(tries).await
    }

    /// The same for operations that no rule can refuse.
    pub(crate) async fn update<R: Sync + ?Sized, T: Send>(
        &self,
        operation: &'static str,
        request: &R,
        work: for<'t> fn(&'t Tx, &'t R) -> Running<'t, T>,
    ) -> StoreResult<T> {
        unrefused(self.write(operation, request, work).await)
    }

    async fn attempt<R: Sync + ?Sized, T: Send>(
        &self,
        request: &R,
        work: for<'t> fn(&'t Tx, &'t R) -> Running<'t, T>,
    ) -> Work<T> {
        let tx = Tx::new(self.session().await?, self.writes.clone());
        match work(&tx, request).await {
            Ok(value) => {
                tx.commit().await?;
                Ok(value)
            }
            Err(failure) => {
                // Where this fails too, the connection is given up with the transaction.
                if let Err(error) = tx.roll_back().await {
                    tracing::debug!(
                        error = %crate::failure::Told::of(&error),
                        "a transaction was not rolled back but given up"
                    );
                }
                Err(failure)
            }
        }
    }

    /// Somewhere between nothing and a time that doubles with each try, so that those who met do
    /// not meet again.
    fn pause(&self, tried: u32) -> Duration {
        let most = PAUSE * 2_u32.pow(tried - 1);
        let share = u32::from(u16::from_be_bytes(self.random.bytes()));
        most * share / u32::from(u16::MAX)
    }

    async fn in_time<T>(&self, work: impl Future<Output = Work<T>>) -> Work<T> {
        tokio::time::timeout(self.operation_timeout, work)
            .await
            .unwrap_or(Err(Failure::TooLong))
    }

    /// The rows of one statement, which writes nothing, as `take` reads them.
    pub(crate) async fn read<T>(
        &self,
        operation: &'static str,
        sql: &'static Sql,
        args: Args<'_>,
        take: impl FnOnce(&[Row]) -> Work<T>,
    ) -> Outcome<T> {
        let read = async {
            let session = self.session().await?;
            let rows = if self.reads_in_transactions {
                let tx = Tx::new(session, self.writes.clone());
                let [rows] = exactly(tx.send_and_commit(&[(sql, args)]).await?);
                rows
            } else {
                session.query(sql, args).await?
            };
            take(&rows)
        };
        self.in_time(read)
            .await
            .map_err(|failure| failure.into_fault(operation))
    }

    /// Runs one statement that writes, as a transaction of its own, in one round trip; what it wrote
    /// is durable. It is not tried again. Where the future is dropped, the change is whole or absent.
    /// Nothing is asked where, once there is a connection, `still` says no.
    ///
    /// What else the statement may rest on, its isolation is the role's.
    pub(crate) async fn once<T>(
        &self,
        sql: &'static Sql,
        args: Args<'_>,
        still: impl FnOnce() -> bool,
        take: impl FnOnce(&[Row]) -> Work<T>,
    ) -> Work<Option<T>> {
        let once = async {
            let session = self.session().await?;
            if !still() {
                return Ok(None);
            }
            let tx = Tx::new(session, self.writes.clone());
            let rows = if self.reads_in_transactions {
                let sent = tx.send_and_commit(&[(sql, args)]).await;
                if sent.is_err() {
                    // Where this fails too, the connection is given up with the transaction.
                    let _ = tx.roll_back().await;
                }
                let [rows] = exactly(sent?);
                rows
            } else {
                tx.alone(sql, args).await?
            };
            take(&rows).map(Some)
        };
        self.in_time(once).await
    }

    /// The same for operations that no rule can refuse.
    pub(crate) async fn find<T>(
        &self,
        operation: &'static str,
        sql: &'static Sql,
        args: Args<'_>,
        take: impl FnOnce(&[Row]) -> Work<T>,
    ) -> StoreResult<T> {
        unrefused(self.read(operation, sql, args, take).await)
    }

    /// The rows of several statements, all of one moment.
    pub(crate) async fn snapshot<const N: usize, T>(
        &self,
        operation: &'static str,
        calls: [Call<'_>; N],
        take: impl FnOnce([Vec<Row>; N]) -> Work<T>,
    ) -> Outcome<T> {
        let read = async {
            let tx = Tx::new(self.session().await?, self.snapshots.clone());
            take(exactly(tx.send_and_commit(&calls).await?))
        };
        self.in_time(read)
            .await
            .map_err(|failure| failure.into_fault(operation))
    }

    /// Runs one statement that is a transaction of its own; what it wrote is durable.
    pub(crate) async fn change<T: Send>(
        &self,
        operation: &'static str,
        sql: &'static Sql,
        args: Args<'_>,
        take: fn(&[Row]) -> Work<T>,
    ) -> StoreResult<T> {
        // A transaction by name, so that it is tried again like any other.
        let request = (sql, args, take);
        self.update(operation, &request, |tx, (sql, args, take)| {
            Box::pin(async move { take(&tx.query(sql, args).await?) })
        })
        .await
    }
}
