//! What can go wrong inside a transaction, and what callers are told of it.

use argala_core::{Fault, Rejection, StoreError, StoreErrorKind, StoreResult};
use deadpool_postgres::PoolError;
use tokio_postgres::error::{Error, SqlState};

/// Why a piece of work inside a transaction ends without a result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The rules refuse the request; nothing was written.
    Rejected(Rejection),
    /// The database failed, or is out of reach.
    Database(Error),
    /// There was no connection to be had.
    Pool(PoolError),
    /// It took longer than an operation may.
    TooLong,
    /// What it was carried out together with others could not be had; in a few words.
    Shared(&'static str),
    /// What was read breaks a rule that every write keeps; in a few words.
    Corrupt(&'static str),
}

/// What a piece of work inside a transaction ends with.
pub(crate) type Work<T> = Result<T, Failure>;

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl Failure {
    /// What the caller of `operation` is told.
    pub(crate) fn into_fault(self, operation: &'static str) -> Fault {
        match self {
            Self::Rejected(rejection) => Fault::Rejected(rejection),
            Self::Database(error) => {
                let told = Told::of(&error);
                Fault::Store(StoreError::new(kind_of(&error), operation, told))
            }
            Self::Pool(PoolError::Backend(error)) => {
                // It was to be connected: wrong passwords and missing databases are an operator's
                // to mend, and the same request then succeeds.
                Fault::Store(StoreError::unavailable(operation, Told::of(&error)))
            }
            Self::Pool(PoolError::Timeout(what)) => Fault::Store(StoreError::unavailable(
                operation,
                match what {
                    deadpool_postgres::TimeoutType::Wait => "no connection became free in time",
                    _ => "no connection was made in time",
                },
            )),
            Self::Pool(PoolError::Closed) => {
                Fault::Store(StoreError::unavailable(operation, "the database is closed"))
            }
            Self::Pool(PoolError::PostCreateHook(_)) => Fault::Store(StoreError::unavailable(
                operation,
                "a new connection could not be set up",
            )),
            Self::Pool(PoolError::NoRuntimeSpecified) => Fault::Store(StoreError::internal(
                operation,
                "the pool has no runtime for its timeouts",
            )),
            Self::TooLong => Fault::Store(StoreError::unavailable(
                operation,
                "it took longer than an operation may",
            )),
            Self::Shared(why) => Fault::Store(StoreError::unavailable(operation, why)),
            Self::Corrupt(what) => Fault::Store(StoreError::corrupt(what)),
        }
    }

    /// Whether the same work may succeed where it is done again at once: what the database takes
    /// back for the sake of others.
    pub(crate) fn may_be_tried_again(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        error.code().is_some_and(|code| {
            *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED
        })
    }
}

impl Failure {
    /// Whether it says nothing about the work that met it: whatever else is tried now meets it
    /// too, after as long a wait.
    pub(crate) fn is_everybodys(&self) -> bool {
        match self {
            Self::Rejected(_) | Self::Corrupt(_) => false,
            Self::Pool(_) | Self::TooLong | Self::Shared(_) => true,
            Self::Database(error) => match error.code() {
                None => true,
                // A lock not had in time; a statement cut off, or a server that shuts down.
                Some(code) => code.code() == "55P03" || code.code().starts_with("57"),
            },
        }
    }
}

/// What the database said, without the values that it may name: ids of records belong in no log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Told {
    #[error("{message} (SQLSTATE {code})")]
    Database { code: String, message: String },
    #[error("the connection failed: {0}")]
    Connection(String),
}

impl Told {
    pub(crate) fn of(error: &Error) -> Self {
        match error.as_db_error() {
            Some(told) => Self::Database {
                code: told.code().code().to_owned(),
                message: told.message().to_owned(),
            },
            None => {
                // The socket's error stands below.
                let source = std::error::Error::source(error);
                Self::Connection(source.map_or_else(|| error.to_string(), ToString::to_string))
            }
        }
    }
}

/// What kind of failure an error of Postgres is.
pub(crate) fn kind_of(error: &Error) -> StoreErrorKind {
    match error.code() {
        Some(code) => kind_of_code(code.code()),
        // Not a word from the database: the connection broke, or could not be made.
        None => StoreErrorKind::Unavailable,
    }
}

fn kind_of_code(code: &str) -> StoreErrorKind {
    match code {
        // A transaction that only reads: this is a standby, after a failover.
        "25006" => StoreErrorKind::Unavailable,
        // The server ended a transaction that waited too long for us.
        "25P03" => StoreErrorKind::Unavailable,
        // A lock not had in time.
        "55P03" => StoreErrorKind::Unavailable,
        // The data's checksums, or an index.
        "XX001" | "XX002" => StoreErrorKind::Corrupt,
        _ => match &code[..2] {
            // The connection, credentials, transactions taken back more often than we try again,
            // resources (disk, memory, connections), a statement cancelled for taking too long or
            // a server that shuts down, the system's own errors.
            "08" | "28" | "3D" | "40" | "53" | "57" | "58" => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Internal,
        },
    }
}

/// What operations answer with that no rule can refuse.
pub(crate) fn unrefused<T>(outcome: Result<T, Fault>) -> StoreResult<T> {
    outcome.map_err(|fault| match fault {
        Fault::Store(error) => error,
        Fault::Rejected(rejection) => {
            StoreError::internal("an operation without rules was refused", rejection)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_unavailable() {
        for (code, kind) in [
            ("08006", StoreErrorKind::Unavailable),
            ("25006", StoreErrorKind::Unavailable),
            ("25P02", StoreErrorKind::Internal),
            ("40001", StoreErrorKind::Unavailable),
            ("53100", StoreErrorKind::Unavailable),
            ("53300", StoreErrorKind::Unavailable),
            ("55P03", StoreErrorKind::Unavailable),
            ("57014", StoreErrorKind::Unavailable),
            ("57P01", StoreErrorKind::Unavailable),
            ("58030", StoreErrorKind::Unavailable),
            ("XX001", StoreErrorKind::Corrupt),
            ("23505", StoreErrorKind::Internal),
            ("42P01", StoreErrorKind::Internal),
        ] {
            assert_eq!(kind_of_code(code), kind, "{code}");
        }
    }
}
