//! The bytes of blobs, kept in the database itself.
//!
//! An object is a row and its chunks. It is written a few chunks at a time, each step a
//! transaction of its own, and becomes readable with the last; it is read one chunk at a time, so
//! that no slow reader holds a connection or more than one chunk.

use std::{io, ops::Range, sync::Arc};

use argala_core::{
    StoreError, StoreResult,
    ports::{BlobStore, ByteStream, ListedObject, ObjectKey},
};
use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use tokio_postgres::types::{ToSql, Type};

use crate::{
    Postgres,
    columns::{self, all, first, get, int, number, object, time},
    failure::{Failure, Work},
    run::Database,
    session::{Call, Sql, Tx},
};

/// Bytes of a chunk; the last one of an object may have fewer.
const CHUNK: usize = 256 * 1024;
/// Chunks that one transaction writes, and that one removes.
const CHUNKS_AT_ONCE: usize = 4;

const BEGIN: Sql = Sql {
    text: "INSERT INTO objects (object, size, whole) VALUES ($1, $2, false) RETURNING id",
    types: &[Type::TEXT, Type::INT8],
};

const ADD: Sql = Sql {
    text: "INSERT INTO chunks (object, n, bytes)
           SELECT $1, v.n, v.bytes FROM unnest($2::bigint[], $3::bytea[]) AS v (n, bytes)",
    types: &[Type::INT8, Type::INT8_ARRAY, Type::BYTEA_ARRAY],
};

const MAKE_WHOLE: Sql = Sql {
    text: "UPDATE objects SET whole = true WHERE id = $1 RETURNING id",
    types: &[Type::INT8],
};

const FIND: Sql = Sql {
    text: "SELECT id, size FROM objects WHERE object = $1 AND whole",
    types: &[Type::TEXT],
};

/// Part of a chunk: object, chunk, the first byte (from 1), how many. A stored chunk is not
/// compressed, so that only what is asked for is read.
const READ: Sql = Sql {
    text: "SELECT substr(bytes, $3, $4) FROM chunks WHERE object = $1 AND n = $2",
    types: &[Type::INT8, Type::INT8, Type::INT4, Type::INT4],
};

/// Those of one database by name: the name before the first, the one behind the last, how many.
const LIST: Sql = Sql {
    text: "SELECT object, size, begun_at FROM objects WHERE object > $1 AND object < $2
           ORDER BY object LIMIT $3",
    types: &[Type::TEXT, Type::TEXT, Type::INT8],
};

/// From the first step on it is not to be read: what is left of it is not all.
const BREAK_UP: Sql = Sql {
    text: "UPDATE objects SET whole = false WHERE object = $1 RETURNING id",
    types: &[Type::TEXT],
};

const REMOVE_CHUNKS: Sql = Sql {
    text: "DELETE FROM chunks
           WHERE object = $1 AND n IN (SELECT n FROM chunks WHERE object = $1 ORDER BY n LIMIT $2)
           RETURNING n",
    types: &[Type::INT8, Type::INT8],
};

const REMOVE: Sql = Sql {
    text: "DELETE FROM objects WHERE id = $1",
    types: &[Type::INT8],
};

/// What one transaction writes of an object.
struct Part {
    key: ObjectKey,
    size: u64,
    /// The object's number, once its row is there.
    id: Option<i64>,
    /// The number of the first chunk.
    first: usize,
    chunks: Vec<Bytes>,
    /// Whether the object is whole with these.
    last: bool,
}

impl Part {
    async fn write(&self, tx: &Tx) -> Work<i64> {
        let id = match self.id {
            Some(id) => id,
            None => {
                let begun = tx
                    .query(&BEGIN, &[&self.key.as_str(), &int(self.size)])
                    .await?;
                first(&begun, |row| get(row, 0))?
                    .ok_or(Failure::Corrupt("an object that was begun has no number"))?
            }
        };
        let numbers: Vec<_> = (self.first..)
            .zip(&self.chunks)
            .map(|(n, _)| int(n as u64))
            .collect();
        let chunks: Vec<&[u8]> = self.chunks.iter().map(AsRef::as_ref).collect();
        let add: [&(dyn ToSql + Sync); 3] = [&id, &numbers, &chunks];
        let whole: [&(dyn ToSql + Sync); 1] = [&id];
        let mut calls: Vec<Call<'_>> = Vec::with_capacity(2);
        if !chunks.is_empty() {
            calls.push((&ADD, &add));
        }
        if !self.last {
            tx.send_and_commit(&calls).await?;
            return Ok(id);
        }
        calls.push((&MAKE_WHOLE, &whole));
        let written = tx.send_and_commit(&calls).await?;
        if written.last().is_none_or(Vec::is_empty) {
            return Err(Failure::Corrupt(
                "an object was removed while it was written",
            ));
        }
        Ok(id)
    }
}

