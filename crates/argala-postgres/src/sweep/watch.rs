//! Deliveries, tombstones, groups and objects.

use std::collections::BTreeMap;

use argala_core::{
    StoreResult,
    ports::{
        ForgetReason, ObjectKey,
        store::{Delivery, Doomed, Emptiness, GroupWatch},
    },
};
use argala_wire::{Owners, StorageKey, Timestamp};
use tokio_postgres::{Row, types::Type};

use super::{HOLD_ALL, HOLD_FREE};
use crate::{
    columns::{all, device_ref, first, get, limit, maybe_time, number, object, text},
    failure::{Failure, Work},
    graphs,
    run::Database,
    session::{Sql, Tx},
};

/// Blobs whose turn it is to be looked at, which get another: now, again, how many.
const TAKE_TURNS: Sql = Sql {
    text: "UPDATE blobs b SET look_at = $2
           FROM (
               SELECT graph, object FROM blobs
               WHERE state = 'live' AND look_at IS NOT NULL AND look_at <= $1
               ORDER BY look_at LIMIT $3
               FOR NO KEY UPDATE SKIP LOCKED
           ) due
           WHERE b.graph = due.graph AND b.object = due.object
           RETURNING b.graph, b.object",
    types: &[Type::INT8, Type::INT8, Type::INT8],
};

/// The same blobs, left as they are: now, how many.
const PEEK_TURNS: Sql = Sql {
    text: "SELECT graph, object FROM blobs
           WHERE state = 'live' AND look_at IS NOT NULL AND look_at <= $1
           ORDER BY look_at LIMIT $2",
    types: &[Type::INT8, Type::INT8],
};

/// Who has fetched blobs that are live still, a row each: graphs, objects.
const FETCHES: Sql = Sql {
    text: "SELECT g.storage_key, b.object, b.by_member, b.by_device, f.member, f.device
           FROM unnest($1::bigint[], $2::text[]) AS v (graph, object)
           JOIN blobs b ON b.graph = v.graph AND b.object = v.object AND b.state = 'live'
           JOIN graphs g ON g.id = b.graph
           JOIN blob_fetches f ON f.graph = b.graph AND f.object = b.object
           ORDER BY g.storage_key, b.object, f.member, f.device",
    types: &[Type::INT8_ARRAY, Type::TEXT_ARRAY],
};

/// When blobs are looked for, when they have their next turn, and how many.
struct Turns {
    now: i64,
    again: Option<i64>,
    at_most: i64,
}

pub(super) async fn deliveries(
    database: &Database,
    now: Timestamp,
    again: Option<Timestamp>,
    at_most: usize,
) -> StoreResult<Vec<Delivery>> {
    let turns = Turns {
        now: now.as_millis(),
        again: again.map(Timestamp::as_millis),
        at_most: limit(at_most),
    };
    database
        .update("find delivered blobs", &turns, |tx, turns| {
            Box::pin(look(tx, turns))
        })
        .await
}

async fn look(tx: &Tx, turns: &Turns) -> Work<Vec<Delivery>> {
    let taken = match &turns.again {
        Some(again) => {
            tx.query(&TAKE_TURNS, &[&turns.now, again, &turns.at_most])
                .await?
        }
        None => tx.query(&PEEK_TURNS, &[&turns.now, &turns.at_most]).await?,
    };
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    let pairs: Vec<(i64, String)> = all(&taken, |row| Ok((get(row, 0)?, get(row, 1)?)))?;
    let (graphs, objects): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    // By a later statement: a fetch that this one does not see comes after the turn was taken, and
    // gives the blob another.
    let [fetches] = crate::session::exactly(
        tx.send_and_commit(&[(&FETCHES, &[&graphs, &objects])])
            .await?,
    );
    let mut deliveries: Vec<Delivery> = Vec::new();
    for row in &fetches {
        let (graph, object) = (text(row, 0)?, object(row, 1)?);
        let fetched = device_ref(row, 4)?;
        match deliveries.last_mut() {
            Some(last) if last.object == object => last.fetched.push(fetched),
            _ => deliveries.push(Delivery {
                graph,
                object,
                by: device_ref(row, 2)?,
                fetched: vec![fetched],
            }),
        }
    }
    Ok(deliveries)
}

