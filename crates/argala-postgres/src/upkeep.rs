//! What an operator and a sweep do to whole graphs and members, and whether counters are exact.

mod port;

use argala_core::{
    StoreResult,
    ports::{
        ForgetReason,
        store::{Counters, Doomed, Erased, Erasure, Recount},
    },
};
use argala_wire::{MemberId, StorageKey, Timestamp};
use tokio_postgres::{Row, types::Type};

use crate::{
    columns::{all, first, get, int, limit, number, object, text},
    failure::{Failure, Work},
    graphs,
    run::Database,
    session::{Sql, Tx},
};

/// Why a blob is forgotten, as its row has it.
pub(crate) fn reason(row: &Row, at: usize) -> Work<ForgetReason> {
    let reason: &str = get(row, at)?;
    [
        ForgetReason::Requested,
        ForgetReason::Expired,
        ForgetReason::Delivered,
        ForgetReason::Orphaned,
        ForgetReason::Abandoned,
    ]
    .into_iter()
    .find(|it| it.as_str() == reason)
    .ok_or(Failure::Corrupt("a blob is forgotten for no known reason"))
}

/// After, how many.
const KEYS: Sql = Sql {
    text: "SELECT storage_key FROM graphs WHERE storage_key > $1 ORDER BY storage_key LIMIT $2",
    types: &[Type::TEXT, Type::INT8],
};

/// Graphs by their storage keys, locked in their order.
const HOLD_KEYS: Sql = Sql {
    text: "SELECT 1 FROM graphs WHERE storage_key = ANY($1) ORDER BY storage_key
           FOR NO KEY UPDATE",
    types: &[Type::TEXT_ARRAY],
};

/// Storage keys, their new incarnations, by how much epochs rise.
const RENEW: Sql = Sql {
    text: "UPDATE graphs g
           SET incarnation = v.incarnation,
               epoch = CASE WHEN g.epoch > 0 THEN g.epoch + $3 ELSE 0 END,
               revocation_owed = g.epoch > 0
           FROM unnest($1::text[], $2::bigint[]) AS v (key, incarnation)
           WHERE g.storage_key = v.key
           RETURNING 1",
    types: &[Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::INT8],
};

/// From here on the graph is not there: storage key, reason, at. Whoever waits for its row finds
/// none.
const BEGIN: Sql = Sql {
    text: "WITH gone AS (
               DELETE FROM graphs WHERE storage_key = $1 RETURNING id, storage_key
           )
           INSERT INTO erasures (graph, storage_key, reason, at)
           SELECT id, storage_key, $2, $3 FROM gone
           RETURNING 1",
    types: &[Type::TEXT, Type::TEXT, Type::INT8],
};

const ERASURES: Sql = Sql {
    text: "SELECT graph, storage_key, reason FROM erasures ORDER BY at, graph LIMIT $1",
    types: &[Type::INT8],
};

/// Graph, how many, at, reason.
const DOOM_SOME: Sql = Sql {
    text: "UPDATE blobs SET state = 'forgetting', marked_at = $3, reason = $4
           WHERE graph = $1 AND object IN (
               SELECT object FROM blobs WHERE graph = $1 AND state IN ('pending', 'live')
               ORDER BY object LIMIT $2
           )
           RETURNING object",
    types: &[Type::INT8, Type::INT8, Type::INT8, Type::TEXT],
};

/// Graph, how many.
const ERASE_RECORDS: Sql = Sql {
    text: "DELETE FROM records WHERE graph = $1 AND record IN (
               SELECT record FROM records WHERE graph = $1 ORDER BY record LIMIT $2
           )
           RETURNING 1",
    types: &[Type::INT8, Type::INT8],
};

/// Graph, how many.
const ERASE_KEYS: Sql = Sql {
    text: "DELETE FROM idempotency i
           USING (
               SELECT member, device, key, slot FROM idempotency WHERE graph = $1
               ORDER BY member, device, key LIMIT $2
           ) o
           WHERE i.graph = $1 AND i.member = o.member AND i.device = o.device AND i.key = o.key
             AND i.slot = o.slot
           RETURNING 1",
    types: &[Type::INT8, Type::INT8],
};

