//! The rows of blobs: what is charged, what is live, what is to be forgotten.

use argala_core::{
    StoreResult,
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
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use crate::{
    columns::{all, device_ref, first, hash, int, maybe_time, number, object, text, time},
    devices,
    failure::{Failure, Work},
    graphs::{self, GraphRow},
    run::Database,
    session::{Call, Sql, Tx},
};

/// The columns of [`from_row`], of a blob that goes by `b` and its graph by `g`.
macro_rules! columns {
    () => {
        "g.storage_key, b.blob, b.object, b.size, b.sha256, b.policy, b.expires_at, b.by_member, \
         b.by_device"
    };
}

/// A live blob.
fn from_row(row: &Row) -> Work<Blob> {
    Ok(Blob {
        graph: text(row, 0)?,
        id: text(row, 1)?,
        object: object(row, 2)?,
        size: number(row, 3)?,
        sha256: hash(row, 4)?,
        policy: text(row, 5)?,
        expires_at: maybe_time(row, 6)?,
        by: device_ref(row, 7)?,
    })
}

/// The live blob of an id, expired or not: storage key, blob.
const LIVE: Sql = Sql {
    text: concat!(
        "SELECT ",
        columns!(),
        " FROM graphs g JOIN blobs b ON b.graph = g.id
         WHERE g.storage_key = $1 AND b.blob = $2 AND b.state = 'live'"
    ),
    types: &[Type::TEXT, Type::TEXT],
};

/// The live blob of an id that has not expired.
pub(crate) async fn find(
    database: &Database,
    key: &StorageKey,
    blob: &BlobId,
    now: Timestamp,
) -> StoreResult<Option<Blob>> {
    let live = database
        .find(
            "find a blob",
            &LIVE,
            &[&key.as_str(), &blob.as_str()],
            |rows| first(rows, from_row),
        )
        .await?;
    Ok(live.filter(|blob| !blob.is_expired(now)))
}

/// What an object has been made live as: storage key, object.
const LIVE_AS: Sql = Sql {
    text: concat!(
        "SELECT ",
        columns!(),
        " FROM graphs g JOIN blobs b ON b.graph = g.id
         WHERE g.storage_key = $1 AND b.object = $2 AND b.state = 'live'"
    ),
    types: &[Type::TEXT, Type::TEXT],
};

/// Whether an object is live, where it is or was more than an upload: storage key, object.
const BEYOND_UPLOAD: Sql = Sql {
    text: "SELECT b.state = 'live'
           FROM graphs g JOIN blobs b ON b.graph = g.id
           WHERE g.storage_key = $1 AND b.object = $2
             AND (b.state = 'live' OR (b.state = 'forgetting' AND b.reason <> 'orphaned'))",
    types: &[Type::TEXT, Type::TEXT],
};

/// A row of an upload that is still pending.
struct Pending {
    id: BlobId,
    size: u64,
    policy: BlobPolicy,
    expires_at: Option<Timestamp>,
    by: DeviceRef,
    reserved_at: Timestamp,
}

/// An upload that is still pending: storage key, object.
const PENDING: Sql = Sql {
    text: "SELECT b.blob, b.size, b.policy, b.expires_at, b.by_member, b.by_device, b.reserved_at
           FROM graphs g JOIN blobs b ON b.graph = g.id
           WHERE g.storage_key = $1 AND b.object = $2 AND b.state = 'pending'",
    types: &[Type::TEXT, Type::TEXT],
};

fn pending(row: &Row) -> Work<Pending> {
    Ok(Pending {
        id: text(row, 0)?,
        size: number(row, 1)?,
        policy: text(row, 2)?,
        expires_at: maybe_time(row, 3)?,
        by: device_ref(row, 4)?,
        reserved_at: time(row, 6)?,
    })
}

/// The live blob of the id that a pending object was reserved for: storage key, object.
const LIVE_BESIDE: Sql = Sql {
    text: concat!(
        "SELECT ",
        columns!(),
        " FROM graphs g
         JOIN blobs p ON p.graph = g.id AND p.object = $2 AND p.state = 'pending'
         JOIN blobs b ON b.graph = g.id AND b.blob = p.blob AND b.state = 'live'
         WHERE g.storage_key = $1"
    ),
    types: &[Type::TEXT, Type::TEXT],
};

/// Marks a row: graph, object, at, reason.
const MARK: Sql = Sql {
    text: "UPDATE blobs SET state = 'forgetting', marked_at = $3, reason = $4
           WHERE graph = $1 AND object = $2",
    types: &[Type::INT8, Type::TEXT, Type::INT8, Type::TEXT],
};

/// Charges bytes to a graph, or gives them back: graph, bytes.
const CHARGE: Sql = Sql {
    text: "UPDATE graphs SET blob_bytes = blob_bytes + $2 WHERE id = $1",
    types: &[Type::INT8, Type::INT8],
};

const INSERT: Sql = Sql {
    text: "INSERT INTO blobs (graph, object, blob, state, size, policy, expires_at, by_member,
                              by_device, reserved_at)
           VALUES ($1, $2, $3, 'pending', $4, $5, $6, $7, $8, $9)",
    types: &[
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::TEXT,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
    ],
};

