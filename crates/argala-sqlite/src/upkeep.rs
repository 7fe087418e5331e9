//! What an operator and a sweep do to whole graphs and members, and whether counters are exact.

use argala_core::{
    StoreResult,
    ports::{
        ForgetReason, ObjectKey,
        store::{Counters, Doomed, Erased, Erasure, Recount, UpkeepStore},
    },
};
use argala_wire::{MemberId, StorageKey, Timestamp};
use async_trait::async_trait;
use rusqlite::{Connection, Row, params, types::ValueRef};

use crate::{
    Sqlite,
    columns::{int, limit, number, object, text},
    failure::{Work, unrefused},
    graphs, rows,
};

/// Why a blob is forgotten, as its row has it.
pub(crate) fn reason(row: &Row<'_>, at: usize) -> rusqlite::Result<ForgetReason> {
    let reason: String = row.get(at)?;
    [
        ForgetReason::Requested,
        ForgetReason::Expired,
        ForgetReason::Delivered,
        ForgetReason::Orphaned,
        ForgetReason::Abandoned,
    ]
    .into_iter()
    .find(|it| it.as_str() == reason)
    .ok_or(rusqlite::Error::InvalidColumnType(
        at,
        "reason".to_owned(),
        rusqlite::types::Type::Text,
    ))
}

/// After all keys of graphs that are being erased, and before all others.
const FIRST_KEY: &str = "\"";

#[async_trait]
impl UpkeepStore for Sqlite {
    async fn graph_keys(
        &self,
        after: Option<&StorageKey>,
        at_most: usize,
    ) -> StoreResult<Vec<StorageKey>> {
        let after = after.map_or(FIRST_KEY, StorageKey::as_str).to_owned();
        let list = self.read("list graphs", move |connection| {
            let keys = connection
                .prepare_cached(
                    "SELECT storage_key FROM graphs WHERE storage_key > ?1
                     ORDER BY storage_key LIMIT ?2",
                )?
                .query_map(params![after, limit(at_most)], |row| text(row, 0))?
                .collect::<Result<_, _>>()?;
            Ok(keys)
        });
        unrefused(list.await)
    }

    async fn mend(&self, key: &StorageKey) -> StoreResult<Option<Recount>> {
        let key = key.clone();
        let mend = self.write("mend a graph's counters", move |tx| mend(tx, &key));
        unrefused(mend.await)
    }

    async fn renew(&self, renewed: &[(StorageKey, u64)], epochs: u64) -> StoreResult<u64> {
        let renewed = renewed.to_vec();
        let renew = self.write("renew graphs", move |tx| {
            let mut count = 0;
            rows::query(
                tx,
                "UPDATE graphs
                 SET incarnation = v.column2,
                     revocation_owed = epoch > 0,
                     epoch = CASE WHEN epoch > 0 THEN epoch + ?1 ELSE 0 END
                 FROM {rows} v
                 WHERE graphs.storage_key = v.column1 AND v.column1 IS NOT NULL
                 RETURNING 1",
                &[&int(epochs)],
                &renewed,
                |(key, incarnation)| {
                    [
                        ValueRef::from(key.as_str()),
                        ValueRef::Integer(int(*incarnation)),
                    ]
                },
                |_| {
                    count += 1;
                    Ok(())
                },
            )?;
            Ok(count)
        });
        unrefused(renew.await)
    }

    async fn begin_erasure(
        &self,
        key: &StorageKey,
        reason: ForgetReason,
        now: Timestamp,
    ) -> StoreResult<bool> {
        let key = key.clone();
        let begin = self.write("begin to erase a graph", move |tx| {
            begin(tx, &key, reason, now)
        });
        unrefused(begin.await)
    }

    async fn erasures(&self, at_most: usize) -> StoreResult<Vec<Erasure>> {
        let list = self.read("list erasures", move |connection| {
            let erasures = connection
                .prepare_cached(
                    "SELECT graph, storage_key, reason FROM erasures ORDER BY at, graph LIMIT ?1",
                )?
                .query_map([limit(at_most)], |row| {
                    Ok(Erasure {
                        id: number(row, 0)?,
                        graph: text(row, 1)?,
                        reason: reason(row, 2)?,
                    })
                })?
                .collect::<Result<_, _>>()?;
            Ok(erasures)
        });
        unrefused(list.await)
    }

    async fn erase_some(
        &self,
        erasure: &Erasure,
        now: Timestamp,
        at_most: usize,
    ) -> StoreResult<Erased> {
        let erasure = erasure.clone();
        let erase = self.write("erase a graph", move |tx| erase(tx, &erasure, now, at_most));
        unrefused(erase.await)
    }

