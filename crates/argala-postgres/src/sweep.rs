//! What the sweep asks for: rows whose time has passed.
//!
//! No relay has these statements in it: they are reached by [`SweepStore`] alone, which a cluster's
//! sweeper uses and nobody else. A test looks for their text in the binaries.
//!
//! [`SweepStore`]: argala_core::ports::store::SweepStore

mod port;
mod watch;

use argala_core::{
    StoreResult,
    ports::{ForgetReason, store::Doomed},
};
use argala_wire::Timestamp;
use tokio_postgres::{Row, types::Type};

use crate::{
    columns::{all, first, get, limit, number, object, text},
    failure::Work,
    run::Database,
    session::{Sql, Tx},
    upkeep::reason,
};

/// Blobs that are due, and the graphs they belong to: now, pending before, how many.
const DUE: Sql = Sql {
    text: "SELECT graph, object FROM (
               (SELECT graph, object FROM blobs
                WHERE state = 'live' AND expires_at IS NOT NULL AND expires_at <= $1
                ORDER BY expires_at LIMIT $3)
               UNION ALL
               (SELECT graph, object FROM blobs
                WHERE state = 'pending' AND reserved_at < $2
                ORDER BY reserved_at LIMIT $3)
           ) due
           LIMIT $3",
    types: &[Type::INT8, Type::INT8, Type::INT8],
};

/// What [`DUE`] and [`DOOMED`] would find, with what would be told: now, pending before, forgetting
/// before, how many; the reasons of live ones and of pending ones.
const PEEK: Sql = Sql {
    text: "SELECT coalesce(g.storage_key,
                           (SELECT e.storage_key FROM erasures e WHERE e.graph = d.graph)),
                  d.object, d.reason
           FROM (
               (SELECT graph, object, $5 AS reason FROM blobs
                WHERE state = 'live' AND expires_at IS NOT NULL AND expires_at <= $1
                ORDER BY expires_at LIMIT $4)
               UNION ALL
               (SELECT graph, object, $6 AS reason FROM blobs
                WHERE state = 'pending' AND reserved_at < $2
                ORDER BY reserved_at LIMIT $4)
               UNION ALL
               (SELECT graph, object, reason FROM blobs
                WHERE state = 'forgetting' AND marked_at < $3
                ORDER BY marked_at, object LIMIT $4)
           ) d
           LEFT JOIN graphs g ON g.id = d.graph
           LIMIT $4",
    types: &[
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
    ],
};

/// Graphs, locked in their order; those that somebody else has locked are passed over: they are
/// written to just now, and a sweep comes again.
const HOLD_FREE: Sql = Sql {
    text: "SELECT id FROM graphs WHERE id = ANY($1) ORDER BY storage_key
           FOR NO KEY UPDATE SKIP LOCKED",
    types: &[Type::INT8_ARRAY],
};

/// The same, waiting for each.
const HOLD_ALL: Sql = Sql {
    text: "SELECT id FROM graphs WHERE id = ANY($1) ORDER BY storage_key FOR NO KEY UPDATE",
    types: &[Type::INT8_ARRAY],
};

/// Those of the objects that are due still: graphs, objects; now, pending before; the reasons of
/// live ones and of pending ones.
const MARK: Sql = Sql {
    text: "UPDATE blobs b
           SET marked_at = $3, state = 'forgetting',
               reason = CASE b.state WHEN 'live' THEN $5 ELSE $6 END
           FROM unnest($1::bigint[], $2::text[]) AS v (graph, object)
           WHERE b.graph = v.graph AND b.object = v.object
             AND (b.state = 'live' AND b.expires_at <= $3
                  OR b.state = 'pending' AND b.reserved_at < $4)
           RETURNING b.graph, b.object, b.size",
    types: &[
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
    ],
};

const GIVE_BACK: Sql = Sql {
    text: "UPDATE graphs g SET blob_bytes = g.blob_bytes - v.bytes
           FROM unnest($1::bigint[], $2::bigint[]) AS v (graph, bytes)
           WHERE g.id = v.graph",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY],
};

/// Those to be removed, marked longest ago first, so that nothing which cannot be removed today is
/// passed over for ever: forgetting before; graphs, objects; how many.
const DOOMED: Sql = Sql {
    text: "SELECT coalesce(g.storage_key,
                           (SELECT e.storage_key FROM erasures e WHERE e.graph = d.graph)),
                  d.object, d.reason
           FROM (
               (SELECT graph, object, reason, marked_at FROM blobs
                WHERE state = 'forgetting' AND marked_at < $1
                ORDER BY marked_at, object LIMIT $4)
               UNION
               SELECT b.graph, b.object, b.reason, b.marked_at
               FROM unnest($2::bigint[], $3::text[]) AS v (graph, object)
               JOIN blobs b ON b.graph = v.graph AND b.object = v.object
               WHERE b.state = 'forgetting'
           ) d
           LEFT JOIN graphs g ON g.id = d.graph
           ORDER BY d.marked_at, d.object
           LIMIT $4",
    types: &[Type::INT8, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::INT8],
};

