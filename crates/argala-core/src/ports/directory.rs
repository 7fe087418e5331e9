//! The host's directory: who is a member of what.

use argala_wire::{GroupId, MemberId};
use async_trait::async_trait;

use crate::StoreResult;

/// Answers who belongs where. The host implements it; three questions are enough.
///
/// A directory that cannot answer returns an error and never a guess: the relay then answers 503,
/// and deletes nothing.
#[async_trait]
pub trait Directory: Send + Sync + 'static {
    /// Every member of `group`; nobody where there is no such group.
    async fn members_of_group(&self, group: &GroupId) -> StoreResult<Vec<MemberId>>;

    /// Whether `member` is of `group`.
    async fn is_group_member(&self, group: &GroupId, member: &MemberId) -> StoreResult<bool>;

    /// Whether `member` is known and may use the relay.
    async fn is_active_member(&self, member: &MemberId) -> StoreResult<bool>;

    /// The groups that `member` is of, or `None` where the directory cannot list them; the relay
    /// then lists the groups' graphs of which the member ever held a key.
    async fn groups_of_member(&self, member: &MemberId) -> StoreResult<Option<Vec<GroupId>>> {
        let _ = member;
        Ok(None)
    }

    /// Those of `members` that are active. Worth an implementation of its own where one question
    /// for many is cheaper than many questions.
    async fn active_members(&self, members: &[MemberId]) -> StoreResult<Vec<MemberId>> {
        let mut active = Vec::with_capacity(members.len());
        for member in members {
            if self.is_active_member(member).await? {
                active.push(member.clone());
            }
        }
        Ok(active)
    }
}

/// A directory that the relay keeps itself, in tables beside its own, for hosts without one.
///
/// Removing a member leaves their memberships in place but makes them inactive, so that what they
/// may still owe stays visible; adding them again brings all of it back.
#[async_trait]
pub trait DirectoryTables: Directory {
    /// Adds a member, or makes a removed one active again. Whether anything changed.
    async fn add_member(&self, member: &MemberId) -> StoreResult<bool>;

    /// Makes a member inactive. Whether anything changed.
    async fn remove_member(&self, member: &MemberId) -> StoreResult<bool>;

    /// Members and whether they are active, by id (byte order), after `after`; at most `limit`.
    async fn list_members(
        &self,
        after: Option<&MemberId>,
        limit: usize,
    ) -> StoreResult<Vec<(MemberId, bool)>>;

    /// Creates a group without members. Whether it was not there.
    async fn create_group(&self, group: &GroupId) -> StoreResult<bool>;

    /// Puts a member into a group; `None` where there is no such member or no such group, else
    /// whether anything changed.
    async fn join_group(&self, group: &GroupId, member: &MemberId) -> StoreResult<Option<bool>>;

    /// Takes a member out of a group. Whether anything changed.
    async fn leave_group(&self, group: &GroupId, member: &MemberId) -> StoreResult<bool>;

    /// Groups, by id (byte order), after `after`; at most `limit`.
    async fn list_groups(&self, after: Option<&GroupId>, limit: usize)
    -> StoreResult<Vec<GroupId>>;
}
