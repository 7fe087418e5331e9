//! Taking records: the pushes to one graph that share a transaction.
//!
//! All that they rest on is read under the graph's lock, in one round trip. They are decided one
//! after the other, each on what those before it have left; what they come to is written at once.

use std::collections::{BTreeSet, HashMap};

use argala_core::{ports::store::Push, rules::push::Existing};
use argala_wire::{Timestamp, codec::Format};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use crate::{
    batch::{Answers, Batch, Content, Kept, Key, Records, Standing, Told},
    columns::{Version, device_ref, first, get, hash, int, number},
    devices,
    failure::{Failure, Work},
    graphs,
    remembered::State,
    session::{Call, Sql, Tx},
};

/// One graph and its row's version, which nobody else may change until the transaction ends:
/// storage key.
const HOLD: Sql = Sql {
    text: concat!(
        "SELECT ",
        graphs::columns!(),
        ", g.xmin FROM graphs g WHERE g.storage_key = $1 FOR NO KEY UPDATE"
    ),
    types: &[Type::TEXT],
};

/// The devices that push, and whether each has a wrap, not blanked, of the current epoch: storage
/// key; members, devices. Each is looked for by itself: without `OFFSET` the server might read the
/// wraps of all devices, to look into what it has read.
const CALLERS: Sql = Sql {
    text: concat!(
        "SELECT ",
        devices::columns!(),
        ", EXISTS (
             SELECT 1 FROM wraps w
             WHERE w.graph = (SELECT id FROM graphs WHERE storage_key = $1)
               AND w.epoch = (SELECT epoch FROM graphs WHERE storage_key = $1)
               AND w.member = d.member AND w.device = d.device AND w.wrap IS NOT NULL
             OFFSET 0
         )
         FROM unnest($2::text[], $3::text[]) AS v (member, device)
         CROSS JOIN LATERAL (
             SELECT * FROM devices d WHERE d.member = v.member AND d.device = v.device OFFSET 0
         ) d"
    ),
    types: &[Type::TEXT, Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};

/// What there is under records' ids: storage key; ids, and for each how many bytes are pushed.
/// Only ciphertexts as long as their counterparts are read, and only their hashes leave.
const EXISTING: Sql = Sql {
    text: "SELECT r.record, r.seq, r.epoch, r.by_member, r.by_device, r.deleted, r.bytes, r.digest
           FROM unnest($2::text[], $3::bigint[]) AS v (record, bytes)
           CROSS JOIN LATERAL (
               SELECT r.record, r.seq, r.epoch, r.by_member, r.by_device, r.deleted, r.bytes,
                      CASE WHEN r.bytes = v.bytes THEN sha256(r.ciphertext) END AS digest
               FROM records r
               WHERE r.graph = (SELECT id FROM graphs WHERE storage_key = $1)
                 AND r.record = v.record
               OFFSET 0
           ) r",
    types: &[Type::TEXT, Type::TEXT_ARRAY, Type::INT8_ARRAY],
};

/// The newest answers under idempotency keys: storage key; members, devices, keys.
const ANSWERED: Sql = Sql {
    text: "SELECT v.member, v.device, v.key, i.at, i.body, i.answer
           FROM unnest($2::text[], $3::text[], $4::text[]) AS v (member, device, key)
           CROSS JOIN LATERAL (
               SELECT i.at, i.body, i.answer FROM idempotency i
               WHERE i.graph = (SELECT id FROM graphs WHERE storage_key = $1)
                 AND i.member = v.member AND i.device = v.device AND i.key = v.key
               ORDER BY i.at DESC
               LIMIT 1
           ) i",
    types: &[
        Type::TEXT,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
    ],
};

/// Writes records and the graph's new head and counters: graph; ids, seqs, epochs, members,
/// devices, times, flags, signatures, ciphertexts; head, records, tombstones, bytes. Tells the
/// row's new version. One statement: what it costs the server to take one up is a good part of a
/// small push.
const WRITE: Sql = Sql {
    text: "WITH counted AS (
               UPDATE graphs
               SET head = $11, records = $12, tombstones = $13, ciphertext_bytes = $14
               WHERE id = $1
               RETURNING xmin
           ), written AS (
               INSERT INTO records (graph, record, seq, epoch, by_member, by_device, at, deleted,
                                    bytes, sig, ciphertext)
               SELECT $1, v.record, v.seq, v.epoch, v.by_member, v.by_device, v.at, v.deleted,
                      octet_length(v.ciphertext), v.sig, v.ciphertext
               FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[],
                           $7::bigint[], $8::boolean[], $9::bytea[], $10::bytea[])
                    AS v (record, seq, epoch, by_member, by_device, at, deleted, sig, ciphertext)
               ON CONFLICT (graph, record) DO UPDATE SET
                   seq = excluded.seq, epoch = excluded.epoch, by_member = excluded.by_member,
                   by_device = excluded.by_device, at = excluded.at, deleted = excluded.deleted,
                   bytes = excluded.bytes, sig = excluded.sig, ciphertext = excluded.ciphertext
           )
           SELECT xmin FROM counted",
    types: &[
        Type::INT8,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::BOOL_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
    ],
};