/// What a sweep asks for.
pub(crate) struct Sweep {
    pub(crate) now: Timestamp,
    pub(crate) pending_before: Timestamp,
    pub(crate) forgetting_before: Timestamp,
    pub(crate) at_most: usize,
}

/// Rows, by graph and object.
type Objects = (Vec<i64>, Vec<String>);

/// Marks blobs that are due, giving their bytes back, and tells which objects are to be removed.
pub(crate) async fn doom_blobs(database: &Database, sweep: &Sweep) -> StoreResult<Vec<Doomed>> {
    const OPERATION: &str = "find blobs to forget";
    let (now, pending) = (sweep.now.as_millis(), sweep.pending_before.as_millis());
    let (graphs, objects): Objects = database
        .find(
            OPERATION,
            &DUE,
            &[&now, &pending, &limit(sweep.at_most)],
            |rows| {
                let pairs: Vec<(i64, String)> = all(rows, |row| Ok((get(row, 0)?, get(row, 1)?)))?;
                Ok(pairs.into_iter().unzip())
            },
        )
        .await?;
    let mut marked: Objects = (Vec::new(), Vec::new());
    if !graphs.is_empty() {
        let due = Due {
            sweep,
            graphs,
            objects,
        };
        marked = database
            .update(OPERATION, &due, |tx, due| {
                Box::pin(mark(tx, due, &HOLD_FREE))
            })
            .await?;
        if marked.0.is_empty() {
            // All their graphs are written to without a pause: then it waits its turn.
            marked = database
                .update(OPERATION, &due, |tx, due| {
                    Box::pin(mark(tx, due, &HOLD_ALL))
                })
                .await?;
        }
    }
    database
        .find(
            OPERATION,
            &DOOMED,
            &[
                &sweep.forgetting_before.as_millis(),
                &marked.0,
                &marked.1,
                &limit(sweep.at_most),
            ],
            |rows| all(rows, doomed),
        )
        .await
}

/// What [`doom_blobs`] would tell, were it to mark all that is due.
pub(crate) async fn peek_blobs(database: &Database, sweep: &Sweep) -> StoreResult<Vec<Doomed>> {
    database
        .find(
            "look for blobs to forget",
            &PEEK,
            &[
                &sweep.now.as_millis(),
                &sweep.pending_before.as_millis(),
                &sweep.forgetting_before.as_millis(),
                &limit(sweep.at_most),
                &ForgetReason::Expired.as_str(),
                &ForgetReason::Orphaned.as_str(),
            ],
            |rows| all(rows, doomed),
        )
        .await
}

/// Blobs that were due when they were looked for.
struct Due<'a> {
    sweep: &'a Sweep,
    graphs: Vec<i64>,
    objects: Vec<String>,
}

/// Marks those that are due still and whose graphs are had.
async fn mark(tx: &Tx, due: &Due<'_>, hold: &'static Sql) -> Work<Objects> {
    let held = tx.query(hold, &[&due.graphs]).await?;
    let held: std::collections::HashSet<i64> = all(&held, |row| get(row, 0))?;
    let (graphs, objects): (Vec<i64>, Vec<&str>) = due
        .graphs
        .iter()
        .zip(&due.objects)
        .filter(|(graph, _)| held.contains(graph))
        .map(|(graph, object)| (*graph, object.as_str()))
        .unzip();
    let marked = tx
        .query(
            &MARK,
            &[
                &graphs,
                &objects,
                &due.sweep.now.as_millis(),
                &due.sweep.pending_before.as_millis(),
                &ForgetReason::Expired.as_str(),
                &ForgetReason::Orphaned.as_str(),
            ],
        )
        .await?;
    let mut back = std::collections::BTreeMap::<i64, i64>::new();
    let mut rows: Objects = (Vec::new(), Vec::new());
    for row in &marked {
        let graph: i64 = get(row, 0)?;
        *back.entry(graph).or_default() += get::<i64>(row, 2)?;
        rows.0.push(graph);
        rows.1.push(get(row, 1)?);
    }
    let (graphs, bytes): (Vec<i64>, Vec<i64>) = back.into_iter().unzip();
    tx.send_and_commit(&[(&GIVE_BACK, &[&graphs, &bytes])])
        .await?;
    Ok(rows)
}

