//! Taking records.

use std::collections::{HashMap, HashSet};

use argala_core::{
    ports::store::{Push, PushOutcome},
    rules::{
        self, PushDecision, PushView,
        push::{Existing, Write},
    },
};
use argala_wire::{RecordId, codec::Format, records::PushResponse};
use rusqlite::{Connection, OptionalExtension, params, types::ValueRef};

use crate::{
    columns::{device_ref, int, number, numbers, text, texts},
    devices,
    failure::{Failure, Work},
    graphs::{self, GraphRow},
    keys, rows,
};

/// Takes records: reads what is under their ids, decides, writes.
pub(crate) fn push(tx: &Connection, request: &Push) -> Work<PushOutcome> {
    let caller = devices::caller(tx, &request.by)?;
    let graph = graphs::find(tx, &request.key)?;
    let (mut holds_current, mut replay, mut there) = (false, None, HashMap::new());
    if let Some(graph) = &graph {
        holds_current = keys::holds(tx, graph, &request.by)?;
        replay = answered(tx, graph.id, request)?;
        if replay.is_none() {
            there = existing(tx, graph.id, request)?;
        }
    }
    let decision = rules::push(
        request,
        PushView {
            caller: caller.as_ref(),
            graph: graph.as_ref().map(|graph| &graph.graph),
            holds_current,
            existing: &there,
            replay: replay.as_ref().map(|(body, answer)| (body, answer)),
        },
    )?;
    let (writes, after, outcome) = match decision {
        PushDecision::Replay(outcome) => return Ok(outcome),
        PushDecision::Write {
            writes,
            graph,
            outcome,
        } => (writes, graph, outcome),
    };
    let Some(GraphRow { id, .. }) = graph else {
        return Err(Failure::Corrupt(
            "records were taken by a graph without a key",
        ));
    };
    if !writes.is_empty() {
        write_records(tx, id, request, &writes)?;
        tx.prepare_cached(
            "UPDATE graphs SET head = ?2, records = ?3, tombstones = ?4, ciphertext_bytes = ?5
             WHERE id = ?1",
        )?
        .execute(params![
            id,
            int(after.head),
            int(after.counters.records),
            int(after.counters.tombstones),
            int(after.counters.ciphertext_bytes),
        ])?;
    }
    keep_answer(tx, id, request, &outcome.answer)?;
    Ok(outcome)
}

/// What there is under the pushed ids.
fn existing(
    tx: &Connection,
    graph: i64,
    request: &Push,
) -> rusqlite::Result<HashMap<RecordId, Existing>> {
    let mut existing = HashMap::new();
    if request.records.is_empty() {
        return Ok(existing);
    }
    let pushed: HashMap<&str, &[u8]> = request
        .records
        .iter()
        .map(|pushed| {
            (
                pushed.record.id.as_str(),
                pushed.record.ciphertext.as_slice(),
            )
        })
        .collect();
    let mut alike = Vec::new();
    let mut statement = tx.prepare_cached(
        "SELECT r.id, r.record, r.seq, r.epoch, r.by_member, r.by_device, r.deleted, r.bytes
         FROM rarray(?2) v CROSS JOIN records r ON r.graph = ?1 AND r.record = v.value",
    )?;
    let mut found = statement.query(params![graph, texts(pushed.keys().copied())])?;
    while let Some(row) = found.next()? {
        let id: RecordId = text(row, 1)?;
        let bytes = number(row, 7)?;
        if pushed
            .get(id.as_str())
            .is_some_and(|it| it.len() as u64 == bytes)
        {
            alike.push(row.get(0)?);
        }
        let record = Existing {
            seq: number(row, 2)?,
            epoch: number(row, 3)?,
            by: device_ref(row, 4)?,
            deleted: row.get(6)?,
            bytes,
            same_ciphertext: false,
        };
        existing.insert(id, record);
    }
    for id in same_ciphertexts(tx, alike, &pushed)? {
        if let Some(record) = existing.get_mut(&id) {
            record.same_ciphertext = true;
        }
    }
    Ok(existing)
}