    async fn graphs_with(
        &self,
        member: &MemberId,
        after: Option<&StorageKey>,
        at_most: usize,
    ) -> StoreResult<Vec<StorageKey>> {
        let member = member.clone();
        let after = after.map_or(FIRST_KEY, StorageKey::as_str).to_owned();
        let list = self.read("list graphs with a member", move |connection| {
            let keys = connection
                .prepare_cached(
                    "SELECT storage_key FROM (
                         SELECT storage_key FROM graphs WHERE low = ?1
                         UNION SELECT storage_key FROM graphs WHERE high = ?1
                         UNION
                         SELECT g.storage_key FROM (
                             SELECT graph FROM holders WHERE member = ?1
                             UNION
                             SELECT graph FROM blobs WHERE by_member = ?1
                             UNION
                             SELECT b.graph
                             FROM blob_fetches f CROSS JOIN blobs b ON b.object = f.object
                             WHERE f.member = ?1
                         ) left_in CROSS JOIN graphs g ON g.id = left_in.graph
                     ) mine
                     WHERE storage_key > ?2
                     ORDER BY storage_key LIMIT ?3",
                )?
                .query_map(params![member.as_str(), after, limit(at_most)], |row| {
                    text(row, 0)
                })?
                .collect::<Result<_, _>>()?;
            Ok(keys)
        });
        unrefused(list.await)
    }

    async fn erase_from(
        &self,
        key: &StorageKey,
        member: &MemberId,
        incarnation: u64,
        now: Timestamp,
        at_most: usize,
    ) -> StoreResult<Erased> {
        let (key, member) = (key.clone(), member.clone());
        let erase = self.write("erase a member from a graph", move |tx| {
            erase_from(tx, &key, &member, incarnation, now, at_most)
        });
        unrefused(erase.await)
    }

    async fn put_off(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
        now: Timestamp,
    ) -> StoreResult<()> {
        let (key, object) = (key.clone(), object.clone());
        let put_off = self.write("put a removal off", move |tx| {
            tx.prepare_cached(
                "UPDATE blobs SET marked_at = ?3
                 WHERE object = ?1 AND state = 'forgetting' AND marked_at < ?3 AND graph IN (
                     SELECT id FROM graphs WHERE storage_key = ?2
                     UNION ALL SELECT graph FROM erasures WHERE storage_key = ?2
                 )",
            )?
            .execute(params![object.as_str(), key.as_str(), now.as_millis()])?;
            Ok(())
        });
        unrefused(put_off.await)
    }

    async fn erase_member(&self, member: &MemberId) -> StoreResult<(u64, Vec<StorageKey>)> {
        let member = member.clone();
        let erase = self.write("erase a member", move |tx| erase_member(tx, &member));
        unrefused(erase.await)
    }
}

/// From here on the graph is not there: its row has a key that is nobody's, and no epoch.
fn begin(tx: &Connection, key: &StorageKey, reason: ForgetReason, now: Timestamp) -> Work<bool> {
    let Some(graph) = graphs::find(tx, key)? else {
        return Ok(false);
    };
    tx.prepare_cached(
        "INSERT INTO erasures (graph, storage_key, reason, at) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![
        graph.id,
        key.as_str(),
        reason.as_str(),
        now.as_millis()
    ])?;
    tx.prepare_cached(
        "UPDATE graphs
         SET storage_key = '!' || id, low = NULL, high = NULL, epoch = 0, ask_at = ?2
         WHERE id = ?1",
    )?
    .execute(params![graph.id, i64::MAX])?;
    tx.prepare_cached("DELETE FROM holders WHERE graph = ?1")?
        .execute([graph.id])?;
    Ok(true)
}

