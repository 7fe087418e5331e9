//! Devices: registering, listing and revoking them.

use std::collections::{BTreeMap, BTreeSet};

use argala_core::{
    ports::store::{DeviceMark, Register, Registered, Revoke, Revoked},
    rules::{self, Registration},
};
use argala_wire::{
    MemberId, Timestamp,
    devices::{Device, DeviceRef},
};
use tokio_postgres::{Row, types::Type};

use crate::{
    columns::{
        all, device_ref, first, get, limit, maybe_sealed, maybe_time, number, sealed, text, time,
    },
    failure::Work,
    run::Database,
    session::{Sql, Tx},
};

/// The columns of [`from_row`], of a table that goes by `d`.
macro_rules! columns {
    () => {
        "d.member, d.device, d.kind, d.suite, d.encryption_key, d.signing_key, d.label, \
         d.registered_at, d.revoked_at"
    };
}
pub(crate) use columns;

/// How many columns those are.
pub(crate) const WIDTH: usize = 9;

/// A device, without the time at which it was last seen.
pub(crate) fn from_row(row: &Row) -> Work<Device> {
    Ok(Device {
        member_id: text(row, 0)?,
        device_id: text(row, 1)?,
        kind: text(row, 2)?,
        suite: text(row, 3)?,
        encryption_key: sealed(row, 4)?,
        signing_key: sealed(row, 5)?,
        label: maybe_sealed(row, 6)?,
        registered_at: time(row, 7)?,
        revoked_at: maybe_time(row, 8)?,
        last_seen_at: None,
    })
}

/// One device: member, device.
pub(crate) const FIND: Sql = Sql {
    text: concat!(
        "SELECT ",
        columns!(),
        " FROM devices d WHERE d.member = $1 AND d.device = $2"
    ),
    types: &[Type::TEXT, Type::TEXT],
};

/// One device, which stays as it is until the transaction ends: member, device.
pub(crate) const FIND_AND_HOLD: Sql = Sql {
    text: concat!(
        "SELECT ",
        columns!(),
        " FROM devices d WHERE d.member = $1 AND d.device = $2 FOR SHARE"
    ),
    types: &[Type::TEXT, Type::TEXT],
};

/// Devices that stay as they are until the transaction ends: the active ones of members, and one
/// more, active or not: members, member, device.
///
/// The rows are locked in their order: what locks stands above what sorts.
pub(crate) const HOLD_ROSTER: Sql = Sql {
    text: "SELECT d.member, d.device, d.revoked_at IS NULL
           FROM devices d
           WHERE d.member = ANY($1)
             AND (d.revoked_at IS NULL OR (d.member = $2 AND d.device = $3))
           ORDER BY d.member, d.device
           FOR SHARE",
    types: &[Type::TEXT_ARRAY, Type::TEXT, Type::TEXT],
};

/// The active devices of members, sorted: members.
pub(crate) const ROSTER: Sql = Sql {
    text: "SELECT d.member, d.device FROM devices d
           WHERE d.member = ANY($1) AND d.revoked_at IS NULL
           ORDER BY d.member, d.device",
    types: &[Type::TEXT_ARRAY],
};

/// The members whose devices a decision about `members` by `by` rests on, once each.
pub(crate) fn members_with<'a>(members: &'a [MemberId], by: &'a DeviceRef) -> Vec<&'a str> {
    let members = members.iter().chain([&by.member_id]).map(MemberId::as_str);
    members.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The roster out of the rows of [`HOLD_ROSTER`]: the active devices of `members`.
pub(crate) fn roster(rows: &[Row], members: &[MemberId]) -> Work<Vec<DeviceRef>> {
    let members: BTreeSet<_> = members.iter().map(MemberId::as_str).collect();
    let mut roster = Vec::with_capacity(rows.len());
    for row in rows {
        // The caller's own member may not be of them.
        if get(row, 2)? && members.contains(get::<&str>(row, 0)?) {
            roster.push(device_ref(row, 0)?);
        }
    }
    Ok(roster)
}

/// Lets one registration of a member's at a time through. A first device has no row to lock.
const TURN: Sql = Sql {
    text: "SELECT pg_advisory_xact_lock(1, hashtext($1))",
    types: &[Type::TEXT],
};

const COUNT_ACTIVE: Sql = Sql {
    text: "SELECT count(*) FROM devices WHERE member = $1 AND revoked_at IS NULL",
    types: &[Type::TEXT],
};

const INSERT: Sql = Sql {
    text: "INSERT INTO devices (member, device, kind, suite, encryption_key, signing_key, label,
                                registered_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::BYTEA,
        Type::BYTEA,
        Type::BYTEA,
        Type::INT8,
    ],
};