/// Graph; slots, members, devices, keys, times, bodies' hashes, answers.
const KEEP: Sql = Sql {
    text: "INSERT INTO idempotency (slot, graph, member, device, key, at, body, answer)
           SELECT v.slot, $1, v.member, v.device, v.key, v.at, v.body, v.answer
           FROM unnest($2::smallint[], $3::text[], $4::text[], $5::text[], $6::bigint[],
                       $7::bytea[], $8::bytea[])
                AS v (slot, member, device, key, at, body, answer)
           ON CONFLICT (graph, member, device, key, slot) DO UPDATE SET
               at = excluded.at, body = excluded.body, answer = excluded.answer",
    types: &[
        Type::INT8,
        Type::INT2_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};

/// Renews a graph's row, so that what was remembered of it is stale: an answer was kept beside it.
/// Graph; tells the new version.
const RENEW: Sql = Sql {
    text: "UPDATE graphs SET head = head WHERE id = $1 RETURNING xmin",
    types: &[Type::INT8],
};

/// Takes records, all of one graph: what each push is told, in their order, and how the graph
/// stands once that is committed.
pub(crate) async fn push(tx: &Tx, pushes: &[Push]) -> Work<(Vec<Told>, Option<State>)> {
    let Some(key) = pushes.first().map(|push| push.key.as_str()) else {
        return Ok((Vec::new(), None));
    };
    let mut batch = Batch::new(pushes);
    let held = read(&mut batch, tx, key, pushes).await?;
    let told = batch.decide_all();
    let Some((id, version)) = held else {
        return Ok((told, None));
    };
    let now = write(&batch, tx, id, pushes).await?.unwrap_or(version);
    let state = State::of(id, [version, now], batch.graph, batch.callers);
    Ok((told, state))
}

/// Locks the graph, and reads what the pushes rest on; the graph's number and its row's version,
/// where there is one.
async fn read<'a>(
    batch: &mut Batch<'a>,
    tx: &Tx,
    key: &'a str,
    pushes: &'a [Push],
) -> Work<Option<(i64, Version)>> {
    let callers: BTreeSet<_> = pushes.iter().map(|push| &push.by).collect();
    let members: Vec<_> = callers.iter().map(|it| it.member_id.as_str()).collect();
    let devices: Vec<_> = callers.iter().map(|it| it.device_id.as_str()).collect();
    let lock: [&(dyn ToSql + Sync); 1] = [&key];
    let callers: [&(dyn ToSql + Sync); 3] = [&key, &members, &devices];
    let mut calls: Vec<Call<'_>> = vec![(&HOLD, &lock), (&CALLERS, &callers)];

    let pushed: BTreeSet<_> = pushes
        .iter()
        .flat_map(|push| &push.records)
        .map(|it| {
            (
                it.record.id.as_str(),
                int(it.record.ciphertext.len() as u64),
            )
        })
        .collect();
    let (ids, lengths): (Vec<_>, Vec<_>) = pushed.into_iter().unzip();
    let existing: [&(dyn ToSql + Sync); 3] = [&key, &ids, &lengths];
    if !ids.is_empty() {
        calls.push((&EXISTING, &existing));
    }

    let keyed = || {
        pushes
            .iter()
            .filter_map(|push| Some((&push.by, push.idempotency.as_ref()?.key.as_str())))
    };
    let keys: BTreeSet<Key<'a>> = keyed().collect();
    let key_members: Vec<_> = keys.iter().map(|(by, _)| by.member_id.as_str()).collect();
    let key_devices: Vec<_> = keys.iter().map(|(by, _)| by.device_id.as_str()).collect();
    let key_names: Vec<_> = keys.iter().map(|(_, name)| *name).collect();
    let answered: [&(dyn ToSql + Sync); 4] = [&key, &key_members, &key_devices, &key_names];
    if !keys.is_empty() {
        calls.push((&ANSWERED, &answered));
    }

    let mut rows = tx.send_all(&calls).await?.into_iter();
    let mut next = |sent: bool| if sent { rows.next() } else { None }.unwrap_or_default();
    let graph = first(&next(true), |row| {
        Ok((graphs::from_row(row)?, get(row, graphs::WIDTH)?))
    })?;
    for row in next(true) {
        let device = devices::from_row(&row)?;
        let holds = get(&row, devices::WIDTH)?;
        batch.callers.insert(device_ref(&row, 0)?, (device, holds));
    }
    let lasting: HashMap<&str, &'a str> = pushes
        .iter()
        .flat_map(|push| &push.records)
        .map(|it| (it.record.id.as_str(), it.record.id.as_str()))
        .collect();
    for row in next(!ids.is_empty()) {
        add_record(batch, &row, &lasting)?;
    }
    let lasting: HashMap<(&str, &str, &str), Key<'a>> = keyed()
        .map(|(by, name)| {
            let id = (by.member_id.as_str(), by.device_id.as_str(), name);
            (id, (by, name))
        })
        .collect();
    for row in next(!keys.is_empty()) {
        let id = (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?);
        if let Some(key) = lasting.get(&id) {
            batch.kept.insert(*key, kept(&row)?);
        }
    }
    Ok(graph.map(|(row, version)| {
        batch.graph = Some(row.graph);
        (row.id, version)
    }))
}

