//! A connection's bytes: with a place among those that may be open, and without endless waits.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep},
};

/// A TCP stream that gives up on a peer that says nothing, or takes nothing.
///
/// Its place is given back when it is dropped, which a connection's task does at its end and
/// whoever an upgrade handed it to (a WebSocket) does later.
pub(super) struct Watched {
    inner: TcpStream,
    /// Until the first byte: no timeout of the HTTP server runs before it has seen one.
    first: Option<Pin<Box<Sleep>>>,
    write_timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    is_stalled: bool,
    _place: OwnedSemaphorePermit,
}

impl Watched {
    pub(super) fn new(
        inner: TcpStream,
        first_byte: Duration,
        write_timeout: Duration,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            inner,
            first: Some(Box::pin(sleep(first_byte))),
            write_timeout,
            stalled: None,
            is_stalled: false,
            _place: place,
        }
    }

    /// What becomes of a write: while the peer takes nothing, the time runs.
    fn watch_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.is_stalled = false;
            return polled;
        }
        let timeout = self.write_timeout;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if !self.is_stalled {
            timer.as_mut().reset(Instant::now() + timeout);
            self.is_stalled = true;
        }
        timer
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_read(cx, buf);
        if let Some(timer) = &mut this.first {
            if polled.is_ready() {
                this.first = None;
            } else {
                return timer
                    .as_mut()
                    .poll(cx)
                    .map(|()| Err(io::ErrorKind::TimedOut.into()));
            }
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.watch_write(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.watch_write(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_flush(cx);
        this.watch_write(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        sync::Semaphore,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);
    const SHORT: Duration = Duration::from_millis(20);

    async fn pair(first: Duration, write: Duration) -> (Watched, TcpStream, Arc<Semaphore>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        (Watched::new(server, first, write, place), client, places)
    }

    #[tokio::test]
    async fn whoever_says_nothing_is_given_up_and_leaves_the_place() {
        let (mut watched, _client, places) = pair(SHORT, LONG).await;
        assert_eq!(places.available_permits(), 0);
        let error = watched.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(watched);
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test]
    async fn whoever_takes_nothing_is_given_up() {
        let (mut watched, _client, _) = pair(LONG, SHORT).await;
        let piece = vec![0; 1 << 20];
        let error = loop {
            if let Err(error) = watched.write_all(&piece).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn after_the_first_byte_a_pause_is_no_fault_here() {
        let (mut watched, mut client, _) = pair(Duration::from_secs(5), LONG).await;
        client.write_all(b"G").await.unwrap();
        assert_eq!(watched.read(&mut [0; 8]).await.unwrap(), 1);
        assert!(watched.first.is_none());
    }
}
