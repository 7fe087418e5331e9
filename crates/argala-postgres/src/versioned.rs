//! Taking records in one round trip: pushes that were decided on what is remembered of their graph
//! are written by one statement, where the graph's row has the version still that is remembered.
//!
//! Whatever a decision rests on makes that version another: each change of the row does by itself,
//! and a wrap that is blanked or removed and a device that is revoked renew the rows of their
//! graphs (`migrations/postgres/0003_graphs_renewed.sql`). Nothing else can make what is remembered
//! wrong: a wrap that is added lets more devices push, and those that are not known are looked up.
//! That a record or an idempotency key is new is not remembered at all. The statement finds out,
//! and then writes nothing.
//!
//! The statement locks and reads at once, which elsewhere is forbidden: it would read what was true
//! before it waited. It never waits. A row that somebody has locked is passed over, and a push to
//! it goes the long way, in a transaction that waits, reads and decides (`push`).
//!
//! Pushes to different graphs share a statement where they come while as many others as may be are on their
//! way. None waits for a neighbour's lock, and where the database has something against one of
//! them, each is tried alone.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use argala_core::ports::store::{Graph, Push};
use tokio::sync::oneshot;
use tokio_postgres::{
    error::SqlState,
    types::{ToSql, Type},
};

use crate::{
    batch::{Answered, Answers, Batch, Records, Told, Written},
    columns::{Version, get, int},
    failure::{Failure, Work},
    remembered::{Remembered, State},
    run::Database,
    session::Sql,
};

/// The most graphs that share a statement.
const MAX_GRAPHS: usize = 64;
/// The most bytes of ciphertext that share a statement; one graph's may be more.
const MAX_BYTES: usize = 1024 * 1024;

/// Graphs: ids, versions, epochs, heads; new heads, records, tombstones, bytes. Records: which of
/// the graphs, from 1; ids, seqs, epochs, members, devices, times, flags, signatures, ciphertexts.
/// Where there are answers to keep: which of the graphs, slots, members, devices, keys, times,
/// bodies' hashes, answers.
///
/// Tells which of the graphs were written to, and their new versions. A graph that is there twice is
/// written to once.
macro_rules! call {
    ($unanswered:literal, $keep:literal) => {
        concat!(
            "WITH held AS (
                 SELECT v.n, g.id, v.new_head, v.records, v.tombstones, v.bytes
                 FROM unnest($1::bigint[], $2::xid[], $3::bigint[], $4::bigint[], $5::bigint[],
                             $6::bigint[], $7::bigint[], $8::bigint[]) WITH ORDINALITY
                      AS v (id, version, epoch, head, new_head, records, tombstones, bytes, n)
                 CROSS JOIN LATERAL (
                     SELECT g.id FROM graphs g
                     WHERE g.id = v.id AND g.xmin = v.version AND g.epoch = v.epoch
                       AND g.head = v.head
                     FOR NO KEY UPDATE SKIP LOCKED
                 ) g ",
            $unanswered,
            "), fresh AS (
                 UPDATE graphs g
                 SET head = h.new_head, records = h.records, tombstones = h.tombstones,
                     ciphertext_bytes = h.bytes
                 FROM held h WHERE g.id = h.id
                 RETURNING h.n, g.id, g.xmin AS version
             ), ",
            $keep,
            "written AS (
                 INSERT INTO records (graph, record, seq, epoch, by_member, by_device, at, deleted,
                                      bytes, sig, ciphertext)
                 SELECT f.id, v.record, v.seq, v.epoch, v.by_member, v.by_device, v.at,
                        v.deleted, octet_length(v.ciphertext), v.sig, v.ciphertext
                 FROM fresh f
                 JOIN unnest($9::bigint[], $10::text[], $11::bigint[], $12::bigint[], $13::text[],
                             $14::text[], $15::bigint[], $16::boolean[], $17::bytea[],
                             $18::bytea[])
                      AS v (n, record, seq, epoch, by_member, by_device, at, deleted, sig,
                            ciphertext) ON v.n = f.n
             )
             SELECT n, version FROM fresh"
        )
    };
}

macro_rules! types {
    ($($more:expr),*) => {
        &[
            Type::INT8_ARRAY,
            Type::XID_ARRAY,
            Type::INT8_ARRAY,
            Type::INT8_ARRAY,
            Type::INT8_ARRAY,
            Type::INT8_ARRAY,
            Type::INT8_ARRAY,
            Type::INT8_ARRAY,
            Type::INT8_ARRAY,
            Type::TEXT_ARRAY,
            Type::INT8_ARRAY,
            Type::INT8_ARRAY,
            Type::TEXT_ARRAY,
            Type::TEXT_ARRAY,
            Type::INT8_ARRAY,
            Type::BOOL_ARRAY,
            Type::BYTEA_ARRAY,
            Type::BYTEA_ARRAY,
            $($more),*
        ]
    };
}

const CALL: Sql = Sql {
    text: call!("", ""),
    types: types!(),
};