fn add_record<'a>(batch: &mut Batch<'a>, row: &Row, lasting: &HashMap<&str, &'a str>) -> Work<()> {
    let Some(id) = lasting.get(get::<&str>(row, 0)?) else {
        return Ok(());
    };
    let digest: Option<&[u8]> = get(row, 7)?;
    let digest = digest.map(|_| hash(row, 7)).transpose()?;
    // An id that is pushed with several lengths has several rows, of which one may have it.
    let known = match batch.records.get(id) {
        Some(Standing {
            content: Content::Stored(known),
            ..
        }) => *known,
        _ => None,
    };
    let existing = Existing {
        seq: number(row, 1)?,
        epoch: number(row, 2)?,
        by: device_ref(row, 3)?,
        deleted: get(row, 5)?,
        bytes: number(row, 6)?,
        same_ciphertext: false,
    };
    let content = Content::Stored(digest.or(known));
    batch.records.insert(id, Standing { existing, content });
    Ok(())
}

/// Writes what the pushes came to, and commits; the version that the graph's row then has, where
/// that is another.
async fn write(batch: &Batch<'_>, tx: &Tx, id: i64, pushes: &[Push]) -> Work<Option<Version>> {
    let Some(graph) = &batch.graph else {
        return Err(Failure::Corrupt(
            "records were taken by a graph without a key",
        ));
    };
    let written = batch.written();
    let mut records = Records::default();
    records.add(id, pushes, &written);
    let counters = &graph.counters;
    let write: [&(dyn ToSql + Sync); 14] = [
        &id,
        &records.ids,
        &records.seqs,
        &records.epochs,
        &records.members,
        &records.devices,
        &records.times,
        &records.deleted,
        &records.sigs,
        &records.ciphertexts,
        &int(graph.head),
        &int(counters.records),
        &int(counters.tombstones),
        &int(counters.ciphertext_bytes),
    ];
    let answered = batch.answered();
    let mut answers = Answers::default();
    answers.add(id, pushes, &answered);
    let keep: [&(dyn ToSql + Sync); 8] = [
        &id,
        &answers.slots,
        &answers.members,
        &answers.devices,
        &answers.keys,
        &answers.times,
        &answers.bodies,
        &answers.answers,
    ];
    let renew: [&(dyn ToSql + Sync); 1] = [&id];
    let mut calls: Vec<Call<'_>> = Vec::with_capacity(2);
    match (written.is_empty(), answered.is_empty()) {
        (true, true) => return Ok(None),
        (false, true) => calls.push((&WRITE, &write)),
        (false, false) => calls.extend([(&WRITE, &write[..]), (&KEEP, &keep[..])]),
        (true, false) => calls.extend([(&RENEW, &renew[..]), (&KEEP, &keep[..])]),
    }
    let rows = tx.send_and_commit(&calls).await?;
    first(&rows[0], |row| get(row, 0))
}

fn kept(row: &Row) -> Work<Kept> {
    let answer = Format::Json
        .decode_answer(get(row, 5)?)
        .map_err(|_| Failure::Corrupt("a kept answer cannot be read"))?;
    Ok(Kept {
        at: Timestamp::from_millis(get(row, 3)?),
        body: hash(row, 4)?,
        answer,
    })
}
