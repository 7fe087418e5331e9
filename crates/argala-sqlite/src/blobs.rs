//! The rows of blobs: what is charged, what is live, what is to be forgotten.

use argala_core::{
    ports::{
        ForgetReason, ObjectKey,
        store::{Abandoned, Blob, CommitBlob, Committed, ForgetBlob, ReserveBlob, Reserved},
    },
    rules::{
        self,
        blob::{Commitment, Reservation},
    },
};
use argala_wire::{BlobId, StorageKey, Timestamp, blobs::BlobPolicy, devices::DeviceRef};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    columns::{device_ref, int, maybe_time, number, object, text},
    devices,
    failure::{Failure, Work},
    graphs::{self, GraphRow},
};

/// The columns of [`from_row`], of a blob that goes by `b` and its graph by `g`.
const COLUMNS: &str = "g.storage_key, b.blob, b.object, b.size, b.sha256, b.policy, \
     b.expires_at, b.by_member, b.by_device";

/// A live blob.
fn from_row(row: &Row<'_>) -> rusqlite::Result<Blob> {
    Ok(Blob {
        graph: text(row, 0)?,
        id: text(row, 1)?,
        object: object(row, 2)?,
        size: number(row, 3)?,
        sha256: row.get(4)?,
        policy: text(row, 5)?,
        expires_at: maybe_time(row, 6)?,
        by: device_ref(row, 7)?,
    })
}

/// The live blob of an id, expired or not.
fn live(
    connection: &Connection,
    key: &StorageKey,
    blob: &BlobId,
) -> rusqlite::Result<Option<Blob>> {
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS}
             FROM graphs g CROSS JOIN blobs b ON b.graph = g.id
             WHERE g.storage_key = ?1 AND b.blob = ?2 AND b.state = 'live'"
        ))?
        .query_row([key.as_str(), blob.as_str()], from_row)
        .optional()
}

/// The live blob of an id that has not expired.
pub(crate) fn find(
    connection: &Connection,
    key: &StorageKey,
    blob: &BlobId,
    now: Timestamp,
) -> rusqlite::Result<Option<Blob>> {
    Ok(live(connection, key, blob)?.filter(|blob| !blob.is_expired(now)))
}

/// A row of an upload that is still pending.
struct Pending {
    graph: i64,
    key: StorageKey,
    id: BlobId,
    size: u64,
    policy: BlobPolicy,
    expires_at: Option<Timestamp>,
    by: DeviceRef,
    reserved_at: Timestamp,
}

fn pending(
    tx: &Connection,
    key: &StorageKey,
    object: &ObjectKey,
) -> rusqlite::Result<Option<Pending>> {
    tx.prepare_cached(
        "SELECT b.graph, g.storage_key, b.blob, b.size, b.policy, b.expires_at, b.by_member,
                b.by_device, b.reserved_at
         FROM blobs b CROSS JOIN graphs g ON g.id = b.graph
         WHERE b.object = ?1 AND b.state = 'pending' AND g.storage_key = ?2",
    )?
    .query_row([object.as_str(), key.as_str()], |row| {
        Ok(Pending {
            graph: row.get(0)?,
            key: text(row, 1)?,
            id: text(row, 2)?,
            size: number(row, 3)?,
            policy: text(row, 4)?,
            expires_at: maybe_time(row, 5)?,
            by: device_ref(row, 6)?,
            reserved_at: Timestamp::from_millis(row.get(8)?),
        })
    })
    .optional()
}

/// The blob that an object has been made live as.
fn live_as(
    tx: &Connection,
    key: &StorageKey,
    object: &ObjectKey,
) -> rusqlite::Result<Option<Blob>> {
    tx.prepare_cached(&format!(
        "SELECT {COLUMNS}
         FROM blobs b CROSS JOIN graphs g ON g.id = b.graph
         WHERE b.object = ?1 AND b.state = 'live' AND g.storage_key = ?2"
    ))?
    .query_row([object.as_str(), key.as_str()], from_row)
    .optional()
}

