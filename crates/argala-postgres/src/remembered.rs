//! What a replica remembers of the graphs that are pushed to: how each stood after the last push,
//! and by which version of its row that is known to stand still.
//!
//! Nothing here is true by itself. A push that is decided on it is written where the row has that
//! version still, and not otherwise (`versioned`).

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use argala_core::ports::store::{Graph, Push};
use argala_wire::{StorageKey, devices::DeviceRef};
use moka::sync::Cache;

use crate::{batch::Callers, columns::Version};

/// For how long a graph that nobody pushes to is remembered. Far less than the time in which
/// versions come round.
const IDLE: Duration = Duration::from_secs(10 * 60);
/// How many devices of a graph are known at the most.
const MAX_CALLERS: usize = 256;
/// About how many bytes a graph takes, its key and the cache's own left out.
const GRAPH_BYTES: usize = size_of::<Slot>() + 256;
/// About how many bytes a device takes: its names, keys and label.
const CALLER_BYTES: usize = size_of::<Callers>() + size_of::<(DeviceRef, ())>() + 512;
/// After many misses in a row, one in 2 to the power of this many pushes tries again.
const MOST_PATIENT: u32 = 6;

/// How a graph stood when its row had a version.
#[derive(Debug)]
pub(crate) struct State {
    /// What the other tables call it.
    pub(crate) id: i64,
    /// The version of its row.
    pub(crate) version: Version,
    /// The version that it had before this push.
    pub(crate) before: Version,
    pub(crate) graph: Graph,
    /// Active devices that hold the current epoch's key. There may be others.
    pub(crate) callers: Callers,
}

impl State {
    /// How a graph stands after a push; of the callers, those that may push.
    pub(crate) fn of(
        id: i64,
        [before, version]: [Version; 2],
        graph: Option<Graph>,
        mut callers: Callers,
    ) -> Option<Self> {
        callers.retain(|_, (device, holds)| *holds && device.is_active());
        Some(Self {
            id,
            version,
            before,
            graph: graph.filter(|graph| graph.epoch > 0)?,
            callers,
        })
    }
}

/// A graph's place, which is empty while a push is decided on what was in it.
#[derive(Default)]
struct Slot {
    state: Option<(u64, State)>,
    /// How often in a row what was remembered was stale.
    misses: u32,
    /// How many more pushes do not try.
    pause: u32,
}

/// The graphs that are remembered.
pub(crate) struct Remembered {
    graphs: Cache<StorageKey, Arc<Mutex<Slot>>>,
    /// Raised with each connection that is made. The server behind it may be another one, which
    /// knows nothing of what the one before had written last.
    generation: AtomicU64,
    on: bool,
}

impl Remembered {
    /// Room for about so many bytes; none at all for 0.
    pub(crate) fn new(bytes: u64) -> Self {
        let graphs = Cache::builder()
            .max_capacity(bytes)
            .weigher(|key: &StorageKey, slot: &Arc<Mutex<Slot>>| {
                let callers = lock(slot)
                    .state
                    .as_ref()
                    .map_or(0, |(_, state)| state.callers.len());
                let bytes = key.as_str().len() * 3 + GRAPH_BYTES + callers * CALLER_BYTES;
                u32::try_from(bytes).unwrap_or(u32::MAX)
            })
            .time_to_idle(IDLE)
            .build();
        Self {
            graphs,
            generation: AtomicU64::new(0),
            on: bytes > 0,
        }
    }

    /// A connection has been made: what was remembered before is not relied on.
    pub(crate) fn connected(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Says later what was true at this time.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Takes out how a graph stands, if that is known, every pushing device is, and it is worth a
    /// try.
    pub(crate) fn take(&self, key: &StorageKey, pushes: &[Push]) -> Option<State> {
        if !self.on {
            return None;
        }
        let slot = self.graphs.get(key)?;
        let mut slot = lock(&slot);
        if slot.pause > 0 {
            slot.pause -= 1;
            return None;
        }
        let (generation, state) = slot.state.as_ref()?;
        let known = pushes.iter().all(|it| state.callers.contains_key(&it.by));
        if !known || *generation != self.generation() {
            return None;
        }
        slot.state.take().map(|(_, state)| state)
    }

    /// Puts a graph back as it stands after a push that was decided on what was taken, or as it
    /// was.
    pub(crate) fn put_back(&self, key: &StorageKey, generation: u64, state: State) {
        if let Some(slot) = self.graphs.get(key) {
            let mut slot = lock(&slot);
            (slot.misses, slot.pause) = (0, 0);
            slot.state = Some((generation, state));
        }
    }

    /// What was taken was stale. The oftener in a row, the longer it is before the next try: a
    /// graph that is pushed to on several replicas would pay for two calls each time.
    pub(crate) fn missed(&self, key: &StorageKey) {
        if let Some(slot) = self.graphs.get(key) {
            let mut slot = lock(&slot);
            slot.pause = (1 << slot.misses.min(MOST_PATIENT)) - 1;
            slot.misses = slot.misses.saturating_add(1);
        }
    }

    /// Remembers how a graph stands after a push that has read all that it rests on.
    pub(crate) fn renew(&self, key: &StorageKey, generation: u64, mut state: State) {
        if !self.on {
            return;
        }
        let slot = self.graphs.get(key).unwrap_or_default();
        let grown = {
            let mut slot = lock(&slot);
            let mut known = 0;
            if let Some((since, there)) = slot.state.take() {
                known = there.callers.len();
                // Who was known when the row had the version that was found is known now.
                if since == generation && there.version == state.before && known < MAX_CALLERS {
                    for (caller, device) in there.callers {
                        state.callers.entry(caller).or_insert(device);
                    }
                }
            }
            let grown = state.callers.len() != known;
            slot.state = Some((generation, state));
            grown
        };
        if grown {
            self.graphs.insert(key.clone(), slot);
        }
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    // Every change behind this lock is whole: no panic leaves it half done.
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
