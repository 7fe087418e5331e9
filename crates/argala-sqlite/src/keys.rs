//! Graph keys: who holds which epoch, beginning one, and giving it to more devices.

use std::collections::{BTreeMap, BTreeSet};

use argala_core::{
    ports::store::{
        Counters, Epoch, Grant, Granted, Graph, Rotate, Rotated, WrapsPage, WrapsQuery,
    },
    rules::{self, GrantView, RotateView, Rotation, pull::EpochSpan},
};
use argala_wire::{
    Sealed,
    devices::DeviceRef,
    keys::{GrantWrap, RotateWrap, Wrap},
};
use rusqlite::{Connection, OptionalExtension, params, types::ValueRef};

use crate::{
    columns::{device_ref, int, limit, number, sealed, text, time},
    devices,
    failure::{Failure, Work},
    graphs::{self, GraphRow},
    rows,
};

/// Whether a device has a wrap, not blanked, of one epoch.
pub(crate) fn holds(
    connection: &Connection,
    graph: &GraphRow,
    device: &DeviceRef,
) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT EXISTS (
                 SELECT 1 FROM wraps
                 WHERE member = ?1 AND device = ?2 AND graph = ?3 AND epoch = ?4
                   AND wrap IS NOT NULL
             )",
        )?
        .query_row(
            params![
                device.member_id.as_str(),
                device.device_id.as_str(),
                graph.id,
                int(graph.graph.epoch)
            ],
            |row| row.get(0),
        )
}

/// The epochs of which a device has a wrap, not blanked.
pub(crate) fn held(
    connection: &Connection,
    graph: i64,
    device: &DeviceRef,
) -> rusqlite::Result<BTreeSet<u64>> {
    connection
        .prepare_cached(
            "SELECT epoch FROM wraps
             WHERE member = ?1 AND device = ?2 AND graph = ?3 AND wrap IS NOT NULL",
        )?
        .query_map(
            params![device.member_id.as_str(), device.device_id.as_str(), graph],
            |row| number(row, 0),
        )?
        .collect()
}

/// Where an epoch's seqs lie; `None` where the graph has not had it.
pub(crate) fn span(
    connection: &Connection,
    graph: i64,
    epoch: u64,
) -> rusqlite::Result<Option<EpochSpan>> {
    let mut statement = connection.prepare_cached(
        "SELECT epoch, first_seq FROM epochs WHERE graph = ?1 AND epoch >= ?2
         ORDER BY epoch LIMIT 2",
    )?;
    let mut begun = statement.query_map(params![graph, int(epoch)], |row| {
        Ok((number(row, 0)?, number(row, 1)?))
    })?;
    match begun.next().transpose()? {
        Some((found, first)) if found == epoch => {
            let next = begun.next().transpose()?.map(|(_, first)| first);
            Ok(Some(EpochSpan { first, next }))
        }
        _ => Ok(None),
    }
}

/// One device's wraps.
pub(crate) fn wraps(connection: &Connection, query: &WrapsQuery) -> Work<WrapsPage> {
    let Some(graph) = graphs::find(connection, &query.key)? else {
        return Ok(WrapsPage {
            epoch: 0,
            wraps: Vec::new(),
        });
    };
    let wraps = connection
        .prepare_cached(
            "SELECT w.epoch, w.wrap, w.by_member, w.by_device, w.at, e.first_seq
             FROM wraps w CROSS JOIN epochs e ON e.graph = w.graph AND e.epoch = w.epoch
             WHERE w.member = ?1 AND w.device = ?2 AND w.graph = ?3 AND w.epoch > ?4
               AND w.wrap IS NOT NULL
             ORDER BY w.epoch
             LIMIT ?5",
        )?
        .query_map(
            params![
                query.device.member_id.as_str(),
                query.device.device_id.as_str(),
                graph.id,
                int(query.after),
                limit(query.limit)
            ],
            |row| {
                Ok(Wrap {
                    epoch: number(row, 0)?,
                    wrap: sealed(row, 1)?,
                    by: device_ref(row, 2)?,
                    at: time(row, 4)?,
                    first_seq: number(row, 5)?,
                })
            },
        )?
        .collect::<Result<_, _>>()?;
    Ok(WrapsPage {
        epoch: graph.graph.epoch,
        wraps,
    })
}

/// Begins an epoch; creates the graph with its first.
pub(crate) fn rotate(tx: &Connection, request: &Rotate) -> Work<Rotated> {
    let caller = devices::caller(tx, &request.by)?;
    let graph = graphs::find(tx, &request.key)?;
    let roster = devices::roster(tx, &request.members)?;
    let past = match &graph {
        Some(graph) => epoch_row(tx, graph.id, request.epoch)?,
        None => None,
    };
    let view = RotateView {
        caller: caller.as_ref(),
        graph: graph.as_ref().map(|graph| &graph.graph),
        roster: &roster,
        past: past.as_ref(),
    };
    let begun = match rules::rotate(request, view)? {
        Rotation::Replay(rotated) => return Ok(rotated),
        Rotation::Begin(epoch) => epoch,
    };
    let id = match graph {
        Some(graph) => graph.id,
        None => graphs::create(tx, &unkeyed(request))?,
    };
    let epoch = int(begun.epoch);
    tx.prepare_cached(
        "UPDATE graphs SET epoch = ?2, revocation_owed = 0, directory_owed = 0 WHERE id = ?1",
    )?
    .execute(params![id, epoch])?;
    tx.prepare_cached(
        "INSERT INTO epochs (graph, epoch, first_seq, by_member, by_device, fingerprint, devices)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        id,
        epoch,
        int(begun.first_seq),
        begun.by.member_id.as_str(),
        begun.by.device_id.as_str(),
        begun.fingerprint,
        int(begun.devices),
    ])?;
    let by = [begun.by.member_id.as_str(), begun.by.device_id.as_str()];
    rows::execute(
        tx,
        "INSERT INTO wraps (graph, epoch, member, device, by_member, by_device, at, wrap)
         SELECT ?1, ?2, column1, column2, ?3, ?4, ?5, column3
         FROM {rows} WHERE column1 IS NOT NULL",
        &[&id, &epoch, &by[0], &by[1], &request.now.as_millis()],
        &request.wraps,
        |wrap: &RotateWrap| {
            [
                ValueRef::from(wrap.member_id.as_str()),
                ValueRef::from(wrap.device_id.as_str()),
                ValueRef::from(wrap.wrap.as_slice()),
            ]
        },
    )?;
    tx.prepare_cached(
        "INSERT INTO holders (graph, member, device)
         SELECT graph, member, device FROM wraps WHERE graph = ?1 AND epoch = ?2
         ON CONFLICT DO NOTHING",
    )?
    .execute(params![id, epoch])?;
    Ok(Rotated {
        epoch: begun.epoch,
        first_seq: begun.first_seq,
        devices: begun.devices,
        replay: false,
    })
}

