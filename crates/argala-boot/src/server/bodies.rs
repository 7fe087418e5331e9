//! Request bodies: how slowly they may come, and how much of them is held at once.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use argala_core::ports::Random;
use argala_wire::{Code, Problem};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http_body::{Frame, SizeHint};
use tokio::{
    sync::Semaphore,
    time::{Instant, Sleep, sleep_until},
};

/// The unit of the budget: a permit for each.
const UNIT: u64 = 1_024;
/// Bytes a second that a body must come with on average.
const PACE: u64 = 1_024;

/// What bodies may cost.
#[derive(Clone)]
pub(super) struct Bodies {
    timeout: Duration,
    budget: Arc<Semaphore>,
    random: Arc<dyn Random>,
}

impl Bodies {
    pub(super) fn new(timeout: Duration, max_buffered: u64, random: Arc<dyn Random>) -> Self {
        let units = usize::try_from(max_buffered / UNIT).unwrap_or(usize::MAX);
        Self {
            timeout,
            budget: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
            random,
        }
    }

    fn overloaded(&self, headers: &HeaderMap) -> Response {
        let problem = Problem::new(Code::Unavailable, "the relay is busy; try again");
        let mut response = argala_http::render_problem(headers, &problem, self.random.as_ref());
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        response
    }
}

/// Counts the memory that a request's body takes, and watches how it comes in.
///
/// What counts is what has come: a length that is only announced costs its caller nothing, and
/// must not cost others anything either. A blob's bytes are streamed, so a PUT takes no share.
/// Where nothing is left, the body is cut and the answer is 503.
pub(super) async fn watch(State(bodies): State<Bodies>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let share = (parts.method != Method::PUT).then(|| Share::of(&bodies.budget));
    let headers = parts.headers.clone();
    let body = Body::new(Paced {
        inner: body,
        timeout: bodies.timeout,
        share: share.clone(),
        received: 0,
        waited: Duration::ZERO,
        since: None,
        timer: None,
    });
    let response = next.run(Request::from_parts(parts, body)).await;
    match share {
        // Whatever the route made of the cut body, this is why it was cut.
        Some(share) if share.refused.load(Ordering::Relaxed) => bodies.overloaded(&headers),
        _ => response,
    }
}

/// One request's part of the budget, given back when the request has been answered.
struct Share {
    budget: Arc<Semaphore>,
    taken: AtomicUsize,
    refused: AtomicBool,
}

impl Share {
    fn of(budget: &Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::clone(budget),
            taken: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
        })
    }

    /// Takes room for `bytes` more; `false` where there is none.
    fn take(&self, bytes: u64) -> bool {
        let units = bytes.div_ceil(UNIT);
        let Ok(units) = u32::try_from(units) else {
            return false;
        };
        match self.budget.try_acquire_many(units) {
            Ok(permit) => {
                permit.forget();
                self.taken.fetch_add(units as usize, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.add_permits(self.taken.load(Ordering::Relaxed));
    }
}

/// A body that ends with an error where its sender pauses for too long, drips, or sends more than
/// there is room for. Only time that is spent waiting for the sender counts.
struct Paced {
    inner: Body,
    timeout: Duration,
    share: Option<Arc<Share>>,
    received: u64,
    waited: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    /// How much longer the sender may take for the next piece.
    fn patience(&self) -> Duration {
        let earned = self.timeout + Duration::from_secs(self.received / PACE);
        self.timeout.min(earned.saturating_sub(self.waited))
    }

    fn is_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.patience();
        let now = Instant::now();
        let fresh = self.since.is_none();
        let deadline = *self.since.get_or_insert(now) + patience;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if fresh {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(cx)
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
            ready!(this.is_late(cx));
            return Poll::Ready(Some(Err(axum::Error::new(io::Error::from(
                io::ErrorKind::TimedOut,
            )))));
        };
        if let Some(since) = this.since.take() {
            this.waited += since.elapsed();
        }
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.received += data.len() as u64;
            if let Some(share) = &this.share
                && !share.take(data.len() as u64)
            {
                share.refused.store(true, Ordering::Relaxed);
                return Poll::Ready(Some(Err(axum::Error::new(io::Error::from(
                    io::ErrorKind::OutOfMemory,
                )))));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};
    use http_body_util::BodyExt as _;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// A body of `pieces`, each after a pause.
    fn body(pieces: usize, size: usize, pause: Duration, share: Option<Arc<Share>>) -> Paced {
        let pieces = stream::iter(0..pieces).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, io::Error>(Bytes::from(vec![7; size]))
        });
        Paced {
            inner: Body::from_stream(pieces),
            timeout: TIMEOUT,
            share,
            received: 0,
            waited: Duration::ZERO,
            since: None,
            timer: None,
        }
    }

    async fn length(body: Paced) -> Option<usize> {
        body.collect().await.ok().map(|all| all.to_bytes().len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_may_last_as_long_as_the_timeout_and_no_longer() {
        let almost = TIMEOUT - Duration::from_secs(1);
        assert_eq!(length(body(3, 100_000, almost, None)).await, Some(300_000));
        let over = TIMEOUT + Duration::from_secs(1);
        assert_eq!(length(body(1, 100_000, over, None)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_cut_and_a_slow_one_is_not() {
        let second = Duration::from_secs(1);
        assert_eq!(length(body(1_000, 1, second, None)).await, None);
        let slow = body(1_000, 2_048, second, None);
        assert_eq!(length(slow).await, Some(2_048_000));
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_the_reader_takes_is_not_the_senders() {
        let mut slow = body(100, 10, Duration::from_millis(100), None);
        let mut pieces = 0;
        while let Some(frame) = slow.frame().await {
            assert!(frame.is_ok(), "cut after {pieces} pieces");
            pieces += 1;
            tokio::time::sleep(TIMEOUT).await;
        }
        assert_eq!(pieces, 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_unknown_length_takes_its_share_as_it_comes_and_gives_it_back() {
        let budget = Arc::new(Semaphore::new(4));
        let share = Share::of(&budget);
        let fits = body(4, 1_000, Duration::ZERO, Some(Arc::clone(&share)));
        assert_eq!(length(fits).await, Some(4_000));
        assert_eq!(budget.available_permits(), 0);
        assert!(!share.refused.load(Ordering::Relaxed));
        drop(share);
        assert_eq!(budget.available_permits(), 4);

        let share = Share::of(&budget);
        let larger = body(5, 1_000, Duration::ZERO, Some(Arc::clone(&share)));
        assert_eq!(length(larger).await, None);
        assert!(share.refused.load(Ordering::Relaxed));
        drop(share);
        assert_eq!(budget.available_permits(), 4);
    }
}
