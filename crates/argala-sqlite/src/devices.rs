//! Devices: registering, listing and revoking them.

use std::collections::BTreeSet;

use argala_core::{
    ports::store::{DeviceMark, Register, Registered, Revoke, Revoked},
    rules::{self, Registration},
};
use argala_wire::{
    DeviceId, MemberId, Timestamp,
    devices::{Device, DeviceRef},
};
use rusqlite::{Connection, OptionalExtension, Row, params, types::ValueRef};

use crate::{
    columns::{device_ref, limit, maybe_time, number, sealed, text, texts, time},
    failure::Work,
    rows,
};

/// The columns of [`from_row`], of a table that goes by `d`.
pub(crate) const COLUMNS: &str = "d.member, d.device, d.kind, d.suite, d.encryption_key, \
     d.signing_key, d.label, d.registered_at, d.revoked_at";

/// A device, without the time at which it was last seen.
pub(crate) fn from_row(row: &Row<'_>) -> rusqlite::Result<Device> {
    let label: Option<Vec<u8>> = row.get(6)?;
    Ok(Device {
        member_id: text(row, 0)?,
        device_id: text(row, 1)?,
        kind: text(row, 2)?,
        suite: text(row, 3)?,
        encryption_key: sealed(row, 4)?,
        signing_key: sealed(row, 5)?,
        label: label.map(Into::into),
        registered_at: time(row, 7)?,
        revoked_at: maybe_time(row, 8)?,
        last_seen_at: None,
    })
}

/// One device, revoked or not.
pub(crate) fn find(
    connection: &Connection,
    member: &MemberId,
    device: &DeviceId,
) -> rusqlite::Result<Option<Device>> {
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM devices d WHERE d.member = ?1 AND d.device = ?2"
        ))?
        .query_row([member.as_str(), device.as_str()], from_row)
        .optional()
}

/// The device that makes a request.
pub(crate) fn caller(connection: &Connection, by: &DeviceRef) -> rusqlite::Result<Option<Device>> {
    find(connection, &by.member_id, &by.device_id)
}

/// The active devices of `members`, sorted.
pub(crate) fn roster(
    connection: &Connection,
    members: &[MemberId],
) -> rusqlite::Result<Vec<DeviceRef>> {
    let members: BTreeSet<_> = members.iter().map(MemberId::as_str).collect();
    connection
        .prepare_cached(
            "SELECT d.member, d.device
             FROM rarray(?1) m CROSS JOIN devices d ON d.member = m.value
             WHERE d.revoked_at IS NULL
             ORDER BY d.member, d.device",
        )?
        .query_map([texts(members)], |row| device_ref(row, 0))?
        .collect()
}

/// Registers a device.
pub(crate) fn register(tx: &Connection, request: &Register) -> Work<Registered> {
    let DeviceRef {
        member_id,
        device_id,
    } = &request.device;
    let existing = find(tx, member_id, device_id)?;
    let active = tx
        .prepare_cached("SELECT count(*) FROM devices WHERE member = ?1 AND revoked_at IS NULL")?
        .query_row([member_id.as_str()], |row| number(row, 0))?;
    let registration = rules::register(request, existing.as_ref(), active)?;
    match &registration {
        Registration::Insert(device) => {
            tx.prepare_cached(
                "INSERT INTO devices (member, device, kind, suite, encryption_key, signing_key,
                                      label, registered_at, revoked_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL)",
            )?
            .execute(params![
                member_id.as_str(),
                device_id.as_str(),
                device.kind.as_str(),
                device.suite.as_str(),
                device.encryption_key.as_slice(),
                device.signing_key.as_slice(),
                device.label.as_ref().map(AsRef::<[u8]>::as_ref),
                device.registered_at.as_millis(),
            ])?;
        }
        Registration::Relabel(device) => {
            tx.prepare_cached("UPDATE devices SET label = ?3 WHERE member = ?1 AND device = ?2")?
                .execute(params![
                    member_id.as_str(),
                    device_id.as_str(),
                    device.label.as_ref().map(AsRef::<[u8]>::as_ref),
                ])?;
        }
        Registration::Same(_) => {}
    }
    Ok(registration.into_answer())
}

