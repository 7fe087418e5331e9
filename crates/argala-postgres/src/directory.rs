//! The directory that the relay keeps itself, for hosts that have none.

use std::collections::BTreeSet;

use argala_core::{
    StoreResult,
    ports::{Directory, DirectoryTables},
};
use argala_wire::{GroupId, MemberId};
use async_trait::async_trait;
use tokio_postgres::{Row, types::Type};

use crate::{
    Postgres,
    columns::{all, first, get, limit, text},
    failure::Work,
    session::{Sql, Tx},
};

const MEMBERS_OF_GROUP: Sql = Sql {
    text: "SELECT member FROM group_members WHERE group_id = $1 ORDER BY member",
    types: &[Type::TEXT],
};

const IS_GROUP_MEMBER: Sql = Sql {
    text: "SELECT 1 FROM group_members WHERE group_id = $1 AND member = $2",
    types: &[Type::TEXT, Type::TEXT],
};

const IS_ACTIVE: Sql = Sql {
    text: "SELECT 1 FROM members WHERE member = $1 AND active",
    types: &[Type::TEXT],
};

const GROUPS_OF_MEMBER: Sql = Sql {
    text: "SELECT group_id FROM group_members WHERE member = $1 ORDER BY group_id",
    types: &[Type::TEXT],
};

const ACTIVE_AMONG: Sql = Sql {
    text: "SELECT member FROM members WHERE member = ANY($1) AND active",
    types: &[Type::TEXT_ARRAY],
};

const ADD_MEMBER: Sql = Sql {
    text: "INSERT INTO members AS m (member, active) VALUES ($1, true)
           ON CONFLICT (member) DO UPDATE SET active = true WHERE NOT m.active
           RETURNING 1",
    types: &[Type::TEXT],
};

const REMOVE_MEMBER: Sql = Sql {
    text: "UPDATE members SET active = false WHERE member = $1 AND active RETURNING 1",
    types: &[Type::TEXT],
};

const LIST_MEMBERS: Sql = Sql {
    text: "SELECT member, active FROM members WHERE member > $1 ORDER BY member LIMIT $2",
    types: &[Type::TEXT, Type::INT8],
};

const CREATE_GROUP: Sql = Sql {
    text: "INSERT INTO member_groups (group_id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1",
    types: &[Type::TEXT],
};

/// Both, which nobody can take away until the transaction ends.
const HOLD_BOTH: Sql = Sql {
    text: "SELECT 1 FROM members m CROSS JOIN member_groups g
           WHERE m.member = $1 AND g.group_id = $2
           FOR KEY SHARE",
    types: &[Type::TEXT, Type::TEXT],
};

const JOIN: Sql = Sql {
    text: "INSERT INTO group_members (member, group_id) VALUES ($1, $2)
           ON CONFLICT DO NOTHING RETURNING 1",
    types: &[Type::TEXT, Type::TEXT],
};

const LEAVE: Sql = Sql {
    text: "DELETE FROM group_members WHERE group_id = $1 AND member = $2 RETURNING 1",
    types: &[Type::TEXT, Type::TEXT],
};

const LIST_GROUPS: Sql = Sql {
    text: "SELECT group_id FROM member_groups WHERE group_id > $1 ORDER BY group_id LIMIT $2",
    types: &[Type::TEXT, Type::INT8],
};

/// Whether there is a row.
fn any(rows: &[Row]) -> Work<bool> {
    Ok(!rows.is_empty())
}

#[async_trait]
impl Directory for Postgres {
    async fn members_of_group(&self, group: &GroupId) -> StoreResult<Vec<MemberId>> {
        self.database
            .find(
                "the members of a group",
                &MEMBERS_OF_GROUP,
                &[&group.as_str()],
                |rows| all(rows, |row| text(row, 0)),
            )
            .await
    }

    async fn is_group_member(&self, group: &GroupId, member: &MemberId) -> StoreResult<bool> {
        self.database
            .find(
                "whether a member is of a group",
                &IS_GROUP_MEMBER,
                &[&group.as_str(), &member.as_str()],
                any,
            )
            .await
    }

    async fn is_active_member(&self, member: &MemberId) -> StoreResult<bool> {
        self.database
            .find(
                "whether a member is active",
                &IS_ACTIVE,
                &[&member.as_str()],
                any,
            )
            .await
    }

    async fn groups_of_member(&self, member: &MemberId) -> StoreResult<Option<Vec<GroupId>>> {
        self.database
            .find(
                "the groups of a member",
                &GROUPS_OF_MEMBER,
                &[&member.as_str()],
                |rows| all(rows, |row| text(row, 0)).map(Some),
            )
            .await
    }

    async fn active_members(&self, members: &[MemberId]) -> StoreResult<Vec<MemberId>> {
        let asked: BTreeSet<_> = members.iter().map(MemberId::as_str).collect();
        let asked: Vec<_> = asked.into_iter().collect();
        self.database
            .find(
                "which members are active",
                &ACTIVE_AMONG,
                &[&asked],
                |rows| all(rows, |row| text(row, 0)),
            )
            .await
    }
}

#[async_trait]
impl DirectoryTables for Postgres {
    async fn add_member(&self, member: &MemberId) -> StoreResult<bool> {
        self.database
            .change("add a member", &ADD_MEMBER, &[&member.as_str()], any)
            .await
    }

    async fn remove_member(&self, member: &MemberId) -> StoreResult<bool> {
        self.database
            .change("remove a member", &REMOVE_MEMBER, &[&member.as_str()], any)
            .await
    }

    async fn list_members(
        &self,
        after: Option<&MemberId>,
        at_most: usize,
    ) -> StoreResult<Vec<(MemberId, bool)>> {
        // No id is empty, so all come after that.
        let after = after.map_or("", MemberId::as_str);
        self.database
            .find(
                "list members",
                &LIST_MEMBERS,
                &[&after, &limit(at_most)],
                |rows| all(rows, |row| Ok((text(row, 0)?, get(row, 1)?))),
            )
            .await
    }

    async fn create_group(&self, group: &GroupId) -> StoreResult<bool> {
        self.database
            .change("create a group", &CREATE_GROUP, &[&group.as_str()], any)
            .await
    }

    async fn join_group(&self, group: &GroupId, member: &MemberId) -> StoreResult<Option<bool>> {
        self.database
            .update("join a group", &(group, member), |tx, (group, member)| {
                Box::pin(join(tx, group, member))
            })
            .await
    }

    async fn leave_group(&self, group: &GroupId, member: &MemberId) -> StoreResult<bool> {
        self.database
            .change(
                "leave a group",
                &LEAVE,
                &[&group.as_str(), &member.as_str()],
                any,
            )
            .await
    }

    async fn list_groups(
        &self,
        after: Option<&GroupId>,
        at_most: usize,
    ) -> StoreResult<Vec<GroupId>> {
        // No id is empty, so all come after that.
        let after = after.map_or("", GroupId::as_str);
        self.database
            .find(
                "list groups",
                &LIST_GROUPS,
                &[&after, &limit(at_most)],
                |rows| all(rows, |row| text(row, 0)),
            )
            .await
    }
}

async fn join(tx: &Tx, group: &GroupId, member: &MemberId) -> Work<Option<bool>> {
    let (group, member) = (group.as_str(), member.as_str());
    let both = tx.query(&HOLD_BOTH, &[&member, &group]).await?;
    if first(&both, |_| Ok(()))?.is_none() {
        return Ok(None);
    }
    let joined = tx.send_and_commit(&[(&JOIN, &[&member, &group])]).await?;
    Ok(Some(!joined[0].is_empty()))
}