/// The bytes of an object from `at` on: to the end of their chunk, or to `end`.
async fn read(database: &Database, id: i64, at: u64, end: u64) -> StoreResult<Bytes> {
    let chunk = CHUNK as u64;
    let (n, start) = (at / chunk, at % chunk);
    let length = (end - at).min(chunk - start);
    let within = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
    let bytes = database
        .find(
            "read an object",
            &READ,
            &[&id, &int(n), &within(start + 1), &within(length)],
            |rows| first(rows, |row| get::<&[u8]>(row, 0).map(Bytes::copy_from_slice)),
        )
        .await?;
    bytes
        .filter(|bytes| bytes.len() as u64 == length)
        .ok_or(StoreError::corrupt("an object is gone, or not whole"))
}

/// Removes some of an object's chunks, or the object once it has none; whether that was the last
/// step.
async fn remove_some(tx: &Tx, key: &ObjectKey) -> Work<bool> {
    let broken = tx.query(&BREAK_UP, &[&key.as_str()]).await?;
    let Some(id) = first(&broken, |row| get::<i64>(row, 0))? else {
        return Ok(true);
    };
    let at_once = int(CHUNKS_AT_ONCE as u64);
    let removed = tx.query(&REMOVE_CHUNKS, &[&id, &at_once]).await?;
    if removed.len() == CHUNKS_AT_ONCE {
        return Ok(false);
    }
    tx.send_and_commit(&[(&REMOVE, &[&id])]).await?;
    Ok(true)
}

/// An object's bytes, a chunk at a time.
fn stream_of(database: Arc<Database>, id: i64, range: Range<u64>) -> ByteStream {
    let state = (database, range.start);
    Box::pin(stream::try_unfold(
        state,
        move |(database, at)| async move {
            if at >= range.end {
                return Ok(None);
            }
            let bytes = read(&database, id, at, range.end)
                .await
                .map_err(io::Error::other)?;
            let next = at + bytes.len() as u64;
            Ok(Some((bytes, (database, next))))
        },
    ))
}

#[async_trait]
impl BlobStore for Postgres {
    async fn put(&self, key: &ObjectKey, size: u64, mut body: ByteStream) -> StoreResult<()> {
        let mut id = None;
        let mut first = 0;
        let mut arrived: u64 = 0;
        let mut waiting = BytesMut::new();
        loop {
            let piece = body.next().await.transpose().map_err(|error| {
                StoreError::unavailable("take an object's bytes from their sender", error)
            })?;
            let last = piece.is_none();
            let mut piece = piece.unwrap_or_default();
            arrived += piece.len() as u64;
            if arrived > size || (last && arrived < size) {
                return Err(StoreError::unavailable(
                    "take an object's bytes from their sender",
                    "there are not as many as were announced",
                ));
            }
            // A piece may be of any size: no more than a transaction's worth is kept beside it.
            loop {
                let room = CHUNK * CHUNKS_AT_ONCE - waiting.len();
                waiting.extend_from_slice(&piece[..piece.len().min(room)]);
                piece.advance(piece.len().min(room));
                let full = waiting.len() == CHUNK * CHUNKS_AT_ONCE;
                if !full && !last {
                    break;
                }
                let mut chunks = Vec::with_capacity(CHUNKS_AT_ONCE);
                while !waiting.is_empty() {
                    chunks.push(waiting.split_to(waiting.len().min(CHUNK)).freeze());
                }
                let written = chunks.len();
                let part = Part {
                    key: key.clone(),
                    size,
                    id,
                    first,
                    chunks,
                    last,
                };
                let stored = self
                    .database
                    .update("store an object", &part, |tx, part| {
                        Box::pin(part.write(tx))
                    })
                    .await?;
                id = Some(stored);
                first += written;
                if last {
                    return Ok(());
                }
            }
        }
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> StoreResult<Option<ByteStream>> {
        let found = self
            .database
            .find("find an object", &FIND, &[&key.as_str()], |rows| {
                first(rows, |row| Ok((get::<i64>(row, 0)?, number(row, 1)?)))
            })
            .await?;
        let Some((id, size)) = found else {
            return Ok(None);
        };
        let range = range.unwrap_or(0..size);
        let range = range.start..range.end.min(size);
        Ok(Some(stream_of(Arc::clone(&self.database), id, range)))
    }

    async fn delete(&self, key: &ObjectKey) -> StoreResult<()> {
        loop {
            let done = self
                .database
                .update("remove an object", key, |tx, key| {
                    Box::pin(remove_some(tx, key))
                })
                .await?;
            if done {
                return Ok(());
            }
        }
    }
    async fn list(
        &self,
        instance: &str,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> StoreResult<Vec<ListedObject>> {
        // A zero follows the slash.
        let (first, end) = (format!("{instance}/"), format!("{instance}0"));
        let after = after.map_or(first.as_str(), |after| after.as_str().max(&first));
        self.database
            .find(
                "list objects",
                &LIST,
                &[&after, &end, &columns::limit(limit)],
                |rows| {
                    all(rows, |row| {
                        Ok(ListedObject {
                            key: object(row, 0)?,
                            size: number(row, 1)?,
                            modified_at: time(row, 2)?,
                        })
                    })
                },
            )
            .await
    }
}
