//! A relay in memory. No input has a part in what the next one meets: once one has changed
//! anything, the next has a relay of its own.

use std::{
    cell::{Cell, OnceCell},
    sync::Arc,
};

use argala_core::Relay;
use argala_http::DevAuth;
use argala_testkit::{
    MemoryBlobs, MemoryDirectory, ReferenceStore, TestClock, TestDevice, TestRandom,
};
use argala_wire::{
    CBOR, PROBLEM_JSON, Problem, StorageKey,
    codec::Format,
    keys::RotateRequest,
    limits::{Rate, RateLimits},
    records::PushRequest,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use serde::Serialize;
use tower::ServiceExt as _;

/// Who asks: the member and the device.
pub(crate) const LAPTOP: &str = "sam/laptop";
/// The member's own graph, as one segment of a path.
pub(crate) const GRAPH: &str = "/graphs/d%3Asam";
/// The blob that is there.
pub(crate) const BLOB: &[u8] = b"a blob of some bytes, of which ranges are asked";
/// Where it is.
pub(crate) const BLOB_PATH: &str = "/graphs/d%3Asam/blobs/a-blob-that-is-there";

/// An answer, read whole.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The code of a problem.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let format = match self.headers.get(header::CONTENT_TYPE)?.to_str().ok()? {
            PROBLEM_JSON => Format::Json,
            CBOR => Format::Cbor,
            _ => return None,
        };
        format.decode_answer(&self.body).ok()
    }
}

/// A relay with one device, one epoch of its own graph, two records and a blob. Clock and chance
/// stand still, so that a cursor of one is good in the next.
pub(crate) struct Small(pub(crate) Asked);

/// A relay's router, and the ways to ask it.
pub(crate) struct Asked(Router);

type Router = tower::util::BoxCloneService<Request<Full<Bytes>>, http::Response<Body>, Never>;
type Body =
    http_body_util::combinators::UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;
type Never = std::convert::Infallible;

fn boxed<B>(body: B) -> Body
where
    B: http_body_util::BodyExt<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    body.map_err(|error| Box::new(error).into()).boxed_unsync()
}

impl Asked {
    /// A relay that knows of nobody's device yet, whose chance is that of `seed`.
    pub(crate) fn empty(directory: MemoryDirectory, seed: u64) -> Self {
        let rate = Rate {
            per_minute: u32::MAX,
            burst: u32::MAX,
        };
        let rates = RateLimits {
            push: rate,
            pull: rate,
            blobs: rate,
            keys: rate,
        };
        let relay = Relay::builder(
            Arc::new(ReferenceStore::new()),
            Arc::new(MemoryBlobs::new()),
            Arc::new(directory),
        )
        .clock(Arc::new(TestClock::new()))
        .random(Arc::new(TestRandom::new(seed)))
        .rate_limits(rates)
        .build();
        let router = argala_http::router::<()>(relay, Arc::new(DevAuth));
        // The host's framework is none of this crate's business: any body will do.
        let router = tower::ServiceExt::<Request<Full<Bytes>>>::map_response(
            router,
            |response: http::Response<_>| response.map(boxed),
        )
        .boxed_clone();
        Self(router)
    }

    /// Registers the device.
    pub(crate) fn register(&self, device: &TestDevice) {
        self.done(device, "/devices", &device.register_request());
    }

    /// Begins an epoch of the graph at `path`, for these devices.
    pub(crate) fn rotate(&self, by: &TestDevice, path: &str, epoch: u64, roster: &[&TestDevice]) {
        let wraps = roster.iter().map(|device| device.rotate_wrap("wrap"));
        let rotate = RotateRequest {
            epoch,
            wraps: wraps.collect(),
        };
        self.done(by, &format!("{path}/rotate"), &rotate);
    }