/// Removes some of what an erased graph held, or ends the erasure where nothing is left.
fn erase(tx: &Connection, erasure: &Erasure, now: Timestamp, at_most: usize) -> Work<Erased> {
    let graph = int(erasure.id);
    let mut left = at_most;
    let mut erased = Erased {
        more: true,
        ..Erased::default()
    };
    let doomed = |object| Doomed {
        graph: erasure.graph.clone(),
        object,
        reason: erasure.reason,
    };
    erased.doomed = tx
        .prepare_cached(
            "UPDATE blobs SET state = 'forgetting', marked_at = ?3, reason = ?4
             WHERE object IN (
                 SELECT object FROM blobs WHERE graph = ?1 AND state IN ('pending', 'live')
                 LIMIT ?2
             )
             RETURNING object",
        )?
        .query_map(
            params![graph, limit(left), now.as_millis(), erasure.reason.as_str()],
            |row| Ok(doomed(object(row, 0)?)),
        )?
        .collect::<Result<_, _>>()?;
    left -= erased.doomed.len().min(left);
    let mut counts = [0_u64; 3];
    for (sql, at) in [
        (
            "DELETE FROM records WHERE id IN (
                 SELECT id FROM records WHERE graph = ?1 LIMIT ?2
             )",
            0,
        ),
        (
            "DELETE FROM idempotency WHERE id IN (
                 SELECT id FROM idempotency WHERE graph = ?1 LIMIT ?2
             )",
            1,
        ),
        (
            "DELETE FROM wraps WHERE id IN (
                 SELECT id FROM wraps WHERE graph = ?1 LIMIT ?2
             )",
            2,
        ),
        (
            "DELETE FROM epochs WHERE graph = ?1 AND epoch IN (
                 SELECT epoch FROM epochs WHERE graph = ?1 LIMIT ?2
             )",
            2,
        ),
    ] {
        if left > 0 {
            let removed = tx
                .prepare_cached(sql)?
                .execute(params![graph, limit(left)])?;
            left -= removed.min(left);
            counts[at] += removed as u64;
        }
    }
    [erased.records, erased.idempotency_keys, erased.wraps] = counts;
    if left == 0 || !erased.doomed.is_empty() {
        return Ok(erased);
    }
    erased.doomed = tx
        .prepare_cached("SELECT object, reason FROM blobs WHERE graph = ?1 LIMIT ?2")?
        .query_map(params![graph, limit(left)], |row| {
            Ok(Doomed {
                reason: reason(row, 1)?,
                ..doomed(object(row, 0)?)
            })
        })?
        .collect::<Result<_, _>>()?;
    if erased.doomed.is_empty() {
        tx.prepare_cached("DELETE FROM erasures WHERE graph = ?1")?
            .execute([graph])?;
        tx.prepare_cached("DELETE FROM graphs WHERE id = ?1")?
            .execute([graph])?;
        erased.more = false;
    }
    Ok(erased)
}

/// Removes what a member left in a graph that others share.
fn erase_from(
    tx: &Connection,
    key: &StorageKey,
    member: &MemberId,
    incarnation: u64,
    now: Timestamp,
    at_most: usize,
) -> Work<Erased> {
    let Some(graph) = graphs::find(tx, key)? else {
        return Ok(Erased::default());
    };
    let (id, epoch, member) = (graph.id, int(graph.graph.epoch), member.as_str());
    let why = ForgetReason::Requested;
    let mut back = [0_i64; 4];
    let mut doomed = tx
        .prepare_cached(
            "UPDATE blobs SET state = 'forgetting', marked_at = ?4, reason = ?5
             WHERE object IN (
                 SELECT object FROM blobs
                 WHERE graph = ?1 AND by_member = ?2 AND state IN ('pending', 'live') LIMIT ?3
             )
             RETURNING object, size",
        )?
        .query_map(
            params![id, member, limit(at_most), now.as_millis(), why.as_str()],
            |row| {
                back[3] += row.get::<_, i64>(1)?;
                Ok(Doomed {
                    graph: key.clone(),
                    object: object(row, 0)?,
                    reason: why,
                })
            },
        )?
        .collect::<Result<Vec<_>, _>>()?;
    // Whoever marked them before may have died.
    let rest = limit(at_most - doomed.len().min(at_most));
    let marked = tx
        .prepare_cached(
            "SELECT object, reason FROM blobs
             WHERE graph = ?1 AND by_member = ?2 AND state = 'forgetting' AND marked_at < ?4
             LIMIT ?3",
        )?
        .query_map(params![id, member, rest, now.as_millis()], |row| {
            Ok(Doomed {
                graph: key.clone(),
                object: object(row, 0)?,
                reason: reason(row, 1)?,
            })
        })?
        .collect::<Result<Vec<_>, _>>()?;
    doomed.extend(marked);
    let records = tx
        .prepare_cached(
            "DELETE FROM records WHERE id IN (
                 SELECT id FROM records WHERE graph = ?1 AND by_member = ?2 LIMIT ?3
             )
             RETURNING deleted, bytes",
        )?
        .query_map(params![id, member, limit(at_most)], |row| {
            back[usize::from(row.get::<_, bool>(0)?)] += 1;
            back[2] += row.get::<_, i64>(1)?;
            Ok(())
        })?
        .collect::<Result<Vec<_>, _>>()?
        .len();
    let keys = tx
        .prepare_cached(
            "DELETE FROM idempotency WHERE id IN (
                 SELECT id FROM idempotency WHERE graph = ?1 AND member = ?2 LIMIT ?3
             )",
        )?
        .execute(params![id, member, limit(at_most)])?;
    // Of the current epoch: it was a holder, and the others are to rotate for its sake.
    tx.prepare_cached(
        "UPDATE wraps SET wrap = NULL
         WHERE graph = ?1 AND epoch = ?3 AND member = ?2 AND wrap IS NOT NULL",
    )?
    .execute(params![id, member, epoch])?;
    tx.prepare_cached(
        "DELETE FROM blob_fetches WHERE member = ?2 AND object IN (
             SELECT object FROM blobs WHERE graph = ?1
         )",
    )?
    .execute(params![id, member])?;
    tx.prepare_cached(
        "UPDATE graphs
         SET records = records - ?2, tombstones = tombstones - ?3,
             ciphertext_bytes = ciphertext_bytes - ?4, blob_bytes = blob_bytes - ?5,
             incarnation = CASE WHEN ?6 THEN ?7 ELSE incarnation END
         WHERE id = ?1",
    )?
    .execute(params![
        id,
        back[0],
        back[1],
        back[2],
        back[3],
        records > 0,
        int(incarnation)
    ])?;
    let full = |count: usize| count >= at_most && at_most > 0;
    let more = full(doomed.len()) || full(records) || full(keys);
    let mut wraps = 0;
    if !more {
        // Last: by its holders the graph is found again where this is cut off.
        wraps = tx
            .prepare_cached("DELETE FROM wraps WHERE graph = ?1 AND epoch < ?3 AND member = ?2")?
            .execute(params![id, member, epoch])?;
        tx.prepare_cached(
            "DELETE FROM holders WHERE graph = ?1 AND member = ?2 AND NOT EXISTS (
                 SELECT 1 FROM wraps w
                 WHERE w.graph = ?1 AND w.epoch = ?3 AND w.member = ?2
                   AND w.device = holders.device
             )",
        )?
        .execute(params![id, member, epoch])?;
    }
    Ok(Erased {
        more,
        records: records as u64,
        wraps: wraps as u64,
        idempotency_keys: keys as u64,
        doomed,
    })
}

