//! The readers: a few threads, each with a connection of its own that cannot write.
//!
//! A question is answered in one read transaction, so that all it reads is of one moment. In WAL
//! mode readers neither wait for the writer nor hold it up.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

use argala_core::{Outcome, StoreError};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{
    Options,
    failure::{Failure, Work},
    probe,
};

type Question = Box<dyn FnOnce(&Connection) + Send>;

/// Where questions are handed in.
pub(crate) struct Readers {
    /// `None` once they are closed. The threads end when this is gone and the queue is empty.
    queue: Mutex<Option<SyncSender<Question>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    /// Starts a thread for each of `connections`.
    pub(crate) fn start(connections: Vec<Connection>, options: &Options) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel::<Question>(options.queue.max(1));
        let receiver = Arc::new(Mutex::new(receiver));
        let mut threads = Vec::with_capacity(connections.len());
        for (at, connection) in connections.into_iter().enumerate() {
            let receiver = Arc::clone(&receiver);
            let statements = options.statements.clone();
            let thread = std::thread::Builder::new()
                .name(format!("argala-sqlite-reader-{at}"))
                .spawn(move || {
                    probe::watch(&connection, statements);
                    answer_questions(&connection, &receiver);
                })?;
            threads.push(thread);
        }
        Ok(Self {
            queue: Mutex::new(Some(sender)),
            threads: Mutex::new(threads),
        })
    }

    /// Answers with what `work` reads. A future that is dropped takes the question back as long as
    /// its turn has not come.
    pub(crate) async fn run<T, F>(&self, operation: &'static str, work: F) -> Outcome<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Work<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let question = move |connection: &Connection| {
            if reply.is_closed() {
                return;
            }
            // The transaction ends with the unwinding, and nothing else is shared.
            let outcome = catch_unwind(AssertUnwindSafe(|| at_one_moment(connection, work)))
                .unwrap_or(Err(Failure::Panicked))
                .map_err(|failure| failure.into_fault(operation));
            drop(reply.send(outcome));
        };
        self.hand_in(operation, Box::new(question))?;
        answer.await.unwrap_or_else(|_| {
            // A thread drops no question without an answer while it lives.
            Err(StoreError::unavailable(operation, "the readers have ended").into())
        })
    }

    fn hand_in(&self, operation: &'static str, question: Question) -> Result<(), StoreError> {
        let refused = match &*lock(&self.queue) {
            None => "the database is closed",
            Some(queue) => match queue.try_send(question) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(_)) => "too many reads are waiting",
                Err(TrySendError::Disconnected(_)) => "the readers have ended",
            },
        };
        Err(StoreError::unavailable(operation, refused))
    }

    /// Takes no more questions, and returns once those that wait are answered.
    pub(crate) fn close(&self) {
        drop(lock(&self.queue).take());
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            if thread.join().is_err() {
                tracing::error!("a reader of the database ended in a panic");
            }
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is replaced as a whole: no panic leaves it half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer_questions(connection: &Connection, receiver: &Mutex<Receiver<Question>>) {
    loop {
        // One thread waits at the queue, the others at the lock; whichever it is, each question
        // wakes one.
        let next = lock(receiver).recv();
        match next {
            Ok(question) => question(connection),
            Err(_) => return,
        }
    }
}

fn at_one_moment<T>(connection: &Connection, work: impl FnOnce(&Connection) -> Work<T>) -> Work<T> {
    let transaction = connection.unchecked_transaction()?;
    let answer = work(&transaction)?;
    transaction.commit()?;
    Ok(answer)
}
