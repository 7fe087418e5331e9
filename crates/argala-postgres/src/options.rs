//! How a database is used.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use argala_core::ports::{Random, SystemRandom};

use crate::{CommitProbe, StatementProbe};

/// How statements are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Statements {
    /// Each is prepared once a connection. PgBouncer in transaction mode keeps track of them from
    /// 1.21 on, where its `max_prepared_statements` is not 0.
    #[default]
    Prepared,
    /// Each is sent with its text, which works through anything, and costs the server a parse and a
    /// plan a statement.
    Unnamed,
}

/// Who keeps the server's timeouts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Timeouts {
    /// Each connection is told them when it is made. Not for a PgBouncer in transaction mode, where
    /// a connection is nobody's own.
    #[default]
    Connection,
    /// Each transaction is told them as it begins; single reads become transactions for it.
    Transaction,
    /// Nobody here: the role has them (`ALTER ROLE … SET statement_timeout = …`), and should have
    /// `plan_cache_mode = force_generic_plan` beside them.
    Role,
}

/// How a database is used. The defaults suit a relay.
#[derive(Clone)]
pub struct Options {
    /// Where it is: `postgres://user:password@host:port/database`, with the parameters that
    /// `libpq` knows. `sslmode` is `disable`, `prefer` (the default: whatever the server offers),
    /// `require` (encrypted, whoever answers), `verify-ca` or `verify-full` (and it is whom it says
    /// to be); `sslrootcert` names a file of certificates to trust in place of the system's.
    pub url: String,
    /// The same without a connection pooler between, for migrations. Default: as `url`.
    pub direct_url: Option<String>,
    /// Connections at the most. About four for each core of the server's, over all replicas.
    /// Default 16.
    pub connections: usize,
    /// How long an operation waits for a connection before it is told
    /// [`Unavailable`](argala_core::StoreErrorKind::Unavailable). Default 2 s.
    pub wait: Duration,
    /// How long making a connection may take. Default 5 s.
    pub connect_timeout: Duration,
    /// How long a statement may run. Default 10 s.
    pub statement_timeout: Duration,
    /// How long a statement may wait for a lock. Default 3 s.
    pub lock_timeout: Duration,
    /// How long a transaction may wait for us. Default 10 s.
    pub idle_in_transaction_timeout: Duration,
    /// How long an operation may take in all, waiting and trying again included: what is left where
    /// the network swallows everything. Default 20 s.
    pub operation_timeout: Duration,
    /// How the server learns of the timeouts. Default [`Timeouts::Connection`].
    pub timeouts: Timeouts,
    /// How statements are sent. Default [`Statements::Prepared`].
    pub statements: Statements,
    /// Whether pushes to one graph that come while another is being committed share a transaction.
    /// Default yes; no is for measuring what that is worth.
    pub group_pushes: bool,
    /// About how many bytes may hold what is remembered of graphs from one push to the next, so that
    /// most pushes take one round trip. Default 8 MiB; 0 for nothing.
    pub remember: u64,
    /// Certificates to trust in place of the system's, where the URL names none. Default none.
    pub root_certificates: Option<PathBuf>,
    /// Where the jitter between tries comes from. Default the operating system.
    pub random: Arc<dyn Random>,
    /// Is told each statement that is sent, for tests and for finding slow ones. Default none.
    pub probe: Option<StatementProbe>,
    /// Is told each transaction of pushes that is committed, to count how many share one. Default
    /// none.
    pub commits: Option<CommitProbe>,
}

impl Options {
    /// The defaults for the database at `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            direct_url: None,
            connections: 16,
            wait: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(3),
            idle_in_transaction_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(20),
            timeouts: Timeouts::default(),
            statements: Statements::default(),
            group_pushes: true,
            remember: 8 * 1024 * 1024,
            root_certificates: None,
            random: Arc::new(SystemRandom),
            probe: None,
            commits: None,
        }
    }

    /// Says the server's timeouts, and that it is to plan each statement once; `scope` is `SESSION`
    /// or `LOCAL`.
    ///
    /// Left to itself the server plans a statement anew each time where it thinks little of the
    /// parameters' number, which costs a small push as much as all the rest. What a plan made once is
    /// like, tests hold for every statement.
    pub(crate) fn timeouts_sql(&self, scope: &str) -> String {
        // Nothing is for ever: 0 would be that.
        let millis = |time: Duration| time.as_millis().clamp(1, i32::MAX as u128);
        format!(
            "SET {scope} statement_timeout = {}; SET {scope} lock_timeout = {}; \
             SET {scope} idle_in_transaction_session_timeout = {}; \
             SET {scope} plan_cache_mode = force_generic_plan",
            millis(self.statement_timeout),
            millis(self.lock_timeout),
            millis(self.idle_in_transaction_timeout),
        )
    }
}

// The URLs may hold passwords.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("connections", &self.connections)
            .field("wait", &self.wait)
            .field("connect_timeout", &self.connect_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("lock_timeout", &self.lock_timeout)
            .field(
                "idle_in_transaction_timeout",
                &self.idle_in_transaction_timeout,
            )
            .field("operation_timeout", &self.operation_timeout)
            .field("timeouts", &self.timeouts)
            .field("statements", &self.statements)
            .field("group_pushes", &self.group_pushes)
            .field("remember", &self.remember)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_timeout_is_for_ever_and_no_password_is_told() {
        let mut options = Options::new("postgres://relay:secret@localhost/relay");
        options.lock_timeout = Duration::ZERO;
        options.statement_timeout = Duration::MAX;
        assert_eq!(
            options.timeouts_sql("LOCAL"),
            "SET LOCAL statement_timeout = 2147483647; SET LOCAL lock_timeout = 1; \
             SET LOCAL idle_in_transaction_session_timeout = 10000; \
             SET LOCAL plan_cache_mode = force_generic_plan"
        );
        assert!(!format!("{options:?}").contains("secret"));
    }
}