const RELABEL: Sql = Sql {
    text: "UPDATE devices SET label = $3 WHERE member = $1 AND device = $2",
    types: &[Type::TEXT, Type::TEXT, Type::BYTEA],
};

/// Registers a device.
pub(crate) async fn register(tx: &Tx, request: &Register) -> Work<Registered> {
    let member = request.device.member_id.as_str();
    let id = request.device.device_id.as_str();
    let [_, existing, active] = tx
        .send([
            (&TURN, &[&member]),
            (&FIND_AND_HOLD, &[&member, &id]),
            (&COUNT_ACTIVE, &[&member]),
        ])
        .await?;
    let existing = first(&existing, from_row)?;
    let active = first(&active, |row| number(row, 0))?.unwrap_or(0);
    let registration = rules::register(request, existing.as_ref(), active)?;
    match &registration {
        Registration::Insert(device) => {
            tx.send_and_commit(&[(
                &INSERT,
                &[
                    &member,
                    &id,
                    &device.kind.as_str(),
                    &device.suite.as_str(),
                    &device.encryption_key.as_slice(),
                    &device.signing_key.as_slice(),
                    &device.label.as_ref().map(AsRef::<[u8]>::as_ref),
                    &device.registered_at.as_millis(),
                ],
            )])
            .await?;
        }
        Registration::Relabel(device) => {
            let label = device.label.as_ref().map(AsRef::<[u8]>::as_ref);
            tx.send_and_commit(&[(&RELABEL, &[&member, &id, &label])])
                .await?;
        }
        Registration::Same(_) => {}
    }
    Ok(registration.into_answer())
}

const OF_MEMBER: Sql = Sql {
    text: concat!(
        "SELECT ",
        columns!(),
        ", s.at
         FROM devices d LEFT JOIN last_seen s ON s.member = d.member AND s.device = d.device
         WHERE d.member = $1 AND (d.registered_at, d.device) > ($2, $3)
         ORDER BY d.registered_at, d.device
         LIMIT $4"
    ),
    types: &[Type::TEXT, Type::INT8, Type::TEXT, Type::INT8],
};

/// The member's devices after a mark, oldest first, with the times at which they were last seen.
pub(crate) async fn of_member(
    database: &Database,
    member: &MemberId,
    after: Option<&DeviceMark>,
    at_most: usize,
) -> argala_core::StoreResult<Vec<Device>> {
    // No device was registered before the earliest of all times, and no id is empty.
    let (time, id) = after.map_or((i64::MIN, ""), |mark| {
        (mark.registered_at.as_millis(), mark.device_id.as_str())
    });
    database
        .find(
            "list a member's devices",
            &OF_MEMBER,
            &[&member.as_str(), &time, &id, &limit(at_most)],
            |rows| {
                all(rows, |row| {
                    Ok(Device {
                        last_seen_at: maybe_time(row, WIDTH)?,
                        ..from_row(row)?
                    })
                })
            },
        )
        .await
}

/// Two devices of a member, which nobody else may touch until the transaction ends.
const HOLD_TWO: Sql = Sql {
    text: concat!(
        "SELECT ",
        columns!(),
        " FROM devices d WHERE d.member = $1 AND d.device IN ($2, $3)
         ORDER BY d.member, d.device
         FOR NO KEY UPDATE"
    ),
    types: &[Type::TEXT, Type::TEXT, Type::TEXT],
};

/// The graphs of which a device was ever given a wrap, locked in their order. The device's row is
/// locked before: no grant can add another.
const HOLD_GRAPHS: Sql = Sql {
    text: "SELECT g.id FROM graphs g
           WHERE g.id IN (SELECT h.graph FROM holders h WHERE h.member = $1 AND h.device = $2)
           ORDER BY g.storage_key
           FOR NO KEY UPDATE",
    types: &[Type::TEXT, Type::TEXT],
};

const FLAG: Sql = Sql {
    text: "UPDATE graphs g SET revocation_owed = true
           WHERE g.id = ANY($3) AND EXISTS (
               SELECT 1 FROM wraps w
               WHERE w.graph = g.id AND w.epoch = g.epoch AND w.member = $1 AND w.device = $2
                 AND w.wrap IS NOT NULL
           )
           RETURNING g.storage_key",
    types: &[Type::TEXT, Type::TEXT, Type::INT8_ARRAY],
};

