//! What a pass of the sweep costs by how much is stored, where always as much is due.
//!
//! Each size has a database of its own, filled by the server itself: blobs with their objects and
//! fetches, records of which half are tombstones, idempotency keys, and graphs. Then as many of each
//! kind are made due as everywhere else, and a pass runs by the connection that leads, as
//! `sweeper run` has it. The sizes take turns.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use argala_core::{
    ports::ForgetReason,
    sweep::{Sweep, SweepOptions},
};
use argala_postgres::{Leadership, Postgres, lead, migrate};
use clap::Args;
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::{arms::bare, compare::databases};

#[derive(Args)]
pub(crate) struct Options {
    /// A database, `postgres://…`, by way of which others are made, `sweep_…`: what was in databases
    /// of these names is lost.
    #[arg(long, value_name = "URL")]
    server: String,
    /// How much is stored of each kind: blobs, records, idempotency keys.
    #[arg(long, value_delimiter = ',', default_value = "1000,100000,1000000")]
    rows: Vec<u64>,
    /// How much of each kind is due.
    #[arg(long, default_value_t = 1_000)]
    due: u64,
    /// How often each size has its turn, after one that does not count; medians are reported.
    #[arg(long, default_value_t = 3)]
    turns: usize,
}

/// Objects of a page that a pass compares with rows.
const PAGE: u64 = 1_000;
/// No stage is cut off: all that is due is to be measured.
const LONG: Duration = Duration::from_secs(3_600);

/// Everything but what is due: rows, and how many are due.
const FILL: &str = "
    CREATE TEMPORARY TABLE here AS SELECT
        instance || '/' AS of, $rows::bigint AS rows, $due::bigint AS due,
        $rows::bigint / 10 + $due::bigint AS graphs,
        (extract(epoch FROM now()) * 1000)::bigint AS now
    FROM relay_schema;
    INSERT INTO graphs (storage_key, epoch, head, records, tombstones, ciphertext_bytes, blob_bytes,
                        incarnation, floor, revocation_owed, directory_owed, ask_at)
    SELECT 'g:group-' || n, 1, 0, 0, 0, 0, 0, 1, 0, false, false, now + 86400000
    FROM here, generate_series(1, graphs) n;
    INSERT INTO blobs (graph, object, blob, state, size, policy, expires_at, by_member, by_device,
                       reserved_at, sha256, look_at)
    SELECT 1 + n % graphs, of || md5(n::text), 'a-blob-of-number-' || n, 'live', 7,
           (ARRAY['keep', 'expire', 'deliver'])[1 + n % 3],
           CASE WHEN n % 3 > 0 THEN now + 2592000000 + n END, 'sam', 'laptop', now, '',
           CASE WHEN n % 3 = 2 THEN now + 3600000 END
    FROM here, generate_series(1, rows) n;
    INSERT INTO blobs (graph, object, blob, state, size, policy, by_member, by_device, reserved_at,
                       sha256, look_at)
    SELECT 1 + n % 50, of || md5('fetched ' || n), 'a-blob-that-is-fetched-' || n, 'live', 7, 'deliver',
           'sam', 'laptop', now, '', now + 3600000
    FROM here, generate_series(1, due) n;
    INSERT INTO blob_fetches (graph, object, member, device)
    SELECT graph, object, 'alex', 'phone' FROM blobs WHERE policy = 'deliver';
    INSERT INTO objects (object, size, whole, begun_at)
    SELECT object, 7, true, now - 86400000 FROM here, blobs;
    INSERT INTO records (graph, record, seq, epoch, by_member, by_device, at, deleted, bytes, ciphertext)
    SELECT 1 + n % graphs, 'record ' || n, n, 1, 'sam', 'laptop', now - 86400000, n % 2 = 0, 0, ''
    FROM here, generate_series(1, rows) n;
    INSERT INTO idempotency (slot, graph, member, device, key, at, body, answer)
    SELECT at / 43200000 % 4, 1 + n % graphs, 'sam', 'laptop', 'key ' || n, at, '', ''
    FROM here, generate_series(1, rows) n, LATERAL (SELECT now - n % 3600000 AS at) a;
    UPDATE graphs g SET blob_bytes = b.bytes
    FROM (SELECT graph, sum(size) AS bytes FROM blobs GROUP BY graph) b WHERE g.id = b.graph;
    UPDATE graphs g SET records = r.live, tombstones = r.tombstones, head = r.head
    FROM (SELECT graph, count(*) FILTER (WHERE NOT deleted) AS live,
                 count(*) FILTER (WHERE deleted) AS tombstones, max(seq) AS head
          FROM records GROUP BY graph) r
    WHERE g.id = r.graph;";

