//! Telling members that a graph changed: after the answer, once for many changes.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use argala_wire::{MemberId, StorageKey, devices::DeviceRef};

use super::Relay;
use crate::{StoreResult, ports::Poke};

/// Equal pokes within this time are one (protocol, section 7).
const WINDOW: Duration = Duration::from_millis(50);

/// Whom a change concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whom {
    /// All active members of the graph.
    All,
    /// These members.
    Only(Vec<MemberId>),
}

/// Changes that wait for the end of their graph's window.
#[derive(Debug)]
struct Waiting {
    /// `None`: all members.
    members: Option<BTreeSet<MemberId>>,
    /// The device that made every one of the changes; `None` where several did.
    cause: Option<DeviceRef>,
}

impl Waiting {
    fn new(whom: Whom, by: &DeviceRef) -> Self {
        let members = match whom {
            Whom::All => None,
            Whom::Only(members) => Some(members.into_iter().collect()),
        };
        Self {
            members,
            cause: Some(by.clone()),
        }
    }

    fn merge(&mut self, other: Self) {
        self.members = match (self.members.take(), other.members) {
            (Some(mut one), Some(other)) => {
                one.extend(other);
                Some(one)
            }
            _ => None,
        };
        if self.cause != other.cause {
            self.cause = None;
        }
    }
}

/// The graphs whose window is open, each with what has changed since it was last poked.
#[derive(Default)]
pub(super) struct Poker {
    open: Mutex<HashMap<StorageKey, Option<Waiting>>>,
}

impl Poker {
    /// Notes a change. Gives it back where no window is open: then it is to be told at once.
    fn note(&self, key: &StorageKey, change: Waiting) -> Option<Waiting> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(key) {
            None => {
                open.insert(key.clone(), None);
                Some(change)
            }
            Some(Some(waiting)) => {
                waiting.merge(change);
                None
            }
            Some(slot) => {
                *slot = Some(change);
                None
            }
        }
    }

    /// Ends a window: gives what has changed meanwhile, for which a new one opens.
    fn end(&self, key: &StorageKey) -> Option<Waiting> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = open.get_mut(key).and_then(Option::take);
        if waiting.is_none() {
            open.remove(key);
        }
        waiting
    }
}

impl Relay {
    /// Notes that `by` changed a graph. The first change is told at once; those that come within
    /// the window after it are told together at its end, so that a lone push is felt without
    /// delay and a busy graph costs a poke each 50 ms at the most.
    pub(super) fn changed(self: &Arc<Self>, key: StorageKey, by: &DeviceRef, whom: Whom) {
        let Some(first) = self.poker.note(&key, Waiting::new(whom, by)) else {
            return;
        };
        let relay = Arc::clone(self);
        self.tasks.spawn(async move {
            let mut change = Some(first);
            while let Some(told) = change {
                if let Err(error) = relay.tell(&key, told).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "members were not poked; they find the change when they next ask"
                    );
                }
                tokio::time::sleep(WINDOW).await;
                change = relay.poker.end(&key);
            }
        });
    }

    async fn tell(&self, key: &StorageKey, change: Waiting) -> StoreResult<()> {
        let members = match change.members {
            Some(members) => members,
            None => self.directory.members(key, false).await?.active,
        };
        let poke = Poke {
            storage_key: key.clone(),
            members: members.into_iter().collect(),
            except: change.cause,
        };
        let mut told = Ok(());
        for sink in &self.poke_sinks {
            // One sink's failure is not another's; the last one is reported.
            if let Err(error) = sink.poke(&poke).await {
                told = Err(error);
            }
        }
        told
    }
}