/// Graph, how many.
const ERASE_WRAPS: Sql = Sql {
    text: "DELETE FROM wraps w
           USING (
               SELECT epoch, member, device FROM wraps WHERE graph = $1
               ORDER BY epoch, member, device LIMIT $2
           ) o
           WHERE w.graph = $1 AND w.epoch = o.epoch AND w.member = o.member
             AND w.device = o.device
           RETURNING 1",
    types: &[Type::INT8, Type::INT8],
};

/// Graph, how many.
const ERASE_EPOCHS: Sql = Sql {
    text: "DELETE FROM epochs WHERE graph = $1 AND epoch IN (
               SELECT epoch FROM epochs WHERE graph = $1 ORDER BY epoch LIMIT $2
           )
           RETURNING 1",
    types: &[Type::INT8, Type::INT8],
};

/// Graph, how many.
const ERASE_HOLDERS: Sql = Sql {
    text: "DELETE FROM holders h
           USING (
               SELECT member, device FROM holders WHERE graph = $1
               ORDER BY member, device LIMIT $2
           ) o
           WHERE h.graph = $1 AND h.member = o.member AND h.device = o.device
           RETURNING 1",
    types: &[Type::INT8, Type::INT8],
};

/// Blobs that wait for their objects to be removed: graph, how many.
const FORGETTING: Sql = Sql {
    text: "SELECT object, reason FROM blobs WHERE graph = $1 ORDER BY object LIMIT $2",
    types: &[Type::INT8, Type::INT8],
};

const ERASE_FETCHES: Sql = Sql {
    text: "DELETE FROM blob_fetches WHERE graph = $1",
    types: &[Type::INT8],
};

const END: Sql = Sql {
    text: "DELETE FROM erasures WHERE graph = $1",
    types: &[Type::INT8],
};

/// Removes some of what an erased graph held, or ends the erasure where nothing is left.
async fn erase(tx: &Tx, erasure: &Erasure, now: Timestamp, at_most: usize) -> Work<Erased> {
    let graph = int(erasure.id);
    let mut left = at_most;
    let mut erased = Erased {
        more: true,
        ..Erased::default()
    };
    let marked = tx
        .query(
            &DOOM_SOME,
            &[
                &graph,
                &limit(left),
                &now.as_millis(),
                &erasure.reason.as_str(),
            ],
        )
        .await?;
    left -= marked.len().min(left);
    erased.doomed = all(&marked, |row| {
        Ok(Doomed {
            graph: erasure.graph.clone(),
            object: object(row, 0)?,
            reason: erasure.reason,
        })
    })?;
    let mut counts = [0_u64; 3];
    for (sql, at) in [
        (&ERASE_RECORDS, 0),
        (&ERASE_KEYS, 1),
        (&ERASE_WRAPS, 2),
        (&ERASE_EPOCHS, 2),
        (&ERASE_HOLDERS, 2),
    ] {
        if left > 0 {
            let removed = tx.query(sql, &[&graph, &limit(left)]).await?.len();
            left -= removed.min(left);
            counts[at] += removed as u64;
        }
    }
    [erased.records, erased.idempotency_keys, erased.wraps] = counts;
    if left == 0 || !erased.doomed.is_empty() {
        return Ok(erased);
    }
    let waiting = tx.query(&FORGETTING, &[&graph, &limit(left)]).await?;
    if waiting.is_empty() {
        tx.send_and_commit(&[(&ERASE_FETCHES, &[&graph]), (&END, &[&graph])])
            .await?;
        erased.more = false;
    } else {
        erased.doomed = all(&waiting, |row| {
            Ok(Doomed {
                graph: erasure.graph.clone(),
                object: object(row, 0)?,
                reason: reason(row, 1)?,
            })
        })?;
    }
    Ok(erased)
}

