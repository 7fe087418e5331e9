//! A relay on a database of its own, and requests to it.

use std::{collections::BTreeMap, sync::Arc};

use argala_blob::FilesystemBlobs;
use argala_core::{Relay, RelayBuilder};
use argala_http::{Authenticate, DevAuth, FirstOf, JwtAuth, JwtConfig, JwtKey, RouteTemplate};
use argala_sqlite::{Options, Sqlite};
use argala_testkit::{EventLog, MemoryDirectory, PokeLog, TestClock, TestDevice};
use argala_wire::{
    CBOR, Code, JSON, PROBLEM_JSON, Problem, StorageKey,
    codec::Format,
    devices::DeviceRef,
    keys::{GrantRequest, RotateRequest},
    records::{PushRecord, PushRequest},
};
use axum::{Router, body::Body, response::Response, routing::get};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt;

/// Where the host of these tests nests the relay.
pub(crate) const PREFIX: &str = "/api/argala";
/// What the host signs its tokens with.
pub(crate) const SECRET: &[u8] = b"the host's secret, thirty-two bytes and more";

/// Bytes that compress badly and differ from place to place.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// A text as one segment of a path.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The path of a graph, and of what is in it.
pub(crate) fn of(graph: &str, rest: &str) -> String {
    format!("/graphs/{}{rest}", encoded(graph))
}

/// A relay with members sam, alex and kim, of whom sam and alex are in the group acme.
pub(crate) struct World {
    pub(crate) app: Router,
    pub(crate) relay: Arc<Relay>,
    pub(crate) clock: TestClock,
    pub(crate) events: EventLog,
    pub(crate) pokes: PokeLog,
    pub(crate) directory: MemoryDirectory,
    pub(crate) jwt: JwtConfig,
    pub(crate) folder: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    /// A relay that `change` has its say about.
    pub(crate) fn with(change: impl FnOnce(RelayBuilder) -> RelayBuilder) -> Self {
        let jwt = JwtConfig {
            keys: vec![JwtKey::Secret(SECRET.to_vec())],
            issuers: vec!["https://host.test".to_owned()],
            audiences: vec!["argala".to_owned()],
            ..JwtConfig::default()
        };
        let clock = TestClock::new();
        let bearer = JwtAuth::new(jwt.clone(), Arc::new(clock.clone())).expect("a good config");
        let auth = FirstOf(vec![Arc::new(bearer), Arc::new(DevAuth)]);
        Self::trusting(Arc::new(auth), jwt, clock, change)
    }