/// Graph, objects, at, reason.
const MARK_DELIVERED: Sql = Sql {
    text: "UPDATE blobs SET state = 'forgetting', marked_at = $3, reason = $4
           WHERE graph = $1 AND object = ANY($2) AND state = 'live' AND policy = 'deliver'
           RETURNING object, size",
    types: &[Type::INT8, Type::TEXT_ARRAY, Type::INT8, Type::TEXT],
};

/// Graph, bytes.
const GIVE_BACK: Sql = Sql {
    text: "UPDATE graphs SET blob_bytes = blob_bytes - $2 WHERE id = $1",
    types: &[Type::INT8, Type::INT8],
};

/// Blobs of one graph that everybody has.
struct Delivered<'a> {
    graph: &'a StorageKey,
    objects: Vec<&'a str>,
    at: Timestamp,
}

/// Marks blobs that everybody has. One graph after the other, so that one which is written to holds
/// up no other.
pub(super) async fn doom_delivered(
    database: &Database,
    delivered: &[(StorageKey, ObjectKey)],
    at: Timestamp,
) -> StoreResult<Vec<Doomed>> {
    let mut of_graph: BTreeMap<&StorageKey, Vec<&str>> = BTreeMap::new();
    for (graph, object) in delivered {
        of_graph.entry(graph).or_default().push(object.as_str());
    }
    let mut doomed = Vec::new();
    for (graph, objects) in of_graph {
        let delivered = Delivered { graph, objects, at };
        let marked = database.update("forget delivered blobs", &delivered, |tx, delivered| {
            Box::pin(mark_delivered(tx, delivered))
        });
        doomed.extend(marked.await?);
    }
    Ok(doomed)
}

async fn mark_delivered(tx: &Tx, delivered: &Delivered<'_>) -> Work<Vec<Doomed>> {
    let reason = ForgetReason::Delivered;
    let held = tx
        .query(&graphs::HOLD, &[&delivered.graph.as_str()])
        .await?;
    let Some(graph) = first(&held, graphs::from_row)? else {
        return Ok(Vec::new());
    };
    let marked = tx
        .query(
            &MARK_DELIVERED,
            &[
                &graph.id,
                &delivered.objects,
                &delivered.at.as_millis(),
                &reason.as_str(),
            ],
        )
        .await?;
    let mut bytes = 0;
    let doomed = all(&marked, |row| {
        bytes += get::<i64>(row, 1)?;
        Ok(Doomed {
            graph: delivered.graph.clone(),
            object: object(row, 0)?,
            reason,
        })
    })?;
    if !marked.is_empty() {
        tx.send_and_commit(&[(&GIVE_BACK, &[&graph.id, &bytes])])
            .await?;
    }
    Ok(doomed)
}

/// Old tombstones, the oldest first: before, how many.
const OLD_TOMBSTONES: Sql = Sql {
    text: "SELECT graph, seq FROM records WHERE deleted AND at < $1 ORDER BY at LIMIT $2",
    types: &[Type::INT8, Type::INT8],
};

/// Those of them that are there still: graphs, seqs, before. A record that was pushed again since
/// has another seq.
const DROP_TOMBSTONES: Sql = Sql {
    text: "DELETE FROM records r
           USING unnest($1::bigint[], $2::bigint[]) AS v (graph, seq)
           WHERE r.graph = v.graph AND r.seq = v.seq AND r.deleted AND r.at < $3
           RETURNING r.graph, r.seq, r.bytes",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8],
};

/// Graphs, how many each, of how many bytes, up to which seq.
const RAISE_FLOORS: Sql = Sql {
    text: "UPDATE graphs g
           SET tombstones = g.tombstones - v.count,
               ciphertext_bytes = g.ciphertext_bytes - v.bytes,
               floor = greatest(g.floor, v.seq)
           FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
                AS v (graph, count, bytes, seq)
           WHERE g.id = v.graph",
    types: &[
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
    ],
};

/// Tombstones that were old when they were looked for.
struct Old {
    graphs: Vec<i64>,
    seqs: Vec<i64>,
    before: i64,
}

