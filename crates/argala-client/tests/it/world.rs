//! A relay on a socket and a database of its own, devices of members, and a meddler in between.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use argala_client::{
    Client, Credential, Event, GraphAccess, Item, Kind, Position, Refused, Session, Write,
    api::Retry, session::SeenDevice,
};
use argala_core::{Relay, RelayBuilder};
use argala_http::{Authenticate, DevAuth};
use argala_sqlite::{Options, Sqlite};
use argala_testkit::{MemoryDirectory, device_ref, record_id};
use argala_wire::{Code, GraphId, Problem, devices::DeviceRef};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use futures_util::{StreamExt, future::BoxFuture};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::oneshot};

pub(crate) const PREFIX: &str = "/api/argala";

/// What the meddler does with one request.
pub(crate) enum Meddle {
    /// Nothing.
    Pass,
    /// Answers in the relay's place.
    Answer(Response),
    /// Lets the relay do what it was asked, and cuts the line in the midst of the answer.
    Cut,
    /// Changes the relay's answer.
    Change(Box<dyn FnOnce(&mut Value) + Send>),
    /// Changes the bytes of the relay's answer.
    ChangeBytes(ByteChange),
    /// Does something else first.
    After(BoxFuture<'static, ()>),
}

pub(crate) type ByteChange = Box<dyn FnOnce(&mut Vec<u8>) + Send>;
type Rule = Box<dyn FnMut(&Asked) -> Meddle + Send>;

/// A request that came by.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) key: Option<String>,
}

impl Asked {
    pub(crate) fn is(&self, method: Method, end: &str) -> bool {
        self.method == method && self.path.ends_with(end)
    }
}

/// Stands between the devices and the relay.
#[derive(Clone, Default)]
pub(crate) struct Meddler {
    rule: Arc<Mutex<Option<Rule>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Meddler {
    /// From now on every request is put to `rule`.
    pub(crate) fn set(&self, rule: impl FnMut(&Asked) -> Meddle + Send + 'static) {
        *self.rule.lock().expect("unpoisoned") = Some(Box::new(rule));
    }

    /// The next request of this method whose path ends so is meddled with, and no other.
    pub(crate) fn once(&self, method: Method, end: &'static str, meddle: Meddle) {
        let mut meddle = Some(meddle);
        self.set(move |asked| match asked.is(method.clone(), end) {
            true => meddle.take().unwrap_or(Meddle::Pass),
            false => Meddle::Pass,
        });
    }

    /// The next answer of this method whose path ends so is changed.
    pub(crate) fn change(
        &self,
        method: Method,
        end: &'static str,
        change: impl FnOnce(&mut Value) + Send + 'static,
    ) {
        self.once(method, end, Meddle::Change(Box::new(change)));
    }

    pub(crate) fn rest(&self) {
        *self.rule.lock().expect("unpoisoned") = None;
    }

    /// What was asked since this was called last.
    pub(crate) fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().expect("unpoisoned"))
    }
}

async fn meddle(State(meddler): State<Meddler>, request: Request, next: Next) -> Response {
    let asked = Asked {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        key: request
            .headers()
            .get("idempotency-key")
            .map(|key| key.to_str().expect("ASCII").to_owned()),
    };
    meddler
        .asked
        .lock()
        .expect("unpoisoned")
        .push(asked.clone());
    let meddle = match meddler.rule.lock().expect("unpoisoned").as_mut() {
        Some(rule) => rule(&asked),
        None => Meddle::Pass,
    };
    match meddle {
        Meddle::Pass => next.run(request).await,
        Meddle::Answer(response) => response,
        Meddle::After(first) => {
            first.await;
            next.run(request).await
        }
        Meddle::Cut => {
            let (mut parts, body) = next.run(request).await.into_parts();
            let half = body.collect().await.expect("whole").to_bytes();
            let half = half.slice(..half.len() / 2);
            parts.headers.remove("content-length");
            let cut = futures_util::stream::iter([Ok::<Bytes, &str>(half), Err("cut")]);
            Response::from_parts(parts, Body::from_stream(cut.boxed()))
        }
        Meddle::Change(change) => {
            changed(next.run(request).await, |bytes| {
                let mut value: Value = serde_json::from_slice(bytes).expect("JSON");
                change(&mut value);
                *bytes = serde_json::to_vec(&value).expect("JSON");
            })
            .await
        }
        Meddle::ChangeBytes(change) => changed(next.run(request).await, change).await,
    }
}

