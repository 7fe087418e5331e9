//! Being told to stop: once in order, twice at once.

use std::io;

/// What told the process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// A supervisor.
    Terminate,
}

impl Signal {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// Ends the process here and now, with the status a shell gives to one that the signal ended.
    /// Nothing that was acknowledged is lost: it was durable before it was acknowledged.
    pub(crate) fn exit(self) -> ! {
        tracing::warn!(signal = self.name(), "stopping at once");
        std::process::exit(match self {
            Self::Interrupt => 128 + 2,
            Self::Terminate => 128 + 15,
        })
    }
}

/// The signals of this process.
#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Listens from now on; a signal that comes before it is waited for is not missed.
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

/// The one signal that this system has.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Signal {
        // Where even this cannot be listened for, the process is ended from outside.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}

impl Signals {
    /// Waits to be told to stop.
    pub(crate) async fn first(&mut self) -> Signal {
        self.next().await
    }

    /// Waits to be told to stop at once.
    pub(crate) async fn second(&mut self) -> Signal {
        self.next().await
    }
}