/// Member, after, how many.
const WITH_MEMBER: Sql = Sql {
    text: "SELECT storage_key FROM (
               SELECT storage_key FROM graphs WHERE low = $1 AND storage_key > $2
               UNION
               SELECT storage_key FROM graphs WHERE high = $1 AND storage_key > $2
               UNION
               SELECT s.storage_key
               FROM (
                   SELECT h.graph FROM holders h WHERE h.member = $1
                   UNION
                   SELECT b.graph FROM blobs b WHERE b.by_member = $1
                   UNION
                   SELECT f.graph FROM blob_fetches f WHERE f.member = $1
               ) left_in
               CROSS JOIN LATERAL (
                   SELECT g.storage_key FROM graphs g WHERE g.id = left_in.graph OFFSET 0
               ) s
               WHERE s.storage_key > $2
           ) mine
           ORDER BY storage_key LIMIT $3",
    types: &[Type::TEXT, Type::TEXT, Type::INT8],
};

/// A member who is erased from a graph that others share.
struct From<'a> {
    key: &'a StorageKey,
    member: &'a MemberId,
    incarnation: u64,
    now: Timestamp,
    at_most: usize,
}

/// Graph, member, how many, at, reason.
const DOOM_OF: Sql = Sql {
    text: "UPDATE blobs SET state = 'forgetting', marked_at = $4, reason = $5
           WHERE graph = $1 AND object IN (
               SELECT object FROM blobs
               WHERE graph = $1 AND by_member = $2 AND state IN ('pending', 'live')
               ORDER BY object LIMIT $3
           )
           RETURNING object, size",
    types: &[Type::INT8, Type::TEXT, Type::INT8, Type::INT8, Type::TEXT],
};

/// Those that somebody marked who may have died: graph, member, how many, marked before.
const DOOMED_OF: Sql = Sql {
    text: "SELECT object, reason FROM blobs
           WHERE graph = $1 AND by_member = $2 AND state = 'forgetting' AND marked_at < $4
           ORDER BY object LIMIT $3",
    types: &[Type::INT8, Type::TEXT, Type::INT8, Type::INT8],
};

/// Graph, member, how many.
const ERASE_RECORDS_OF: Sql = Sql {
    text: "DELETE FROM records WHERE graph = $1 AND record IN (
               SELECT record FROM records WHERE graph = $1 AND by_member = $2
               ORDER BY record LIMIT $3
           )
           RETURNING deleted, bytes",
    types: &[Type::INT8, Type::TEXT, Type::INT8],
};

/// Graph, member, how many.
const ERASE_KEYS_OF: Sql = Sql {
    text: "DELETE FROM idempotency i
           USING (
               SELECT device, key, slot FROM idempotency WHERE graph = $1 AND member = $2
               ORDER BY device, key LIMIT $3
           ) o
           WHERE i.graph = $1 AND i.member = $2 AND i.device = o.device AND i.key = o.key
             AND i.slot = o.slot
           RETURNING 1",
    types: &[Type::INT8, Type::TEXT, Type::INT8],
};

/// Graph, member, the current epoch: the wraps of those before.
const ERASE_WRAPS_OF: Sql = Sql {
    text: "DELETE FROM wraps WHERE graph = $1 AND member = $2 AND epoch < $3 RETURNING 1",
    types: &[Type::INT8, Type::TEXT, Type::INT8],
};

/// Of the current epoch: it was a holder, and the others are to rotate for its sake.
const BLANK_WRAPS_OF: Sql = Sql {
    text: "UPDATE wraps SET wrap = NULL
           WHERE graph = $1 AND member = $2 AND epoch = $3 AND wrap IS NOT NULL",
    types: &[Type::INT8, Type::TEXT, Type::INT8],
};

/// Graph, member.
const ERASE_HOLDERS_OF: Sql = Sql {
    text: "DELETE FROM holders h WHERE h.graph = $1 AND h.member = $2 AND NOT EXISTS (
               SELECT 1 FROM wraps w
               WHERE w.graph = h.graph AND w.member = h.member AND w.device = h.device
           )",
    types: &[Type::INT8, Type::TEXT],
};

/// Graph, member.
const ERASE_FETCHES_OF: Sql = Sql {
    text: "DELETE FROM blob_fetches WHERE graph = $1 AND member = $2",
    types: &[Type::INT8, Type::TEXT],
};