/// The member's devices after a mark, oldest first, with the times at which they were last seen.
pub(crate) fn of_member(
    connection: &Connection,
    member: &MemberId,
    after: Option<&DeviceMark>,
    at_most: usize,
) -> Work<Vec<Device>> {
    // No device was registered before the earliest of all times, and no id is empty.
    let (time, id) = after.map_or((i64::MIN, ""), |mark| {
        (mark.registered_at.as_millis(), mark.device_id.as_str())
    });
    let devices = connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS}, s.at
             FROM devices d LEFT JOIN last_seen s ON s.member = d.member AND s.device = d.device
             WHERE d.member = ?1 AND (d.registered_at, d.device) > (?2, ?3)
             ORDER BY d.registered_at, d.device
             LIMIT ?4"
        ))?
        .query_map(params![member.as_str(), time, id, limit(at_most)], |row| {
            Ok(Device {
                last_seen_at: maybe_time(row, 9)?,
                ..from_row(row)?
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(devices)
}

/// Revokes a device, flags the graphs whose current key it has, and blanks its wraps.
pub(crate) fn revoke(tx: &Connection, request: &Revoke) -> Work<Revoked> {
    let member = &request.by.member_id;
    let caller = caller(tx, &request.by)?;
    let target = find(tx, member, &request.device_id)?;
    if !rules::revoke(caller.as_ref(), target.as_ref())? {
        return Ok(Revoked {
            fresh: false,
            flagged: Vec::new(),
        });
    }
    let target = [member.as_str(), request.device_id.as_str()];
    tx.prepare_cached("UPDATE devices SET revoked_at = ?3 WHERE member = ?1 AND device = ?2")?
        .execute(params![target[0], target[1], request.now.as_millis()])?;
    let flagged = tx
        .prepare_cached(
            "UPDATE graphs SET revocation_owed = 1
             WHERE id IN (
                 SELECT w.graph FROM wraps w CROSS JOIN graphs g ON g.id = w.graph
                 WHERE w.member = ?1 AND w.device = ?2 AND w.wrap IS NOT NULL
                   AND w.epoch = g.epoch
             )
             RETURNING storage_key",
        )?
        .query_map(target, |row| text(row, 0))?
        .collect::<Result<BTreeSet<_>, _>>()?;
    tx.prepare_cached(
        "UPDATE wraps SET wrap = NULL WHERE member = ?1 AND device = ?2 AND wrap IS NOT NULL",
    )?
    .execute(target)?;
    Ok(Revoked {
        fresh: true,
        flagged: flagged.into_iter().collect(),
    })
}

/// Those of `devices` that are revoked.
pub(crate) fn revoked_among(
    connection: &Connection,
    devices: &BTreeSet<DeviceRef>,
) -> Work<Vec<DeviceRef>> {
    let members: BTreeSet<_> = devices.iter().map(|it| it.member_id.as_str()).collect();
    let mut revoked = connection
        .prepare_cached(
            "SELECT d.member, d.device
             FROM rarray(?1) m CROSS JOIN devices d ON d.member = m.value
             WHERE d.revoked_at IS NOT NULL",
        )?
        .query_map([texts(members)], |row| device_ref(row, 0))?
        .collect::<Result<Vec<_>, _>>()?;
    revoked.retain(|device| devices.contains(device));
    Ok(revoked)
}

/// Notes when devices were last seen, later times only.
pub(crate) fn record_seen(tx: &Connection, seen: &[(DeviceRef, Timestamp)]) -> Work<()> {
    rows::execute(
        tx,
        "INSERT INTO last_seen (member, device, at)
         SELECT column1, column2, column3 FROM {rows} v
         WHERE column1 IS NOT NULL AND EXISTS (
             SELECT 1 FROM devices d WHERE d.member = v.column1 AND d.device = v.column2
         )
         ON CONFLICT (member, device) DO UPDATE SET at = max(at, excluded.at)",
        &[],
        seen,
        |(device, at)| {
            [
                ValueRef::from(device.member_id.as_str()),
                ValueRef::from(device.device_id.as_str()),
                ValueRef::Integer(at.as_millis()),
            ]
        },
    )?;
    Ok(())
}
