//! Reading a page of records, in one statement and so of one moment.
//!
//! There are two: one for what a page mostly is, which costs little more than its rows, and one
//! for all others.

use argala_core::{
    Outcome,
    ports::store::{Counters, Graph, Pull, Pulled},
    rules::pull::{self, EpochSpan, Offer, Plan},
};
use argala_wire::records::PulledRecord;
use tokio_postgres::{Row, types::Type};

use crate::{
    columns::{
        device_ref, first, get, int, limit, maybe_sealed, number, numbers, sealed, text, time,
    },
    failure::{Failure, Work},
    run::Database,
    session::Sql,
};

/// The columns of a first row, which tells of the graph `g`, and of those after it.
///
/// All of the first row's numbers are in one column, so that the many rows after it have few that
/// are empty.
macro_rules! graph_numbers {
    () => {
        "ARRAY[g.epoch, g.head, g.records, g.tombstones, g.ciphertext_bytes, g.blob_bytes,
               g.incarnation, g.floor, g.revocation_owed::int, g.directory_owed::int]"
    };
}
macro_rules! no_record {
    () => {
        "NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint,
         NULL::boolean, NULL::bigint, NULL::bytea, NULL::bytea"
    };
}

/// A page as it mostly is: of every epoch, for a device that holds them all, and with room for as
/// many records as it may have. The graph, the epochs that the device holds, and whether the page
/// is such a one; then its rows and one more, seqs ascending, if it is.
///
/// Parameters: storage key; member, device; the seq after which to read; how many records a page
/// has at the most, and how many bytes.
const PLAIN_PAGE: Sql = Sql {
    text: concat!(
        "WITH graph AS MATERIALIZED (
             SELECT g.id, g.head, ",
        graph_numbers!(),
        " AS numbers, h.epochs,
                    cardinality(h.epochs) = (SELECT count(*) FROM epochs e WHERE e.graph = g.id)
                    AND (
                        SELECT coalesce(sum(n.bytes), 0) FROM (
                            SELECT r.bytes FROM records r
                            WHERE r.graph = g.id AND r.seq > $4 AND r.seq <= g.head
                            ORDER BY r.seq LIMIT $5 + 1
                        ) n
                    ) <= $6 AS plain
             FROM graphs g
             CROSS JOIN LATERAL (
                 SELECT coalesce(array_agg(w.epoch), '{}') AS epochs FROM wraps w
                 WHERE w.graph = g.id AND w.member = $2 AND w.device = $3 AND w.wrap IS NOT NULL
             ) h
             WHERE g.storage_key = $1
         )
         SELECT numbers, epochs, plain, ",
        no_record!(),
        " FROM graph
         UNION ALL
         (SELECT NULL, NULL, NULL, r.record, r.seq, r.epoch, r.by_member, r.by_device, r.at,
                 r.deleted, r.bytes, r.sig, r.ciphertext
          FROM records r
          WHERE (SELECT plain FROM graph) AND r.graph = (SELECT id FROM graph) AND r.seq > $4
            AND r.seq <= (SELECT head FROM graph)
          ORDER BY r.seq LIMIT $5 + 1)"
    ),
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
        Type::INT8,
    ],
};

