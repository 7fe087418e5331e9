//! What becomes of a body that nobody read.
//!
//! Over HTTP/1.1, a server that answers early and closes makes the caller's system throw the
//! answer away: the caller, still sending, sees a broken connection in place of a 401 or a 413.
//! So what is on its way is read and dropped, within bounds, before the answer goes out.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{Version, header, request::Parts};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::timeout;

/// The most bytes that are read and dropped. More than the largest body that is allowed, so that
/// one byte too many is told and not cut off.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// How long is waited for more of a body that does not come.
const MAX_IDLE: Duration = Duration::from_millis(250);
/// How long dropping may take altogether.
const MAX_TIME: Duration = Duration::from_secs(30);

/// Whether a request's body is worth waiting for. One that waits to be asked for (`Expect`) is
/// not; nor is one of which the rest would be cut off all the same; nor one over HTTP/2, where a
/// stream can be answered and reset by itself.
pub(super) fn is_due(parts: &Parts) -> bool {
    let announced = parts.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    parts.version < Version::HTTP_2
        && !parts.headers.contains_key(header::EXPECT)
        && announced.is_none_or(|length| length <= MAX_BYTES)
}

/// A request's body, of which the layer keeps hold while a handler reads it.
pub(super) struct Shared(Arc<Mutex<State>>);

struct State {
    body: Body,
    is_over: bool,
}

impl Shared {
    pub(super) fn new(body: Body) -> Self {
        Self(Arc::new(Mutex::new(State {
            body,
            is_over: false,
        })))
    }

    /// The body, for the handler.
    pub(super) fn lend(&self) -> Body {
        Body::new(Self(Arc::clone(&self.0)))
    }

    /// Reads and drops what the handler left.
    pub(super) async fn drain(&mut self) {
        let dropping = async {
            let mut left = MAX_BYTES;
            while !self.is_end_stream() {
                let Ok(Some(Ok(frame))) = timeout(MAX_IDLE, self.frame()).await else {
                    return;
                };
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                let Some(rest) = left.checked_sub(length) else {
                    return;
                };
                left = rest;
            }
        };
        // However it ends, the answer goes out now.
        let _ = timeout(MAX_TIME, dropping).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A handler that panicked while reading leaves a body that is as good as before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut state = self.state();
        if state.is_over {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut state.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            state.is_over = true;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let state = self.state();
        state.is_over || state.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.state().body.size_hint()
    }
}
