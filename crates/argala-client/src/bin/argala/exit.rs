//! Exit codes: what a script may rely on.

use std::{fmt, io, process::ExitCode};

use argala_client::Error;

/// How the command ended. `argala --help` documents each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Failed on this machine: a file, a key file, sealed bytes that do not open.
    Failed = 1,
    /// What was typed makes no sense. clap exits with the same code.
    Usage = 2,
    /// The relay refused.
    Refused = 3,
    /// The relay cannot be reached, or not now. What was to be written is held.
    Offline = 4,
    /// Done in part: something is held, was refused, has failed or is still owed.
    Partial = 5,
    /// Nothing came before the timeout.
    TimedOut = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not come about.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library's error.
    Client(Error),
    /// Writing the output failed.
    Output(io::Error),
    /// The folder sync's error, with the code that it exits with.
    Other {
        /// What to tell.
        message: String,
        /// How to exit.
        exit: Exit,
    },
}

impl Failure {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => of(error),
            Self::Output(_) => Exit::Failed,
            Self::Other { exit, .. } => *exit,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Client(Error::Usage(message.into()))
    }
}

/// The exit code of an error of the library.
pub(crate) fn of(error: &Error) -> Exit {
    match error {
        Error::Usage(_) => Exit::Usage,
        Error::Offline(_) => Exit::Offline,
        Error::Status {
            status: 502..=504, ..
        } => Exit::Offline,
        Error::Relay(problem) if problem.status == 503 => Exit::Offline,
        Error::Relay(_) | Error::Status { .. } | Error::Unkeyed { .. } => Exit::Refused,
        Error::KeysBehind { .. } | Error::Unlisted(_) => Exit::Partial,
        _ => Exit::Failed,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Output(error) => write!(f, "writing the output: {error}"),
            Self::Other { message, .. } => f.write_str(message),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
