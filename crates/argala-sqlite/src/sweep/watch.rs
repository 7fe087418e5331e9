//! Deliveries, tombstones, groups and objects.

use argala_core::ports::{
    ForgetReason, ObjectKey,
    store::{Delivery, Doomed, Emptiness, GroupWatch},
};
use argala_wire::{Owners, StorageKey, Timestamp};
use rusqlite::{Connection, params, types::ValueRef};

use crate::{
    columns::{device_ref, limit, maybe_time, number, object, text, texts},
    failure::{Failure, Work},
    rows,
};

/// Blobs whose turn it is to be looked at.
pub(super) fn turns(connection: &Connection, now: Timestamp, at_most: usize) -> Work<Vec<String>> {
    let turns = connection
        .prepare_cached(
            "SELECT object FROM blobs
             WHERE state = 'live' AND look_at IS NOT NULL AND look_at <= ?1
             ORDER BY look_at LIMIT ?2",
        )?
        .query_map(params![now.as_millis(), limit(at_most)], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    Ok(turns)
}

/// When they have their next.
pub(super) fn set_turns(tx: &Connection, objects: &[String], again: Timestamp) -> Work<()> {
    let objects = texts(objects.iter().map(String::as_str));
    tx.prepare_cached(
        "UPDATE blobs SET look_at = ?2 WHERE object IN (SELECT value FROM rarray(?1))",
    )?
    .execute(params![objects, again.as_millis()])?;
    Ok(())
}

/// Who has fetched them.
pub(super) fn fetches(connection: &Connection, objects: &[String]) -> Work<Vec<Delivery>> {
    let objects = texts(objects.iter().map(String::as_str));
    let mut statement = connection.prepare_cached(
        "SELECT g.storage_key, b.object, b.by_member, b.by_device, f.member, f.device
         FROM rarray(?1) v CROSS JOIN blobs b ON b.object = v.value AND b.state = 'live'
              CROSS JOIN graphs g ON g.id = b.graph AND g.epoch > 0
              CROSS JOIN blob_fetches f ON f.object = b.object
         ORDER BY g.storage_key, b.object, f.member, f.device",
    )?;
    let mut rows = statement.query([objects])?;
    let mut deliveries: Vec<Delivery> = Vec::new();
    while let Some(row) = rows.next()? {
        let object = object(row, 1)?;
        let fetched = device_ref(row, 4)?;
        match deliveries.last_mut() {
            Some(last) if last.object == object => last.fetched.push(fetched),
            _ => deliveries.push(Delivery {
                graph: text(row, 0)?,
                object,
                by: device_ref(row, 2)?,
                fetched: vec![fetched],
            }),
        }
    }
    Ok(deliveries)
}

/// Marks blobs that everybody has.
pub(super) fn doom_delivered(
    tx: &Connection,
    delivered: &[(StorageKey, ObjectKey)],
    at: Timestamp,
) -> Work<Vec<Doomed>> {
    let reason = ForgetReason::Delivered;
    let mut doomed = Vec::new();
    for (graph, object) in delivered {
        let marked = tx
            .prepare_cached(
                "UPDATE blobs SET state = 'forgetting', marked_at = ?3, reason = ?4
                 WHERE object = ?1 AND state = 'live' AND policy = 'deliver'
                   AND graph = (SELECT id FROM graphs WHERE storage_key = ?2)",
            )?
            .execute(params![
                object.as_str(),
                graph.as_str(),
                at.as_millis(),
                reason.as_str()
            ])?;
        if marked > 0 {
            tx.prepare_cached(
                "UPDATE graphs SET blob_bytes = blob_bytes
                        - (SELECT size FROM blobs WHERE object = ?1)
                 WHERE storage_key = ?2",
            )?
            .execute([object.as_str(), graph.as_str()])?;
            doomed.push(Doomed {
                graph: graph.clone(),
                object: object.clone(),
                reason,
            });
        }
    }
    Ok(doomed)
}

/// Removes old tombstones, the oldest first, and raises the floors of their graphs.
pub(super) fn drop_tombstones(tx: &Connection, before: Timestamp, at_most: usize) -> Work<u64> {
    let old = tx
        .prepare_cached(
            "SELECT id FROM records WHERE deleted = 1 AND at < ?1 ORDER BY at LIMIT ?2",
        )?
        .query_map(params![before.as_millis(), limit(at_most)], |row| {
            row.get(0)
        })?
        .collect::<Result<Vec<i64>, _>>()?;
    if old.is_empty() {
        return Ok(0);
    }
    let old = crate::columns::numbers(old);
    tx.prepare_cached(
        "UPDATE graphs SET tombstones = tombstones - due.count,
                ciphertext_bytes = ciphertext_bytes - due.bytes,
                floor = max(floor, due.seq)
         FROM (
             SELECT r.graph, count(*) AS count, sum(r.bytes) AS bytes, max(r.seq) AS seq
             FROM rarray(?1) v CROSS JOIN records r ON r.id = v.value
             GROUP BY r.graph
         ) due
         WHERE graphs.id = due.graph",
    )?
    .execute([old.clone()])?;
    let dropped = tx
        .prepare_cached("DELETE FROM records WHERE id IN (SELECT value FROM rarray(?1))")?
        .execute([old])?;
    Ok(dropped as u64)
}

pub(super) fn peek_tombstones(
    connection: &Connection,
    before: Timestamp,
    at_most: usize,
) -> Work<Vec<(StorageKey, u64)>> {
    let counts = connection
        .prepare_cached(
            "SELECT g.storage_key, count(*)
             FROM (
                 SELECT graph FROM records WHERE deleted = 1 AND at < ?1 ORDER BY at LIMIT ?2
             ) due CROSS JOIN graphs g ON g.id = due.graph AND g.epoch > 0
             GROUP BY g.storage_key ORDER BY g.storage_key",
        )?
        .query_map(params![before.as_millis(), limit(at_most)], |row| {
            Ok((text(row, 0)?, number(row, 1)?))
        })?
        .collect::<Result<_, _>>()?;
    Ok(counts)
}

pub(super) fn peek_idempotency(
    connection: &Connection,
    before: Timestamp,
    at_most: usize,
) -> Work<u64> {
    let count = connection
        .prepare_cached(
            "SELECT count(*) FROM (
                 SELECT 1 FROM idempotency WHERE at < ?1 ORDER BY at LIMIT ?2
             ) due",
        )?
        .query_row(params![before.as_millis(), limit(at_most)], |row| {
            number(row, 0)
        })?;
    Ok(count)
}