    /// A relay that believes `auth`.
    pub(crate) fn trusting(
        auth: Arc<dyn Authenticate>,
        jwt: JwtConfig,
        clock: TestClock,
        change: impl FnOnce(RelayBuilder) -> RelayBuilder,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("relay.db");
        let store = Arc::new(Sqlite::open(path, &Options::default()).expect("a database"));
        let blobs = FilesystemBlobs::open(folder.path().join("blobs")).expect("a folder");
        let directory = MemoryDirectory::of(&["sam", "alex", "kim"], &[("acme", &["sam", "alex"])]);
        let (events, pokes) = (EventLog::new(), PokeLog::new());
        let builder = Relay::builder(store, Arc::new(blobs), Arc::new(directory.clone()))
            .clock(Arc::new(clock.clone()))
            .events(events.clone())
            .poke_sink(Arc::new(pokes.clone()));
        let relay = change(builder).build();
        let app = Router::new()
            .route(
                "/",
                get(async |state: axum::extract::State<&'static str>| state.0),
            )
            .nest(PREFIX, argala_http::router(Arc::clone(&relay), auth))
            .with_state("the host's own state");
        Self {
            app,
            relay,
            clock,
            events,
            pokes,
            directory,
            jwt,
            folder,
        }
    }

    /// A request by nobody; `path` is relative to the relay.
    pub(crate) fn ask(&self, method: Method, path: &str) -> Ask {
        Ask {
            app: self.app.clone(),
            method,
            path: format!("{PREFIX}{path}"),
            headers: HeaderMap::new(),
            body: Body::empty(),
        }
    }

    pub(crate) fn get(&self, by: &TestDevice, path: &str) -> Ask {
        self.ask(Method::GET, path).by(&by.to_ref())
    }

    pub(crate) fn post<T: Serialize>(&self, by: &TestDevice, path: &str, body: &T) -> Ask {
        self.ask(Method::POST, path).by(&by.to_ref()).json(body)
    }

    pub(crate) fn put(&self, by: &TestDevice, path: &str, bytes: Vec<u8>) -> Ask {
        let length = bytes.len().to_string();
        let ask = self.ask(Method::PUT, path).by(&by.to_ref());
        ask.header("content-length", &length).body(bytes)
    }

    pub(crate) fn delete(&self, by: &TestDevice, path: &str) -> Ask {
        self.ask(Method::DELETE, path).by(&by.to_ref())
    }

    /// A registered device.
    pub(crate) async fn device(&self, member: &str, device: &str) -> TestDevice {
        let device = TestDevice::new(member, device);
        let ask = self.post(&device, "/devices", &device.register_request());
        ask.send().await.is(StatusCode::CREATED);
        device
    }

    /// Begins an epoch of a graph, by the first of `devices` and for all of them.
    pub(crate) async fn rotate(&self, graph: &str, epoch: u64, devices: &[&TestDevice]) {
        let body = rotation(epoch, devices);
        let answer = self
            .post(devices[0], &of(graph, "/rotate"), &body)
            .send()
            .await;
        answer.is(StatusCode::OK);
    }

    /// Pushes one signed record of epoch 1 and tells its seq.
    pub(crate) async fn push(&self, by: &TestDevice, graph: &str, id: &str, text: &str) -> u64 {
        let key = storage_key(by, graph);
        let body = pushing(vec![by.record(&key, id, 1, text.as_bytes())]);
        let answer = self
            .post(by, &of(graph, "/push"), &body)
            .send()
            .await
            .is(StatusCode::OK);
        answer.value()["results"][0]["seq"]
            .as_u64()
            .expect("accepted")
    }
}

pub(crate) fn storage_key(by: &TestDevice, graph: &str) -> StorageKey {
    let address: argala_wire::GraphAddress = graph.parse().expect("a graph's address");
    address.storage_key(&by.to_ref().member_id)
}

pub(crate) fn rotation(epoch: u64, devices: &[&TestDevice]) -> RotateRequest {
    RotateRequest {
        epoch,
        wraps: devices.iter().map(|d| d.rotate_wrap("wrap")).collect(),
    }
}

pub(crate) fn granting(epoch: u64, devices: &[&TestDevice]) -> GrantRequest {
    GrantRequest {
        wraps: devices
            .iter()
            .map(|d| d.grant_wrap(epoch, "grant"))
            .collect(),
    }
}

pub(crate) fn pushing(records: Vec<PushRecord>) -> PushRequest {
    PushRequest {
        records,
        ..PushRequest::default()
    }
}

/// A request that is being put together.
pub(crate) struct Ask {
    app: Router,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Body,
}

impl Ask {
    /// By a device, as the dev server's credential says it.
    pub(crate) fn by(self, device: &DeviceRef) -> Self {
        let credential = format!(
            "Dev {}/{}",
            encoded(device.member_id.as_str()),
            encoded(device.device_id.as_str())
        );
        self.header("authorization", &credential)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("a header's name");
        self.headers.insert(
            name,
            HeaderValue::from_str(value).expect("a header's value"),
        );
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn json<T: Serialize>(self, body: &T) -> Self {
        self.in_form(Format::Json, body)
    }

    pub(crate) fn in_form<T: Serialize>(self, format: Format, body: &T) -> Self {
        self.header("content-type", format.media_type())
            .body(format.encode(body))
    }

    /// Answers are to have this form.
    pub(crate) fn accept(self, format: Format) -> Self {
        self.header("accept", format.media_type())
    }

    pub(crate) fn request(self) -> Request<Body> {
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.path.parse().expect("a path");
        *request.headers_mut() = self.headers;
        request
    }

    /// The answer with its body still to come.
    pub(crate) async fn open(self) -> Response {
        self.app
            .clone()
            .oneshot(self.request())
            .await
            .expect("routers do not fail")
    }

    /// The answer, once it has been held against what every answer must be.
    pub(crate) async fn send(self) -> Answer {
        let method = self.method.clone();
        let (parts, body) = self.open().await.into_parts();
        let body = body
            .collect()
            .await
            .expect("the body is whole")
            .to_bytes()
            .to_vec();
        let template = parts.extensions.get::<RouteTemplate>();
        let answer = Answer {
            status: parts.status,
            headers: parts.headers,
            template: template.map_or("", RouteTemplate::as_str).to_owned(),
            body,
        };
        answer.check(&method);
        answer
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) template: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// What holds for every answer: it has a name, and an error is a problem that is documented
    /// for its route.
    fn check(&self, method: &Method) {
        assert!(self.headers.contains_key("x-request-id"), "{self:?}");
        if self.status.as_u16() < 400 || method == Method::HEAD {
            return;
        }
        let problem: Problem = self.read();
        assert_eq!(problem.status, self.status.as_u16());
        assert_eq!(problem.status, problem.code.status());
        assert_eq!(
            problem.kind,
            format!("urn:argala:problem:{}", problem.code.as_str())
        );
        assert_eq!(problem.title, problem.code.title());
        assert_eq!(self.headers[header::CACHE_CONTROL], "no-store");
        assert!(
            is_documented(method, &self.template, problem.code),
            "{method} {} does not tell of {:?}",
            self.template,
            problem.code
        );
    }

    #[track_caller]
    pub(crate) fn is(self, status: StatusCode) -> Self {
        assert_eq!(
            self.status,
            status,
            "{}",
            String::from_utf8_lossy(&self.body)
        );
        self
    }

    /// The problem, which has this code.
    #[track_caller]
    pub(crate) fn problem(&self, code: Code) -> Problem {
        let told = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status.as_u16(), code.status(), "{told}");
        let problem: Problem = self.read();
        assert_eq!(problem.code, code, "{told}");
        problem
    }