async fn changed(response: Response, change: impl FnOnce(&mut Vec<u8>)) -> Response {
    let (mut parts, body) = response.into_parts();
    let mut bytes = body.collect().await.expect("whole").to_bytes().to_vec();
    change(&mut bytes);
    parts.headers.remove("content-length");
    Response::from_parts(parts, Body::from(bytes))
}

/// A problem, as a relay answers with it.
pub(crate) fn problem(code: Code, change: impl FnOnce(&mut Problem)) -> Response {
    let mut problem = Problem::new(code, "meddled");
    change(&mut problem);
    Response::builder()
        .status(StatusCode::from_u16(code.status()).expect("a status"))
        .header("content-type", "application/problem+json")
        .body(Body::from(serde_json::to_vec(&problem).expect("JSON")))
        .expect("an answer")
}

/// A relay with members sam, alex, kim and user:7, of whom all but kim are in the group acme.
pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) meddler: Meddler,
    pub(crate) directory: MemoryDirectory,
    pub(crate) relay: Arc<Relay>,
    folder: TempDir,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<()>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(change: impl FnOnce(RelayBuilder) -> RelayBuilder) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("relay.db");
        let store = Arc::new(Sqlite::open(path, &Options::default()).expect("a database"));
        let directory = MemoryDirectory::of(
            &["sam", "alex", "kim", "user:7"],
            &[
                ("acme", &["sam", "alex", "user:7"]),
                ("a/b:c%", &["sam", "alex"]),
            ],
        );
        directory.set_lists_groups(true);
        let builder = Relay::builder(store.clone(), store, Arc::new(directory.clone()));
        let relay = change(builder).build();
        let meddler = Meddler::default();
        let router = Router::new()
            .nest(
                PREFIX,
                argala_http::router(Arc::clone(&relay), Arc::new(DevAuth)),
            )
            .layer(from_fn_with_state(meddler.clone(), meddle));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            let serve = axum::serve(listener, router).with_graceful_shutdown(async {
                let _ = stopped.await;
            });
            serve.await.expect("serves");
        });
        Self {
            url: format!("http://{address}{PREFIX}"),
            meddler,
            directory,
            relay,
            folder,
            stop: Some(stop),
            served: Some(served),
        }
    }

    /// Ends the relay; its port refuses connections from then on.
    pub(crate) async fn stop(&mut self) {
        self.relay.close().await;
        drop(self.stop.take());
        if let Some(served) = self.served.take() {
            served.abort();
            let _ = served.await;
        }
    }

    /// The same relay for callers that `auth` knows, on a port of its own.
    pub(crate) async fn serve(&self, auth: Arc<dyn Authenticate>) -> String {
        let router = argala_http::router(Arc::clone(&self.relay), auth);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        // Ends with the test's runtime.
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The relay as a device talks to it, with waits that a test can afford.
    pub(crate) fn client(&self, device: &DeviceRef) -> Client {
        let credential = Credential::Dev(device.clone());
        let client = Client::new(&self.url, &credential).expect("a URL");
        client.with_retry(quick())
    }

    /// Where a device's key file lies.
    pub(crate) fn key_file(&self, member: &str, device: &str) -> PathBuf {
        self.path(&format!("{member}-{device}.keys").replace([':', '/'], "_"))
    }

    /// A new device, registered.
    pub(crate) async fn device(&self, member: &str, device: &str) -> Device {
        let mut device = self.unregistered(member, device).await;
        device.session.register(None).await.expect("registers");
        device
    }

    /// A new device that the relay does not know yet.
    pub(crate) async fn unregistered(&self, member: &str, name: &str) -> Device {
        let device = device_ref(member, name);
        let path = self.key_file(member, name);
        let client = self.client(&device);
        let session = Session::create(client, &path, device, Duration::ZERO);
        Device::of(session.await.expect("a key file"))
    }

    /// A device whose process ended, in its next one.
    pub(crate) async fn again(&self, member: &str, device: &str) -> Device {
        let client = self.client(&device_ref(member, device));
        let path = self.key_file(member, device);
        // A command that another test has just started holds the lock as well until it is itself.
        let session = Session::open(client, &path, Duration::from_secs(10)).await;
        Device::of(session.expect("opens"))
    }

    /// Sam's laptop and Alex's phone, both with the keys of the group.
    pub(crate) async fn pair(&self) -> (Device, Device) {
        let mut sam = self.device("sam", "laptop").await;
        let mut alex = self.device("alex", "phone").await;
        sam.look(&acme()).await;
        alex.look(&acme()).await;
        sam.session.rotate(&acme()).await.expect("rotates");
        (sam, alex)
    }
}

