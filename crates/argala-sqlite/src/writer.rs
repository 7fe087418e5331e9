//! The one writer: a thread that takes whatever waits, runs each command in a savepoint of its own
//! inside one transaction, commits once, and then answers all.
//!
//! The commit is what costs: it waits for the disk. Under load many commands share one; a command
//! that comes alone waits for nobody. What one command is told never depends on its neighbours: a
//! command that is refused or fails is undone alone, and where the shared transaction itself
//! fails, each of its commands is tried again in a transaction of its own.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

use argala_core::{Outcome, StoreError};
use rusqlite::{Connection, Error};
use tokio::sync::oneshot;

use crate::{
    Commit, CommitProbe, Options,
    failure::{Failure, Work, kind_of},
    probe,
};

/// The most commands that share a commit.
const MAX_COMMANDS: usize = 256;
/// The most bytes of sealed content that share a commit; one command may have more.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Where commands are handed in.
pub(crate) struct Writer {
    /// `None` once it is closed. The thread ends when this is gone and the queue is empty.
    queue: Mutex<Option<SyncSender<Box<dyn Command>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread, which owns `connection` from now on.
    pub(crate) fn start(connection: Connection, options: &Options) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(options.queue.max(1));
        let committed = options.commits.clone();
        let statements = options.statements.clone();
        let work = Loop {
            connection,
            receiver,
            committed,
        };
        let thread = std::thread::Builder::new()
            .name("argala-sqlite-writer".to_owned())
            .spawn(move || {
                probe::watch(&work.connection, statements);
                work.run();
            })?;
        Ok(Self {
            queue: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Runs `work` in a transaction of the writer's, and answers once what it wrote is durable.
    ///
    /// `bytes` says how much sealed content it carries. `work` may run twice, since a transaction
    /// may fail for a neighbour's sake; the first run then has left nothing behind. A future that
    /// is dropped takes the command back as long as its turn has not come.
    pub(crate) async fn run<T, F>(
        &self,
        operation: &'static str,
        bytes: usize,
        work: F,
    ) -> Outcome<T>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Work<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let command = Waiting {
            operation,
            bytes,
            work,
            outcome: None,
            reply,
        };
        self.hand_in(Box::new(command))?;
        answer.await.unwrap_or_else(|_| {
            // The thread drops no command without an answer while it lives.
            Err(StoreError::unavailable(operation, "the writer has ended").into())
        })
    }

    fn hand_in(&self, command: Box<dyn Command>) -> Result<(), StoreError> {
        let operation = command.operation();
        let refused = match &*lock(&self.queue) {
            None => "the database is closed",
            Some(queue) => match queue.try_send(command) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(_)) => "too many writes are waiting",
                Err(TrySendError::Disconnected(_)) => "the writer has ended",
            },
        };
        Err(StoreError::unavailable(operation, refused))
    }

    /// Takes no more commands, and returns once those that wait are done and answered.
    pub(crate) fn close(&self) {
        drop(lock(&self.queue).take());
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer of the database ended in a panic");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is replaced as a whole: no panic leaves it half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One caller's work, with the type of its answer out of sight.
trait Command: Send {
    fn operation(&self) -> &'static str;
    fn bytes(&self) -> usize;
    /// Whether the caller has gone away.
    fn is_abandoned(&self) -> bool;
    /// Runs the work in a savepoint and keeps its outcome.
    ///
    /// # Errors
    /// Where the transaction as a whole is in doubt.
    fn run(&mut self, tx: &Connection) -> Result<(), Error>;
    /// Tells the caller what came of it, now that the transaction has ended.
    fn answer(self: Box<Self>, committed: Result<(), &Error>);
}

struct Waiting<T, F> {
    operation: &'static str,
    bytes: usize,
    work: F,
    outcome: Option<Work<T>>,
    reply: oneshot::Sender<Outcome<T>>,
}

impl<T, F> Command for Waiting<T, F>
where
    T: Send,
    F: Fn(&Connection) -> Work<T> + Send,
{
    fn operation(&self) -> &'static str {
        self.operation
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(&mut self, tx: &Connection) -> Result<(), Error> {
        self.outcome = None;
        step(tx, "SAVEPOINT command")?;
        // Nothing outside the savepoint is touched, and that is rolled back.
        let outcome =
            catch_unwind(AssertUnwindSafe(|| (self.work)(tx))).unwrap_or(Err(Failure::Panicked));
        let keep = outcome.is_ok();
        self.outcome = Some(outcome);
        if !keep {
            // Fails where SQLite has rolled back the whole transaction (a full disk, say).
            step(tx, "ROLLBACK TO command")?;
        }
        step(tx, "RELEASE command")
    }

    fn answer(self: Box<Self>, committed: Result<(), &Error>) {
        let operation = self.operation;
        let outcome = match (self.outcome, committed) {
            (Some(Ok(value)), Ok(())) => Ok(value),
            (Some(Err(failure)), _) => Err(failure.into_fault(operation)),
            (_, Err(error)) => {
                Err(StoreError::new(kind_of(error), operation, error.to_string()).into())
            }
            (None, Ok(())) => {
                Err(StoreError::internal(operation, "committed without having run").into())
            }
        };
        // A caller that has gone away misses an answer, nothing else.
        drop(self.reply.send(outcome));
    }
}

/// Why a transaction was not committed.
enum Broken {
    /// It never began; nothing in it has to do with that.
    Outside(Error),
    /// It failed as a whole.
    Inside(Error),
}

struct Loop {
    connection: Connection,
    receiver: Receiver<Box<dyn Command>>,
    committed: Option<CommitProbe>,
}

impl Loop {
    fn run(self) {
        while let Ok(first) = self.receiver.recv() {
            let mut bytes = first.bytes();
            let mut commands = vec![first];
            while commands.len() < MAX_COMMANDS && bytes < MAX_BYTES {
                let Ok(next) = self.receiver.try_recv() else {
                    break;
                };
                bytes += next.bytes();
                commands.push(next);
            }
            self.carry_out(commands);
        }
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the database did not close cleanly");
        }
    }

    fn carry_out(&self, mut commands: Vec<Box<dyn Command>>) {
        match self.transact(&mut commands) {
            Ok(()) => answer_all(commands, Ok(())),
            Err(Broken::Outside(error)) => answer_all(commands, Err(&error)),
            Err(Broken::Inside(error)) if commands.len() == 1 => answer_all(commands, Err(&error)),
            Err(Broken::Inside(error)) => {
                tracing::warn!(%error, commands = commands.len(), "a shared transaction failed");
                for command in commands {
                    self.carry_out(vec![command]);
                }
            }
        }
    }

    fn transact(&self, commands: &mut Vec<Box<dyn Command>>) -> Result<(), Broken> {
        let tx = &self.connection;
        // At once, and not at the first write: what is read before it must still hold then, and
        // another process may write too.
        step(tx, "BEGIN IMMEDIATE").map_err(Broken::Outside)?;
        // Only now has their turn come: the transaction may have waited for another process.
        commands.retain(|command| !command.is_abandoned());
        let ran = commands
            .iter_mut()
            .try_for_each(|command| command.run(tx))
            .and_then(|()| step(tx, "COMMIT"));
        if let Err(error) = ran {
            if !tx.is_autocommit()
                && let Err(error) = step(tx, "ROLLBACK")
            {
                tracing::error!(%error, "a failed transaction could not be rolled back");
            }
            return Err(Broken::Inside(error));
        }
        if let Some(committed) = &self.committed
            && !commands.is_empty()
        {
            let operations: Vec<_> = commands.iter().map(|command| command.operation()).collect();
            committed(Commit {
                operations: &operations,
            });
        }
        Ok(())
    }
}

