//! What can go wrong inside a transaction, and what callers are told of it.

use argala_core::{Fault, Rejection, StoreError, StoreErrorKind, StoreResult};
use rusqlite::{Error, ErrorCode};

/// Why a piece of work inside a transaction ends without a result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The rules refuse the request; nothing was written.
    Rejected(Rejection),
    /// The database failed.
    Database(Error),
    /// What was read breaks a rule that every write keeps; in a few words.
    Corrupt(&'static str),
    /// The work panicked: a fault of ours, contained so that the thread goes on.
    Panicked,
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

impl Failure {
    /// What the caller of `operation` is told.
    pub(crate) fn into_fault(self, operation: &'static str) -> Fault {
        match self {
            Self::Rejected(rejection) => Fault::Rejected(rejection),
            Self::Database(error) => {
                Fault::Store(StoreError::new(kind_of(&error), operation, error))
            }
            Self::Corrupt(what) => Fault::Store(StoreError::corrupt(what)),
            Self::Panicked => Fault::Store(StoreError::internal(operation, "it panicked")),
        }
    }
}

/// What kind of failure an error of SQLite's is.
pub(crate) fn kind_of(error: &Error) -> StoreErrorKind {
    match error {
        Error::SqliteFailure(failure, _) => match failure.code {
            // The disk, the memory or another process: the same request may succeed later.
            ErrorCode::DiskFull
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted => StoreErrorKind::Unavailable,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreErrorKind::Corrupt,
            _ => StoreErrorKind::Internal,
        },
        // A column that does not hold what every write puts there.
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Internal,
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
        let failure = |code| Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        for (code, kind) in [
            (rusqlite::ffi::SQLITE_FULL, StoreErrorKind::Unavailable),
            (rusqlite::ffi::SQLITE_BUSY, StoreErrorKind::Unavailable),
            (rusqlite::ffi::SQLITE_IOERR, StoreErrorKind::Unavailable),
            (rusqlite::ffi::SQLITE_CORRUPT, StoreErrorKind::Corrupt),
            (rusqlite::ffi::SQLITE_NOTADB, StoreErrorKind::Corrupt),
            (rusqlite::ffi::SQLITE_CONSTRAINT, StoreErrorKind::Internal),
            (rusqlite::ffi::SQLITE_ERROR, StoreErrorKind::Internal),
        ] {
            assert_eq!(kind_of(&failure(code)), kind, "{code}");
        }
    }
}
