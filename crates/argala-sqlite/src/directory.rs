//! The directory that the relay keeps itself, for hosts that have none.

use std::collections::BTreeSet;

use argala_core::{
    StoreResult,
    ports::{Directory, DirectoryTables},
};
use argala_wire::{GroupId, MemberId};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    Sqlite,
    columns::{limit, text, texts},
    failure::{Work, unrefused},
};

/// Whether `sql` finds a row.
fn exists(connection: &Connection, sql: &str, ids: &[&str]) -> Work<bool> {
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.exists(rusqlite::params_from_iter(ids))?)
}

/// Whether `sql` changes a row.
fn changes(tx: &Connection, sql: &str, ids: &[&str]) -> Work<bool> {
    let mut statement = tx.prepare_cached(sql)?;
    Ok(statement.execute(rusqlite::params_from_iter(ids))? > 0)
}

#[async_trait]
impl Directory for Sqlite {
    async fn members_of_group(&self, group: &GroupId) -> StoreResult<Vec<MemberId>> {
        let group = group.clone();
        let work = move |connection: &Connection| {
            let members = connection
                .prepare_cached(
                    "SELECT member FROM group_members WHERE group_id = ?1 ORDER BY member",
                )?
                .query_map([group.as_str()], |row| text(row, 0))?
                .collect::<Result<_, _>>()?;
            Ok(members)
        };
        unrefused(self.read("the members of a group", work).await)
    }

    async fn is_group_member(&self, group: &GroupId, member: &MemberId) -> StoreResult<bool> {
        let (group, member) = (group.clone(), member.clone());
        let work = move |connection: &Connection| {
            exists(
                connection,
                "SELECT 1 FROM group_members WHERE group_id = ?1 AND member = ?2",
                &[group.as_str(), member.as_str()],
            )
        };
        unrefused(self.read("whether a member is of a group", work).await)
    }

    async fn is_active_member(&self, member: &MemberId) -> StoreResult<bool> {
        let member = member.clone();
        let work = move |connection: &Connection| {
            exists(
                connection,
                "SELECT 1 FROM members WHERE member = ?1 AND active",
                &[member.as_str()],
            )
        };
        unrefused(self.read("whether a member is active", work).await)
    }

    async fn groups_of_member(&self, member: &MemberId) -> StoreResult<Option<Vec<GroupId>>> {
        let member = member.clone();
        let work = move |connection: &Connection| {
            let groups = connection
                .prepare_cached(
                    "SELECT group_id FROM group_members WHERE member = ?1 ORDER BY group_id",
                )?
                .query_map([member.as_str()], |row| text(row, 0))?
                .collect::<Result<_, _>>()?;
            Ok(Some(groups))
        };
        unrefused(self.read("the groups of a member", work).await)
    }

    async fn active_members(&self, members: &[MemberId]) -> StoreResult<Vec<MemberId>> {
        let members = members.to_vec();
        let work = move |connection: &Connection| {
            let asked: BTreeSet<_> = members.iter().map(MemberId::as_str).collect();
            let active = connection
                .prepare_cached(
                    "SELECT m.member
                     FROM rarray(?1) v CROSS JOIN members m ON m.member = v.value
                     WHERE m.active",
                )?
                .query_map([texts(asked)], |row| text(row, 0))?
                .collect::<Result<_, _>>()?;
            Ok(active)
        };
        unrefused(self.read("which members are active", work).await)
    }
}

#[async_trait]
impl DirectoryTables for Sqlite {
    async fn add_member(&self, member: &MemberId) -> StoreResult<bool> {
        let member = member.clone();
        let work = move |tx: &Connection| {
            changes(
                tx,
                "INSERT INTO members (member, active) VALUES (?1, 1)
                 ON CONFLICT (member) DO UPDATE SET active = 1 WHERE NOT active",
                &[member.as_str()],
            )
        };
        unrefused(self.write("add a member", work).await)
    }

    async fn remove_member(&self, member: &MemberId) -> StoreResult<bool> {
        let member = member.clone();
        let work = move |tx: &Connection| {
            changes(
                tx,
                "UPDATE members SET active = 0 WHERE member = ?1 AND active",
                &[member.as_str()],
            )
        };
        unrefused(self.write("remove a member", work).await)
    }

    async fn list_members(
        &self,
        after: Option<&MemberId>,
        at_most: usize,
    ) -> StoreResult<Vec<(MemberId, bool)>> {
        let after = after.cloned();
        let work = move |connection: &Connection| {
            // No id is empty, so all come after that.
            let after = after.as_ref().map_or("", MemberId::as_str);
            let members = connection
                .prepare_cached(
                    "SELECT member, active FROM members WHERE member > ?1
                     ORDER BY member LIMIT ?2",
                )?
                .query_map(params![after, limit(at_most)], |row| {
                    Ok((text(row, 0)?, row.get(1)?))
                })?
                .collect::<Result<_, _>>()?;
            Ok(members)
        };
        unrefused(self.read("list members", work).await)
    }

    async fn create_group(&self, group: &GroupId) -> StoreResult<bool> {
        let group = group.clone();
        let work = move |tx: &Connection| {
            changes(
                tx,
                "INSERT INTO member_groups (group_id) VALUES (?1) ON CONFLICT DO NOTHING",
                &[group.as_str()],
            )
        };
        unrefused(self.write("create a group", work).await)
    }

    async fn join_group(&self, group: &GroupId, member: &MemberId) -> StoreResult<Option<bool>> {
        let (group, member) = (group.clone(), member.clone());
        let work = move |tx: &Connection| {
            let both = tx
                .prepare_cached(
                    "SELECT 1 FROM members m CROSS JOIN member_groups g
                     WHERE m.member = ?1 AND g.group_id = ?2",
                )?
                .query_row([member.as_str(), group.as_str()], |_| Ok(()))
                .optional()?;
            if both.is_none() {
                return Ok(None);
            }
            changes(
                tx,
                "INSERT INTO group_members (group_id, member) VALUES (?1, ?2)
                 ON CONFLICT DO NOTHING",
                &[group.as_str(), member.as_str()],
            )
            .map(Some)
        };
        unrefused(self.write("join a group", work).await)
    }

    async fn leave_group(&self, group: &GroupId, member: &MemberId) -> StoreResult<bool> {
        let (group, member) = (group.clone(), member.clone());
        let work = move |tx: &Connection| {
            changes(
                tx,
                "DELETE FROM group_members WHERE group_id = ?1 AND member = ?2",
                &[group.as_str(), member.as_str()],
            )
        };
        unrefused(self.write("leave a group", work).await)
    }

    async fn list_groups(
        &self,
        after: Option<&GroupId>,
        at_most: usize,
    ) -> StoreResult<Vec<GroupId>> {
        let after = after.cloned();
        let work = move |connection: &Connection| {
            // No id is empty, so all come after that.
            let after = after.as_ref().map_or("", GroupId::as_str);
            let groups = connection
                .prepare_cached(
                    "SELECT group_id FROM member_groups WHERE group_id > ?1
                     ORDER BY group_id LIMIT ?2",
                )?
                .query_map(params![after, limit(at_most)], |row| text(row, 0))?
                .collect::<Result<_, _>>()?;
            Ok(groups)
        };
        unrefused(self.read("list groups", work).await)
    }
}