pub(super) async fn drop_tombstones(
    database: &Database,
    before: Timestamp,
    at_most: usize,
) -> StoreResult<u64> {
    const OPERATION: &str = "remove old tombstones";
    let before = before.as_millis();
    let found: Vec<(i64, i64)> = database
        .find(
            OPERATION,
            &OLD_TOMBSTONES,
            &[&before, &limit(at_most)],
            |rows| all(rows, |row| Ok((get(row, 0)?, get(row, 1)?))),
        )
        .await?;
    if found.is_empty() {
        return Ok(0);
    }
    let (graphs, seqs) = found.into_iter().unzip();
    let old = Old {
        graphs,
        seqs,
        before,
    };
    let free = database
        .update(OPERATION, &old, |tx, old| {
            Box::pin(bury(tx, old, &HOLD_FREE))
        })
        .await?;
    if free > 0 {
        return Ok(free);
    }
    // All their graphs are written to without a pause: then it waits its turn.
    database
        .update(OPERATION, &old, |tx, old| {
            Box::pin(bury(tx, old, &HOLD_ALL))
        })
        .await
}

async fn bury(tx: &Tx, old: &Old, hold: &'static Sql) -> Work<u64> {
    let held = tx.query(hold, &[&old.graphs]).await?;
    let held: std::collections::HashSet<i64> = all(&held, |row| get(row, 0))?;
    let (graphs, seqs): (Vec<i64>, Vec<i64>) = old
        .graphs
        .iter()
        .zip(&old.seqs)
        .filter(|(graph, _)| held.contains(graph))
        .unzip();
    if graphs.is_empty() {
        return Ok(0);
    }
    let dropped = tx
        .query(&DROP_TOMBSTONES, &[&graphs, &seqs, &old.before])
        .await?;
    let mut sums = BTreeMap::<i64, [i64; 3]>::new();
    for row in &dropped {
        let [count, bytes, seq] = sums.entry(get(row, 0)?).or_default();
        *count += 1;
        *bytes += get::<i64>(row, 2)?;
        *seq = (*seq).max(get(row, 1)?);
    }
    let graphs: Vec<_> = sums.keys().copied().collect();
    let column = |at: usize| sums.values().map(|sum| sum[at]).collect::<Vec<_>>();
    let (counts, bytes, floors) = (column(0), column(1), column(2));
    tx.send_and_commit(&[(&RAISE_FLOORS, &[&graphs, &counts, &bytes, &floors])])
        .await?;
    Ok(dropped.len() as u64)
}

/// How many are old, by graph: before, how many.
const COUNT_TOMBSTONES: Sql = Sql {
    text: "SELECT g.storage_key, count(*)
           FROM (
               SELECT graph FROM records WHERE deleted AND at < $1 ORDER BY at LIMIT $2
           ) r JOIN graphs g ON g.id = r.graph
           GROUP BY g.storage_key ORDER BY g.storage_key",
    types: &[Type::INT8, Type::INT8],
};

pub(super) async fn peek_tombstones(
    database: &Database,
    before: Timestamp,
    at_most: usize,
) -> StoreResult<Vec<(StorageKey, u64)>> {
    database
        .find(
            "count old tombstones",
            &COUNT_TOMBSTONES,
            &[&before.as_millis(), &limit(at_most)],
            |rows| all(rows, |row| Ok((text(row, 0)?, number(row, 1)?))),
        )
        .await
}

/// Before, how many.
const COUNT_KEYS: Sql = Sql {
    text: "SELECT count(*) FROM (
               SELECT 1 FROM idempotency WHERE at < $1 ORDER BY at LIMIT $2
           ) old",
    types: &[Type::INT8, Type::INT8],
};

pub(super) async fn peek_idempotency(
    database: &Database,
    before: Timestamp,
    at_most: usize,
) -> StoreResult<u64> {
    database
        .find(
            "count old idempotency keys",
            &COUNT_KEYS,
            &[&before.as_millis(), &limit(at_most)],
            |rows| Ok(first(rows, |row| number(row, 0))?.unwrap_or(0)),
        )
        .await
}

