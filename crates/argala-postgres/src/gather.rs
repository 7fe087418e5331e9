//! Pushes to one graph that come while another is being committed share the next transaction.
//!
//! Only one transaction can write to a graph at a time, and each waits for the disk. A push that
//! comes alone waits for nobody. Those that come while it is on its way wait here rather than for
//! the graph's lock, and go together. Replicas do this each for itself; among them the lock
//! decides.
//!
//! What one push is told never depends on its neighbours: each is decided by itself, whoever hangs
//! up leaves the others alone, and where the database refuses the shared transaction, each is
//! tried again in a transaction of its own. Where there is no transaction to be had (no connection,
//! or the graph's row is locked for too long), all are told at once: one after the other they
//! would wait as long again each.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use argala_core::{
    Fault, Outcome, StoreError,
    ports::store::{Push, PushOutcome},
};
use argala_wire::StorageKey;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::{
    Commit, CommitProbe, Options,
    batch::Told,
    failure::Work,
    push,
    remembered::Remembered,
    run::Database,
    versioned::{Decided, Versioned},
};

const OPERATION: &str = "push";
/// The most pushes that share a transaction.
const MAX_PUSHES: usize = 256;
/// The most bytes of ciphertext that share a transaction; one push may have more.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Of so many connections one may have a statement that writes to several graphs.
const CONNECTIONS_A_LANE: usize = 4;

struct Waiting {
    push: Push,
    bytes: usize,
    reply: oneshot::Sender<Outcome<PushOutcome>>,
}

/// Where pushes wait for the one before them.
pub(crate) struct Gather {
    database: Arc<Database>,
    /// Those that wait, by graph. A graph is in here for as long as a task works for it.
    graphs: Mutex<HashMap<StorageKey, VecDeque<Waiting>>>,
    tasks: TaskTracker,
    together: bool,
    commits: Option<CommitProbe>,
    remembered: Arc<Remembered>,
    versioned: Arc<Versioned>,
}

impl Gather {
    pub(crate) fn new(
        database: Arc<Database>,
        remembered: Arc<Remembered>,
        options: &Options,
    ) -> Self {
        let lanes = (options.connections / CONNECTIONS_A_LANE).max(1);
        Self {
            versioned: Arc::new(Versioned::new(
                Arc::clone(&database),
                Arc::clone(&remembered),
                lanes,
            )),
            remembered,
            database,
            graphs: Mutex::default(),
            tasks: TaskTracker::new(),
            together: options.group_pushes,
            commits: options.commits.clone(),
        }
    }