fn erase_member(tx: &Connection, member: &MemberId) -> Work<(u64, Vec<StorageKey>)> {
    let member = member.as_str();
    let devices = tx
        .prepare_cached(
            "DELETE FROM devices WHERE member = ?1 AND NOT EXISTS (
                 SELECT 1 FROM holders h
                 WHERE h.member = ?1 AND h.device = devices.device
             )",
        )?
        .execute([member])?;
    for sql in [
        "DELETE FROM last_seen WHERE member = ?1",
        "DELETE FROM group_members WHERE member = ?1",
        "DELETE FROM members WHERE member = ?1",
    ] {
        tx.prepare_cached(sql)?.execute([member])?;
    }
    let named = tx
        .prepare_cached(
            "SELECT DISTINCT g.storage_key
             FROM holders h CROSS JOIN graphs g ON g.id = h.graph
             WHERE h.member = ?1 ORDER BY g.storage_key",
        )?
        .query_map([member], |row| text(row, 0))?
        .collect::<Result<_, _>>()?;
    Ok((devices as u64, named))
}

/// Makes a graph's counters what they stand for.
fn mend(tx: &Connection, key: &StorageKey) -> Work<Option<Recount>> {
    let Some(recount) = recount(tx, key)? else {
        return Ok(None);
    };
    if recount.stored != recount.counted {
        let is = recount.counted;
        tx.prepare_cached(
            "UPDATE graphs
             SET records = ?2, tombstones = ?3, ciphertext_bytes = ?4, blob_bytes = ?5
             WHERE storage_key = ?1",
        )?
        .execute(params![
            key.as_str(),
            int(is.records),
            int(is.tombstones),
            int(is.ciphertext_bytes),
            int(is.blob_bytes)
        ])?;
    }
    Ok(Some(recount))
}

/// A graph's counters beside the sums that they stand for.
pub(crate) fn recount(connection: &Connection, key: &StorageKey) -> Work<Option<Recount>> {
    let Some(graph) = graphs::find(connection, key)? else {
        return Ok(None);
    };
    // The length of a ciphertext is told by the row's head: no content is read.
    let records = connection
        .prepare_cached(
            "SELECT count(*) FILTER (WHERE NOT deleted), count(*) FILTER (WHERE deleted),
                    coalesce(sum(length(ciphertext)), 0)
             FROM records WHERE graph = ?1",
        )?
        .query_row([graph.id], |row| {
            Ok(Counters {
                records: number(row, 0)?,
                tombstones: number(row, 1)?,
                ciphertext_bytes: number(row, 2)?,
                blob_bytes: 0,
            })
        })?;
    let blob_bytes = connection
        .prepare_cached(
            "SELECT coalesce(sum(size), 0) FROM blobs
             WHERE graph = ?1 AND state IN ('pending', 'live')",
        )?
        .query_row([graph.id], |row| number(row, 0))?;
    Ok(Some(Recount {
        stored: graph.graph.counters,
        counted: Counters {
            blob_bytes,
            ..records
        },
    }))
}
