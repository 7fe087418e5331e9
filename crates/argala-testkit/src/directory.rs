//! A directory that a test decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use argala_core::{
    StoreError, StoreResult,
    ports::{Directory, DirectoryTables},
};
use argala_wire::{GroupId, MemberId};
use async_trait::async_trait;

use crate::{group, member};

#[derive(Debug, Default)]
struct State {
    members: BTreeMap<MemberId, bool>,
    groups: BTreeMap<GroupId, BTreeSet<MemberId>>,
    lists_groups: bool,
    failing: bool,
    questions: u64,
}

/// Members and groups in memory, changed at any moment. Clones are the same directory.
///
/// It starts without the optional question `groups_of_member`, as many hosts' directories do:
/// see [`set_lists_groups`](Self::set_lists_groups).
#[derive(Debug, Clone, Default)]
pub struct MemoryDirectory(Arc<Mutex<State>>);

impl MemoryDirectory {
    /// A directory that knows nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A directory of these active members and these groups of them.
    ///
    /// # Panics
    /// Where a name is no id.
    #[must_use]
    pub fn of(members: &[&str], groups: &[(&str, &[&str])]) -> Self {
        let directory = Self::new();
        for name in members {
            directory.set_member(name, true);
        }
        for (name, of) in groups {
            directory.set_group(name, of);
        }
        directory
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Knows this member from now on, as active or not.
    pub fn set_member(&self, name: &str, active: bool) {
        self.state().members.insert(member(name), active);
    }

    /// Knows this member no more; where they are in groups, they stay there.
    pub fn forget_member(&self, name: &str) {
        self.state().members.remove(&member(name));
    }

    /// Makes these, and nobody else, the members of a group.
    pub fn set_group(&self, name: &str, members: &[&str]) {
        let members = members.iter().map(|name| member(name)).collect();
        self.state().groups.insert(group(name), members);
    }

    /// Puts a member into a group.
    pub fn join(&self, group_name: &str, name: &str) {
        let mut state = self.state();
        let members = state.groups.entry(group(group_name)).or_default();
        members.insert(member(name));
    }

    /// Takes a member out of a group.
    pub fn leave(&self, group_name: &str, name: &str) {
        if let Some(members) = self.state().groups.get_mut(&group(group_name)) {
            members.remove(&member(name));
        }
    }

    /// Whether `groups_of_member` answers, or says that it cannot.
    pub fn set_lists_groups(&self, lists: bool) {
        self.state().lists_groups = lists;
    }

    /// Whether every question from now on is answered with an error.
    pub fn set_failing(&self, failing: bool) {
        self.state().failing = failing;
    }

    /// How many questions have been asked.
    #[must_use]
    pub fn questions(&self) -> u64 {
        self.state().questions
    }

    fn ask<T>(&self, answer: impl FnOnce(&mut State) -> T) -> StoreResult<T> {
        let mut state = self.state();
        state.questions += 1;
        if state.failing {
            return Err(StoreError::unavailable(
                "asking the directory",
                "told to fail",
            ));
        }
        Ok(answer(&mut state))
    }
}

#[async_trait]
impl Directory for MemoryDirectory {
    async fn members_of_group(&self, group: &GroupId) -> StoreResult<Vec<MemberId>> {
        self.ask(|state| {
            let members = state.groups.get(group);
            members.into_iter().flatten().cloned().collect()
        })
    }

    async fn is_group_member(&self, group: &GroupId, member: &MemberId) -> StoreResult<bool> {
        self.ask(|state| {
            let members = state.groups.get(group);
            members.is_some_and(|members| members.contains(member))
        })
    }

    async fn is_active_member(&self, member: &MemberId) -> StoreResult<bool> {
        self.ask(|state| state.members.get(member).is_some_and(|active| *active))
    }

    async fn groups_of_member(&self, member: &MemberId) -> StoreResult<Option<Vec<GroupId>>> {
        self.ask(|state| {
            let of = |(group, members): (&GroupId, &BTreeSet<MemberId>)| {
                members.contains(member).then(|| group.clone())
            };
            state
                .lists_groups
                .then(|| state.groups.iter().filter_map(of).collect())
        })
    }

    async fn active_members(&self, members: &[MemberId]) -> StoreResult<Vec<MemberId>> {
        self.ask(|state| {
            let active = |member: &&MemberId| state.members.get(*member) == Some(&true);
            members.iter().filter(active).cloned().collect()
        })
    }
}

fn page<'a, K: Ord + Clone + 'a>(
    keys: impl Iterator<Item = &'a K>,
    after: Option<&K>,
    limit: usize,
) -> Vec<K> {
    let rest = keys.filter(|key| after.is_none_or(|after| *key > after));
    rest.take(limit).cloned().collect()
}

#[async_trait]
impl DirectoryTables for MemoryDirectory {
    async fn add_member(&self, member: &MemberId) -> StoreResult<bool> {
        self.ask(|state| state.members.insert(member.clone(), true) != Some(true))
    }

    async fn remove_member(&self, member: &MemberId) -> StoreResult<bool> {
        self.ask(|state| {
            let active = state.members.get_mut(member);
            active.is_some_and(|active| std::mem::replace(active, false))
        })
    }

    async fn list_members(
        &self,
        after: Option<&MemberId>,
        limit: usize,
    ) -> StoreResult<Vec<(MemberId, bool)>> {
        self.ask(|state| {
            let ids = page(state.members.keys(), after, limit);
            ids.into_iter()
                .map(|id| (id.clone(), state.members[&id]))
                .collect()
        })
    }

    async fn create_group(&self, group: &GroupId) -> StoreResult<bool> {
        self.ask(|state| {
            let is_new = !state.groups.contains_key(group);
            state.groups.entry(group.clone()).or_default();
            is_new
        })
    }

    async fn join_group(&self, group: &GroupId, member: &MemberId) -> StoreResult<Option<bool>> {
        self.ask(|state| {
            let members = state.groups.get_mut(group)?;
            let known = state.members.contains_key(member);
            known.then(|| members.insert(member.clone()))
        })
    }

    async fn leave_group(&self, group: &GroupId, member: &MemberId) -> StoreResult<bool> {
        self.ask(|state| {
            let members = state.groups.get_mut(group);
            members.is_some_and(|members| members.remove(member))
        })
    }

    async fn list_groups(
        &self,
        after: Option<&GroupId>,
        limit: usize,
    ) -> StoreResult<Vec<GroupId>> {
        self.ask(|state| page(state.groups.keys(), after, limit))
    }
}