pub(crate) fn quick() -> Retry {
    Retry {
        tries: 4,
        first_wait: Duration::from_millis(2),
        longest_wait: Duration::from_millis(20),
        patience: Duration::from_secs(5),
    }
}

pub(crate) fn graph(text: &str) -> GraphId {
    text.parse().expect("a graph's id")
}

pub(crate) fn acme() -> GraphId {
    graph("g:acme")
}

pub(crate) fn note() -> Kind {
    Kind::new("note").expect("a kind")
}

/// A write that overwrites whatever there is.
pub(crate) fn write(id: &str, body: &str) -> Write {
    Write {
        id: record_id(id),
        kind: note(),
        body: body.as_bytes().to_vec(),
        deleted: false,
        expect: None,
    }
}

/// A session, where it has come in each graph, and what it was told.
pub(crate) struct Device {
    pub(crate) session: Session,
    events: Arc<Mutex<Vec<Event>>>,
}

/// What a walk to the end gave.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) items: Vec<Item>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) filtered: u64,
    pub(crate) from_start: bool,
    pub(crate) behind: bool,
    pub(crate) pages: usize,
}

impl Walk {
    /// Ids and bodies, in the order in which they came.
    pub(crate) fn texts(&self) -> Vec<(String, String)> {
        let text = |item: &Item| {
            let body = String::from_utf8(item.body.clone()).expect("text");
            (item.id.to_string(), body)
        };
        self.items.iter().map(text).collect()
    }

    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        self.refused
            .iter()
            .map(|refused| refused.why.as_str())
            .collect()
    }
}

impl Device {
    pub(crate) fn of(session: Session) -> Self {
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let log = Arc::clone(&events);
        let session = session.declare([note()]).observe(Arc::new(move |event| {
            log.lock().expect("unpoisoned").push(event.clone());
        }));
        Self { session, events }
    }

    pub(crate) fn name(&self) -> DeviceRef {
        self.session.device().clone()
    }

    /// What it was told since this was called last.
    pub(crate) fn events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().expect("unpoisoned"))
    }

    pub(crate) fn event_names(&self) -> Vec<&'static str> {
        self.events().iter().map(Event::name).collect()
    }

    /// Lists a graph's devices, as whoever uses this one does before keys are sealed for them.
    pub(crate) async fn look(&mut self, graph: &GraphId) -> Vec<SeenDevice> {
        let listed = self.session.graph_devices(graph, false).await;
        let listed = listed.expect("told");
        self.session.note_listed(&listed).expect("saves");
        listed
    }

    /// Pulls to the end from where the last walk ended.
    pub(crate) async fn pull(&mut self, graph: &GraphId) -> Walk {
        let position = self.session.position(graph, "test");
        let (walk, position) = self.walk(graph, position).await;
        let set = self.session.set_position(graph, "test", position);
        set.expect("saves");
        walk
    }

    /// Pulls to the end from `position`.
    pub(crate) async fn walk(
        &mut self,
        graph: &GraphId,
        mut position: Position,
    ) -> (Walk, Position) {
        let mut walk = Walk::default();
        loop {
            let page = self.session.pull(graph, &position).await.expect("pulls");
            position = page.position;
            walk.items.extend(page.items);
            walk.refused.extend(page.refused);
            walk.filtered += page.filtered;
            walk.from_start |= page.from_start;
            walk.behind = page.behind;
            walk.pages += 1;
            assert!(walk.pages < 1_000, "a pull that does not end");
            if !page.more {
                return (walk, position);
            }
        }
    }

    /// Writes one note and tells its seq.
    pub(crate) async fn say(&mut self, graph: &GraphId, id: &str, body: &str) -> u64 {
        let flushed = self
            .session
            .write(graph, &[write(id, body)])
            .await
            .expect("writes");
        assert_eq!(flushed.accepted.len(), 1, "{flushed:?}");
        flushed.accepted[0].1
    }
}

/// Every file below `folder`, read.
pub(crate) fn bytes_below(folder: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).expect("lists") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            out.extend(bytes_below(&path));
        } else {
            out.extend(std::fs::read(&path).expect("reads"));
        }
    }
    out
}