    /// An `invalid_request` that names this field.
    #[track_caller]
    pub(crate) fn blames(&self, field: &str) {
        let problem = self.problem(Code::InvalidRequest);
        assert_eq!(problem.field.as_deref(), Some(field), "{problem:?}");
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self
            .headers
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {self:?}"));
        value.to_str().expect("a text")
    }

    /// The form of the body, by its own account.
    pub(crate) fn format(&self) -> Format {
        match self.header("content-type") {
            JSON | PROBLEM_JSON => Format::Json,
            CBOR => Format::Cbor,
            other => panic!("{other} is neither JSON nor CBOR"),
        }
    }

    pub(crate) fn read<T: DeserializeOwned>(&self) -> T {
        self.format()
            .decode_answer(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn value(&self) -> Value {
        assert_eq!(self.format(), Format::Json);
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// Whether the OpenAPI document tells of this problem.
fn is_documented(method: &Method, template: &str, code: Code) -> bool {
    if matches!(code, Code::NotFound | Code::MethodNotAllowed) {
        return true;
    }
    static TOLD: std::sync::LazyLock<BTreeMap<String, Value>> = std::sync::LazyLock::new(|| {
        let document = serde_json::to_value(argala_http::openapi()).expect("writes");
        let paths = document["paths"].as_object().expect("paths").clone();
        paths.into_iter().collect()
    });
    let method = method.as_str().to_lowercase();
    let codes = &TOLD[template][method]["responses"][code.status().to_string()]["x-problem-codes"];
    codes
        .as_array()
        .is_some_and(|codes| codes.iter().any(|told| *told == *code.as_str()))
}