fn doomed(row: &Row) -> Work<Doomed> {
    Ok(Doomed {
        graph: text(row, 0)?,
        object: object(row, 1)?,
        reason: reason(row, 2)?,
    })
}

/// Slots of idempotency keys that hold old ones and no others: before. The newest is found by its
/// time, however many there are.
const WHOLE_SLOTS: Sql = Sql {
    text: "SELECT s.slot FROM generate_series(0, 3) AS s (slot)
           WHERE (SELECT i.at FROM idempotency i WHERE i.slot = s.slot
                  ORDER BY i.at DESC LIMIT 1) < $1",
    types: &[Type::INT8],
};

/// How many keys a slot holds.
const COUNT_SLOT: Sql = Sql {
    text: "SELECT count(*) FROM idempotency WHERE slot = $1",
    types: &[Type::INT4],
};

/// Whether a slot still holds none but old ones: slot, before.
const IS_OLD: Sql = Sql {
    text: "SELECT coalesce(
               (SELECT i.at FROM idempotency i WHERE i.slot = $1 ORDER BY i.at DESC LIMIT 1) < $2,
               true
           )",
    types: &[Type::INT4, Type::INT8],
};

/// Old keys among newer ones, the oldest first: before, how many. As arrays, since the server takes a
/// limit that it does not know for a tenth of the table, and would read all of it.
const DROP_OLD: Sql = Sql {
    text: "WITH old AS MATERIALIZED (
               SELECT graph, member, device, key, slot FROM idempotency
               WHERE at < $1 ORDER BY at LIMIT $2
               FOR UPDATE SKIP LOCKED
           )
           DELETE FROM idempotency i
           USING (
               SELECT array_agg(graph) AS graphs, array_agg(member) AS members,
                      array_agg(device) AS devices, array_agg(key) AS keys,
                      array_agg(slot) AS slots
               FROM old
           ) o
           CROSS JOIN LATERAL unnest(o.graphs, o.members, o.devices, o.keys, o.slots)
                              AS v (graph, member, device, key, slot)
           WHERE i.graph = v.graph AND i.member = v.member AND i.device = v.device
             AND i.key = v.key AND i.slot = v.slot
           RETURNING 1",
    types: &[Type::INT8, Type::INT8],
};

/// Removes idempotency keys whose day has passed; how many.
///
/// A slot that holds no others is emptied in one step, however many there are, and so are all of
/// them where `before` is a multiple of half a day. The rest goes row by row.
pub(crate) async fn drop_idempotency(
    database: &Database,
    before: Timestamp,
    at_most: usize,
) -> StoreResult<u64> {
    const OPERATION: &str = "remove idempotency keys";
    let at = before.as_millis();
    let whole: Vec<i32> = database
        .find(OPERATION, &WHOLE_SLOTS, &[&at], |rows| {
            all(rows, |row| get(row, 0))
        })
        .await?;
    let mut dropped = 0;
    for slot in whole {
        let count = database
            .find(OPERATION, &COUNT_SLOT, &[&slot], |rows| {
                Ok(first(rows, |row| number(row, 0))?.unwrap_or(0))
            })
            .await?;
        let emptied = database
            .update(OPERATION, &(slot, at), |tx, (slot, at)| {
                Box::pin(empty(tx, *slot, *at))
            })
            .await;
        match emptied {
            Ok(true) => dropped += count,
            Ok(false) => {}
            // Somebody reads it for longer than it may be held up. The next pass comes again.
            Err(error) => tracing::debug!(
                error = &error as &dyn std::error::Error,
                "a slot of idempotency keys was not emptied"
            ),
        }
    }
    if dropped >= at_most as u64 {
        return Ok(dropped);
    }
    let rest = limit(at_most - usize::try_from(dropped).unwrap_or(at_most));
    let few = database
        .change(OPERATION, &DROP_OLD, &[&at, &rest], |rows| {
            Ok(rows.len() as u64)
        })
        .await?;
    Ok(dropped + few)
}

/// Empties a slot, unless it has come to hold newer keys.
async fn empty(tx: &Tx, slot: i32, before: i64) -> Work<bool> {
    // Whoever pushes waits behind this lock, and this lock behind whoever pushes: not for long.
    tx.simple(&format!(
        "SET LOCAL lock_timeout = 250; LOCK TABLE idempotency_{slot} IN ACCESS EXCLUSIVE MODE"
    ))
    .await?;
    let [old] = tx.send([(&IS_OLD, &[&slot, &before])]).await?;
    let old = first(&old, |row| get(row, 0))?.unwrap_or(false);
    if old {
        tx.simple(&format!("TRUNCATE idempotency_{slot}")).await?;
    }
    Ok(old)
}
