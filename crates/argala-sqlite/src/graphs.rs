//! Graphs: their rows, whose they are, and who holds and should hold their keys.

use argala_core::ports::store::{
    Counters, Graph, GraphDevicesQuery, GraphListing, GraphsQuery, Holder, Standing,
};
use argala_wire::{MemberId, Owners, StorageKey, devices::Device};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, named_params, params};

use crate::{
    columns::{device_ref, int, limit, number, text, texts},
    devices,
    failure::Work,
};

/// A graph and the number under which the other tables know it.
#[derive(Debug, Clone)]
pub(crate) struct GraphRow {
    pub(crate) id: i64,
    pub(crate) graph: Graph,
}

/// The columns of [`from_row`], of a table that goes by `g`.
const COLUMNS: &str = "g.id, g.storage_key, g.epoch, g.head, g.records, g.tombstones, \
     g.ciphertext_bytes, g.blob_bytes, g.incarnation, g.floor, g.revocation_owed, \
     g.directory_owed";

fn from_row(row: &Row<'_>) -> rusqlite::Result<GraphRow> {
    Ok(GraphRow {
        id: row.get(0)?,
        graph: Graph {
            key: text(row, 1)?,
            epoch: number(row, 2)?,
            head: number(row, 3)?,
            counters: Counters {
                records: number(row, 4)?,
                tombstones: number(row, 5)?,
                ciphertext_bytes: number(row, 6)?,
                blob_bytes: number(row, 7)?,
            },
            incarnation: number(row, 8)?,
            floor: number(row, 9)?,
            revocation_owed: row.get(10)?,
            directory_owed: row.get(11)?,
        },
    })
}

/// One graph; `None` until its first rotate.
pub(crate) fn find(
    connection: &Connection,
    key: &StorageKey,
) -> rusqlite::Result<Option<GraphRow>> {
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM graphs g WHERE g.storage_key = ?1"
        ))?
        .query_row([key.as_str()], from_row)
        .optional()
}

/// Adds a graph's row, and returns its number.
pub(crate) fn create(tx: &Connection, graph: &Graph) -> rusqlite::Result<i64> {
    let pair = match graph.key.owners() {
        Owners::Group(_) => None,
        Owners::Pair(low, high) => Some((low, high)),
    };
    tx.prepare_cached(
        "INSERT INTO graphs (storage_key, low, high, epoch, head, records, tombstones,
                             ciphertext_bytes, blob_bytes, incarnation, floor, revocation_owed,
                             directory_owed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         RETURNING id",
    )?
    .query_row(
        params![
            graph.key.as_str(),
            pair.as_ref().map(|pair| pair.0.as_str()),
            pair.as_ref().map(|pair| pair.1.as_str()),
            int(graph.epoch),
            int(graph.head),
            int(graph.counters.records),
            int(graph.counters.tombstones),
            int(graph.counters.ciphertext_bytes),
            int(graph.counters.blob_bytes),
            int(graph.incarnation),
            int(graph.floor),
            graph.revocation_owed,
            graph.directory_owed,
        ],
        |row| row.get(0),
    )
}

