//! Asking S3: how long one waits, when one asks again, and what is told where it was in vain.
//!
//! The SDK has answers of its own to all three. They are not relied on: its timeouts leave gaps
//! (a body that is no longer read has none), and its second try cannot be told from its first.

use std::{
    error::Error,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use argala_core::StoreError;
use aws_sdk_s3::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
};
use tokio::time::{sleep, timeout};

/// Before a question is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// Why S3 has not done what it was asked.
#[derive(Debug)]
pub(super) enum Failed<E> {
    /// It refused, failed, or was not reached.
    Sdk(Box<SdkError<E, HttpResponse>>),
    /// Nothing was heard of it for so long.
    Silent(Duration),
}

/// Asks, and asks once more where S3 was not up to it. Each time it may be silent for `patience`
/// at the most: neither answer nor, as the counter tells, take some of the body.
pub(super) async fn twice<T, E, F>(
    patience: Duration,
    ask: impl Fn(&Arc<AtomicU64>) -> F,
) -> Result<T, Failed<E>>
where
    E: ProvideErrorMetadata + Error + 'static,
    F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
{
    let once = || async {
        let moved = Arc::default();
        while_it_moves(ask(&moved), &moved, patience).await
    };
    match once().await {
        Err(failed) if failed.may_pass() => {
            tracing::info!(cause = failed.told(), "S3 is asked again");
            sleep(PAUSE).await;
            once().await
        }
        told => told,
    }
}

async fn while_it_moves<T, E>(
    call: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    moved: &AtomicU64,
    patience: Duration,
) -> Result<T, Failed<E>> {
    let mut call = pin!(call);
    loop {
        let before = moved.load(Ordering::Relaxed);
        match timeout(patience, &mut call).await {
            Ok(told) => return told.map_err(|error| Failed::Sdk(Box::new(error))),
            Err(_) if moved.load(Ordering::Relaxed) == before => {
                return Err(Failed::Silent(patience));
            }
            Err(_) => {}
        }
    }
}

impl<E: ProvideErrorMetadata + Error + 'static> Failed<E> {
    /// The answer's status, where there was an answer.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Sdk(error) => Some(error.raw_response()?.status().as_u16()),
            Self::Silent(_) => None,
        }
    }

    /// S3's own word for what is wrong.
    fn code(&self) -> Option<&str> {
        match self {
            Self::Sdk(error) => error.as_service_error()?.code(),
            Self::Silent(_) => None,
        }
    }

    /// Whether the same question may be answered a moment later.
    fn may_pass(&self) -> bool {
        let Self::Sdk(error) = self else { return true };
        match **error {
            // The question could not even be asked: keys that cannot be had, a name that is none.
            SdkError::ConstructionFailure(_) => false,
            SdkError::ServiceError(_) => {
                let passing = ["SlowDown", "RequestTimeout", "InternalError"];
                matches!(self.status(), Some(429 | 500..))
                    || self.code().is_some_and(|code| passing.contains(&code))
            }
            // Not reached, cut off, or answered with something that is no answer.
            _ => true,
        }
    }

    fn told(&self) -> String {
        let error = match self {
            Self::Silent(patience) => return format!("nothing was heard of it for {patience:?}"),
            Self::Sdk(error) => error,
        };
        if let (Some(status), Some(refusal)) = (self.status(), error.as_service_error()) {
            // Its message is left out: some vendors repeat the request in it.
            return format!(
                "it answered {status} {}",
                refusal.code().unwrap_or("without a code")
            );
        }
        let mut told = error.to_string();
        let mut below = Error::source(&**error);
        while let Some(error) = below {
            told.push_str(": ");
            told.push_str(&error.to_string());
            below = error.source();
        }
        told
    }

    /// As the port tells it. That S3 refuses is for an operator to mend, not for a caller: until
    /// then the store is not available.
    pub(super) fn into_store_error(self, context: &'static str) -> StoreError {
        StoreError::unavailable(context, format!("S3: {}", self.told()))
    }
}

/// Whether S3 has said that there is no such object. A bucket that is missing is another matter.
pub(super) fn is_missing<E: ProvideErrorMetadata + Error + 'static>(failed: &Failed<E>) -> bool {
    failed.status() == Some(404) && failed.code() == Some("NoSuchKey")
}
