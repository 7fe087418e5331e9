//! Graphs: their rows, whose they are, and who holds and should hold their keys.

use std::collections::BTreeSet;

use argala_core::{
    StoreResult,
    ports::store::{
        Counters, Graph, GraphDevicesQuery, GraphListing, GraphsQuery, Holder, Standing,
    },
};
use argala_wire::{MemberId, Owners, StorageKey, devices::Device};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use crate::{
    columns::{all, device_ref, first, get, int, limit, number, text},
    devices,
    failure::{Work, unrefused},
    run::Database,
    session::Sql,
};

/// A graph and the number under which the other tables know it.
#[derive(Debug, Clone)]
pub(crate) struct GraphRow {
    pub(crate) id: i64,
    pub(crate) graph: Graph,
}

/// The columns of [`from_row`], of a table that goes by `g`.
macro_rules! columns {
    () => {
        "g.id, g.storage_key, g.epoch, g.head, g.records, g.tombstones, g.ciphertext_bytes, \
         g.blob_bytes, g.incarnation, g.floor, g.revocation_owed, g.directory_owed"
    };
}
pub(crate) use columns;

/// How many columns those are.
pub(crate) const WIDTH: usize = 12;

pub(crate) fn from_row(row: &Row) -> Work<GraphRow> {
    Ok(GraphRow {
        id: get(row, 0)?,
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
            revocation_owed: get(row, 10)?,
            directory_owed: get(row, 11)?,
        },
    })
}

/// One graph: storage key.
pub(crate) const FIND: Sql = Sql {
    text: concat!(
        "SELECT ",
        columns!(),
        " FROM graphs g WHERE g.storage_key = $1"
    ),
    types: &[Type::TEXT],
};

/// One graph, which nobody else may change until the transaction ends: storage key. What rests on
/// it is read by later statements; its own columns are those that it has once it is locked.
pub(crate) const HOLD: Sql = Sql {
    text: concat!(
        "SELECT ",
        columns!(),
        " FROM graphs g WHERE g.storage_key = $1 FOR NO KEY UPDATE"
    ),
    types: &[Type::TEXT],
};

/// Adds a graph's row, where it is not there: storage key, low, high, incarnation.
pub(crate) const CREATE: Sql = Sql {
    text: "INSERT INTO graphs (storage_key, low, high, epoch, head, records, tombstones,
                               ciphertext_bytes, blob_bytes, incarnation, floor, revocation_owed,
                               directory_owed)
           VALUES ($1, $2, $3, 0, 0, 0, 0, 0, 0, $4, 0, false, false)
           ON CONFLICT (storage_key) DO NOTHING",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8],
};

/// The members of a pair; nobody for a group's graph.
pub(crate) fn pair(key: &StorageKey) -> (Option<MemberId>, Option<MemberId>) {
    match key.owners() {
        Owners::Group(_) => (None, None),
        Owners::Pair(low, high) => (Some(low), Some(high)),
    }
}

macro_rules! of_member {
    ($in_groups:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            ", EXISTS (
                 SELECT 1 FROM wraps w
                 WHERE w.graph = g.id AND w.epoch = g.epoch AND w.member = $1 AND w.device = $2
                   AND w.wrap IS NOT NULL
             )
             FROM (
                 (SELECT id, storage_key FROM graphs WHERE low = $1 AND storage_key > $3
                  ORDER BY storage_key LIMIT $4)
                 UNION
                 (SELECT id, storage_key FROM graphs WHERE high = $1 AND storage_key > $3
                  ORDER BY storage_key LIMIT $4)
                 UNION
                 (SELECT s.id, s.storage_key FROM ",
            $in_groups,
            " WHERE s.storage_key > $3 ORDER BY s.storage_key LIMIT $4)
                 ORDER BY storage_key LIMIT $4
             ) mine JOIN graphs g ON g.id = mine.id
             ORDER BY mine.storage_key"
        )
    };
}

/// A member's graphs, those of the groups that are listed among them.
const OF_MEMBER_LISTED: Sql = Sql {
    text: of_member!(
        "(SELECT DISTINCT k FROM unnest($5::text[]) k) k
         CROSS JOIN LATERAL (
             SELECT s.id, s.storage_key FROM graphs s WHERE s.storage_key = k.k OFFSET 0
         ) s"
    ),
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::TEXT_ARRAY,
    ],
};

/// A member's graphs, those of groups among them of which the member ever held a key.
const OF_MEMBER_HELD: Sql = Sql {
    text: of_member!(
        "(SELECT DISTINCT h.graph FROM holders h WHERE h.member = $1) h
         CROSS JOIN LATERAL (
             SELECT s.id, s.storage_key FROM graphs s
             WHERE s.id = h.graph AND s.low IS NULL OFFSET 0
         ) s"
    ),
    types: &[Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8],
};