/// Any page. The graph, the epochs that the device holds and the span of the epoch that is asked
/// for; then the rows that may be of the page, seqs ascending.
///
/// Parameters: storage key; member, device; the seq after which to read; the epoch that is asked
/// for, or 0; how many records a page has at the most, how many rows it may pass over, and how
/// many bytes it has.
///
/// What the page takes is decided outside. The statement sees to it that no more is read than it
/// may need: rows up to the first that the device may read and for which there is no room; none
/// that are passed over where the device holds every epoch; ciphertexts only of rows that the
/// device may read and that can still find room.
const PAGE: Sql = Sql {
    text: concat!(
        "WITH graph AS MATERIALIZED (
             SELECT g.id, g.head, ",
        graph_numbers!(),
        " AS numbers FROM graphs g WHERE g.storage_key = $1
         ), held AS MATERIALIZED (
             SELECT coalesce(array_agg(w.epoch), '{}') AS epochs
             FROM wraps w
             WHERE w.graph = (SELECT id FROM graph) AND w.member = $2 AND w.device = $3
               AND w.wrap IS NOT NULL
         ), span AS MATERIALIZED (
             SELECT e.epoch, e.first_seq FROM epochs e
             WHERE $5 > 0 AND e.graph = (SELECT id FROM graph) AND e.epoch >= $5
             ORDER BY e.epoch LIMIT 2
         ), walk AS MATERIALIZED (
             SELECT greatest($4, (SELECT first_seq - 1 FROM span WHERE epoch = $5)) AS after,
                    CASE WHEN $5 = 0 OR EXISTS (SELECT 1 FROM span WHERE epoch = $5)
                         THEN least(g.head, (SELECT first_seq - 1 FROM span WHERE epoch > $5))
                         ELSE 0 END AS until,
                    (SELECT cardinality(epochs) FROM held)
                        = (SELECT count(*) FROM epochs e WHERE e.graph = g.id) AS holds_all
             FROM graph g
         ), edge AS MATERIALIZED (
             SELECT n.seq FROM (
                 SELECT r.seq, r.epoch FROM records r
                 WHERE r.graph = (SELECT id FROM graph) AND NOT (SELECT holds_all FROM walk)
                   AND r.seq > (SELECT after FROM walk) AND r.seq <= (SELECT until FROM walk)
                 ORDER BY r.seq
                 LIMIT $6 + 1 + $7
             ) n
             WHERE n.epoch = ANY((SELECT epochs FROM held)::bigint[])
             ORDER BY n.seq OFFSET $6 LIMIT 1
         ), near AS (
             SELECT r.record, r.seq, r.epoch, r.by_member, r.by_device, r.at, r.deleted, r.bytes,
                    r.sig, r.ciphertext,
                    r.epoch = ANY((SELECT epochs FROM held)::bigint[]) AS wanted
             FROM records r
             WHERE r.graph = (SELECT id FROM graph) AND r.seq > (SELECT after FROM walk)
               AND r.seq <= least((SELECT until FROM walk), (SELECT seq FROM edge))
             ORDER BY r.seq
             LIMIT $6 + 1 + CASE WHEN (SELECT holds_all FROM walk) THEN 0 ELSE $7 END
         ), counted AS (
             SELECT *, sum(CASE WHEN wanted THEN bytes ELSE 0 END)
                           OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - bytes AS before
             FROM near
         )
         SELECT g.numbers, (SELECT epochs FROM held),
                (SELECT array_agg(v.value ORDER BY s.epoch, v.n) FROM span s
                 CROSS JOIN LATERAL (VALUES (1, s.epoch), (2, s.first_seq)) AS v (n, value)), ",
        no_record!(),
        " FROM graph g
         UNION ALL
         SELECT NULL, NULL, NULL, CASE WHEN c.wanted THEN c.record END, c.seq, c.epoch,
                CASE WHEN c.wanted THEN c.by_member END, CASE WHEN c.wanted THEN c.by_device END,
                c.at, c.deleted, c.bytes, CASE WHEN c.wanted THEN c.sig END,
                CASE WHEN c.wanted AND c.before <= $8 THEN c.ciphertext END
         FROM counted c"
    ),
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
    ],
};

/// Columns of the first row.
const NUMBERS: usize = 0;
const HELD: usize = 1;
/// Whether the page is plain; in the other statement, the span: epochs and their first seqs.
const PLAIN: usize = 2;
const SPAN: usize = 2;
/// Where the columns of a record begin.
const RECORD: usize = 3;