fn answer_all(commands: Vec<Box<dyn Command>>, committed: Result<(), &Error>) {
    for command in commands {
        command.answer(committed);
    }
}

fn step(tx: &Connection, sql: &str) -> Result<(), Error> {
    tx.prepare_cached(sql)?.execute([]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    };

    use argala_core::{Fault, StoreErrorKind};
    use futures_util::{FutureExt, future::join_all};

    use super::*;

    type Answer = std::pin::Pin<Box<dyn Future<Output = Outcome<()>>>>;

    /// A writer whose first command waits until it is told to go on, so that those handed in
    /// meanwhile share the next transaction.
    struct Bench {
        writer: Arc<Writer>,
        go_on: Sender<()>,
        answers: Vec<Answer>,
    }

    impl Bench {
        fn new() -> Self {
            let connection = Connection::open_in_memory().unwrap();
            connection
                .execute_batch(
                    "PRAGMA max_page_count = 100;
                     CREATE TABLE parents (id INTEGER PRIMARY KEY);
                     CREATE TABLE t (
                         id INTEGER PRIMARY KEY,
                         parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED,
                         bytes BLOB
                     );",
                )
                .unwrap();
            let writer = Arc::new(Writer::start(connection, &Options::default()).unwrap());
            let (go_on, wait) = channel();
            let wait = Mutex::new(wait);
            let mut bench = Self {
                writer,
                go_on,
                answers: Vec::new(),
            };
            bench.hand_in(move |_| {
                // Once only, should it run again: nothing is ever sent.
                wait.lock().unwrap().recv().unwrap_err();
                Ok(())
            });
            bench
        }

        fn hand_in(&mut self, work: impl Fn(&Connection) -> Work<()> + Send + 'static) {
            let writer = Arc::clone(&self.writer);
            let run = async move { writer.run("test", 0, work).await };
            let mut answer: Answer = Box::pin(run);
            assert!(answer.as_mut().now_or_never().is_none());
            self.answers.push(answer);
        }

        /// Hands in a row of its own; counts how often that runs.
        fn hand_in_row(&mut self, id: i64) -> Arc<AtomicUsize> {
            let runs = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&runs);
            self.hand_in(move |tx| {
                counted.fetch_add(1, Ordering::SeqCst);
                tx.execute("INSERT INTO t (id) VALUES (?1)", [id])?;
                Ok(())
            });
            runs
        }

        /// The answers to all but the first, and the ids of the rows there are.
        async fn end(self) -> (Vec<Outcome<()>>, Vec<i64>) {
            drop(self.go_on);
            let mut answers = join_all(self.answers).await;
            answers.remove(0).unwrap();
            let rows = self.writer.run("test", 0, |tx| {
                let mut statement = tx.prepare("SELECT id FROM t ORDER BY id")?;
                let rows = statement.query_map([], |row| row.get(0))?;
                Ok(rows.collect::<Result<Vec<i64>, _>>()?)
            });
            (answers, rows.await.unwrap())
        }
    }

    #[track_caller]
    fn failed(answer: &Outcome<()>, kind: StoreErrorKind) {
        match answer {
            Err(Fault::Store(error)) => assert_eq!(error.kind, kind, "{error:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_command_that_fails_is_undone_alone() {
        let mut bench = Bench::new();
        let first = bench.hand_in_row(1);
        bench.hand_in(|tx| {
            tx.execute("INSERT INTO t (id) VALUES (2)", [])?;
            tx.execute("INSERT INTO t (id) VALUES (1)", [])?;
            Ok(())
        });
        bench.hand_in(|tx| {
            tx.execute("INSERT INTO t (id) VALUES (3)", [])?;
            panic!("a rule met what it cannot be given");
        });
        bench.hand_in(|tx| {
            tx.execute("INSERT INTO t (id) VALUES (4)", [])?;
            Err(argala_core::Rejection::GraphUnkeyed.into())
        });
        bench.hand_in_row(5);
        let (answers, rows) = bench.end().await;
        assert!(answers[0].is_ok() && answers[4].is_ok());
        failed(&answers[1], StoreErrorKind::Internal);
        failed(&answers[2], StoreErrorKind::Internal);
        assert!(matches!(answers[3], Err(Fault::Rejected(_))));
        assert_eq!(rows, [1, 5]);
        assert_eq!(
            first.load(Ordering::SeqCst),
            1,
            "its transaction was the only one"
        );
    }

    #[tokio::test]
    async fn a_command_too_large_for_the_disk_is_told_so_and_no_other() {
        let mut bench = Bench::new();
        bench.hand_in_row(1);
        bench.hand_in(|tx| {
            tx.execute(
                "INSERT INTO t (id, bytes) VALUES (2, zeroblob(1000000))",
                [],
            )?;
            Ok(())
        });
        bench.hand_in_row(3);
        let (answers, rows) = bench.end().await;
        assert!(answers[0].is_ok() && answers[2].is_ok());
        failed(&answers[1], StoreErrorKind::Unavailable);
        assert_eq!(rows, [1, 3]);
    }

    #[tokio::test]
    async fn where_the_transaction_is_rolled_back_each_is_tried_alone() {
        let mut bench = Bench::new();
        let first = bench.hand_in_row(1);
        // As SQLite itself does it where it cannot go on.
        bench.hand_in(|tx| {
            tx.execute_batch("ROLLBACK")?;
            tx.query_row("SELECT no such column", [], |_| Ok(()))?;
            Ok(())
        });
        bench.hand_in_row(3);
        let (answers, rows) = bench.end().await;
        assert!(answers[0].is_ok() && answers[2].is_ok());
        failed(&answers[1], StoreErrorKind::Internal);
        assert_eq!(rows, [1, 3]);
        assert_eq!(first.load(Ordering::SeqCst), 2, "once in vain");
    }

    #[tokio::test]
    async fn where_the_commit_fails_each_is_tried_alone() {
        let mut bench = Bench::new();
        bench.hand_in_row(1);
        bench.hand_in(|tx| {
            tx.execute("INSERT INTO t (id, parent) VALUES (2, 77)", [])?;
            Ok(())
        });
        let last = bench.hand_in_row(3);
        let (answers, rows) = bench.end().await;
        assert!(answers[0].is_ok() && answers[2].is_ok());
        failed(&answers[1], StoreErrorKind::Internal);
        assert_eq!(rows, [1, 3]);
        assert_eq!(last.load(Ordering::SeqCst), 2, "once in vain");
    }

    #[tokio::test]
    async fn a_command_whose_caller_has_gone_is_not_run() {
        let mut bench = Bench::new();
        bench.hand_in_row(1);
        let gone = bench.hand_in_row(2);
        bench.answers.pop();
        let (answers, rows) = bench.end().await;
        assert!(answers[0].is_ok());
        assert_eq!(rows, [1]);
        assert_eq!(gone.load(Ordering::SeqCst), 0);
    }
}