/// Groups' graphs whose turn it is to be asked about.
pub(super) fn groups(
    connection: &Connection,
    now: Timestamp,
    at_most: usize,
) -> Work<Vec<GroupWatch>> {
    let mut statement = connection.prepare_cached(
        "SELECT storage_key, empty_since, empty_until FROM graphs
         WHERE low IS NULL AND ask_at <= ?1 ORDER BY ask_at LIMIT ?2",
    )?;
    let mut rows = statement.query(params![now.as_millis(), limit(at_most)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let graph: StorageKey = text(row, 0)?;
        let Owners::Group(group) = graph.owners() else {
            return Err(Failure::Corrupt("a pair's graph is taken for a group's"));
        };
        let (since, until) = (maybe_time(row, 1)?, maybe_time(row, 2)?);
        found.push(GroupWatch {
            graph,
            group,
            empty: since
                .zip(until)
                .map(|(since, until)| Emptiness { since, until }),
        });
    }
    Ok(found)
}

/// When they have their next turn.
pub(super) fn ask_again(tx: &Connection, groups: &[GroupWatch], again: Timestamp) -> Work<()> {
    let keys = texts(groups.iter().map(|watch| watch.graph.as_str()));
    tx.prepare_cached(
        "UPDATE graphs SET ask_at = ?2 WHERE storage_key IN (SELECT value FROM rarray(?1))",
    )?
    .execute(params![keys, again.as_millis()])?;
    Ok(())
}

/// Since when groups are empty.
pub(super) fn note_groups(tx: &Connection, noted: &[GroupWatch]) -> Work<()> {
    let time = |time: Option<Timestamp>| {
        time.map_or(ValueRef::Null, |time| ValueRef::Integer(time.as_millis()))
    };
    rows::execute(
        tx,
        "UPDATE graphs SET empty_since = v.column2, empty_until = v.column3
         FROM {rows} v
         WHERE graphs.storage_key = v.column1 AND v.column1 IS NOT NULL
           AND (empty_since IS NOT v.column2 OR empty_until IS NOT v.column3)",
        &[],
        noted,
        |watch| {
            [
                ValueRef::from(watch.graph.as_str()),
                time(watch.empty.map(|empty| empty.since)),
                time(watch.empty.map(|empty| empty.until)),
            ]
        },
    )?;
    Ok(())
}

pub(super) fn unknown_objects(
    connection: &Connection,
    objects: &[ObjectKey],
) -> Work<Vec<ObjectKey>> {
    let objects = texts(objects.iter().map(ObjectKey::as_str));
    let unknown = connection
        .prepare_cached(
            "SELECT v.value FROM rarray(?1) v
             WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.object = v.value)
             ORDER BY v.value",
        )?
        .query_map([objects], |row| object(row, 0))?
        .collect::<Result<_, _>>()?;
    Ok(unknown)
}
