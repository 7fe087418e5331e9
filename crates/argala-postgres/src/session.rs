//! A connection in use, a transaction on it, and how statements are sent.
//!
//! Statements that do not need each other's answers are sent together and take one round trip.
//! They run one after the other all the same, each with a snapshot of its own where the
//! transaction is `READ COMMITTED`: what a later one reads was true after an earlier one had its
//! lock.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::Poll,
};

use deadpool_postgres::Object;
use futures_util::TryStreamExt;
use tokio_postgres::{
    Error, Row, Statement,
    types::{Format, IsNull, ToSql, Type, private::BytesMut},
};

use crate::{Statements, probe::StatementProbe};

/// A statement: its text, and the types of its parameters.
///
/// The types are spelled out, so that the text means the same whether it is prepared or not.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) text: &'static str,
    pub(crate) types: &'static [Type],
}

/// What a statement's parameters stand for.
pub(crate) type Args<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A statement with its parameters.
pub(crate) type Call<'a> = (&'static Sql, Args<'a>);

/// A parameter that no log shows: the driver tells parameters to whoever listens to its debugging.
struct Hidden<'a>(&'a (dyn ToSql + Sync));

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl ToSql for Hidden<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        // Checked: what is bound to a parameter of another type is told, never sent.
        self.0.to_sql_checked(ty, out)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, ty: &Type) -> Format {
        self.0.encode_format(ty)
    }

    fn to_sql_checked(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.0.to_sql_checked(ty, out)
    }
}

/// A connection out of the pool.
pub(crate) struct Session {
    client: Object,
    statements: Statements,
    probe: Option<StatementProbe>,
}

/// A statement that can be sent without asking the server anything before.
enum Ready {
    Prepared(Statement),
    Unnamed(&'static Sql),
}

type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

impl Session {
    pub(crate) fn new(
        client: Object,
        statements: Statements,
        probe: Option<StatementProbe>,
    ) -> Self {
        Self {
            client,
            statements,
            probe,
        }
    }

    async fn ready(&self, sql: &'static Sql) -> Result<Ready, Error> {
        Ok(match self.statements {
            Statements::Prepared => Ready::Prepared(
                self.client
                    .prepare_typed_cached(sql.text, sql.types)
                    .await?,
            ),
            Statements::Unnamed => Ready::Unnamed(sql),
        })
    }

    fn tell(&self, text: &str) {
        if let Some(probe) = &self.probe {
            probe(text);
        }
    }

    /// Sent when it is first polled; all its rows.
    async fn run(&self, ready: Ready, args: Args<'_>) -> Result<Vec<Row>, Error> {
        let args = args.iter().map(|arg| Hidden(*arg));
        let rows = match ready {
            Ready::Prepared(statement) => self.client.query_raw(&statement, args).await?,
            Ready::Unnamed(sql) => {
                let typed = args.zip(sql.types.iter().cloned());
                self.client.query_typed_raw(sql.text, typed).await?
            }
        };
        rows.try_collect().await
    }

    /// The rows of one statement, which is a transaction of its own.
    pub(crate) async fn query(&self, sql: &'static Sql, args: Args<'_>) -> Result<Vec<Row>, Error> {
        let [rows] = exactly(self.send(None, &[(sql, args)], None).await?);
        Ok(rows)
    }

