//! Watching the database at work: which statements run, and what shares a commit.

use std::{cell::RefCell, fmt, sync::Arc};

use rusqlite::{
    Connection,
    trace::{TraceEvent, TraceEventCodes},
};

/// Is told the text of each statement as it begins, parameters in place of values.
pub type StatementProbe = Arc<dyn Fn(&str) + Send + Sync>;

/// Is told of each commit of the writer's.
pub type CommitProbe = Arc<dyn Fn(Commit<'_>) + Send + Sync>;

/// A transaction of the writer's that has been committed.
#[derive(Clone, Copy)]
pub struct Commit<'a> {
    /// The operations that it carried, in their order, those that changed nothing included.
    pub operations: &'a [&'static str],
}

impl fmt::Debug for Commit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Commit").field(&self.operations).finish()
    }
}

thread_local! {
    /// SQLite's hook is a plain function, which finds here whom to tell. Each connection stays
    /// with one thread.
    static PROBE: RefCell<Option<StatementProbe>> = const { RefCell::new(None) };
}

/// Has the statements of this thread's connection told to `probe`, where there is one.
pub(crate) fn watch(connection: &Connection, probe: Option<StatementProbe>) {
    if probe.is_none() {
        return;
    }
    PROBE.set(probe);
    connection.trace_v2(
        TraceEventCodes::SQLITE_TRACE_STMT,
        Some(|event| {
            if let TraceEvent::Stmt(statement, _) = event {
                PROBE.with_borrow(|probe| {
                    if let Some(probe) = probe {
                        probe(&statement.sql());
                    }
                });
            }
        }),
    );
}