/// Marks a pending or live row `forgetting`, and gives its bytes back.
fn let_go(
    tx: &Connection,
    graph: i64,
    object: &ObjectKey,
    size: u64,
    reason: ForgetReason,
    now: Timestamp,
) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "UPDATE blobs SET state = 'forgetting', marked_at = ?2, reason = ?3 WHERE object = ?1",
    )?
    .execute(params![object.as_str(), now.as_millis(), reason.as_str()])?;
    tx.prepare_cached("UPDATE graphs SET blob_bytes = blob_bytes - ?2 WHERE id = ?1")?
        .execute(params![graph, int(size)])?;
    Ok(())
}

/// Charges an upload's bytes and adds its row.
pub(crate) fn reserve(tx: &Connection, request: &ReserveBlob) -> Work<Reserved> {
    let caller = devices::caller(tx, &request.by)?;
    let graph = graphs::find(tx, &request.key)?;
    let there = live(tx, &request.key, &request.id)?;
    let reservation = rules::blob::reserve(
        request,
        caller.as_ref(),
        graph.as_ref().map(|graph| &graph.graph),
        there.as_ref(),
    )?;
    if let Reservation::Exists(blob) = reservation {
        return Ok(Reserved::Exists(blob));
    }
    let Some(GraphRow { id: graph, .. }) = graph else {
        return Err(Failure::Corrupt(
            "a blob was reserved in a graph without a key",
        ));
    };
    if let Some(expired) = there {
        let reason = ForgetReason::Expired;
        let_go(
            tx,
            graph,
            &expired.object,
            expired.size,
            reason,
            request.now,
        )?;
    }
    tx.prepare_cached(
        "INSERT INTO blobs (object, graph, blob, state, size, policy, expires_at, by_member,
                            by_device, reserved_at)
         VALUES (?1, ?2, ?3, 'pending', ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        request.object.as_str(),
        graph,
        request.id.as_str(),
        int(request.size),
        request.policy.as_str(),
        request.expires_at.map(Timestamp::as_millis),
        request.by.member_id.as_str(),
        request.by.device_id.as_str(),
        request.now.as_millis(),
    ])?;
    tx.prepare_cached("UPDATE graphs SET blob_bytes = blob_bytes + ?2 WHERE id = ?1")?
        .execute(params![graph, int(request.size)])?;
    Ok(Reserved::Pending)
}

/// Makes a pending blob live, or lets it go.
pub(crate) fn commit(tx: &Connection, request: &CommitBlob) -> Work<Committed> {
    let object = &request.object;
    let Some(upload) = pending(tx, &request.key, object)? else {
        let live = live_as(tx, &request.key, object)?;
        return Ok(live.map_or(Committed::Gone, Committed::Live));
    };
    let caller = devices::caller(tx, &request.by)?;
    let there = live(tx, &upload.key, &upload.id)?;
    let (expired, there) = match there {
        Some(blob) if blob.is_expired(request.now) => (Some(blob), None),
        there => (None, there),
    };
    let commitment = rules::blob::commit(caller.as_ref(), &request.sha256, there.as_ref());
    if commitment != Commitment::Live {
        let reason = ForgetReason::Orphaned;
        let_go(tx, upload.graph, object, upload.size, reason, request.now)?;
    }
    match (commitment, there) {
        (Commitment::Live, _) => {
            if let Some(expired) = expired {
                let reason = ForgetReason::Expired;
                let_go(
                    tx,
                    upload.graph,
                    &expired.object,
                    expired.size,
                    reason,
                    request.now,
                )?;
            }
            tx.prepare_cached("UPDATE blobs SET state = 'live', sha256 = ?2 WHERE object = ?1")?
                .execute(params![object.as_str(), request.sha256])?;
            Ok(Committed::Live(Blob {
                graph: upload.key,
                id: upload.id,
                object: object.clone(),
                size: upload.size,
                sha256: request.sha256,
                policy: upload.policy,
                expires_at: upload.expires_at,
                by: upload.by,
            }))
        }
        (Commitment::Same, Some(blob)) => Ok(Committed::Same(blob)),
        (Commitment::Same, None) => Err(Failure::Corrupt(
            "an upload was found to be the same as none",
        )),
        (Commitment::Differs, _) => Ok(Committed::Differs),
        (Commitment::Revoked, _) => Ok(Committed::Revoked),
    }
}