/// The same with answers, none of whose keys may have an answer yet.
const CALL_AND_KEEP: Sql = Sql {
    text: call!(
        "WHERE NOT EXISTS (
             SELECT 1 FROM unnest($19::bigint[], $21::text[], $22::text[], $23::text[])
                           AS k (n, member, device, key)
             CROSS JOIN LATERAL (
                 SELECT 1 FROM idempotency i
                 WHERE i.graph = g.id AND i.member = k.member AND i.device = k.device
                   AND i.key = k.key
                 OFFSET 0
             ) i
             WHERE k.n = v.n
         ) ",
        "kept AS (
             INSERT INTO idempotency (slot, graph, member, device, key, at, body, answer)
             SELECT v.slot, f.id, v.member, v.device, v.key, v.at, v.body, v.answer
             FROM fresh f
             JOIN unnest($19::bigint[], $20::smallint[], $21::text[], $22::text[], $23::text[],
                         $24::bigint[], $25::bytea[], $26::bytea[])
                  AS v (n, slot, member, device, key, at, body, answer) ON v.n = f.n
         ), "
    ),
    types: types!(
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY
    ),
};

/// Pushes to one graph, decided on what was remembered of it, and what they come to.
pub(crate) struct Decided {
    pushes: Arc<[Push]>,
    /// How the graph stood.
    state: State,
    /// How it stands afterwards.
    after: Graph,
    written: Vec<Written>,
    answered: Vec<Answered>,
    bytes: usize,
    /// The generation of what was remembered.
    generation: u64,
}

impl Decided {
    /// Decides pushes on what is remembered of their graph; what each is told if that holds. Where
    /// not all of them are taken as they are, what was remembered comes back: whoever is refused
    /// anything is refused for what was read just then.
    pub(crate) fn new(
        pushes: &Arc<[Push]>,
        generation: u64,
        mut state: State,
    ) -> Result<(Self, Vec<Told>), Box<State>> {
        let mut batch = Batch::new(pushes);
        batch.graph = Some(state.graph.clone());
        batch.callers = mem::take(&mut state.callers);
        let told = batch.decide_all();
        state.callers = mem::take(&mut batch.callers);
        let plain = told.iter().all(|told| {
            told.as_ref()
                .is_ok_and(|outcome| outcome.answer.rejected == 0)
        });
        let written = batch.written();
        let Some(after) = batch.graph.take().filter(|_| plain && !written.is_empty()) else {
            return Err(Box::new(state));
        };
        let answered = batch.answered();
        let bytes = pushes.iter().flat_map(|push| &push.records);
        let bytes = bytes.map(|it| it.record.ciphertext.len()).sum();
        let pushes = Arc::clone(pushes);
        let decided = Self {
            pushes,
            state,
            after,
            written,
            answered,
            bytes,
            generation,
        };
        Ok((decided, told))
    }

    /// What is remembered once the graph's row has this version.
    fn into_state(self, version: Version) -> State {
        State {
            id: self.state.id,
            before: self.state.version,
            version,
            graph: self.after,
            callers: self.state.callers,
        }
    }
}

/// What became of decided pushes: how their graph stands now, or nothing where what was remembered
/// does not hold, and nothing was written.
type Became = Work<Option<State>>;

struct Waiting {
    decided: Decided,
    reply: oneshot::Sender<Became>,
}

#[derive(Default)]
struct Line {
    waiting: Vec<Waiting>,
    /// Statements on their way.
    lanes: usize,
}

/// Where decided pushes wait for those before them.
pub(crate) struct Versioned {
    database: Arc<Database>,
    remembered: Arc<Remembered>,
    line: Mutex<Line>,
    lanes: usize,
}