/// Graph, records, tombstones, bytes of ciphertext, bytes of blobs.
const GIVE_BACK: Sql = Sql {
    text: "UPDATE graphs
           SET records = records - $2, tombstones = tombstones - $3,
               ciphertext_bytes = ciphertext_bytes - $4, blob_bytes = blob_bytes - $5
           WHERE id = $1",
    types: &[Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::INT8],
};

/// Graph, incarnation.
const NEW_INCARNATION: Sql = Sql {
    text: "UPDATE graphs SET incarnation = $2 WHERE id = $1",
    types: &[Type::INT8, Type::INT8],
};

async fn erase_from(tx: &Tx, request: &From<'_>) -> Work<Erased> {
    let held = tx.query(&graphs::HOLD, &[&request.key.as_str()]).await?;
    let Some(graph) = first(&held, graphs::from_row)? else {
        return Ok(Erased::default());
    };
    let (id, epoch, member) = (graph.id, int(graph.graph.epoch), request.member.as_str());
    let why = ForgetReason::Requested;
    let most = limit(request.at_most);
    let now = request.now.as_millis();
    let [blobs, marked, records, keys, _, _] = tx
        .send([
            (&DOOM_OF, &[&id, &member, &most, &now, &why.as_str()]),
            (&DOOMED_OF, &[&id, &member, &most, &now]),
            (&ERASE_RECORDS_OF, &[&id, &member, &most]),
            (&ERASE_KEYS_OF, &[&id, &member, &most]),
            (&BLANK_WRAPS_OF, &[&id, &member, &epoch]),
            (&ERASE_FETCHES_OF, &[&id, &member]),
        ])
        .await?;
    let mut back = [0; 4];
    for row in &records {
        back[usize::from(get::<bool>(row, 0)?)] += 1;
        back[2] += get::<i64>(row, 1)?;
    }
    let doom = |row: &Row, reason| -> Work<Doomed> {
        Ok(Doomed {
            graph: request.key.clone(),
            object: object(row, 0)?,
            reason,
        })
    };
    let mut doomed: Vec<_> = all(&blobs, |row| {
        back[3] += get::<i64>(row, 1)?;
        doom(row, why)
    })?;
    doomed.extend(all::<_, Vec<_>>(&marked, |row| doom(row, reason(row, 1)?))?);
    tx.send([(&GIVE_BACK, &[&id, &back[0], &back[1], &back[2], &back[3]])])
        .await?;
    if !records.is_empty() {
        tx.send([(&NEW_INCARNATION, &[&id, &int(request.incarnation)])])
            .await?;
    }
    let full = |rows: &Vec<Row>| rows.len() >= request.at_most && request.at_most > 0;
    let more = [&blobs, &marked, &records, &keys].into_iter().any(full);
    let mut wraps = 0;
    if !more {
        // Last: by its holders the graph is found again where this is cut off.
        let [rows, _] = tx
            .send([
                (&ERASE_WRAPS_OF, &[&id, &member, &epoch]),
                (&ERASE_HOLDERS_OF, &[&id, &member]),
            ])
            .await?;
        wraps = rows.len() as u64;
    }
    Ok(Erased {
        more,
        records: records.len() as u64,
        wraps,
        idempotency_keys: keys.len() as u64,
        doomed,
    })
}

/// Storage key, object, at.
const PUT_OFF: Sql = Sql {
    text: "UPDATE blobs SET marked_at = $3
           WHERE graph = ANY(ARRAY(
                     SELECT id FROM graphs WHERE storage_key = $1
                     UNION ALL SELECT graph FROM erasures WHERE storage_key = $1
                 )) AND object = $2 AND state = 'forgetting' AND marked_at < $3",
    types: &[Type::TEXT, Type::TEXT, Type::INT8],
};

/// Graphs whose current epoch names a device of the member's.
const STILL_NAMED: Sql = Sql {
    text: "SELECT g.storage_key
           FROM (SELECT DISTINCT graph FROM holders WHERE member = $1) h
           JOIN graphs g ON g.id = h.graph
           ORDER BY g.storage_key",
    types: &[Type::TEXT],
};