/// A member's graphs, by storage key.
pub(crate) fn of_member(connection: &Connection, query: &GraphsQuery) -> Work<Vec<GraphListing>> {
    let groups = query
        .groups
        .as_ref()
        .map(|groups| groups.iter().map(StorageKey::group).collect::<Vec<_>>());
    let in_groups = match &groups {
        Some(_) => "rarray(:groups) k CROSS JOIN graphs g ON g.storage_key = k.value",
        None => {
            "holders h CROSS JOIN graphs g ON g.id = h.graph
             WHERE h.member = :member AND g.low IS NULL"
        }
    };
    let sql = format!(
        "SELECT {COLUMNS}, EXISTS (
             SELECT 1 FROM wraps w
             WHERE w.member = :member AND w.device = :device AND w.graph = g.id
               AND w.epoch = g.epoch AND w.wrap IS NOT NULL
         )
         FROM (
             SELECT id, storage_key FROM graphs WHERE low = :member
             UNION SELECT id, storage_key FROM graphs WHERE high = :member
             UNION SELECT g.id, g.storage_key FROM {in_groups}
         ) mine CROSS JOIN graphs g ON g.id = mine.id
         WHERE mine.storage_key > :after
         ORDER BY mine.storage_key
         LIMIT :limit"
    );
    // No key is empty, so all come after that.
    let after = query.after.as_ref().map_or("", StorageKey::as_str);
    let (member, device) = (&query.device.member_id, &query.device.device_id);
    let (member, device, limit) = (member.as_str(), device.as_str(), limit(query.limit));
    let groups = groups.map(|groups| texts(groups.iter().map(StorageKey::as_str)));
    let mut parameters: Vec<(&str, &dyn ToSql)> = named_params! {
        ":member": member, ":device": device, ":after": after, ":limit": limit,
    }
    .to_vec();
    if let Some(groups) = &groups {
        parameters.push((":groups", groups));
    }
    let listings = connection
        .prepare_cached(&sql)?
        .query_map(&parameters[..], |row| {
            Ok(GraphListing {
                graph: from_row(row)?.graph,
                holds_current: row.get(12)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(listings)
}

/// A graph, the holders of its current epoch and the active devices of `members`.
pub(crate) fn standing(
    connection: &Connection,
    key: &StorageKey,
    members: &[MemberId],
) -> Work<Option<Standing>> {
    let Some(GraphRow { id, graph }) = find(connection, key)? else {
        return Ok(None);
    };
    let holders = connection
        .prepare_cached(
            "SELECT w.member, w.device, d.revoked_at IS NOT NULL
             FROM wraps w CROSS JOIN devices d ON d.member = w.member AND d.device = w.device
             WHERE w.graph = ?1 AND w.epoch = ?2
             ORDER BY w.member, w.device",
        )?
        .query_map(params![id, int(graph.epoch)], |row| {
            Ok(Holder {
                device: device_ref(row, 0)?,
                revoked: row.get(2)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(Some(Standing {
        graph,
        holders,
        roster: devices::roster(connection, members)?,
    }))
}

/// The devices of a graph: the roster and, where asked for, all that ever held a wrap of it.
pub(crate) fn devices_of(connection: &Connection, query: &GraphDevicesQuery) -> Work<Vec<Device>> {
    // Each part is cut to a page of its own before the two are merged. No id is empty, so all
    // come after that.
    let sql = format!(
        "SELECT {} FROM (
             SELECT member, device FROM (
                 SELECT d.member, d.device
                 FROM rarray(:members) m CROSS JOIN devices d ON d.member = m.value
                 WHERE d.revoked_at IS NULL AND (d.member, d.device) > (:member, :device)
                 ORDER BY d.member, d.device
                 LIMIT :limit
             )
             UNION
             SELECT member, device FROM (
                 SELECT h.member, h.device FROM graphs g CROSS JOIN holders h ON h.graph = g.id
                 WHERE :former AND g.storage_key = :key
                   AND (h.member, h.device) > (:member, :device)
                 ORDER BY h.member, h.device
                 LIMIT :limit
             )
             ORDER BY member, device
             LIMIT :limit
         ) p CROSS JOIN devices d ON d.member = p.member AND d.device = p.device
         ORDER BY d.member, d.device",
        devices::COLUMNS
    );
    let after = query.after.as_ref();
    let members: std::collections::BTreeSet<_> =
        query.members.iter().map(MemberId::as_str).collect();
    let devices = connection
        .prepare_cached(&sql)?
        .query_map(
            named_params! {
                ":members": texts(members),
                ":member": after.map_or("", |it| it.member_id.as_str()),
                ":device": after.map_or("", |it| it.device_id.as_str()),
                ":former": query.former,
                ":key": query.key.as_str(),
                ":limit": limit(query.limit),
            },
            devices::from_row,
        )?
        .collect::<Result<_, _>>()?;
    Ok(devices)
}

/// Stores what the directory owes, unless the graph's epoch is another by now.
pub(crate) fn flag_directory(
    tx: &Connection,
    key: &StorageKey,
    epoch: u64,
    owed: bool,
) -> Work<()> {
    tx.prepare_cached(
        "UPDATE graphs SET directory_owed = ?3
         WHERE storage_key = ?1 AND epoch = ?2 AND directory_owed <> ?3",
    )?
    .execute(params![key.as_str(), int(epoch), owed])?;
    Ok(())
}