    /// Sends all of it at once: `before`, the statements, `after`. The rows of each statement.
    async fn send(
        &self,
        before: Option<&str>,
        calls: &[Call<'_>],
        after: Option<&str>,
    ) -> Result<Vec<Vec<Row>>, Error> {
        let mut ready = Vec::with_capacity(calls.len());
        for (sql, args) in calls {
            debug_assert_eq!(sql.types.len(), args.len(), "{}", sql.text);
            ready.push((self.ready(sql).await?, *args));
        }
        let simple = |text: &str| {
            self.tell(text);
            let client = &self.client;
            let text = text.to_owned();
            Box::pin(async move { client.batch_execute(&text).await.map(|()| Vec::new()) })
                as Pending<'_, Vec<Row>>
        };
        let mut pending = Vec::with_capacity(calls.len() + 2);
        pending.extend(before.map(simple));
        for ((ready, args), (sql, _)) in ready.into_iter().zip(calls) {
            self.tell(sql.text);
            pending.push(Box::pin(self.run(ready, args)));
        }
        pending.extend(after.map(simple));
        let mut rows = in_order(pending).await?;
        if before.is_some() {
            rows.remove(0);
        }
        if after.is_some() {
            rows.pop();
        }
        Ok(rows)
    }
}

/// Polls all of them, the first one first, so that what they send leaves in their order; all
/// results, or the first failure in their order: those after it fail for its sake, with less to
/// tell.
async fn in_order<T: Send>(mut pending: Vec<Pending<'_, T>>) -> Result<Vec<T>, Error> {
    let mut results: Vec<Option<Result<T, Error>>> = pending.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut waits = false;
        for (future, result) in pending.iter_mut().zip(&mut results) {
            if result.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *result = Some(value),
                    Poll::Pending => waits = true,
                }
            }
        }
        if waits {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// How a transaction begins.
#[derive(Debug, Clone)]
pub(crate) struct Beginning(pub(crate) Arc<str>);

const FRESH: u8 = 0;
const OPEN: u8 = 1;
const ENDED: u8 = 2;

/// A transaction. It begins with the first statements that are sent, in the same round trip.
///
/// Where it is dropped before it has ended, its connection is given up with it, so that none comes
/// back to the pool in the middle of a transaction.
pub(crate) struct Tx {
    session: Option<Session>,
    beginning: Beginning,
    state: AtomicU8,
}

impl Tx {
    pub(crate) fn new(session: Session, beginning: Beginning) -> Self {
        Self {
            session: Some(session),
            beginning,
            state: AtomicU8::new(FRESH),
        }
    }

    fn session(&self) -> &Session {
        self.session.as_ref().expect("it is taken by drop alone")
    }

    /// Notes that statements are about to be sent; how the transaction begins, where it has not.
    fn open(&self) -> Option<&str> {
        (self.state.swap(OPEN, Ordering::Relaxed) == FRESH).then_some(&*self.beginning.0)
    }

    /// Sends statements together; the rows of each.
    pub(crate) async fn send<const N: usize>(
        &self,
        calls: [Call<'_>; N],
    ) -> Result<[Vec<Row>; N], Error> {
        Ok(exactly(self.send_all(&calls).await?))
    }

    /// The same for a number of statements that is told when it runs.
    pub(crate) async fn send_all(&self, calls: &[Call<'_>]) -> Result<Vec<Vec<Row>>, Error> {
        let before = self.open();
        self.session().send(before, calls, None).await
    }

    /// Sends one statement; its rows.
    pub(crate) async fn query(&self, sql: &'static Sql, args: Args<'_>) -> Result<Vec<Row>, Error> {
        let [rows] = self.send([(sql, args)]).await?;
        Ok(rows)
    }

    /// Sends statements together with the commit. Nothing can be sent after it.
    pub(crate) async fn send_and_commit(&self, calls: &[Call<'_>]) -> Result<Vec<Vec<Row>>, Error> {
        let before = self.open();
        let rows = self.session().send(before, calls, Some("COMMIT")).await?;
        // Where a statement fails, so does what is above: the commit then takes everything back.
        self.state.store(ENDED, Ordering::Relaxed);
        Ok(rows)
    }

    /// Sends one statement that is the whole transaction; its rows. Nothing can be sent after it.
    pub(crate) async fn alone(&self, sql: &'static Sql, args: Args<'_>) -> Result<Vec<Row>, Error> {
        debug_assert_eq!(self.state.load(Ordering::Relaxed), FRESH, "{}", sql.text);
        self.state.store(OPEN, Ordering::Relaxed);
        let rows = self.session().query(sql, args).await;
        // It has ended either way; a statement whose end nobody waited for is given up.
        self.state.store(ENDED, Ordering::Relaxed);
        rows
    }

    /// Sends statements that are not prepared, as they stand.
    pub(crate) async fn simple(&self, text: &str) -> Result<(), Error> {
        let before = self.open();
        self.session().send(before, &[], Some(text)).await.map(drop)
    }

    /// Ends it, where that has not been done: everything is durable, if anything was written.
    pub(crate) async fn commit(&self) -> Result<(), Error> {
        self.end("COMMIT").await
    }

    /// Ends it, where that has not been done: nothing was written.
    pub(crate) async fn roll_back(&self) -> Result<(), Error> {
        self.end("ROLLBACK").await
    }

    async fn end(&self, how: &str) -> Result<(), Error> {
        if self.state.load(Ordering::Relaxed) == OPEN {
            self.session().send(None, &[], Some(how)).await?;
            self.state.store(ENDED, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if *self.state.get_mut() == OPEN
            && let Some(session) = self.session.take()
        {
            drop(Object::take(session.client));
        }
    }
}

/// `values`, of which there are `N`.
pub(crate) fn exactly<T, const N: usize>(values: Vec<T>) -> [T; N] {
    let Ok(values) = values.try_into() else {
        unreachable!("there are the rows of each statement")
    };
    values
}
