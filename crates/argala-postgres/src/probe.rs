//! Watching the database at work: which statements run, what shares a commit, what was tried again.

use std::{fmt, sync::Arc};

/// Is told the text of each statement as it is sent, parameters in place of values.
pub type StatementProbe = Arc<dyn Fn(&str) + Send + Sync>;

/// Is told of each transaction of pushes that has been committed.
pub type CommitProbe = Arc<dyn Fn(Commit) + Send + Sync>;

/// A transaction of pushes to one graph that has been committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// How many pushes it carried, those that were refused or changed nothing included.
    pub pushes: usize,
}

/// What a database has been used for since it was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Connections there are.
    pub connections: usize,
    /// Those of them that nobody uses.
    pub idle: usize,
    /// Operations that wait for one.
    pub waiting: usize,
    /// How often a transaction was tried again, after a deadlock or a failed serialization.
    pub retries: u64,
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections, {} idle; {} wait; {} retries",
            self.connections, self.idle, self.waiting, self.retries
        )
    }
}