/// Gives a pending upload's bytes back; tells what its object is now.
pub(crate) fn abandon(tx: &Connection, key: &StorageKey, object: &ObjectKey) -> Work<Abandoned> {
    if let Some(upload) = pending(tx, key, object)? {
        // As if marked when it began: the request has no time, and a sweep may come for it as
        // soon as it likes, since an object may be removed twice.
        let (reason, at) = (ForgetReason::Orphaned, upload.reserved_at);
        let_go(tx, upload.graph, object, upload.size, reason, at)?;
        return Ok(Abandoned::LetGo);
    }
    let is_live = tx
        .prepare_cached(
            "SELECT b.state = 'live'
             FROM blobs b CROSS JOIN graphs g ON g.id = b.graph
             WHERE b.object = ?1 AND g.storage_key = ?2
               AND (b.state = 'live' OR (b.state = 'forgetting' AND b.reason <> 'orphaned'))",
        )?
        .query_row([object.as_str(), key.as_str()], |row| row.get(0))
        .optional()?;
    Ok(match is_live {
        None => Abandoned::LetGo,
        Some(true) => Abandoned::Live,
        Some(false) => Abandoned::Forgotten,
    })
}

/// Marks a live blob `forgetting`, and gives its bytes back.
pub(crate) fn forget(tx: &Connection, request: &ForgetBlob) -> Work<Option<Blob>> {
    rules::active(devices::caller(tx, &request.by)?.as_ref())?;
    let Some(graph) = graphs::find(tx, &request.key)? else {
        return Ok(None);
    };
    // One that has expired is gone already; the sweep forgets it, for that reason.
    let Some(blob) = find(tx, &request.key, &request.id, request.now)? else {
        return Ok(None);
    };
    let reason = ForgetReason::Requested;
    let_go(tx, graph.id, &blob.object, blob.size, reason, request.now)?;
    Ok(Some(blob))
}

/// Notes that a device has fetched a blob that is to be delivered.
pub(crate) fn note_fetched(
    tx: &Connection,
    key: &StorageKey,
    object: &ObjectKey,
    device: &DeviceRef,
) -> Work<()> {
    let noted = tx
        .prepare_cached(
            "INSERT INTO blob_fetches (object, member, device)
             SELECT b.object, ?3, ?4
             FROM blobs b CROSS JOIN graphs g ON g.id = b.graph
             WHERE b.object = ?1 AND b.state = 'live' AND b.policy = 'deliver'
               AND g.storage_key = ?2
             ON CONFLICT DO NOTHING",
        )?
        .execute([
            object.as_str(),
            key.as_str(),
            device.member_id.as_str(),
            device.device_id.as_str(),
        ])?;
    if noted > 0 {
        // The sweep is to look at the blob.
        tx.prepare_cached("UPDATE blobs SET look_at = 0 WHERE object = ?1")?
            .execute([object.as_str()])?;
    }
    Ok(())
}

/// Who has fetched a blob that is to be delivered.
pub(crate) fn fetched_by(
    connection: &Connection,
    key: &StorageKey,
    object: &ObjectKey,
) -> rusqlite::Result<Vec<DeviceRef>> {
    connection
        .prepare_cached(
            "SELECT f.member, f.device
             FROM blobs b CROSS JOIN graphs g ON g.id = b.graph
                          CROSS JOIN blob_fetches f ON f.object = b.object
             WHERE b.object = ?1 AND g.storage_key = ?2
             ORDER BY f.member, f.device",
        )?
        .query_map([object.as_str(), key.as_str()], |row| device_ref(row, 0))?
        .collect()
}

/// Removes the row of a blob whose object is gone; whether there was one. The graph may be one that
/// is being erased.
pub(crate) fn remove(tx: &Connection, key: &StorageKey, object: &ObjectKey) -> Work<bool> {
    let removed = tx
        .prepare_cached(
            "DELETE FROM blobs
             WHERE object = ?1 AND state = 'forgetting' AND graph IN (
                 SELECT id FROM graphs WHERE storage_key = ?2
                 UNION ALL SELECT graph FROM erasures WHERE storage_key = ?2
             )",
        )?
        .execute([object.as_str(), key.as_str()])?;
    Ok(removed > 0)
}
