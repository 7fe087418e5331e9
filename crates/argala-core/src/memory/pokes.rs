//! Pokes within one process.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use argala_wire::{MemberId, StorageKey, devices::DeviceRef};
use async_trait::async_trait;
use futures_util::stream;
use tokio::sync::Notify;

use crate::{
    StoreResult,
    ports::{Poke, PokeSignal, PokeSink, PokeSource, PokeSubscription},
};

/// Carries pokes from sinks to the subscriptions of the same process.
///
/// Each subscription keeps a set of graphs, so that equal signals to a slow reader are one and its
/// memory is bounded; past [`MemoryPokes::QUEUE`] graphs it is told to resync instead.
#[derive(Default)]
pub struct MemoryPokes {
    members: Arc<Members>,
}

type Members = Mutex<HashMap<MemberId, Vec<Arc<Queue>>>>;

impl MemoryPokes {
    /// The most graphs that a subscription remembers.
    pub const QUEUE: usize = 1_024;

    /// A carrier without subscriptions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many subscriptions there are.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        lock(&self.members).values().map(Vec::len).sum()
    }

    /// Tells every subscription that pokes may have been lost.
    pub fn resync(&self) {
        for queue in lock(&self.members).values().flatten() {
            queue.put(None);
        }
    }

    /// Tells the subscriptions of one member that pokes may have been lost.
    pub fn resync_member(&self, member: &MemberId) {
        for queue in lock(&self.members).get(member).into_iter().flatten() {
            queue.put(None);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Queue {
    device: DeviceRef,
    waiting: Mutex<Waiting>,
    woken: Notify,
}

#[derive(Default)]
struct Waiting {
    graphs: BTreeSet<StorageKey>,
    resync: bool,
}

impl Queue {
    fn put(&self, graph: Option<&StorageKey>) {
        {
            let mut waiting = lock(&self.waiting);
            match graph {
                // A resync says all that the graphs would.
                Some(_) if waiting.resync => {}
                Some(graph) => {
                    waiting.graphs.insert(graph.clone());
                    if waiting.graphs.len() > MemoryPokes::QUEUE {
                        *waiting = Waiting {
                            graphs: BTreeSet::new(),
                            resync: true,
                        };
                    }
                }
                None => {
                    *waiting = Waiting {
                        graphs: BTreeSet::new(),
                        resync: true,
                    }
                }
            }
        }
        self.woken.notify_one();
    }

    fn take(&self) -> Option<PokeSignal> {
        let mut waiting = lock(&self.waiting);
        if std::mem::take(&mut waiting.resync) {
            return Some(PokeSignal::Resync);
        }
        waiting.graphs.pop_first().map(PokeSignal::Changed)
    }

    async fn next(&self) -> PokeSignal {
        loop {
            // One reader for each queue, and a wake-up is kept for a reader that does not wait
            // yet: nothing is missed between looking and waiting.
            if let Some(signal) = self.take() {
                return signal;
            }
            self.woken.notified().await;
        }
    }
}

/// Takes its queue out of the map when the subscription is dropped.
struct Entry {
    members: Weak<Members>,
    queue: Arc<Queue>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(members) = self.members.upgrade() else {
            return;
        };
        let mut members = lock(&members);
        let member = &self.queue.device.member_id;
        if let Some(queues) = members.get_mut(member) {
            queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
            if queues.is_empty() {
                members.remove(member);
            }
        }
    }
}

#[async_trait]
impl PokeSink for MemoryPokes {
    async fn poke(&self, poke: &Poke) -> StoreResult<()> {
        let members = lock(&self.members);
        for queue in poke
            .members
            .iter()
            .filter_map(|member| members.get(member))
            .flatten()
        {
            if poke.except.as_ref() != Some(&queue.device) {
                queue.put(Some(&poke.storage_key));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl PokeSource for MemoryPokes {
    async fn subscribe(&self, device: &DeviceRef) -> StoreResult<PokeSubscription> {
        let queue = Arc::new(Queue {
            device: device.clone(),
            waiting: Mutex::default(),
            woken: Notify::new(),
        });
        lock(&self.members)
            .entry(device.member_id.clone())
            .or_default()
            .push(Arc::clone(&queue));
        let entry = Entry {
            members: Arc::downgrade(&self.members),
            queue,
        };
        Ok(Box::pin(stream::unfold(entry, |entry| async move {
            let signal = entry.queue.next().await;
            Some((signal, entry))
        })))
    }
}