/// What a pass has to do: blobs that have expired and uploads that were given up, with their objects;
/// blobs to be looked at, groups to be asked about, tombstones, and keys in a slot with newer ones.
const MAKE_DUE: &str = "
    INSERT INTO blobs (graph, object, blob, state, size, policy, expires_at, by_member, by_device,
                       reserved_at, sha256)
    SELECT 1 + n % graphs, of || md5('due ' || n), 'a-blob-that-is-due-' || n,
           CASE WHEN n % 2 = 0 THEN 'live' ELSE 'pending' END, 7, 'expire', 1, 'sam', 'laptop', 1, ''
    FROM here, generate_series(1, 2 * due) n;
    INSERT INTO objects (object, size, whole, begun_at)
    SELECT of || md5('due ' || n), 7, true, 1 FROM here, generate_series(1, 2 * due) n;
    UPDATE graphs g SET blob_bytes = blob_bytes + 7 * b.count
    FROM (SELECT 1 + n % graphs AS id, count(*) FROM here, generate_series(1, 2 * due) n GROUP BY 1) b
    WHERE g.id = b.id;
    UPDATE blobs b SET look_at = 0 FROM here, generate_series(1, due) n
    WHERE b.graph = 1 + n % 50 AND b.object = of || md5('fetched ' || n);
    INSERT INTO records (graph, record, seq, epoch, by_member, by_device, at, deleted, bytes, ciphertext)
    SELECT 1 + n % graphs, 'due ' || n, rows + n, 1, 'sam', 'laptop', 1, true, 0, ''
    FROM here, generate_series(1, due) n;
    UPDATE graphs g SET tombstones = tombstones + r.count, head = rows + due
    FROM here, (SELECT 1 + n % graphs AS id, count(*) FROM here, generate_series(1, due) n GROUP BY 1) r
    WHERE g.id = r.id;
    INSERT INTO idempotency (slot, graph, member, device, key, at, body, answer)
    SELECT now / 43200000 % 4, 1 + n % graphs, 'sam', 'laptop', 'due ' || n, 1, '', ''
    FROM here, generate_series(1, due) n;
    UPDATE graphs SET ask_at = 0 FROM here WHERE id <= due;";

/// A database of one size, and the sweep of it.
struct Size {
    rows: u64,
    beside: Client,
    leader: Leadership,
    blobs: Arc<Postgres>,
    /// Milliseconds of passes with something due, with nothing due, and of comparing a page.
    told: [Vec<f64>; 3],
}

impl Size {
    async fn new(options: &Options, rows: u64) -> Result<Self> {
        let name = format!("sweep_{rows}");
        let [url] = databases(&options.server, [name.as_str()]).await?;
        let open = argala_postgres::Options {
            operation_timeout: LONG,
            ..argala_postgres::Options::new(url.clone())
        };
        migrate(&open).await?;
        let beside = bare::connect(&url).await?;
        let fill = FILL
            .replace("$rows", &rows.to_string())
            .replace("$due", &options.due.to_string());
        beside.batch_execute(&fill).await?;
        beside.batch_execute("VACUUM ANALYZE").await?;
        let leader = lead(&open, LONG).await?.context("nobody else leads")?;
        Ok(Self {
            rows,
            beside,
            leader,
            blobs: Arc::new(Postgres::open(&open).await?),
            told: [const { Vec::new() }; 3],
        })
    }

    fn sweep(&self, pages: usize) -> Sweep {
        let options = SweepOptions {
            stage_time: LONG,
            pages,
            ..SweepOptions::default()
        };
        let (blobs, directory) = (Arc::clone(&self.blobs), Arc::clone(&self.blobs));
        Sweep::new(self.leader.store(), blobs, directory, options)
    }

    /// Everything once: what is due, nothing, and the comparison of objects with rows.
    async fn turn(&mut self, due: u64, counts: bool) -> Result<()> {
        self.beside.batch_execute(MAKE_DUE).await?;
        let (full, idle) = (self.sweep(0), self.sweep(0));
        let began = Instant::now();
        let report = full.pass().await?;
        let full = began.elapsed();
        let forgotten = [ForgetReason::Expired, ForgetReason::Orphaned].map(|it| report.of(it));
        ensure!(
            forgotten == [due; 2] && report.tombstones == due && report.idempotency_keys == due,
            "not all that is due went, or more: {report:?}"
        );
        let began = Instant::now();
        idle.pass().await?;
        let idle = began.elapsed();
        let comparing = self.sweep(1);
        let began = Instant::now();
        let report = comparing.pass().await?;
        let compared = began.elapsed().saturating_sub(idle);
        ensure!(report.leaked == 0, "every object has its row: {report:?}");
        if counts {
            for (told, time) in self.told.iter_mut().zip([full, idle, compared]) {
                told.push(time.as_secs_f64() * 1e3);
            }
        }
        Ok(())
    }

    fn medians(&self) -> [f64; 3] {
        [0, 1, 2].map(|of| {
            let mut all = self.told[of].clone();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        })
    }
}

pub(crate) async fn run(options: Options) -> Result<()> {
    ensure!(options.turns > 0 && options.due > 0, "nothing to measure");
    ensure!(
        options.rows.iter().all(|rows| *rows >= PAGE),
        "a page of objects is {PAGE}"
    );
    let mut sizes = Vec::new();
    for rows in &options.rows {
        sizes.push(Size::new(&options, *rows).await?);
    }
    for turn in 0..=options.turns {
        for size in &mut sizes {
            size.turn(options.due, turn > 0).await?;
        }
    }
    println!(
        "{} of each kind are due, medians of {}.\n",
        options.due, options.turns
    );
    println!(
        "| stored of each kind | pass, ms | ratio | nothing due, ms | ratio | a page of objects, ms | ratio |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut least = None;
    for size in &sizes {
        let of = size.medians();
        let least = *least.get_or_insert(of);
        let cells = [0, 1, 2].map(|at| format!("{:.1} | {:.2}", of[at], of[at] / least[at]));
        println!("| {} | {} |", size.rows, cells.join(" | "));
    }
    for size in sizes {
        size.leader.close().await;
    }
    Ok(())
}
