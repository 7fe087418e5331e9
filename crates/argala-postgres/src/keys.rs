//! Graph keys: who holds which epoch, beginning one, and giving it to more devices.

use std::collections::{BTreeMap, BTreeSet};

use argala_core::{
    StoreResult,
    ports::store::{Epoch, Grant, Granted, Rotate, Rotated, WrapsPage, WrapsQuery},
    rules::{self, GrantView, RotateView, Rotation},
};
use argala_wire::{
    Sealed,
    devices::DeviceRef,
    keys::{GrantWrap, Wrap},
};
use tokio_postgres::{Row, types::Type};

use crate::{
    columns::{
        all, device_ref, first, get, hash, int, limit, maybe_sealed, number, sealed, text, time,
    },
    devices,
    failure::{Failure, Work},
    graphs,
    run::Database,
    session::{Sql, Tx},
};

/// The epochs of which a device has a wrap, not blanked: storage key, member, device.
const HELD: Sql = Sql {
    text: "SELECT epoch FROM wraps
           WHERE graph = (SELECT id FROM graphs WHERE storage_key = $1)
             AND member = $2 AND device = $3 AND wrap IS NOT NULL",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT],
};

const WRAPS: Sql = Sql {
    text: "SELECT g.epoch, w.epoch, w.wrap, w.by_member, w.by_device, w.at, w.first_seq
           FROM graphs g LEFT JOIN LATERAL (
               SELECT w.epoch, w.wrap, w.by_member, w.by_device, w.at, e.first_seq
               FROM wraps w JOIN epochs e ON e.graph = w.graph AND e.epoch = w.epoch
               WHERE w.graph = g.id AND w.member = $2 AND w.device = $3 AND w.epoch > $4
                 AND w.wrap IS NOT NULL
               ORDER BY w.epoch
               LIMIT $5
           ) w ON true
           WHERE g.storage_key = $1
           ORDER BY w.epoch",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8, Type::INT8],
};

/// One device's wraps.
pub(crate) async fn wraps(database: &Database, query: &WrapsQuery) -> StoreResult<WrapsPage> {
    let take = |rows: &[Row]| {
        let epoch = first(rows, |row| number(row, 0))?.unwrap_or(0);
        let mut wraps = Vec::with_capacity(rows.len());
        for row in rows {
            // A graph without a wrap for this device is one row all the same.
            if get::<Option<i64>>(row, 1)?.is_some() {
                wraps.push(Wrap {
                    epoch: number(row, 1)?,
                    wrap: sealed(row, 2)?,
                    by: device_ref(row, 3)?,
                    at: time(row, 5)?,
                    first_seq: number(row, 6)?,
                });
            }
        }
        Ok(WrapsPage { epoch, wraps })
    };
    database
        .find(
            "list a device's wraps",
            &WRAPS,
            &[
                &query.key.as_str(),
                &query.device.member_id.as_str(),
                &query.device.device_id.as_str(),
                &int(query.after),
                &limit(query.limit),
            ],
            take,
        )
        .await
}

const PAST: Sql = Sql {
    text: "SELECT epoch, first_seq, by_member, by_device, fingerprint, devices FROM epochs
           WHERE graph = (SELECT id FROM graphs WHERE storage_key = $1) AND epoch = $2",
    types: &[Type::TEXT, Type::INT8],
};

fn past(row: &Row) -> Work<Epoch> {
    Ok(Epoch {
        epoch: number(row, 0)?,
        first_seq: number(row, 1)?,
        by: device_ref(row, 2)?,
        fingerprint: hash(row, 4)?,
        devices: number(row, 5)?,
    })
}

const BEGIN: Sql = Sql {
    text: "UPDATE graphs SET epoch = $2, revocation_owed = false, directory_owed = false
           WHERE id = $1",
    types: &[Type::INT8, Type::INT8],
};

const INSERT_EPOCH: Sql = Sql {
    text: "INSERT INTO epochs (graph, epoch, first_seq, by_member, by_device, fingerprint, devices)
           VALUES ($1, $2, $3, $4, $5, $6, $7)",
    types: &[
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::BYTEA,
        Type::INT8,
    ],
};

