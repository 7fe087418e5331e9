//! The bytes of blobs, kept in the database itself.
//!
//! An object is a row and its chunks. It is written a few chunks at a time, each step a command of
//! the writer's like any other, and becomes readable with the last; it is read one chunk at a
//! time, so that no slow reader holds a transaction, a thread or more than one chunk.

use std::{io, ops::Range, sync::Arc};

use argala_core::{
    StoreError, StoreResult,
    ports::{BlobStore, ByteStream, ListedObject, ObjectKey},
};
use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use rusqlite::{Connection, OptionalExtension, params, types::ValueRef};

use crate::{
    Sqlite,
    columns::{int, number, object, time},
    failure::{Failure, Work, unrefused},
    readers::Readers,
    rows,
};

/// Bytes of a chunk; the last one of an object may have fewer.
const CHUNK: usize = 256 * 1024;
/// Chunks that one command writes, and that one removes.
const CHUNKS_AT_ONCE: usize = 4;

/// What one command writes of an object.
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
    fn write(&self, tx: &Connection) -> Work<i64> {
        let id = match self.id {
            Some(id) => id,
            None => tx
                .prepare_cached(
                    "INSERT INTO objects (object, size, whole, begun_at)
                     VALUES (?1, ?2, 0, CAST(unixepoch('subsec') * 1000 AS INTEGER))
                     RETURNING id",
                )?
                .query_row(params![self.key.as_str(), int(self.size)], |row| row.get(0))?,
        };
        let numbered: Vec<_> = (self.first..).zip(&self.chunks).collect();
        rows::execute(
            tx,
            "INSERT INTO chunks (object, n, bytes)
             SELECT ?1, column1, column2 FROM {rows} WHERE column1 IS NOT NULL",
            &[&id],
            &numbered,
            |(n, chunk)| {
                [
                    ValueRef::Integer(int(*n as u64)),
                    ValueRef::from(&chunk[..]),
                ]
            },
        )?;
        if self.last {
            let whole = tx
                .prepare_cached("UPDATE objects SET whole = 1 WHERE id = ?1")?
                .execute([id])?;
            if whole == 0 {
                return Err(Failure::Corrupt(
                    "an object was removed while it was written",
                ));
            }
        }
        Ok(id)
    }
}

fn find(connection: &Connection, key: &ObjectKey) -> Work<Option<(i64, u64)>> {
    Ok(connection
        .prepare_cached("SELECT id, size FROM objects WHERE object = ?1 AND whole")?
        .query_row([key.as_str()], |row| Ok((row.get(0)?, number(row, 1)?)))
        .optional()?)
}

/// The bytes of an object from `at` on: to the end of their chunk, or to `end`.
fn read(connection: &Connection, id: i64, at: u64, end: u64) -> Work<Vec<u8>> {
    let chunk = CHUNK as u64;
    let (n, start) = (at / chunk, at % chunk);
    let length = (end - at).min(chunk - start);
    let bytes: Option<Vec<u8>> = connection
        .prepare_cached("SELECT substr(bytes, ?3, ?4) FROM chunks WHERE object = ?1 AND n = ?2")?
        .query_row(params![id, int(n), int(start + 1), int(length)], |row| {
            row.get(0)
        })
        .optional()?;
    bytes
        .filter(|bytes| bytes.len() as u64 == length)
        .ok_or(Failure::Corrupt("an object is gone, or not whole"))
}

/// Those of one database after an object's name, by name. A zero follows the slash.
fn list(
    connection: &Connection,
    instance: &str,
    after: Option<&ObjectKey>,
    limit: usize,
) -> Work<Vec<ListedObject>> {
    let (first, end) = (format!("{instance}/"), format!("{instance}0"));
    let after = after.map_or(first.as_str(), |after| after.as_str().max(&first));
    Ok(connection
        .prepare_cached(
            "SELECT object, size, begun_at FROM objects WHERE object > ?1 AND object < ?2
             ORDER BY object LIMIT ?3",
        )?
        .query_map(params![after, end, int(limit as u64)], |row| {
            Ok(ListedObject {
                key: object(row, 0)?,
                size: number(row, 1)?,
                modified_at: time(row, 2)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?)
}

/// Removes some of an object's chunks, or the object once it has none; whether that was the last
/// step.
fn remove_some(tx: &Connection, key: &ObjectKey) -> Work<bool> {
    // From the first step on it is not to be read: what is left of it is not all.
    let id: Option<i64> = tx
        .prepare_cached("UPDATE objects SET whole = 0 WHERE object = ?1 RETURNING id")?
        .query_row([key.as_str()], |row| row.get(0))
        .optional()?;
    let Some(id) = id else { return Ok(true) };
    let removed = tx
        .prepare_cached(
            "DELETE FROM chunks WHERE id IN (SELECT id FROM chunks WHERE object = ?1 LIMIT ?2)",
        )?
        .execute(params![id, int(CHUNKS_AT_ONCE as u64)])?;
    if removed == CHUNKS_AT_ONCE {
        return Ok(false);
    }
    tx.prepare_cached("DELETE FROM objects WHERE id = ?1")?
        .execute([id])?;
    Ok(true)
}

/// An object's bytes, a chunk at a time.
fn stream_of(readers: Arc<Readers>, id: i64, range: Range<u64>) -> ByteStream {
    let state = (readers, range.start);
    Box::pin(stream::try_unfold(state, move |(readers, at)| async move {
        if at >= range.end {
            return Ok(None);
        }
        let end = range.end;
        let bytes = readers
            .run("read an object", move |connection| {
                read(connection, id, at, end)
            })
            .await
            .map_err(io::Error::other)?;
        let next = at + bytes.len() as u64;
        Ok(Some((Bytes::from(bytes), (readers, next))))
    }))
}

impl Sqlite {
    async fn write_part(&self, part: Part) -> StoreResult<i64> {
        let bytes = part.chunks.iter().map(Bytes::len).sum();
        let work = move |tx: &Connection| part.write(tx);
        unrefused(self.writer.run("store an object", bytes, work).await)
    }
}

#[async_trait]
impl BlobStore for Sqlite {
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
            // A piece may be of any size: no more than a command's worth is kept beside it.
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
                id = Some(self.write_part(part).await?);
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
        let key = key.clone();
        let found = self.read("find an object", move |connection| find(connection, &key));
        let Some((id, size)) = unrefused(found.await)? else {
            return Ok(None);
        };
        let range = range.unwrap_or(0..size);
        let range = range.start..range.end.min(size);
        Ok(Some(stream_of(Arc::clone(&self.readers), id, range)))
    }

    async fn delete(&self, key: &ObjectKey) -> StoreResult<()> {
        loop {
            let key = key.clone();
            let step = self.write("remove an object", move |tx| remove_some(tx, &key));
            if unrefused(step.await)? {
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
        let (instance, after) = (instance.to_owned(), after.cloned());
        let listed = self.read("list objects", move |connection| {
            list(connection, &instance, after.as_ref(), limit)
        });
        unrefused(listed.await)
    }
}
