//! Bare Postgres: no HTTP, no rules, and a push in one of several shapes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use futures_util::TryStreamExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::{Client, NoTls, Statement, types::ToSql};

use super::{Arm, Caller, FULL, GRAPHS, ciphertext, share};
use crate::measure::{Graphs, Load};

const TABLES: &str = "
    CREATE TABLE bare_graphs (
        id bigint PRIMARY KEY,
        head bigint NOT NULL,
        records bigint NOT NULL,
        bytes bigint NOT NULL,
        version bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 50);
    CREATE TABLE bare_records (
        graph bigint NOT NULL,
        record text COLLATE \"C\" NOT NULL,
        seq bigint NOT NULL,
        epoch bigint NOT NULL,
        by text NOT NULL,
        at bigint NOT NULL,
        ciphertext bytea NOT NULL,
        PRIMARY KEY (graph, record)
    );
    ALTER TABLE bare_records ALTER COLUMN ciphertext SET STORAGE EXTERNAL;
    CREATE UNIQUE INDEX bare_records_by_seq ON bare_records (graph, seq);
    CREATE FUNCTION bare_push(which bigint, known bigint, before bigint, ids text[], texts bytea[])
    RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE bare_graphs
        SET version = known + 1, head = before + cardinality(ids),
            records = records + cardinality(ids),
            bytes = bytes + (SELECT sum(length(t)) FROM unnest(texts) t)
        WHERE id = which AND version = known;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        INSERT INTO bare_records (graph, record, seq, epoch, by, at, ciphertext)
        SELECT which, r.id, before + r.n, 1, 'somebody', 0, r.ciphertext
        FROM unnest(ids, texts) WITH ORDINALITY AS r (id, ciphertext, n);
        RETURN true;
    END $$;";

/// Graph, ids, ciphertexts.
const PUSH: &str = "
    WITH graph AS (
        UPDATE bare_graphs
        SET version = version + 1, head = head + cardinality($2::text[]), records = records + cardinality($2::text[]),
            bytes = bytes + (SELECT sum(length(c)) FROM unnest($3::bytea[]) c)
        WHERE id = $1
        RETURNING head - cardinality($2::text[]) AS before
    )
    INSERT INTO bare_records (graph, record, seq, epoch, by, at, ciphertext)
    SELECT $1, r.id, graph.before + r.n, 1, 'somebody', 0, r.ciphertext
    FROM graph, unnest($2::text[], $3::bytea[]) WITH ORDINALITY AS r (id, ciphertext, n)
    RETURNING seq";

// The same as a store does that decides between reading and writing: lock and read, in one round
// trip; write and commit, in another.
const LOCK: &str = "SELECT head, version FROM bare_graphs WHERE id = $1 FOR UPDATE";
const READ_THERE: &str =
    "SELECT record, seq FROM bare_records WHERE graph = $1 AND record = ANY($2::text[])";
const WRITE: &str = "
    INSERT INTO bare_records (graph, record, seq, epoch, by, at, ciphertext)
    SELECT $1, r.id, $2 + r.n, 1, 'somebody', 0, r.ciphertext
    FROM unnest($3::text[], $4::bytea[]) WITH ORDINALITY AS r (id, ciphertext, n)";
const COUNT: &str = "
    UPDATE bare_graphs
    SET version = version + 1, head = head + $2, records = records + $2, bytes = bytes + $3
    WHERE id = $1";

/// The same by one call that writes only where nothing has changed since the caller looked: graph,
/// version, head, ids, ciphertexts. False where something has.
const CALL: &str = "SELECT bare_push($1, $2, $3, $4, $5)";

/// Graph, seq, how many.
const PULL: &str = "
    SELECT record, seq, epoch, by, at, ciphertext
    FROM bare_records WHERE graph = $1 AND seq > $2 ORDER BY seq LIMIT $3";

/// The graph that all callers push to, and the one that is pulled.
const HOT: i64 = -1;
const READ: i64 = -2;

/// How a push is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One statement that knows everything: what no shape with rules can beat.
    One,
    /// Lock and read, then write and commit: the shape of the relay's store.
    TwoTrips,
    /// One call that holds the graph's version against the one that is remembered; where that is
    /// stale, two trips.
    Versioned,
}