    /// Takes no more pushes, and returns once those that were taken are answered.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Takes records, and answers once that is durable. A future that is dropped takes the push
    /// back as long as its turn has not come.
    pub(crate) async fn push(self: &Arc<Self>, push: Push) -> Outcome<PushOutcome> {
        if self.tasks.is_closed() {
            return Err(StoreError::unavailable(OPERATION, "the database is closed").into());
        }
        let bytes = push.records.iter().map(|it| it.record.ciphertext.len());
        let bytes = bytes.sum();
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { push, bytes, reply };
        self.hand_in(waiting);
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::internal(OPERATION, "its task has ended without an answer").into())
        })
    }

    fn hand_in(self: &Arc<Self>, waiting: Waiting) {
        if !self.together {
            let this = Arc::clone(self);
            self.tasks
                .spawn(async move { this.carry_out(vec![waiting]).await });
            return;
        }
        let key = waiting.push.key.clone();
        let mut graphs = self.graphs();
        match graphs.get_mut(&key) {
            Some(queue) => queue.push_back(waiting),
            None => {
                graphs.insert(key.clone(), VecDeque::from([waiting]));
                drop(graphs);
                let turn = Turn {
                    gather: Arc::clone(self),
                    key,
                    left: false,
                };
                self.tasks.spawn(turn.run());
            }
        }
    }

    fn graphs(&self) -> MutexGuard<'_, HashMap<StorageKey, VecDeque<Waiting>>> {
        // Every change behind this lock is one call: no panic leaves it half done.
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn carry_out(&self, mut waiting: Vec<Waiting>) {
        waiting.retain(|it| !it.reply.is_closed());
        if waiting.is_empty() {
            return;
        }
        let mut pushes = Vec::with_capacity(waiting.len());
        let mut replies = Vec::with_capacity(waiting.len());
        for Waiting { push, reply, .. } in waiting {
            pushes.push(push);
            replies.push(reply);
        }
        let pushes: Arc<[Push]> = pushes.into();
        match self.transact(&pushes).await {
            Ok(told) => answer(replies, told),
            Err(failure) if pushes.len() > 1 && !failure.is_everybodys() => {
                tracing::warn!(
                    error = &failure.into_fault(OPERATION) as &dyn std::error::Error,
                    pushes = pushes.len(),
                    "a shared transaction failed; each push is tried alone"
                );
                for (push, reply) in pushes.iter().zip(replies) {
                    let told = self.alone(push).await;
                    let told =
                        told.unwrap_or_else(|failure| vec![Err(failure.into_fault(OPERATION))]);
                    answer(vec![reply], told);
                }
            }
            Err(failure) => {
                // The first is told what it was, and those beside it that it was not theirs.
                let shared = (1..pushes.len()).map(|_| {
                    let why = "the transaction that it shared could not be had in time";
                    Err(StoreError::unavailable(OPERATION, why).into())
                });
                let mut told = vec![Err(failure.into_fault(OPERATION))];
                told.extend(shared);
                answer(replies, told);
            }
        }
    }

    /// What each of the pushes is told once that is durable: in one round trip where what is
    /// remembered of the graph holds, else in a transaction that reads all that they rest on.
    async fn transact(&self, pushes: &Arc<[Push]>) -> Work<Vec<Outcome<PushOutcome>>> {
        let told = match self.at_once(pushes).await? {
            Some(told) => told,
            None => self.by_reading(pushes).await?,
        };
        Ok(self.committed(told))
    }

    /// One push by itself, after the database refused what it was part of.
    async fn alone(&self, push: &Push) -> Work<Vec<Outcome<PushOutcome>>> {
        let told = self.by_reading(std::slice::from_ref(push)).await?;
        Ok(self.committed(told))
    }

    fn committed(&self, told: Vec<Told>) -> Vec<Outcome<PushOutcome>> {
        if let Some(commits) = &self.commits {
            commits(Commit { pushes: told.len() });
        }
        let told = told.into_iter();
        told.map(|told| told.map_err(Fault::Rejected)).collect()
    }

    async fn at_once(&self, pushes: &Arc<[Push]>) -> Work<Option<Vec<Told>>> {
        let Some(key) = pushes.first().map(|push| &push.key) else {
            return Ok(None);
        };
        let generation = self.remembered.generation();
        let Some(state) = self.remembered.take(key, pushes) else {
            return Ok(None);
        };
        let (decided, told) = match Decided::new(pushes, generation, state) {
            Ok(decided) => decided,
            Err(state) => {
                self.remembered.put_back(key, generation, *state);
                return Ok(None);
            }
        };
        Ok(match self.versioned.write(decided).await? {
            Some(state) => {
                self.remembered.put_back(key, generation, state);
                Some(told)
            }
            None => {
                self.remembered.missed(key);
                None
            }
        })
    }

    async fn by_reading(&self, pushes: &[Push]) -> Work<Vec<Told>> {
        let generation = self.remembered.generation();
        let (told, state) = self
            .database
            .tries(pushes, |tx, pushes| Box::pin(push::push(tx, pushes)))
            .await?;
        if let (Some(push), Some(state)) = (pushes.first(), state) {
            self.remembered.renew(&push.key, generation, state);
        }
        Ok(told)
    }
}

fn answer(replies: Vec<oneshot::Sender<Outcome<PushOutcome>>>, told: Vec<Outcome<PushOutcome>>) {
    for (reply, told) in replies.into_iter().zip(told) {
        // A caller that has gone away misses an answer, nothing else.
        drop(reply.send(told));
    }
}

/// The task that works for one graph until nobody waits.
struct Turn {
    gather: Arc<Gather>,
    key: StorageKey,
    /// Whether the graph is anybody else's by now.
    left: bool,
}

impl Turn {
    async fn run(mut self) {
        loop {
            let waiting = self.next();
            if waiting.is_empty() {
                return;
            }
            self.gather.carry_out(waiting).await;
        }
    }

    /// Those that go together next; nobody where the graph is left.
    fn next(&mut self) -> Vec<Waiting> {
        let mut graphs = self.gather.graphs();
        let mut next = Vec::new();
        if let Some(queue) = graphs.get_mut(&self.key) {
            let mut bytes = 0;
            while next.len() < MAX_PUSHES && (next.is_empty() || bytes < MAX_BYTES) {
                let Some(waiting) = queue.pop_front() else {
                    break;
                };
                bytes += waiting.bytes;
                next.push(waiting);
            }
        }
        if next.is_empty() {
            graphs.remove(&self.key);
            self.left = true;
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Where the task ended by a panic, those that still wait are told; the next push begins
        // anew.
        if !self.left {
            self.gather.graphs().remove(&self.key);
        }
    }
}
