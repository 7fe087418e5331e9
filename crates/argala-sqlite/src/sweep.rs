//! What the sweep asks for: rows whose time has passed.

mod port;
mod watch;

use argala_core::ports::{ForgetReason, store::Doomed};
use argala_wire::Timestamp;
use rusqlite::{Connection, Row, params};

use crate::{
    columns::{limit, object, text, texts},
    failure::Work,
    upkeep::reason,
};

/// Marks blobs that are due, giving their bytes back, and tells which objects are to be removed.
pub(crate) fn doom_blobs(
    tx: &Connection,
    now: Timestamp,
    pending_before: Timestamp,
    forgetting_before: Timestamp,
    at_most: usize,
) -> Work<Vec<Doomed>> {
    let due = tx
        .prepare_cached(
            "SELECT object FROM (
                 SELECT object FROM blobs
                 WHERE state = 'live' AND expires_at IS NOT NULL AND expires_at <= ?1
                 ORDER BY expires_at LIMIT ?3
             )
             UNION ALL
             SELECT object FROM (
                 SELECT object FROM blobs
                 WHERE state = 'pending' AND reserved_at < ?2
                 ORDER BY reserved_at LIMIT ?3
             )
             LIMIT ?3",
        )?
        .query_map(
            params![now.as_millis(), pending_before.as_millis(), limit(at_most)],
            |row| row.get(0),
        )?
        .collect::<Result<Vec<String>, _>>()?;
    let due = texts(due.iter().map(String::as_str));
    if !due.is_empty() {
        // Bytes first, while it can be told which rows still count.
        tx.prepare_cached(
            "UPDATE graphs SET blob_bytes = blob_bytes - due.bytes
             FROM (
                 SELECT b.graph, sum(b.size) AS bytes
                 FROM rarray(?1) v CROSS JOIN blobs b ON b.object = v.value
                 GROUP BY b.graph
             ) due
             WHERE graphs.id = due.graph",
        )?
        .execute([due.clone()])?;
        tx.prepare_cached(
            "UPDATE blobs SET marked_at = ?2, state = 'forgetting',
                    reason = CASE state WHEN 'live' THEN ?3 ELSE ?4 END
             WHERE object IN (SELECT value FROM rarray(?1))",
        )?
        .execute(params![
            due,
            now.as_millis(),
            ForgetReason::Expired.as_str(),
            ForgetReason::Orphaned.as_str()
        ])?;
    }
    // Those that were marked longest ago first: nothing that cannot be removed today is passed
    // over for ever.
    let doomed = tx
        .prepare_cached(
            "SELECT coalesce(e.storage_key, g.storage_key), due.object, due.reason FROM (
                 SELECT * FROM (
                     SELECT graph, object, reason, marked_at FROM blobs
                     WHERE state = 'forgetting' AND marked_at < ?2
                     ORDER BY marked_at LIMIT ?3
                 )
                 UNION
                 SELECT b.graph, b.object, b.reason, b.marked_at
                 FROM rarray(?1) v CROSS JOIN blobs b ON b.object = v.value
             ) due
             CROSS JOIN graphs g ON g.id = due.graph
             LEFT JOIN erasures e ON e.graph = due.graph
             ORDER BY due.marked_at, due.object
             LIMIT ?3",
        )?
        .query_map(
            params![due, forgetting_before.as_millis(), limit(at_most)],
            doomed,
        )?
        .collect::<Result<_, _>>()?;
    Ok(doomed)
}

/// What [`doom_blobs`] would tell, were it to mark all that is due.
pub(crate) fn peek_blobs(
    connection: &Connection,
    now: Timestamp,
    pending_before: Timestamp,
    forgetting_before: Timestamp,
    at_most: usize,
) -> Work<Vec<Doomed>> {
    let doomed = connection
        .prepare_cached(
            "SELECT coalesce(e.storage_key, g.storage_key), due.object, due.reason FROM (
                 SELECT * FROM (
                     SELECT graph, object, ?5 AS reason FROM blobs
                     WHERE state = 'live' AND expires_at IS NOT NULL AND expires_at <= ?1
                     ORDER BY expires_at LIMIT ?4
                 )
                 UNION ALL
                 SELECT * FROM (
                     SELECT graph, object, ?6 AS reason FROM blobs
                     WHERE state = 'pending' AND reserved_at < ?2
                     ORDER BY reserved_at LIMIT ?4
                 )
                 UNION ALL
                 SELECT * FROM (
                     SELECT graph, object, reason FROM blobs
                     WHERE state = 'forgetting' AND marked_at < ?3
                     ORDER BY marked_at LIMIT ?4
                 )
             ) due
             CROSS JOIN graphs g ON g.id = due.graph
             LEFT JOIN erasures e ON e.graph = due.graph
             LIMIT ?4",
        )?
        .query_map(
            params![
                now.as_millis(),
                pending_before.as_millis(),
                forgetting_before.as_millis(),
                limit(at_most),
                ForgetReason::Expired.as_str(),
                ForgetReason::Orphaned.as_str()
            ],
            doomed,
        )?
        .collect::<Result<_, _>>()?;
    Ok(doomed)
}

fn doomed(row: &Row<'_>) -> rusqlite::Result<Doomed> {
    Ok(Doomed {
        graph: text(row, 0)?,
        object: object(row, 1)?,
        reason: reason(row, 2)?,
    })
}

/// Removes idempotency keys whose day has passed; how many.
pub(crate) fn drop_idempotency(tx: &Connection, before: Timestamp, at_most: usize) -> Work<u64> {
    let removed = tx
        .prepare_cached(
            "DELETE FROM idempotency WHERE id IN (
                 SELECT id FROM idempotency WHERE at < ?1 ORDER BY at LIMIT ?2
             )",
        )?
        .execute(params![before.as_millis(), limit(at_most)])?;
    Ok(removed as u64)
}