/// Groups' graphs whose turn it is to be asked about, which get another: now, again, how many. An
/// array, since the server takes a limit that it does not know for a tenth of the table, and would read
/// all of it.
const TAKE_GROUPS: Sql = Sql {
    text: "UPDATE graphs g SET ask_at = $2
           WHERE g.id = ANY(ARRAY(
               SELECT id FROM graphs WHERE low IS NULL AND ask_at <= $1
               ORDER BY ask_at LIMIT $3
               FOR NO KEY UPDATE SKIP LOCKED
           ))
           RETURNING g.storage_key, g.empty_since, g.empty_until",
    types: &[Type::INT8, Type::INT8, Type::INT8],
};

/// The same, left as they are: now, how many.
const PEEK_GROUPS: Sql = Sql {
    text: "SELECT storage_key, empty_since, empty_until FROM graphs
           WHERE low IS NULL AND ask_at <= $1 ORDER BY ask_at LIMIT $2",
    types: &[Type::INT8, Type::INT8],
};

pub(super) async fn groups_to_ask(
    database: &Database,
    now: Timestamp,
    again: Option<Timestamp>,
    at_most: usize,
) -> StoreResult<Vec<GroupWatch>> {
    const OPERATION: &str = "find groups to ask about";
    let (now, at_most) = (now.as_millis(), limit(at_most));
    match again.map(Timestamp::as_millis) {
        Some(again) => {
            database
                .change(OPERATION, &TAKE_GROUPS, &[&now, &again, &at_most], |rows| {
                    all(rows, watch)
                })
                .await
        }
        None => {
            database
                .find(OPERATION, &PEEK_GROUPS, &[&now, &at_most], |rows| {
                    all(rows, watch)
                })
                .await
        }
    }
}

fn watch(row: &Row) -> Work<GroupWatch> {
    let graph: StorageKey = text(row, 0)?;
    let Owners::Group(group) = graph.owners() else {
        return Err(Failure::Corrupt("a pair's graph is taken for a group's"));
    };
    let (since, until) = (maybe_time(row, 1)?, maybe_time(row, 2)?);
    let empty = since
        .zip(until)
        .map(|(since, until)| Emptiness { since, until });
    Ok(GroupWatch {
        graph,
        group,
        empty,
    })
}

/// Graphs by their storage keys, locked in their order.
const HOLD_KEYS: Sql = Sql {
    text: "SELECT 1 FROM graphs WHERE storage_key = ANY($1) ORDER BY storage_key
           FOR NO KEY UPDATE",
    types: &[Type::TEXT_ARRAY],
};

/// Storage keys, since, until.
const NOTE_GROUPS: Sql = Sql {
    text: "UPDATE graphs g SET empty_since = v.since, empty_until = v.until
           FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS v (key, since, until)
           WHERE g.storage_key = v.key
             AND (g.empty_since, g.empty_until) IS DISTINCT FROM (v.since, v.until)",
    types: &[Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY],
};

pub(super) async fn note_groups(database: &Database, noted: &[GroupWatch]) -> StoreResult<()> {
    if noted.is_empty() {
        return Ok(());
    }
    database
        .update("note which groups are empty", noted, |tx, noted| {
            Box::pin(async move {
                let keys: Vec<_> = noted.iter().map(|it| it.graph.as_str()).collect();
                let time = |of: fn(Emptiness) -> Timestamp| {
                    noted
                        .iter()
                        .map(|it| it.empty.map(|empty| of(empty).as_millis()))
                        .collect::<Vec<_>>()
                };
                let (since, until) = (time(|it| it.since), time(|it| it.until));
                tx.send_and_commit(&[
                    (&HOLD_KEYS, &[&keys]),
                    (&NOTE_GROUPS, &[&keys, &since, &until]),
                ])
                .await?;
                Ok(())
            })
        })
        .await
}

const UNKNOWN: Sql = Sql {
    text: "SELECT o.object FROM unnest($1::text[]) AS o (object)
           WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.object = o.object)
           ORDER BY o.object COLLATE \"C\"",
    types: &[Type::TEXT_ARRAY],
};

pub(super) async fn unknown_objects(
    database: &Database,
    objects: &[ObjectKey],
) -> StoreResult<Vec<ObjectKey>> {
    let objects: Vec<_> = objects.iter().map(ObjectKey::as_str).collect();
    database
        .find("find leaked objects", &UNKNOWN, &[&objects], |rows| {
            all(rows, |row| object(row, 0))
        })
        .await
}