/// Those of the rows `alike` whose ciphertext is the pushed one. Only what is as long as its
/// counterpart is read at all.
fn same_ciphertexts(
    tx: &Connection,
    alike: Vec<i64>,
    pushed: &HashMap<&str, &[u8]>,
) -> rusqlite::Result<HashSet<RecordId>> {
    let mut same = HashSet::new();
    if alike.is_empty() {
        return Ok(same);
    }
    let mut statement = tx.prepare_cached(
        "SELECT r.record, r.ciphertext
         FROM rarray(?1) v CROSS JOIN records r ON r.id = v.value",
    )?;
    let mut found = statement.query([numbers(alike)])?;
    while let Some(row) = found.next()? {
        let id: RecordId = text(row, 0)?;
        let ciphertext = row.get_ref(1)?.as_blob()?;
        if pushed.get(id.as_str()).is_some_and(|it| *it == ciphertext) {
            same.insert(id);
        }
    }
    Ok(same)
}

fn write_records(
    tx: &Connection,
    graph: i64,
    request: &Push,
    writes: &[Write],
) -> rusqlite::Result<()> {
    let by = [request.by.member_id.as_str(), request.by.device_id.as_str()];
    let written: Vec<_> = writes
        .iter()
        .map(|write| (write.seq, &request.records[write.at].record))
        .collect();
    rows::execute(
        tx,
        "INSERT INTO records (graph, record, seq, epoch, by_member, by_device, at, deleted, bytes,
                              sig, ciphertext)
         SELECT ?1, column1, column2, column3, ?2, ?3, ?4, column4, length(column6), column5,
                column6
         FROM {rows} WHERE column1 IS NOT NULL
         ON CONFLICT (graph, record) DO UPDATE SET
             seq = excluded.seq, epoch = excluded.epoch, by_member = excluded.by_member,
             by_device = excluded.by_device, at = excluded.at, deleted = excluded.deleted,
             bytes = excluded.bytes, sig = excluded.sig, ciphertext = excluded.ciphertext",
        &[&graph, &by[0], &by[1], &request.now.as_millis()],
        &written,
        |(seq, record)| {
            [
                ValueRef::from(record.id.as_str()),
                ValueRef::Integer(int(*seq)),
                ValueRef::Integer(int(record.epoch)),
                ValueRef::Integer(record.deleted.into()),
                record
                    .sig
                    .as_ref()
                    .map_or(ValueRef::Null, |sig| sig.as_slice().into()),
                ValueRef::from(record.ciphertext.as_slice()),
            ]
        },
    )
}

/// What is kept under the request's idempotency key: the hash of the first body, and its answer.
fn answered(tx: &Connection, graph: i64, request: &Push) -> Work<Option<([u8; 32], PushResponse)>> {
    let Some(idempotency) = &request.idempotency else {
        return Ok(None);
    };
    let kept: Option<([u8; 32], Vec<u8>)> = tx
        .prepare_cached(
            "SELECT body, answer FROM idempotency
             WHERE graph = ?1 AND member = ?2 AND device = ?3 AND key = ?4 AND at >= ?5",
        )?
        .query_row(
            params![
                graph,
                request.by.member_id.as_str(),
                request.by.device_id.as_str(),
                idempotency.key,
                idempotency.since.as_millis(),
            ],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    let Some((body, answer)) = kept else {
        return Ok(None);
    };
    let answer = Format::Json
        .decode_answer(&answer)
        .map_err(|_| Failure::Corrupt("a kept answer cannot be read"))?;
    Ok(Some((body, answer)))
}

fn keep_answer(
    tx: &Connection,
    graph: i64,
    request: &Push,
    answer: &PushResponse,
) -> rusqlite::Result<()> {
    let Some(idempotency) = &request.idempotency else {
        return Ok(());
    };
    // What is there already has outlived its day.
    tx.prepare_cached(
        "INSERT INTO idempotency (graph, member, device, key, at, body, answer)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (graph, member, device, key) DO UPDATE SET
             at = excluded.at, body = excluded.body, answer = excluded.answer",
    )?
    .execute(params![
        graph,
        request.by.member_id.as_str(),
        request.by.device_id.as_str(),
        idempotency.key,
        request.now.as_millis(),
        idempotency.body,
        Format::Json.encode(answer),
    ])
    .map(drop)
}