pub(crate) struct Bare {
    shape: Shape,
    /// Version and head of the graphs that were written last, for [`Shape::Versioned`].
    remembered: Mutex<HashMap<i64, (i64, i64)>>,
    connections: Vec<Connection>,
    /// As many permits as there are connections; who has one finds a connection free.
    free: Semaphore,
    callers: usize,
}

struct Connection {
    client: Client,
    push: Statement,
    pull: Statement,
    lock: Statement,
    read: Statement,
    write: Statement,
    count: Statement,
    call: Statement,
    used: tokio::sync::Mutex<()>,
}

impl Bare {
    /// Makes the tables in the empty database at `url`, and fills the graph that is pulled.
    pub(crate) async fn prepare(url: &str) -> Result<()> {
        let client = connect(url).await?;
        client.batch_execute(TABLES).await?;
        let graphs: Vec<i64> = (0..GRAPHS as i64).chain([HOT, READ]).collect();
        client
            .execute(
                "INSERT INTO bare_graphs SELECT unnest($1::bigint[]), 0, 0, 0",
                &[&graphs],
            )
            .await?;
        let bare = Self::new(url, Shape::One, 1, 1).await?;
        for from in (0..FULL).step_by(1_000) {
            let ids: Vec<_> = (from..from + 1_000).map(|n| format!("full-{n}")).collect();
            bare.push(READ, &ids, &vec![&ciphertext()[..]; ids.len()])
                .await?;
        }
        for table in ["bare_graphs", "bare_records"] {
            // One at a time: several statements at once would be a transaction.
            client
                .batch_execute(&format!("VACUUM ANALYZE {table}"))
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn new(
        url: &str,
        shape: Shape,
        connections: usize,
        callers: usize,
    ) -> Result<Arc<Self>> {
        let mut all = Vec::new();
        for _ in 0..connections {
            let client = connect(url).await?;
            all.push(Connection {
                push: client.prepare(PUSH).await?,
                pull: client.prepare(PULL).await?,
                lock: client.prepare(LOCK).await?,
                read: client.prepare(READ_THERE).await?,
                write: client.prepare(WRITE).await?,
                count: client.prepare(COUNT).await?,
                call: client.prepare(CALL).await?,
                client,
                used: tokio::sync::Mutex::default(),
            });
        }
        Ok(Arc::new(Self {
            shape,
            remembered: Mutex::default(),
            connections: all,
            free: Semaphore::new(connections),
            callers,
        }))
    }

    async fn connection(&self) -> Result<(&Connection, SemaphorePermit<'_>, Used<'_>)> {
        let permit = self.free.acquire().await?;
        let mut free = self.connections.iter();
        let found = free.find_map(|it| Some((it, it.used.try_lock().ok()?)));
        let (connection, used) = found.context("a permit stands for a free connection")?;
        Ok((connection, permit, used))
    }

    async fn push(&self, graph: i64, ids: &[String], ciphertexts: &[&[u8]]) -> Result<u64> {
        let (connection, _permit, _used) = self.connection().await?;
        let count = ids.len() as u64;
        match self.shape {
            Shape::One => {
                let rows = connection
                    .client
                    .query(&connection.push, &[&graph, &ids, &ciphertexts])
                    .await?;
                return Ok(rows.len() as u64);
            }
            Shape::TwoTrips => {}
            Shape::Versioned => {
                let known = self.remembered().get(&graph).copied();
                if let Some((version, head)) = known {
                    let row = connection
                        .client
                        .query_one(
                            &connection.call,
                            &[&graph, &version, &head, &ids, &ciphertexts],
                        )
                        .await?;
                    if row.get(0) {
                        let now = (version + 1, head + i64::try_from(count)?);
                        self.remembered().insert(graph, now);
                        return Ok(count);
                    }
                }
            }
        }
        let now = connection.two_trips(graph, ids, ciphertexts).await?;
        self.remembered().insert(graph, now);
        Ok(count)
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<i64, (i64, i64)>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn pull(&self, after: i64, limit: i64) -> Result<(u64, i64)> {
        let (connection, _permit, _used) = self.connection().await?;
        let parameters: [&(dyn ToSql + Sync); 3] = [&READ, &after, &limit];
        let rows = connection
            .client
            .query_raw(&connection.pull, parameters)
            .await?;
        let (mut count, mut last, mut bytes) = (0, after, 0);
        let mut rows = std::pin::pin!(rows);
        while let Some(row) = rows.try_next().await? {
            let (id, by): (&str, &str) = (row.try_get(0)?, row.try_get(3)?);
            let ciphertext: &[u8] = row.try_get(5)?;
            bytes += id.len() + by.len() + ciphertext.len();
            last = row.try_get(1)?;
            count += 1;
        }
        ensure!(count == 0 || bytes > 0, "rows have bytes");
        Ok((count, last))
    }
}

impl Connection {
    /// What the graph's version and head are afterwards.
    async fn two_trips(
        &self,
        graph: i64,
        ids: &[String],
        ciphertexts: &[&[u8]],
    ) -> Result<(i64, i64)> {
        let client = &self.client;
        let lock: [&(dyn ToSql + Sync); 1] = [&graph];
        let there: [&(dyn ToSql + Sync); 2] = [&graph, &ids];
        let (_, locked, there) = tokio::try_join!(
            // Sent in this order.
            biased;
            client.batch_execute("BEGIN"),
            client.query_one(&self.lock, &lock),
            client.query(&self.read, &there),
        )?;
        ensure!(there.is_empty(), "each record is new");
        let (head, version): (i64, i64) = (locked.get(0), locked.get(1));
        let count = i64::try_from(ids.len())?;
        let bytes: usize = ciphertexts.iter().map(|it| it.len()).sum();
        let bytes = i64::try_from(bytes)?;
        let write: [&(dyn ToSql + Sync); 4] = [&graph, &head, &ids, &ciphertexts];
        let counted: [&(dyn ToSql + Sync); 3] = [&graph, &count, &bytes];
        tokio::try_join!(
            // Sent in this order.
            biased;
            client.execute(&self.write, &write),
            client.execute(&self.count, &counted),
            client.batch_execute("COMMIT"),
        )?;
        Ok((version + 1, head + count))
    }
}

type Used<'a> = tokio::sync::MutexGuard<'a, ()>;

/// A connection, and the task that carries it.
pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[async_trait]
impl Arm for Arc<Bare> {
    fn name(&self) -> &'static str {
        match self.shape {
            Shape::One => "bare",
            Shape::TwoTrips => "bare, two trips",
            Shape::Versioned => "bare, versioned",
        }
    }

    async fn caller(&self, number: usize, load: Load) -> Result<Box<dyn Caller>> {
        let since = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or(Duration::ZERO);
        Ok(Box::new(BareCaller {
            bare: Self::clone(self),
            graphs: match load {
                Load::Push {
                    graphs: Graphs::One,
                    ..
                } => vec![HOT],
                _ => share(number, self.callers)
                    .iter()
                    .map(|it| *it as i64)
                    .collect(),
            },
            load,
            name: format!("{}-{number}", since.as_nanos()),
            turn: 0,
            after: 0,
            ciphertext: ciphertext(),
        }))
    }

    async fn stored(&self) -> Result<u64> {
        let (connection, _permit, _used) = self.connection().await?;
        let row = connection
            .client
            .query_one(
                "SELECT (SELECT count(*) FROM bare_records WHERE graph <> $1),
                        (SELECT sum(head)::bigint FROM bare_graphs WHERE id <> $1)",
                &[&READ],
            )
            .await?;
        let (rows, heads): (i64, i64) = (row.get(0), row.get(1));
        ensure!(
            rows == heads,
            "{rows} records, and heads that add up to {heads}"
        );
        Ok(u64::try_from(rows)?)
    }
}

struct BareCaller {
    bare: Arc<Bare>,
    graphs: Vec<i64>,
    load: Load,
    name: String,
    turn: usize,
    after: i64,
    ciphertext: Vec<u8>,
}

#[async_trait]
impl Caller for BareCaller {
    async fn request(&mut self) -> Result<u64> {
        self.turn += 1;
        match self.load {
            Load::Push { records, .. } => {
                let graph = self.graphs[self.turn % self.graphs.len()];
                let ids: Vec<_> = (0..records)
                    .map(|n| format!("{}-{}-{n}", self.name, self.turn))
                    .collect();
                let ciphertexts = vec![&self.ciphertext[..]; records];
                self.bare.push(graph, &ids, &ciphertexts).await
            }
            Load::Pull { page } => {
                let (count, last) = self.bare.pull(self.after, i64::try_from(page)?).await?;
                self.after = if count < page as u64 { 0 } else { last };
                Ok(count)
            }
        }
    }
}