/// The row of a graph whose first epoch is about to begin.
fn unkeyed(request: &Rotate) -> Graph {
    Graph {
        key: request.key.clone(),
        epoch: 0,
        head: 0,
        counters: Counters::default(),
        incarnation: request.incarnation,
        floor: 0,
        revocation_owed: false,
        directory_owed: false,
    }
}

fn epoch_row(tx: &Connection, graph: i64, epoch: u64) -> rusqlite::Result<Option<Epoch>> {
    tx.prepare_cached(
        "SELECT epoch, first_seq, by_member, by_device, fingerprint, devices
         FROM epochs WHERE graph = ?1 AND epoch = ?2",
    )?
    .query_row(params![graph, int(epoch)], |row| {
        Ok(Epoch {
            epoch: number(row, 0)?,
            first_seq: number(row, 1)?,
            by: device_ref(row, 2)?,
            fingerprint: row.get(4)?,
            devices: number(row, 5)?,
        })
    })
    .optional()
}

/// Gives wraps to devices.
pub(crate) fn grant(tx: &Connection, request: &Grant) -> Work<Granted> {
    let caller = devices::caller(tx, &request.by)?;
    let graph = graphs::find(tx, &request.key)?;
    let roster = devices::roster(tx, &request.members)?.into_iter().collect();
    let (held, existing) = match &graph {
        Some(graph) => (
            held(tx, graph.id, &request.by)?,
            existing(tx, graph.id, &request.wraps)?,
        ),
        None => (BTreeSet::new(), BTreeMap::new()),
    };
    let decision = rules::grant(
        request,
        GrantView {
            caller: caller.as_ref(),
            graph: graph.as_ref().map(|graph| &graph.graph),
            roster: &roster,
            held: &held,
            existing: &existing,
        },
    )?;
    let Some(GraphRow { id, .. }) = graph else {
        return Err(Failure::Corrupt(
            "wraps were granted of a graph without a key",
        ));
    };
    let granted: Vec<_> = decision
        .insert
        .iter()
        .map(|&at| &request.wraps[at])
        .collect();
    let by = [request.by.member_id.as_str(), request.by.device_id.as_str()];
    rows::execute(
        tx,
        "INSERT INTO wraps (graph, epoch, member, device, by_member, by_device, at, wrap)
         SELECT ?1, column3, column1, column2, ?2, ?3, ?4, column4
         FROM {rows} WHERE column1 IS NOT NULL",
        &[&id, &by[0], &by[1], &request.now.as_millis()],
        &granted,
        |wrap: &&GrantWrap| {
            let [member, device, epoch] = target(wrap);
            [member, device, epoch, ValueRef::from(wrap.wrap.as_slice())]
        },
    )?;
    rows::execute(
        tx,
        "INSERT INTO holders (graph, member, device)
         SELECT ?1, column1, column2 FROM {rows} WHERE column1 IS NOT NULL
         ON CONFLICT DO NOTHING",
        &[&id],
        &granted,
        |wrap: &&GrantWrap| {
            let [member, device, _] = target(wrap);
            [member, device]
        },
    )?;
    Ok(decision.outcome)
}

/// The wraps there are for the targets of `wraps`.
fn existing(
    tx: &Connection,
    graph: i64,
    wraps: &[GrantWrap],
) -> rusqlite::Result<BTreeMap<(u64, DeviceRef), Option<Sealed>>> {
    let mut existing = BTreeMap::new();
    rows::query(
        tx,
        "SELECT w.epoch, w.member, w.device, w.wrap
         FROM {rows} v CROSS JOIN wraps w
           ON w.graph = ?1 AND w.epoch = v.column3 AND w.member = v.column1
          AND w.device = v.column2
         WHERE v.column1 IS NOT NULL",
        &[&graph],
        wraps,
        target,
        |row| {
            let target = DeviceRef {
                member_id: text(row, 1)?,
                device_id: text(row, 2)?,
            };
            let wrap: Option<Vec<u8>> = row.get(3)?;
            existing.insert((number(row, 0)?, target), wrap.map(Sealed));
            Ok(())
        },
    )?;
    Ok(existing)
}

fn target(wrap: &GrantWrap) -> [ValueRef<'_>; 3] {
    [
        ValueRef::from(wrap.member_id.as_str()),
        ValueRef::from(wrap.device_id.as_str()),
        ValueRef::Integer(int(wrap.epoch)),
    ]
}
