//! From what went wrong to a problem document: one exhaustive match, so that a new way to fail
//! does not compile until it is told.

use std::{error::Error as StdError, fmt::Write as _, sync::Arc};

use argala_core::{Fault, Rejection, StoreError, StoreErrorKind};
use argala_wire::{Code, Problem};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

/// How long a caller is asked to wait when a backend is down or slow, in seconds.
const UNAVAILABLE_RETRY_SECONDS: u64 = 2;

/// Why a request is not answered as it asks.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// The rules refuse it.
    Rejected(Rejection),
    /// A backend failed.
    Failed(StoreError),
    /// This layer refuses it.
    Refused(Refusal),
}

/// What only HTTP can refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No valid credential.
    Unauthenticated,
    /// No such route.
    NotFound,
    /// The route has no such method.
    MethodNotAllowed,
    /// The caller accepts neither of our media types.
    NotAcceptable,
    /// The body's media type is not one that the route takes.
    UnsupportedMediaType {
        /// What it does take.
        takes: &'static str,
    },
    /// The upload has no `Content-Length`.
    LengthRequired,
    /// The body is larger than the route takes.
    BodyTooLarge {
        /// Bytes that it may have.
        limit: u64,
    },
    /// The range begins after the blob's end.
    RangeNotSatisfiable {
        /// Bytes of the blob.
        size: u64,
    },
    /// A handler panicked.
    Panicked,
}

impl ApiError {
    /// A malformed request, with the name of what is at fault.
    pub(crate) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Rejected(Rejection::invalid(field, detail))
    }

    /// A malformed request in which no one thing can be named.
    pub(crate) fn malformed(detail: &'static str) -> Self {
        let detail = detail.to_owned();
        Self::Rejected(Rejection::InvalidRequest {
            field: None,
            detail,
        })
    }

    /// The problem document of this error.
    fn problem(&self) -> Problem {
        match self {
            Self::Rejected(rejection) => of_rejection(rejection),
            Self::Failed(error) => match error.kind {
                StoreErrorKind::Unavailable => {
                    Problem::new(Code::Unavailable, "the relay cannot answer now; try again")
                }
                StoreErrorKind::Corrupt | StoreErrorKind::Internal => {
                    Problem::new(Code::Internal, "the relay failed; nothing was half done")
                }
            },
            Self::Refused(refusal) => of_refusal(*refusal),
        }
    }

    /// Logs what is our fault: here, once, with what the backend said.
    fn log(&self) {
        match self {
            Self::Rejected(_) => {}
            Self::Failed(error) => match error.kind {
                StoreErrorKind::Unavailable => {
                    tracing::warn!(
                        context = error.context,
                        cause = causes(error),
                        "unavailable"
                    );
                }
                StoreErrorKind::Corrupt => {
                    tracing::error!(context = error.context, cause = causes(error), "corrupt");
                }
                StoreErrorKind::Internal => {
                    tracing::error!(context = error.context, cause = causes(error), "failed");
                }
            },
            Self::Refused(Refusal::Panicked) => tracing::error!("a handler panicked"),
            Self::Refused(_) => {}
        }
    }
}

/// What lies under `error`, outermost first.
fn causes(error: &StoreError) -> String {
    let mut told = String::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let separator = if told.is_empty() { "" } else { ": " };
        write!(told, "{separator}{cause}").expect("a string takes what is written");
        next = cause.source();
    }
    told
}

fn of_rejection(rejection: &Rejection) -> Problem {
    let told = |code| Problem::new(code, rejection.to_string());
    match rejection {
        Rejection::InvalidRequest { field, .. } => Problem {
            field: field.clone(),
            ..told(Code::InvalidRequest)
        },
        Rejection::DigestMismatch { .. } => told(Code::DigestMismatch),
        Rejection::DeviceUnregistered => told(Code::DeviceUnregistered),
        Rejection::DeviceRevoked => told(Code::DeviceRevoked),
        Rejection::MemberInactive => told(Code::MemberInactive),
        Rejection::QuotaExceeded { what, limit, used } => Problem {
            what: Some(what.as_str().to_owned()),
            limit: Some(*limit),
            used: Some(*used),
            ..told(Code::QuotaExceeded)
        },
        Rejection::GraphNotFound => told(Code::GraphNotFound),
        Rejection::BlobNotFound => told(Code::BlobNotFound),
        Rejection::DeviceNotFound => told(Code::DeviceNotFound),
        Rejection::DeviceKeyMismatch => told(Code::DeviceKeyMismatch),
        Rejection::EpochConflict { epoch } => Problem {
            epoch: Some(*epoch),
            ..told(Code::EpochConflict)
        },
        Rejection::GraphUnkeyed => told(Code::GraphUnkeyed),
        Rejection::PushRejected { results } => Problem {
            results: Some(results.clone()),
            ..told(Code::PushRejected)
        },
        Rejection::BlobExists => told(Code::BlobExists),
        Rejection::IdempotencyConflict => told(Code::IdempotencyConflict),
        Rejection::CursorInvalid { reason } => Problem {
            reason: Some(*reason),
            ..told(Code::CursorInvalid)
        },
        Rejection::HeadMoved { head } => Problem {
            head: Some(*head),
            ..told(Code::HeadMoved)
        },
        Rejection::BlobTooLarge { limit } => Problem {
            limit: Some(*limit),
            ..told(Code::BlobTooLarge)
        },
        Rejection::RotationIncomplete { missing, extra } => Problem {
            missing: Some(missing.clone()),
            extra: Some(extra.clone()),
            ..told(Code::RotationIncomplete)
        },
        Rejection::RateLimited {
            bucket,
            retry_after_ms,
        } => Problem {
            bucket: Some(*bucket),
            retry_after_ms: Some(*retry_after_ms),
            ..told(Code::RateLimited)
        },
    }
}