/// Wraps of any epochs: graph, by member, by device, at; epochs, members, devices, wraps.
const INSERT_WRAPS: Sql = Sql {
    text: "INSERT INTO wraps (graph, epoch, member, device, by_member, by_device, at, wrap)
           SELECT $1, v.epoch, v.member, v.device, $2, $3, $4, v.wrap
           FROM unnest($5::bigint[], $6::text[], $7::text[], $8::bytea[])
                AS v (epoch, member, device, wrap)",
    types: &[
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};

const INSERT_HOLDERS: Sql = Sql {
    text: "INSERT INTO holders (graph, member, device)
           SELECT DISTINCT $1::bigint, v.member, v.device
           FROM unnest($2::text[], $3::text[]) AS v (member, device)
           ON CONFLICT DO NOTHING",
    types: &[Type::INT8, Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};

/// Begins an epoch; creates the graph with its first.
pub(crate) async fn rotate(tx: &Tx, request: &Rotate) -> Work<Rotated> {
    let key = request.key.as_str();
    let by = [request.by.member_id.as_str(), request.by.device_id.as_str()];
    let members = devices::members_with(&request.members, &request.by);
    let epoch = int(request.epoch);
    let [held, caller, mut graph, mut begun] = tx
        .send([
            (&devices::HOLD_ROSTER, &[&members, &by[0], &by[1]]),
            (&devices::FIND, &[&by[0], &by[1]]),
            (&graphs::HOLD, &[&key]),
            (&PAST, &[&key, &epoch]),
        ])
        .await?;
    if graph.is_empty() {
        // Its row is there before it is locked, and gone again should this be refused.
        let (low, high) = graphs::pair(&request.key);
        let low = low.as_ref().map(|member| member.as_str());
        let high = high.as_ref().map(|member| member.as_str());
        let created = tx
            .send([
                (
                    &graphs::CREATE,
                    &[&key, &low, &high, &int(request.incarnation)],
                ),
                (&graphs::HOLD, &[&key]),
                (&PAST, &[&key, &epoch]),
            ])
            .await?;
        [_, graph, begun] = created;
    }
    let roster = devices::roster(&held, &request.members)?;
    let caller = first(&caller, devices::from_row)?;
    let graph = first(&graph, graphs::from_row)?;
    let past = first(&begun, past)?;
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
    let Some(graph) = graph else {
        return Err(Failure::Corrupt("a graph that was created is not there"));
    };
    let epochs = vec![epoch; request.wraps.len()];
    let members: Vec<_> = request
        .wraps
        .iter()
        .map(|it| it.member_id.as_str())
        .collect();
    let devices: Vec<_> = request
        .wraps
        .iter()
        .map(|it| it.device_id.as_str())
        .collect();
    let wraps: Vec<_> = request.wraps.iter().map(|it| it.wrap.as_slice()).collect();
    tx.send_and_commit(&[
        (&BEGIN, &[&graph.id, &epoch]),
        (
            &INSERT_EPOCH,
            &[
                &graph.id,
                &epoch,
                &int(begun.first_seq),
                &by[0],
                &by[1],
                &begun.fingerprint.as_slice(),
                &int(begun.devices),
            ],
        ),
        (
            &INSERT_WRAPS,
            &[
                &graph.id,
                &by[0],
                &by[1],
                &request.now.as_millis(),
                &epochs,
                &members,
                &devices,
                &wraps,
            ],
        ),
        (&INSERT_HOLDERS, &[&graph.id, &members, &devices]),
    ])
    .await?;
    Ok(Rotated {
        epoch: begun.epoch,
        first_seq: begun.first_seq,
        devices: begun.devices,
        replay: false,
    })
}

/// The wraps there are for targets: storage key; epochs, members, devices.
const EXISTING: Sql = Sql {
    text: "SELECT w.epoch, w.member, w.device, w.wrap
           FROM unnest($2::bigint[], $3::text[], $4::text[]) AS v (epoch, member, device)
           CROSS JOIN LATERAL (
               SELECT w.epoch, w.member, w.device, w.wrap FROM wraps w
               WHERE w.graph = (SELECT id FROM graphs WHERE storage_key = $1)
                 AND w.epoch = v.epoch AND w.member = v.member AND w.device = v.device
               OFFSET 0
           ) w",
    types: &[
        Type::TEXT,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
    ],
};

/// Gives wraps to devices.
pub(crate) async fn grant(tx: &Tx, request: &Grant) -> Work<Granted> {
    let key = request.key.as_str();
    let by = [request.by.member_id.as_str(), request.by.device_id.as_str()];
    let members = devices::members_with(&request.members, &request.by);
    let targets = Targets::of(request.wraps.iter());
    let [roster, caller, graph, held, existing] = tx
        .send([
            (&devices::HOLD_ROSTER, &[&members, &by[0], &by[1]]),
            (&devices::FIND, &[&by[0], &by[1]]),
            (&graphs::HOLD, &[&key]),
            (&HELD, &[&key, &by[0], &by[1]]),
            (
                &EXISTING,
                &[&key, &targets.epochs, &targets.members, &targets.devices],
            ),
        ])
        .await?;
    let roster = devices::roster(&roster, &request.members)?;
    let roster: BTreeSet<_> = roster.into_iter().collect();
    let caller = first(&caller, devices::from_row)?;
    let graph = first(&graph, graphs::from_row)?;
    let held: BTreeSet<u64> = all(&held, |row| number(row, 0))?;
    let existing: BTreeMap<(u64, DeviceRef), Option<Sealed>> = all(&existing, |row| {
        let target = DeviceRef {
            member_id: text(row, 1)?,
            device_id: text(row, 2)?,
        };
        Ok(((number(row, 0)?, target), maybe_sealed(row, 3)?))
    })?;
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
    let Some(graph) = graph else {
        return Err(Failure::Corrupt(
            "wraps were granted of a graph without a key",
        ));
    };
    if decision.insert.is_empty() {
        return Ok(decision.outcome);
    }
    let granted = || decision.insert.iter().map(|&at| &request.wraps[at]);
    let targets = Targets::of(granted());
    let wraps: Vec<_> = granted().map(|it| it.wrap.as_slice()).collect();
    tx.send_and_commit(&[
        (
            &INSERT_WRAPS,
            &[
                &graph.id,
                &by[0],
                &by[1],
                &request.now.as_millis(),
                &targets.epochs,
                &targets.members,
                &targets.devices,
                &wraps,
            ],
        ),
        (
            &INSERT_HOLDERS,
            &[&graph.id, &targets.members, &targets.devices],
        ),
    ])
    .await?;
    Ok(decision.outcome)
}

/// Whom wraps are for, column by column.
struct Targets<'a> {
    epochs: Vec<i64>,
    members: Vec<&'a str>,
    devices: Vec<&'a str>,
}

impl<'a> Targets<'a> {
    fn of(wraps: impl Iterator<Item = &'a GrantWrap>) -> Self {
        let (mut epochs, mut members, mut devices) = (Vec::new(), Vec::new(), Vec::new());
        for wrap in wraps {
            epochs.push(int(wrap.epoch));
            members.push(wrap.member_id.as_str());
            devices.push(wrap.device_id.as_str());
        }
        Self {
            epochs,
            members,
            devices,
        }
    }
}