const MAKE_LIVE: Sql = Sql {
    text: "UPDATE blobs SET state = 'live', sha256 = $3 WHERE graph = $1 AND object = $2",
    types: &[Type::INT8, Type::TEXT, Type::BYTEA],
};

/// What is written about a blob that is let go: its mark, and its bytes given back.
struct LetGo<'a> {
    graph: i64,
    object: &'a str,
    at: i64,
    reason: &'static str,
    bytes: i64,
}

impl<'a> LetGo<'a> {
    fn of(
        graph: i64,
        object: &'a ObjectKey,
        size: u64,
        reason: ForgetReason,
        at: Timestamp,
    ) -> Self {
        Self {
            graph,
            object: object.as_str(),
            at: at.as_millis(),
            reason: reason.as_str(),
            bytes: -int(size),
        }
    }

    fn mark(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.graph, &self.object, &self.at, &self.reason]
    }

    fn give_back(&self) -> [&(dyn ToSql + Sync); 2] {
        [&self.graph, &self.bytes]
    }
}

/// Charges an upload's bytes and adds its row.
pub(crate) async fn reserve(tx: &Tx, request: &ReserveBlob) -> Work<Reserved> {
    let key = request.key.as_str();
    let by = [request.by.member_id.as_str(), request.by.device_id.as_str()];
    let id = request.id.as_str();
    let [graph, caller, there] = tx
        .send([
            (&graphs::HOLD, &[&key]),
            (&devices::FIND, &[&by[0], &by[1]]),
            (&LIVE, &[&key, &id]),
        ])
        .await?;
    let graph = first(&graph, graphs::from_row)?;
    let caller = first(&caller, devices::from_row)?;
    let there = first(&there, from_row)?;
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
    let expired = there.as_ref().map(|blob| {
        let reason = ForgetReason::Expired;
        LetGo::of(graph, &blob.object, blob.size, reason, request.now)
    });
    let (mark, give_back) = (
        expired.as_ref().map(LetGo::mark),
        expired.as_ref().map(LetGo::give_back),
    );
    let size = int(request.size);
    let expires_at = request.expires_at.map(Timestamp::as_millis);
    let now = request.now.as_millis();
    let insert: [&(dyn ToSql + Sync); 9] = [
        &graph,
        &request.object.as_str(),
        &id,
        &size,
        &request.policy.as_str(),
        &expires_at,
        &by[0],
        &by[1],
        &now,
    ];
    let charge: [&(dyn ToSql + Sync); 2] = [&graph, &size];
    let mut calls: Vec<Call<'_>> = Vec::with_capacity(4);
    if let (Some(mark), Some(give_back)) = (&mark, &give_back) {
        calls.extend([(&MARK, &mark[..]), (&CHARGE, &give_back[..])]);
    }
    calls.extend([(&INSERT, &insert[..]), (&CHARGE, &charge[..])]);
    tx.send_and_commit(&calls).await?;
    Ok(Reserved::Pending)
}