/// One page of records, of one moment.
pub(crate) async fn pull(database: &Database, request: &Pull) -> Outcome<Pulled> {
    const OPERATION: &str = "pull";
    let after = int(pull::starts_after(request)?);
    let key = request.key.as_str();
    let (member, device) = (
        request.device.member_id.as_str(),
        request.device.device_id.as_str(),
    );
    let at_most = limit(request.limit);
    let bytes = int(request.pages.max_pull_bytes);
    if request.epoch.is_none() {
        let plain = database
            .read(
                OPERATION,
                &PLAIN_PAGE,
                &[&key, &member, &device, &after, &at_most, &bytes],
                |rows| match first(rows, |head| get(head, PLAIN))? {
                    // What it would have to look at in another way is asked for in another way,
                    // and is then of another moment, as a whole.
                    Some(false) => Ok(None),
                    None | Some(true) => page(request, rows, None).map(Some),
                },
            )
            .await?;
        if let Some(page) = plain {
            return Ok(page);
        }
    }
    database
        .read(
            OPERATION,
            &PAGE,
            &[
                &key,
                &member,
                &device,
                &after,
                &request.epoch.map_or(0, int),
                &at_most,
                &int(request.pages.max_filtered),
                &bytes,
            ],
            |rows| {
                let span = first(rows, |head| span(head, request.epoch))?.flatten();
                page(request, rows, span)
            },
        )
        .await
}

fn page(request: &Pull, rows: &[Row], span: Option<EpochSpan>) -> Work<Pulled> {
    let (graph, held, rows) = match rows.split_first() {
        None => (None, Vec::new(), rows),
        Some((head, rows)) => (Some(graph(request, head)?), numbers(head, HELD)?, rows),
    };
    let held = held.into_iter().collect();
    let plan = pull::plan(request, graph.as_ref(), &held, span)?;
    let mut page = match plan {
        Plan::Unchanged { tag } => return Ok(Pulled::Unchanged { tag }),
        Plan::Read(page) => page,
    };
    let (after, until) = (page.after(), page.until());
    let mut last = 0;
    for row in rows {
        let seq = number(row, RECORD + 1)?;
        if seq <= last {
            return Err(Failure::Corrupt("a page's rows are out of order"));
        }
        last = seq;
        if seq <= after {
            continue;
        }
        if seq > until {
            break;
        }
        let epoch = number(row, RECORD + 2)?;
        match page.offer(seq, epoch, number(row, RECORD + 7)?) {
            Offer::Take => page.add(PulledRecord {
                id: text(row, RECORD)?,
                seq,
                epoch,
                by: device_ref(row, RECORD + 3)?,
                at: time(row, RECORD + 5)?,
                deleted: get(row, RECORD + 6)?,
                sig: maybe_sealed(row, RECORD + 8)?,
                ciphertext: sealed(row, RECORD + 9)?,
            }),
            Offer::Pass => {}
            Offer::Full => break,
        }
    }
    Ok(Pulled::Page(page.finish()))
}

/// The graph that a first row tells of.
fn graph(request: &Pull, head: &Row) -> Work<Graph> {
    let numbers = numbers(head, NUMBERS)?;
    let [
        epoch,
        head,
        records,
        tombstones,
        ciphertext_bytes,
        blob_bytes,
        incarnation,
        floor,
        revocation_owed,
        directory_owed,
    ] = numbers[..]
    else {
        return Err(Failure::Corrupt("a graph has other numbers than it should"));
    };
    Ok(Graph {
        key: request.key.clone(),
        epoch,
        head,
        counters: Counters {
            records,
            tombstones,
            ciphertext_bytes,
            blob_bytes,
        },
        incarnation,
        floor,
        revocation_owed: revocation_owed != 0,
        directory_owed: directory_owed != 0,
    })
}

/// Where the seqs of the epoch that is asked for lie.
fn span(head: &Row, epoch: Option<u64>) -> Work<Option<EpochSpan>> {
    if get::<Option<Vec<i64>>>(head, SPAN)?.is_none() {
        return Ok(None);
    }
    Ok(match numbers(head, SPAN)?[..] {
        [found, first] if Some(found) == epoch => Some(EpochSpan { first, next: None }),
        [found, first, _, next] if Some(found) == epoch => Some(EpochSpan {
            first,
            next: Some(next),
        }),
        _ => None,
    })
}
