//! The directory's answers, and for how long they are good.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use argala_wire::{GroupId, MemberId, Owners, StorageKey, Timestamp};

use super::{Access, Relay};
use crate::{
    Outcome, Rejection, StoreResult,
    ports::{Clock, Directory},
    rules::roster::Members,
};

/// Answers that are remembered at the most.
const REMEMBERED_ANSWERS: u64 = 200_000;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Question {
    Members(GroupId),
    InGroup(GroupId, MemberId),
    Active(MemberId),
    Groups(MemberId),
}

#[derive(Clone)]
enum Answer {
    Yes(bool),
    Members(Arc<[MemberId]>),
    Groups(Option<Arc<[GroupId]>>),
}

/// Asks the directory, and remembers its answers for a while. Errors are never remembered.
pub(super) struct DirectoryCache {
    directory: Arc<dyn Directory>,
    clock: Arc<dyn Clock>,
    ttl: Duration,
    answers: moka::sync::Cache<Question, (Timestamp, Answer)>,
}

impl DirectoryCache {
    pub(super) fn new(directory: Arc<dyn Directory>, ttl: Duration, clock: Arc<dyn Clock>) -> Self {
        Self {
            directory,
            clock,
            ttl,
            answers: moka::sync::Cache::new(REMEMBERED_ANSWERS),
        }
    }

    fn remembered(&self, question: &Question) -> Option<Answer> {
        if self.ttl.is_zero() {
            return None;
        }
        let (at, answer) = self.answers.get(question)?;
        let now = self.clock.now();
        // A clock that was set back makes an answer old, not young.
        (at <= now && now.since(at) < self.ttl).then_some(answer)
    }

    fn remember(&self, question: Question, answer: Answer) {
        if !self.ttl.is_zero() {
            self.answers.insert(question, (self.clock.now(), answer));
        }
    }

    pub(super) async fn is_active_member(&self, member: &MemberId) -> StoreResult<bool> {
        let question = Question::Active(member.clone());
        if let Some(Answer::Yes(yes)) = self.remembered(&question) {
            return Ok(yes);
        }
        let yes = self.directory.is_active_member(member).await?;
        self.remember(question, Answer::Yes(yes));
        Ok(yes)
    }

    pub(super) async fn is_group_member(
        &self,
        group: &GroupId,
        member: &MemberId,
    ) -> StoreResult<bool> {
        let question = Question::InGroup(group.clone(), member.clone());
        if let Some(Answer::Yes(yes)) = self.remembered(&question) {
            return Ok(yes);
        }
        let yes = self.directory.is_group_member(group, member).await?;
        self.remember(question, Answer::Yes(yes));
        Ok(yes)
    }

    pub(super) async fn groups_of_member(
        &self,
        member: &MemberId,
    ) -> StoreResult<Option<Vec<GroupId>>> {
        let question = Question::Groups(member.clone());
        if let Some(Answer::Groups(groups)) = self.remembered(&question) {
            return Ok(groups.map(|groups| groups.to_vec()));
        }
        let groups = self.directory.groups_of_member(member).await?;
        self.remember(question, Answer::Groups(groups.as_deref().map(Arc::from)));
        Ok(groups)
    }

    async fn members_of_group(&self, group: &GroupId, fresh: bool) -> StoreResult<Vec<MemberId>> {
        let question = Question::Members(group.clone());
        if !fresh && let Some(Answer::Members(members)) = self.remembered(&question) {
            return Ok(members.to_vec());
        }
        let members = self.directory.members_of_group(group).await?;
        self.remember(question, Answer::Members(members.as_slice().into()));
        Ok(members)
    }

    /// Those of `members` that are active; asks for those alone whose answer is not remembered.
    pub(super) async fn active_members(
        &self,
        members: &[MemberId],
        fresh: bool,
    ) -> StoreResult<BTreeSet<MemberId>> {
        let mut active = BTreeSet::new();
        let mut ask = Vec::new();
        for member in members {
            match self.remembered(&Question::Active(member.clone())) {
                Some(Answer::Yes(yes)) if !fresh => {
                    if yes {
                        active.insert(member.clone());
                    }
                }
                _ => ask.push(member.clone()),
            }
        }
        if !ask.is_empty() {
            let answered: BTreeSet<_> = self
                .directory
                .active_members(&ask)
                .await?
                .into_iter()
                .collect();
            for member in ask {
                let yes = answered.contains(&member);
                if yes {
                    active.insert(member.clone());
                }
                self.remember(Question::Active(member), Answer::Yes(yes));
            }
        }
        Ok(active)
    }

    /// The members of a graph. With `fresh`, as the directory answers now, past what is
    /// remembered.
    pub(super) async fn members(&self, key: &StorageKey, fresh: bool) -> StoreResult<Members> {
        let all = match key.owners() {
            Owners::Group(group) => self.members_of_group(&group, fresh).await?,
            Owners::Pair(low, high) if low == high => vec![low],
            Owners::Pair(low, high) => vec![low, high],
        };
        let active = self.active_members(&all, fresh).await?;
        Ok(Members {
            all: all.into_iter().collect(),
            active,
        })
    }
}

impl Relay {
    /// The active members of a graph as the directory answers now. Where the caller is no longer
    /// among them, what admitted them has just passed.
    pub(super) async fn fresh_members(&self, access: &Access) -> Outcome<Members> {
        let members = self.directory.members(access.key(), true).await?;
        if members.active.contains(&access.device().member_id) {
            Ok(members)
        } else {
            Err(Rejection::GraphNotFound.into())
        }
    }
}