/// Makes a pending blob live, or lets it go.
pub(crate) async fn commit(tx: &Tx, request: &CommitBlob) -> Work<Committed> {
    let key = request.key.as_str();
    let by = [request.by.member_id.as_str(), request.by.device_id.as_str()];
    let object = request.object.as_str();
    let [caller, graph, upload, beside, live_as] = tx
        .send([
            (&devices::FIND_AND_HOLD, &[&by[0], &by[1]]),
            (&graphs::HOLD, &[&key]),
            (&PENDING, &[&key, &object]),
            (&LIVE_BESIDE, &[&key, &object]),
            (&LIVE_AS, &[&key, &object]),
        ])
        .await?;
    let graph = first(&graph, graphs::from_row)?;
    let (Some(GraphRow { id: graph, .. }), Some(upload)) = (graph, first(&upload, pending)?) else {
        let live = first(&live_as, from_row)?;
        return Ok(live.map_or(Committed::Gone, Committed::Live));
    };
    let caller = first(&caller, devices::from_row)?;
    let (expired, there) = match first(&beside, from_row)? {
        Some(blob) if blob.is_expired(request.now) => (Some(blob), None),
        there => (None, there),
    };
    let commitment = rules::blob::commit(caller.as_ref(), &request.sha256, there.as_ref());
    if commitment != Commitment::Live {
        let reason = ForgetReason::Orphaned;
        let let_go = LetGo::of(graph, &request.object, upload.size, reason, request.now);
        tx.send_and_commit(&[(&MARK, &let_go.mark()), (&CHARGE, &let_go.give_back())])
            .await?;
    }
    match (commitment, there) {
        (Commitment::Live, _) => {
            let expired = expired.as_ref().map(|blob| {
                let reason = ForgetReason::Expired;
                LetGo::of(graph, &blob.object, blob.size, reason, request.now)
            });
            let (mark, give_back) = (
                expired.as_ref().map(LetGo::mark),
                expired.as_ref().map(LetGo::give_back),
            );
            let mut calls: Vec<Call<'_>> = Vec::with_capacity(3);
            if let (Some(mark), Some(give_back)) = (&mark, &give_back) {
                calls.extend([(&MARK, &mark[..]), (&CHARGE, &give_back[..])]);
            }
            let sha256 = &request.sha256[..];
            let live: [&(dyn ToSql + Sync); 3] = [&graph, &object, &sha256];
            calls.push((&MAKE_LIVE, &live));
            tx.send_and_commit(&calls).await?;
            Ok(Committed::Live(Blob {
                graph: request.key.clone(),
                id: upload.id,
                object: request.object.clone(),
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
pub(crate) async fn abandon(tx: &Tx, (key, object): &(&StorageKey, &ObjectKey)) -> Work<Abandoned> {
    let (key, name) = (key.as_str(), object.as_str());
    let [graph, upload, beyond] = tx
        .send([
            (&graphs::HOLD, &[&key]),
            (&PENDING, &[&key, &name]),
            (&BEYOND_UPLOAD, &[&key, &name]),
        ])
        .await?;
    let graph = first(&graph, graphs::from_row)?;
    if let (Some(graph), Some(upload)) = (graph, first(&upload, pending)?) {
        // As if marked when it began: the request has no time, and a sweep may come for it as
        // soon as it likes, since an object may be removed twice.
        let (reason, at) = (ForgetReason::Orphaned, upload.reserved_at);
        let let_go = LetGo::of(graph.id, object, upload.size, reason, at);
        tx.send_and_commit(&[(&MARK, &let_go.mark()), (&CHARGE, &let_go.give_back())])
            .await?;
        return Ok(Abandoned::LetGo);
    }
    let is_live = first(&beyond, |row| Ok(row.try_get::<_, bool>(0)?))?;
    Ok(match is_live {
        None => Abandoned::LetGo,
        Some(true) => Abandoned::Live,
        Some(false) => Abandoned::Forgotten,
    })
}

/// Marks a live blob `forgetting`, and gives its bytes back.
pub(crate) async fn forget(tx: &Tx, request: &ForgetBlob) -> Work<Option<Blob>> {
    let key = request.key.as_str();
    let by = [request.by.member_id.as_str(), request.by.device_id.as_str()];
    let [caller, graph, live] = tx
        .send([
            (&devices::FIND_AND_HOLD, &[&by[0], &by[1]]),
            (&graphs::HOLD, &[&key]),
            (&LIVE, &[&key, &request.id.as_str()]),
        ])
        .await?;
    rules::active(first(&caller, devices::from_row)?.as_ref())?;
    let Some(graph) = first(&graph, graphs::from_row)? else {
        return Ok(None);
    };
    // One that has expired is gone already; the sweep forgets it, for that reason.
    let live = first(&live, from_row)?.filter(|blob| !blob.is_expired(request.now));
    let Some(blob) = live else {
        return Ok(None);
    };
    let reason = ForgetReason::Requested;
    let let_go = LetGo::of(graph.id, &blob.object, blob.size, reason, request.now);
    tx.send_and_commit(&[(&MARK, &let_go.mark()), (&CHARGE, &let_go.give_back())])
        .await?;
    Ok(Some(blob))
}

/// Storage key, object; member, device. The blob's row is held, so that none of these outlives it;
/// where one is new, the sweep is to look at the blob.
const NOTE_FETCHED: Sql = Sql {
    text: "WITH noted AS (
               INSERT INTO blob_fetches (graph, object, member, device)
               SELECT b.graph, b.object, $3, $4
               FROM blobs b
               WHERE b.graph = (SELECT id FROM graphs WHERE storage_key = $1) AND b.object = $2
                 AND b.state = 'live' AND b.policy = 'deliver'
               FOR NO KEY UPDATE OF b
               ON CONFLICT DO NOTHING
               RETURNING graph, object
           )
           UPDATE blobs b SET look_at = 0 FROM noted
           WHERE b.graph = noted.graph AND b.object = noted.object",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT],
};

/// Notes that a device has fetched a blob that is to be delivered.
pub(crate) async fn note_fetched(
    database: &Database,
    key: &StorageKey,
    object: &ObjectKey,
    device: &DeviceRef,
) -> StoreResult<()> {
    database
        .change(
            "note a fetched blob",
            &NOTE_FETCHED,
            &[
                &key.as_str(),
                &object.as_str(),
                &device.member_id.as_str(),
                &device.device_id.as_str(),
            ],
            |_| Ok(()),
        )
        .await
}

const FETCHED_BY: Sql = Sql {
    text: "SELECT member, device FROM blob_fetches
           WHERE graph = (SELECT id FROM graphs WHERE storage_key = $1) AND object = $2
           ORDER BY member, device",
    types: &[Type::TEXT, Type::TEXT],
};

/// Who has fetched a blob that is to be delivered.
pub(crate) async fn fetched_by(
    database: &Database,
    key: &StorageKey,
    object: &ObjectKey,
) -> StoreResult<Vec<DeviceRef>> {
    database
        .find(
            "find who fetched a blob",
            &FETCHED_BY,
            &[&key.as_str(), &object.as_str()],
            |rows| all(rows, |row| device_ref(row, 0)),
        )
        .await
}

/// Storage key, object. The graph may be one that is being erased.
const REMOVE: Sql = Sql {
    text: "DELETE FROM blobs
           WHERE graph = ANY(ARRAY(
                     SELECT id FROM graphs WHERE storage_key = $1
                     UNION ALL SELECT graph FROM erasures WHERE storage_key = $1
                 )) AND object = $2 AND state = 'forgetting'
           RETURNING graph",
    types: &[Type::TEXT, Type::TEXT],
};

/// Those of an object whose row is gone. Run after that is: it then sees all there ever will be.
const REMOVE_FETCHES: Sql = Sql {
    text: "DELETE FROM blob_fetches f
           WHERE f.graph = ANY(ARRAY(
                     SELECT id FROM graphs WHERE storage_key = $1
                     UNION ALL SELECT graph FROM erasures WHERE storage_key = $1
                 )) AND f.object = $2
             AND NOT EXISTS (
                 SELECT 1 FROM blobs b WHERE b.graph = f.graph AND b.object = f.object
             )",
    types: &[Type::TEXT, Type::TEXT],
};

/// Removes the row of a blob whose object is gone; whether there was one.
pub(crate) async fn remove(tx: &Tx, (key, object): &(&StorageKey, &ObjectKey)) -> Work<bool> {
    let (key, object) = (key.as_str(), object.as_str());
    let removed = tx
        .send_and_commit(&[
            (&REMOVE, &[&key, &object]),
            (&REMOVE_FETCHES, &[&key, &object]),
        ])
        .await?;
    Ok(!removed[0].is_empty())
}