/// A graph that is being erased names nobody any more, though rows of it may be left.
const ERASE_DEVICES: Sql = Sql {
    text: "DELETE FROM devices d WHERE d.member = $1 AND NOT EXISTS (
               SELECT 1 FROM holders h JOIN graphs g ON g.id = h.graph
               WHERE h.member = d.member AND h.device = d.device
           )
           RETURNING 1",
    types: &[Type::TEXT],
};

const ERASE_SEEN: Sql = Sql {
    text: "DELETE FROM last_seen WHERE member = $1",
    types: &[Type::TEXT],
};

const ERASE_MEMBERSHIPS: Sql = Sql {
    text: "DELETE FROM group_members WHERE member = $1",
    types: &[Type::TEXT],
};

const ERASE_MEMBER: Sql = Sql {
    text: "DELETE FROM members WHERE member = $1",
    types: &[Type::TEXT],
};

async fn erase_member(tx: &Tx, member: &MemberId) -> Work<(u64, Vec<StorageKey>)> {
    let member = member.as_str();
    let rows = tx
        .send_and_commit(&[
            (&ERASE_DEVICES, &[&member]),
            (&ERASE_SEEN, &[&member]),
            (&ERASE_MEMBERSHIPS, &[&member]),
            (&ERASE_MEMBER, &[&member]),
            (&STILL_NAMED, &[&member]),
        ])
        .await?;
    Ok((rows[0].len() as u64, all(&rows[4], |row| text(row, 0))?))
}

/// Graph; records, tombstones, bytes of ciphertext, bytes of blobs.
const SET_COUNTERS: Sql = Sql {
    text: "UPDATE graphs
           SET records = $2, tombstones = $3, ciphertext_bytes = $4, blob_bytes = $5
           WHERE id = $1",
    types: &[Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::INT8],
};

/// Makes a graph's counters what they stand for.
async fn mend(tx: &Tx, key: &StorageKey) -> Work<Option<Recount>> {
    let [held, sums] = tx
        .send([(&graphs::HOLD, &[&key.as_str()]), (&SUMS, &[&key.as_str()])])
        .await?;
    let (Some(graph), Some(recount)) = (first(&held, graphs::from_row)?, first(&sums, counted)?)
    else {
        return Ok(None);
    };
    if recount.stored != recount.counted {
        let is = recount.counted;
        tx.send_and_commit(&[(
            &SET_COUNTERS,
            &[
                &graph.id,
                &int(is.records),
                &int(is.tombstones),
                &int(is.ciphertext_bytes),
                &int(is.blob_bytes),
            ],
        )])
        .await?;
    }
    Ok(Some(recount))
}

/// What a graph's records and blobs add up to: storage key. The length of a ciphertext is told by
/// the row's head: no content is read.
const SUMS: Sql = Sql {
    text: concat!(
        "SELECT ",
        graphs::columns!(),
        ", r.live, r.tombstones, r.bytes, b.bytes
         FROM graphs g
         CROSS JOIN LATERAL (
             SELECT count(*) FILTER (WHERE NOT deleted) AS live,
                    count(*) FILTER (WHERE deleted) AS tombstones,
                    coalesce(sum(octet_length(ciphertext)), 0)::bigint AS bytes
             FROM records WHERE graph = g.id
         ) r
         CROSS JOIN LATERAL (
             SELECT coalesce(sum(size), 0)::bigint AS bytes FROM blobs
             WHERE graph = g.id AND state IN ('pending', 'live')
         ) b
         WHERE g.storage_key = $1"
    ),
    types: &[Type::TEXT],
};

/// A graph's counters beside the sums that they stand for.
pub(crate) async fn recount(database: &Database, key: &StorageKey) -> StoreResult<Option<Recount>> {
    database
        .find("recount a graph", &SUMS, &[&key.as_str()], |rows| {
            first(rows, counted)
        })
        .await
}

fn counted(row: &Row) -> Work<Recount> {
    Ok(Recount {
        stored: graphs::from_row(row)?.graph.counters,
        counted: Counters {
            records: number(row, 12)?,
            tombstones: number(row, 13)?,
            ciphertext_bytes: number(row, 14)?,
            blob_bytes: number(row, 15)?,
        },
    })
}