const BLANK: Sql = Sql {
    text: "UPDATE wraps SET wrap = NULL
           WHERE graph = ANY($3) AND member = $1 AND device = $2 AND wrap IS NOT NULL",
    types: &[Type::TEXT, Type::TEXT, Type::INT8_ARRAY],
};

const STAMP: Sql = Sql {
    text: "UPDATE devices SET revoked_at = $3 WHERE member = $1 AND device = $2",
    types: &[Type::TEXT, Type::TEXT, Type::INT8],
};

/// Revokes a device, flags the graphs whose current key it has, and blanks its wraps.
pub(crate) async fn revoke(tx: &Tx, request: &Revoke) -> Work<Revoked> {
    let member = request.by.member_id.as_str();
    let (by, id) = (request.by.device_id.as_str(), request.device_id.as_str());
    let [held] = tx.send([(&HOLD_TWO, &[&member, &by, &id])]).await?;
    let held: Vec<Device> = all(&held, from_row)?;
    let find = |id: &str| held.iter().find(|device| device.device_id.as_str() == id);
    if !rules::revoke(find(by), find(id))? {
        return Ok(Revoked {
            fresh: false,
            flagged: Vec::new(),
        });
    }
    let [graphs] = tx.send([(&HOLD_GRAPHS, &[&member, &id])]).await?;
    let graphs: Vec<i64> = all(&graphs, |row| get(row, 0))?;
    let written = tx
        .send_and_commit(&[
            (&FLAG, &[&member, &id, &graphs]),
            (&BLANK, &[&member, &id, &graphs]),
            (&STAMP, &[&member, &id, &request.now.as_millis()]),
        ])
        .await?;
    let flagged: BTreeSet<_> = all(&written[0], |row| text(row, 0))?;
    Ok(Revoked {
        fresh: true,
        flagged: flagged.into_iter().collect(),
    })
}

const REVOKED_OF: Sql = Sql {
    text: "SELECT d.member, d.device FROM devices d
           WHERE d.member = ANY($1) AND d.revoked_at IS NOT NULL",
    types: &[Type::TEXT_ARRAY],
};

/// Those of `devices` that are revoked.
pub(crate) async fn revoked_among(
    database: &Database,
    devices: &[DeviceRef],
) -> argala_core::StoreResult<Vec<DeviceRef>> {
    let devices: BTreeSet<_> = devices.iter().collect();
    let members: BTreeSet<_> = devices.iter().map(|it| it.member_id.as_str()).collect();
    let members: Vec<_> = members.into_iter().collect();
    let mut revoked: Vec<DeviceRef> = database
        .find("find revoked devices", &REVOKED_OF, &[&members], |rows| {
            all(rows, |row| device_ref(row, 0))
        })
        .await?;
    revoked.retain(|device| devices.contains(device));
    Ok(revoked)
}

/// In one order, in which replicas that note the same devices lock them.
const SEEN: Sql = Sql {
    text: "INSERT INTO last_seen AS s (member, device, at)
           SELECT v.* FROM unnest($1::text[], $2::text[], $3::bigint[]) AS v (member, device, at)
           JOIN devices d ON d.member = v.member AND d.device = v.device
           ORDER BY v.member, v.device
           ON CONFLICT (member, device) DO UPDATE SET at = excluded.at WHERE s.at < excluded.at",
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY],
};

/// Notes when devices were last seen, later times only. Those that are not there, or no more, are
/// passed over.
pub(crate) async fn record_seen(tx: &Tx, seen: &[(DeviceRef, Timestamp)]) -> Work<()> {
    // Each once: one statement cannot change a row twice.
    let mut latest = BTreeMap::new();
    for (device, at) in seen {
        let latest = latest.entry(device).or_insert(*at);
        *latest = (*latest).max(*at);
    }
    let members: Vec<_> = latest.keys().map(|it| it.member_id.as_str()).collect();
    let devices: Vec<_> = latest.keys().map(|it| it.device_id.as_str()).collect();
    let times: Vec<_> = latest.values().map(|at| at.as_millis()).collect();
    tx.send_and_commit(&[(&SEEN, &[&members, &devices, &times])])
        .await?;
    Ok(())
}