/// A member's graphs, by storage key.
pub(crate) async fn of_member(
    database: &Database,
    query: &GraphsQuery,
) -> StoreResult<Vec<GraphListing>> {
    let take = |rows: &[Row]| {
        all(rows, |row| {
            Ok(GraphListing {
                graph: from_row(row)?.graph,
                holds_current: get(row, WIDTH)?,
            })
        })
    };
    const OPERATION: &str = "list a member's graphs";
    let member = query.device.member_id.as_str();
    let device = query.device.device_id.as_str();
    // No key is empty, so all come after that.
    let after = query.after.as_ref().map_or("", StorageKey::as_str);
    let limit = limit(query.limit);
    match &query.groups {
        None => {
            let args: [&(dyn ToSql + Sync); 4] = [&member, &device, &after, &limit];
            database.find(OPERATION, &OF_MEMBER_HELD, &args, take).await
        }
        Some(groups) => {
            let keys: Vec<_> = groups.iter().map(StorageKey::group).collect();
            let keys: Vec<_> = keys.iter().map(StorageKey::as_str).collect();
            let args: [&(dyn ToSql + Sync); 5] = [&member, &device, &after, &limit, &keys];
            database
                .find(OPERATION, &OF_MEMBER_LISTED, &args, take)
                .await
        }
    }
}

/// Who was given a wrap of a graph's current epoch, and whether they are revoked: storage key.
const HOLDERS: Sql = Sql {
    text: "SELECT w.member, w.device, d.revoked_at IS NOT NULL
           FROM (SELECT id, epoch FROM graphs WHERE storage_key = $1) g
           JOIN wraps w ON w.graph = g.id AND w.epoch = g.epoch
           JOIN devices d ON d.member = w.member AND d.device = w.device
           ORDER BY w.member, w.device",
    types: &[Type::TEXT],
};

/// A graph, the holders of its current epoch and the active devices of `members`.
pub(crate) async fn standing(
    database: &Database,
    key: &StorageKey,
    members: &[MemberId],
) -> StoreResult<Option<Standing>> {
    let key = key.as_str();
    let members: BTreeSet<_> = members.iter().map(MemberId::as_str).collect();
    let members: Vec<_> = members.into_iter().collect();
    let standing = database
        .snapshot(
            "tell a graph's standing",
            [
                (&FIND, &[&key]),
                (&HOLDERS, &[&key]),
                (&devices::ROSTER, &[&members]),
            ],
            |[graph, holders, roster]| {
                let Some(graph) = first(&graph, from_row)? else {
                    return Ok(None);
                };
                let holders = all(&holders, |row| {
                    Ok(Holder {
                        device: device_ref(row, 0)?,
                        revoked: get(row, 2)?,
                    })
                })?;
                Ok(Some(Standing {
                    graph: graph.graph,
                    holders,
                    roster: all(&roster, |row| device_ref(row, 0))?,
                }))
            },
        )
        .await;
    unrefused(standing)
}

/// Each part is cut to a page of its own before the two are merged.
const DEVICES_OF: Sql = Sql {
    text: concat!(
        "SELECT ",
        devices::columns!(),
        " FROM (
             (SELECT d.member, d.device FROM devices d
              WHERE d.member = ANY($1) AND d.revoked_at IS NULL
                AND (d.member, d.device) > ($2, $3)
              ORDER BY d.member, d.device
              LIMIT $4)
             UNION
             (SELECT h.member, h.device FROM holders h
              WHERE $5 AND h.graph = (SELECT id FROM graphs WHERE storage_key = $6)
                AND (h.member, h.device) > ($2, $3)
              ORDER BY h.member, h.device
              LIMIT $4)
             ORDER BY member, device
             LIMIT $4
         ) p JOIN devices d ON d.member = p.member AND d.device = p.device
         ORDER BY d.member, d.device"
    ),
    types: &[
        Type::TEXT_ARRAY,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::BOOL,
        Type::TEXT,
    ],
};

/// The devices of a graph: the roster and, where asked for, all that ever held a wrap of it.
pub(crate) async fn devices_of(
    database: &Database,
    query: &GraphDevicesQuery,
) -> StoreResult<Vec<Device>> {
    // No id is empty, so all come after that.
    let after = query.after.as_ref();
    let member = after.map_or("", |it| it.member_id.as_str());
    let device = after.map_or("", |it| it.device_id.as_str());
    let members: BTreeSet<_> = query.members.iter().map(MemberId::as_str).collect();
    let members: Vec<_> = members.into_iter().collect();
    database
        .find(
            "list a graph's devices",
            &DEVICES_OF,
            &[
                &members,
                &member,
                &device,
                &limit(query.limit),
                &query.former,
                &query.key.as_str(),
            ],
            |rows| all(rows, devices::from_row),
        )
        .await
}

const FLAG_DIRECTORY: Sql = Sql {
    text: "UPDATE graphs SET directory_owed = $3
           WHERE storage_key = $1 AND epoch = $2 AND directory_owed <> $3",
    types: &[Type::TEXT, Type::INT8, Type::BOOL],
};

/// Stores what the directory owes, unless the graph's epoch is another by now.
pub(crate) async fn flag_directory(
    database: &Database,
    key: &StorageKey,
    epoch: u64,
    owed: bool,
) -> StoreResult<()> {
    // A statement that waits for the row looks at its conditions again before it writes.
    database
        .change(
            "note what the directory owes",
            &FLAG_DIRECTORY,
            &[&key.as_str(), &int(epoch), &owed],
            |_| Ok(()),
        )
        .await
}