    /// Pushes records of these ids to the graph at `path`, whose key is `key`.
    pub(crate) fn push(&self, by: &TestDevice, path: &str, key: &str, epoch: u64, ids: &[&str]) {
        let key: StorageKey = key.parse().expect("a key");
        let records = ids.iter().map(|id| by.record(&key, id, epoch, b"sealed"));
        let push = PushRequest {
            records: records.collect(),
            ..PushRequest::default()
        };
        self.done(by, &format!("{path}/push"), &push);
    }

    /// Posts what has to succeed.
    fn done<T: Serialize>(&self, by: &TestDevice, path: &str, body: &T) {
        let headers = [("content-type", argala_wire::JSON)];
        let body = Format::Json.encode(body);
        let by = by.to_ref();
        let by = format!("{}/{}", by.member_id, by.device_id);
        let answer = self.send_as(&by, Method::POST, path, &headers, body);
        assert!(answer.status.is_success(), "{answer:?}");
    }
}

impl Small {
    pub(crate) fn new() -> Self {
        let directory = MemoryDirectory::of(&["sam", "alex"], &[("acme", &["sam"])]);
        let small = Self(Asked::empty(directory, 1));
        let laptop = TestDevice::new("sam", "laptop");
        small.0.register(&laptop);
        small.0.rotate(&laptop, GRAPH, 1, &[&laptop]);
        small.0.push(&laptop, GRAPH, "d:sam:sam", 1, &["a", "b"]);
        let length = BLOB.len().to_string();
        let headers = [
            ("content-type", argala_wire::OCTET_STREAM),
            ("content-length", &length),
        ];
        let put = small.send(Method::PUT, BLOB_PATH, &headers, BLOB.to_vec());
        assert_eq!(put.status, StatusCode::CREATED, "{put:?}");
        small
    }

    /// Asks as the laptop.
    pub(crate) fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.0.send_as(LAPTOP, method, path, headers, body)
    }
}

impl Asked {
    /// Asks as this device, and holds the answer to what every answer must be.
    pub(crate) fn send_as(
        &self,
        by: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("a path");
        for (name, value) in headers {
            let name = header::HeaderName::try_from(*name).expect("a name");
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                request.headers_mut().append(name, value);
            }
        }
        let credential = HeaderValue::try_from(format!("Dev {by}")).expect("names in ASCII");
        request
            .headers_mut()
            .insert(header::AUTHORIZATION, credential);
        let answer = on_runtime(async {
            let response = self.0.clone().oneshot(request).await;
            let (parts, body) = response.expect("routers do not fail").into_parts();
            let body = body.collect().await.expect("whole").to_bytes();
            Answer {
                status: parts.status,
                headers: parts.headers,
                body,
            }
        });
        assert!(answer.status.as_u16() < 500, "our fault: {answer:?}");
        let head = answer.body.is_empty() && answer.status.as_u16() >= 400;
        if answer.status.as_u16() >= 400 && !head {
            let problem = answer.problem().expect("an error is a problem document");
            assert_eq!(problem.status, answer.status.as_u16());
            assert_eq!(problem.status, problem.code.status());
        }
        answer
    }
}

/// Lends `work` a relay that is as it was made. `work` tells whether it still is: then the next
/// one has it, too, which is many times faster than another.
pub(crate) fn lend<T>(work: impl FnOnce(&Small) -> (T, bool)) -> T {
    thread_local! {
        static RELAY: Cell<Option<Small>> = const { Cell::new(None) };
    }
    let relay = RELAY.take().unwrap_or_else(Small::new);
    let (told, unchanged) = work(&relay);
    if unchanged {
        RELAY.set(Some(relay));
    }
    told
}

/// One runtime for each thread: making one takes longer than most inputs do.
fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: OnceCell<tokio::runtime::Runtime> = const { OnceCell::new() };
    }
    RUNTIME.with(|runtime| {
        let make = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().expect("a runtime")
        };
        runtime.get_or_init(make).block_on(work)
    })
}

/// Runs what is asynchronous in `work` to its end.
pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    on_runtime(work)
}