fn of_refusal(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Unauthenticated => Problem::new(
            Code::Unauthenticated,
            "send a valid credential that names a device",
        ),
        Refusal::NotFound => Problem::new(Code::NotFound, "the relay has no such path"),
        Refusal::MethodNotAllowed => Problem::new(
            Code::MethodNotAllowed,
            "see Allow for the methods that there are",
        ),
        Refusal::NotAcceptable => Problem::new(
            Code::NotAcceptable,
            "answers are application/json or application/cbor",
        ),
        Refusal::UnsupportedMediaType { takes } => Problem::new(
            Code::UnsupportedMediaType,
            format!("the route takes {takes}"),
        ),
        Refusal::LengthRequired => Problem::new(
            Code::LengthRequired,
            "send the blob's size as Content-Length",
        ),
        Refusal::BodyTooLarge { limit } => Problem {
            limit: Some(limit),
            ..Problem::new(
                Code::BodyTooLarge,
                format!("the body has at most {limit} bytes"),
            )
        },
        Refusal::RangeNotSatisfiable { size } => Problem::new(
            Code::RangeNotSatisfiable,
            format!("the blob has {size} bytes"),
        ),
        Refusal::Panicked => {
            Problem::new(Code::Internal, "the relay failed; nothing was half done")
        }
    }
}

/// A problem on its way out. The surrounding layer writes it in the form that the caller accepts,
/// which an error that is made deep in an extractor does not know.
#[derive(Debug, Clone)]
pub(crate) struct Told(pub(crate) Arc<Problem>);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.log();
        let problem = self.problem();
        let mut response = Response::default();
        let headers = response.headers_mut();
        if let Some(ms) = problem.retry_after_ms {
            // At least a second: a caller that is told 0 does not wait.
            headers.insert(header::RETRY_AFTER, ms.div_ceil(1_000).max(1).into());
        }
        if problem.code == Code::Unavailable {
            headers.insert(header::RETRY_AFTER, UNAVAILABLE_RETRY_SECONDS.into());
        }
        if let Self::Refused(Refusal::Unauthenticated) = self {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Self::Refused(Refusal::RangeNotSatisfiable { size }) = self {
            let value = HeaderValue::try_from(format!("bytes */{size}"));
            headers.insert(
                header::CONTENT_RANGE,
                value.expect("a number is legal in a header"),
            );
        }
        *response.status_mut() =
            StatusCode::from_u16(problem.status).expect("the codes' statuses are statuses");
        response.extensions_mut().insert(Told(Arc::new(problem)));
        response
    }
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Rejected(rejection) => Self::Rejected(rejection),
            Fault::Store(error) => Self::Failed(error),
        }
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

#[cfg(test)]
mod tests {
    use argala_wire::limits::Bucket;

    use super::*;

    fn answer(error: impl Into<ApiError>) -> Response {
        error.into().into_response()
    }

    #[test]
    fn waiting_is_told_in_whole_seconds_rounded_up() {
        for (ms, seconds) in [
            (0, "1"),
            (1, "1"),
            (1_000, "1"),
            (1_001, "2"),
            (59_999, "60"),
        ] {
            let limited = Rejection::RateLimited {
                bucket: Bucket::Push,
                retry_after_ms: ms,
            };
            assert_eq!(
                answer(limited).headers()[header::RETRY_AFTER],
                seconds,
                "{ms}"
            );
        }
        let down = StoreError::unavailable("asking", "nobody there");
        assert!(answer(down).headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn a_failure_tells_the_log_why_and_the_caller_nothing() {
        let error = StoreError::internal("writing a row", "constraint failed: secret");
        assert_eq!(causes(&error), "constraint failed: secret");
        let problem = ApiError::from(error).problem();
        assert_eq!((problem.status, problem.code), (500, Code::Internal));
        assert!(!problem.detail.contains("secret"));
    }
}