impl Versioned {
    /// At most so many statements at a time.
    pub(crate) fn new(database: Arc<Database>, remembered: Arc<Remembered>, lanes: usize) -> Self {
        Self {
            database,
            remembered,
            line: Mutex::default(),
            lanes,
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Every change behind this lock is whole: no panic leaves it half done.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes decided pushes, and answers once that is durable.
    pub(crate) async fn write(self: &Arc<Self>, decided: Decided) -> Became {
        let (reply, became) = oneshot::channel();
        let lane = {
            let mut line = self.line();
            line.waiting.push(Waiting { decided, reply });
            let free = line.lanes < self.lanes;
            line.lanes += usize::from(free);
            free.then(|| Lane {
                versioned: Arc::clone(self),
                held: true,
            })
        };
        if let Some(lane) = lane {
            // Beside those who wait: one of them may be done before the others.
            tokio::spawn(lane.run());
        }
        became
            .await
            .unwrap_or(Err(Failure::Shared("the task that it shared has ended")))
    }

    async fn carry_out(&self, waiting: Vec<Waiting>) {
        let (decided, replies): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|it| (it.decided, it.reply)).unzip();
        match self.call(&decided).await {
            Ok(versions) => {
                for ((decided, version), reply) in decided.into_iter().zip(versions).zip(replies) {
                    drop(reply.send(Ok(version.map(|version| decided.into_state(version)))));
                }
            }
            Err(failure) if failure.is_everybodys() => {
                let mut failure = Some(failure);
                for reply in replies {
                    // The first is told what it was, and those beside it that it was not theirs.
                    let why = "the statement that it shared could not be carried out";
                    let failure = failure.take().unwrap_or(Failure::Shared(why));
                    drop(reply.send(Err(failure)));
                }
            }
            Err(_) if decided.len() > 1 => {
                for (decided, reply) in decided.into_iter().zip(replies) {
                    let became = match self.call(std::slice::from_ref(&decided)).await {
                        Ok(versions) => {
                            let version = versions.into_iter().next().flatten();
                            Ok(version.map(|version| decided.into_state(version)))
                        }
                        Err(failure) if failure.is_everybodys() => Err(failure),
                        Err(failure) => {
                            told_later(&failure);
                            Ok(None)
                        }
                    };
                    drop(reply.send(became));
                }
            }
            Err(failure) => {
                told_later(&failure);
                for reply in replies {
                    drop(reply.send(Ok(None)));
                }
            }
        }
    }

    /// The version that each graph has now, where it was written to.
    async fn call(&self, decided: &[Decided]) -> Work<Vec<Option<Version>>> {
        let mut records = Records::default();
        let mut answers = Answers::default();
        for (it, n) in decided.iter().zip(1..) {
            records.add(n, &it.pushes, &it.written);
            answers.add(n, &it.pushes, &it.answered);
        }
        let of = |what: fn(&Decided) -> i64| decided.iter().map(what).collect::<Vec<i64>>();
        let ids = of(|it| it.state.id);
        let versions: Vec<_> = decided.iter().map(|it| it.state.version).collect();
        let epochs = of(|it| int(it.state.graph.epoch));
        let heads = of(|it| int(it.state.graph.head));
        let new_heads = of(|it| int(it.after.head));
        let counted = of(|it| int(it.after.counters.records));
        let tombstones = of(|it| int(it.after.counters.tombstones));
        let bytes = of(|it| int(it.after.counters.ciphertext_bytes));
        let mut args: Vec<&(dyn ToSql + Sync)> = vec![
            &ids,
            &versions,
            &epochs,
            &heads,
            &new_heads,
            &counted,
            &tombstones,
            &bytes,
            &records.places,
            &records.ids,
            &records.seqs,
            &records.epochs,
            &records.members,
            &records.devices,
            &records.times,
            &records.deleted,
            &records.sigs,
            &records.ciphertexts,
        ];
        let keep: [&(dyn ToSql + Sync); 8] = [
            &answers.places,
            &answers.slots,
            &answers.members,
            &answers.devices,
            &answers.keys,
            &answers.times,
            &answers.bodies,
            &answers.answers,
        ];
        let mut sql = &CALL;
        if !answers.places.is_empty() {
            sql = &CALL_AND_KEEP;
            args.extend(keep);
        }
        // The connection may have been made for this, to a server that has taken another's place.
        let still = || {
            let generation = self.remembered.generation();
            decided.iter().all(|it| it.generation == generation)
        };
        let versions = self
            .database
            .once(sql, &args, still, |rows| {
                let mut versions = vec![None; decided.len()];
                for row in rows {
                    let n: i64 = get(row, 0)?;
                    let at = usize::try_from(n - 1).ok();
                    let version = at.and_then(|at| versions.get_mut(at));
                    *version.ok_or(Failure::Corrupt(
                        "a graph was written to that was not named",
                    ))? = Some(get(row, 1)?);
                }
                Ok(versions)
            })
            .await?;
        Ok(versions.unwrap_or_else(|| vec![None; decided.len()]))
    }
}

/// What the database has against a push is told by the long way, if it still has it then.
fn told_later(failure: &Failure) {
    if let Failure::Database(error) = failure
        && error.code() != Some(&SqlState::UNIQUE_VIOLATION)
    {
        tracing::debug!(
            error = %crate::failure::Told::of(error),
            "a push in one round trip failed; it is tried the long way"
        );
    }
}

/// A statement's place, given back when it is dropped, whatever became of the statement.
struct Lane {
    versioned: Arc<Versioned>,
    held: bool,
}

impl Lane {
    async fn run(mut self) {
        loop {
            let waiting = self.next();
            if waiting.is_empty() {
                return;
            }
            self.versioned.carry_out(waiting).await;
        }
    }

    /// Those that go together next; nobody where the lane is left.
    fn next(&mut self) -> Vec<Waiting> {
        let mut line = self.versioned.line();
        let mut bytes = 0;
        let mut count = 0;
        for it in &line.waiting {
            bytes += it.decided.bytes;
            if count == MAX_GRAPHS || count > 0 && bytes > MAX_BYTES {
                break;
            }
            count += 1;
        }
        if count == 0 {
            // Under the same lock, so that nobody comes in between.
            line.lanes -= 1;
            drop(line);
            self.held = false;
            return Vec::new();
        }
        line.waiting.drain(..count).collect()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        // The task was cut off, or panicked. Where no other is left, those who wait are told so, and
        // the next who asks finds a free place.
        let mut line = self.versioned.line();
        line.lanes -= 1;
        if line.lanes == 0 {
            line.waiting.clear();
        }
    }
}
