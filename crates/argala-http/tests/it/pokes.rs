//! `GET /pokes`, over real connections.

use std::time::Duration;

use argala_core::Relay;
use argala_testkit::{PATIENCE, TestDevice, eventually};
use argala_wire::{Code, Problem, codec::Format};
use axum::Router;
use futures_util::{SinkExt, StreamExt};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{self, Message, client::IntoClientRequest},
};

use crate::world::{PREFIX, World, of};

/// A server on a port of its own, until it is dropped.
pub(crate) struct Served {
    pub(crate) address: std::net::SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    pub(crate) async fn new(app: &Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let app = app.clone();
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("serves");
        });
        Self { address, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{PREFIX}{path}", self.address)
    }
}

/// What a stream says, in either form.
enum Stream {
    Events(reqwest::Response, String),
    Socket(Box<WebSocketStream<MaybeTlsStream<TcpStream>>>),
}

impl Stream {
    async fn events(served: &Served, device: &TestDevice) -> Self {
        let device = device.to_ref();
        let credential = format!("Dev {}/{}", device.member_id, device.device_id);
        let client = reqwest::Client::builder()
            .no_proxy()
            .build()
            .expect("a client");
        let ask = client
            .get(served.url("/pokes"))
            .header("authorization", credential);
        let answer = ask.send().await.expect("answers");
        assert_eq!(answer.status(), StatusCode::OK);
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache, no-transform"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(answer.headers()[name], value);
        }
        assert!(answer.headers().contains_key("x-request-id"));
        Self::Events(answer, String::new())
    }

    async fn socket(served: &Served, device: &TestDevice) -> Self {
        let device = device.to_ref();
        let credential = format!("Dev {}/{}", device.member_id, device.device_id);
        let url = served.url("/pokes").replace("http:", "ws:");
        let mut request = url.into_client_request().expect("a request");
        request
            .headers_mut()
            .insert("authorization", credential.parse().expect("a value"));
        let (socket, answer) = tokio_tungstenite::connect_async(request)
            .await
            .expect("upgrades");
        assert!(answer.headers().contains_key("x-request-id"));
        Self::Socket(Box::new(socket))
    }

    /// The next message; `None` where the stream has ended.
    async fn next(&mut self) -> Option<String> {
        timeout(PATIENCE, self.read())
            .await
            .expect("a message or the end")
    }

    async fn read(&mut self) -> Option<String> {
        match self {
            Self::Events(answer, rest) => loop {
                if let Some((event, tail)) = rest.split_once("\n\n") {
                    let data = event.strip_prefix("data: ").map(str::to_owned);
                    *rest = tail.to_owned();
                    if data.is_some() {
                        return data;
                    }
                } else {
                    let piece = answer.chunk().await.expect("reads")?;
                    rest.push_str(std::str::from_utf8(&piece).expect("UTF-8"));
                }
            },
            Self::Socket(socket) => loop {
                match socket.next().await? {
                    Ok(Message::Text(text)) => return Some(text.to_string()),
                    Ok(Message::Ping(_) | Message::Pong(_)) => {}
                    Ok(Message::Close(_)) => return None,
                    other => panic!("{other:?}"),
                }
            },
        }
    }
}

/// Waits until the graph that was changed last has been poked: what came before is none of the
/// business of a stream that is opened then.
async fn settled(world: &World, last: &str) {
    let mut poked = Vec::new();
    eventually("the last poke", || {
        poked.extend(world.pokes.take());
        let is_last = |poke: &argala_core::ports::Poke| poke.storage_key.as_str() == last;
        std::future::ready(poked.iter().any(is_last).then_some(()))
    })
    .await;
}

const HELLO: &str = r#"{"type":"argala.hello"}"#;

fn poke(graph: &str) -> String {
    format!(r#"{{"type":"argala.poke","graphId":"{graph}"}}"#)
}

#[tokio::test]
async fn both_forms_say_the_same() {
    let world = World::new();
    let served = Served::new(&world.app).await;
    let laptop = world.device("sam", "laptop").await;
    settled(&world, "d:sam:sam").await;
    let phone = world.device("sam", "phone").await;
    settled(&world, "d:sam:sam").await;
    let desk = world.device("alex", "desk").await;
    settled(&world, "d:alex:alex").await;
    world.rotate("d:alex", 1, &[&laptop, &phone, &desk]).await;
    settled(&world, "d:alex:sam").await;
    for socket in [false, true] {
        let open = async |device: &TestDevice| {
            if socket {
                Stream::socket(&served, device).await
            } else {
                Stream::events(&served, device).await
            }
        };
        let mut mine = open(&laptop).await;
        let mut own = open(&phone).await;
        let mut other = open(&desk).await;
        for stream in [&mut mine, &mut own, &mut other] {
            assert_eq!(stream.next().await.as_deref(), Some(HELLO));
        }
        world
            .push(&laptop, "d:alex", "note", &format!("sealed {socket}"))
            .await;
        assert_eq!(own.next().await, Some(poke("d:alex")));
        assert_eq!(other.next().await, Some(poke("d:sam")));
        // Not the device that caused it: the next that it hears is another's.
        world
            .push(&desk, "d:sam", "answer", &format!("sealed {socket}"))
            .await;
        assert_eq!(mine.next().await, Some(poke("d:alex")));
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_device() {
    let world = World::new();
    let served = Served::new(&world.app).await;
    let laptop = world.device("sam", "laptop").await;
    let phone = world.device("sam", "phone").await;
    let mut events = Stream::events(&served, &phone).await;
    let mut socket = Stream::socket(&served, &phone).await;
    for stream in [&mut events, &mut socket] {
        assert_eq!(stream.next().await.as_deref(), Some(HELLO));
    }
    world
        .delete(&laptop, "/devices/phone")
        .send()
        .await
        .is(StatusCode::OK);
    for stream in [&mut events, &mut socket] {
        while stream.next().await.is_some() {}
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_relay_and_is_told() {
    let world = World::new();
    let served = Served::new(&world.app).await;
    let laptop = world.device("sam", "laptop").await;
    let mut events = Stream::events(&served, &laptop).await;
    let mut socket = Stream::socket(&served, &laptop).await;
    for stream in [&mut events, &mut socket] {
        assert_eq!(stream.next().await.as_deref(), Some(HELLO));
    }
    Relay::close(&world.relay).await;
    for stream in [&mut events, &mut socket] {
        assert_eq!(
            stream.next().await.as_deref(),
            Some(r#"{"type":"argala.resync"}"#)
        );
        assert_eq!(stream.next().await, None);
    }
}

#[tokio::test]
async fn what_a_socket_says_is_heard_and_ignored() {
    let world = World::new();
    let served = Served::new(&world.app).await;
    let laptop = world.device("sam", "laptop").await;
    settled(&world, "d:sam:sam").await;
    let desk = world.device("alex", "desk").await;
    world.rotate("g:acme", 1, &[&laptop, &desk]).await;
    settled(&world, "g:acme").await;
    let mut stream = Stream::socket(&served, &laptop).await;
    assert_eq!(stream.next().await.as_deref(), Some(HELLO));
    let Stream::Socket(socket) = &mut stream else {
        unreachable!()
    };
    for message in [
        Message::text("hello"),
        Message::binary(vec![0; 99]),
        Message::Ping(vec![].into()),
    ] {
        socket.send(message).await.expect("sends");
    }
    world.push(&desk, "g:acme", "note", "sealed").await;
    assert_eq!(stream.next().await, Some(poke("g:acme")));
    // More than it listens to is the end of it.
    let Stream::Socket(socket) = &mut stream else {
        unreachable!()
    };
    socket
        .send(Message::binary(vec![0; 64 * 1024]))
        .await
        .expect("sends");
    let end = timeout(PATIENCE, async {
        while let Some(Ok(message)) = socket.next().await {
            assert!(!message.is_text());
        }
    });
    end.await.expect("an end");
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let mut body = world.get(&laptop, "/pokes").open().await.into_body();
    let served = Served::new(&world.app).await;
    let mut stream = Stream::socket(&served, &laptop).await;
    assert_eq!(stream.next().await.as_deref(), Some(HELLO));
    let hello = body
        .frame()
        .await
        .expect("a frame")
        .expect("whole")
        .into_data()
        .expect("data");
    assert!(hello.starts_with(b"data: "));

    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let comment = body
        .frame()
        .await
        .expect("a frame")
        .expect("whole")
        .into_data()
        .expect("data");
    assert_eq!(comment, ":\n\n");
    assert!(
        began.elapsed() <= Duration::from_secs(21),
        "{:?}",
        began.elapsed()
    );
    let Stream::Socket(socket) = &mut stream else {
        unreachable!()
    };
    let ping = socket.next().await.expect("a message").expect("whole");
    assert!(ping.is_ping(), "{ping:?}");
    assert!(
        began.elapsed() <= Duration::from_secs(45),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_refusal_comes_before_the_upgrade() {
    let world = World::new();
    let served = Served::new(&world.app).await;
    let url = served.url("/pokes").replace("http:", "ws:");
    let refused = tokio_tungstenite::connect_async(url)
        .await
        .expect_err("nobody knows us");
    let tungstenite::Error::Http(answer) = refused else {
        panic!("{refused}")
    };
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let problem: Problem = Format::Json
        .decode_answer(answer.body().as_deref().unwrap_or_default())
        .expect("a problem");
    assert_eq!(problem.code, Code::Unauthenticated);

    let laptop = world.device("sam", "laptop").await;
    let broken = world.ask(Method::GET, "/pokes").by(&laptop.to_ref());
    let broken = broken
        .header("connection", "keep-alive, Upgrade")
        .header("upgrade", "websocket");
    broken.send().await.blames("Upgrade");
    // An upgrade to something else is not asked of us.
    let other = world
        .get(&laptop, "/pokes")
        .header("upgrade", "h2c")
        .header("connection", "upgrade");
    assert_eq!(other.open().await.status(), StatusCode::OK);
    let other = world
        .get(&laptop, &of("d:sam", ""))
        .header("upgrade", "websocket");
    assert_eq!(other.open().await.status(), StatusCode::OK);
}

/// A bearer's stream ends when the token does.
#[tokio::test]
async fn a_stream_ends_with_the_credential() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let now = argala_core::ports::Clock::now(&world.clock);
    let token = argala_http::mint(&world.jwt, &laptop.to_ref(), now, Duration::from_secs(60));
    let bearer = format!("Bearer {}", token.expect("mints"));
    let ask = world
        .ask(Method::GET, "/pokes")
        .header("authorization", &bearer);
    let mut body = ask.open().await.into_body();
    body.frame().await.expect("hello").expect("whole");
    tokio::time::pause();
    // The relay looks at its own clock when its timer rings.
    world.clock.advance(Duration::from_secs(60 + 61));
    let end = timeout(Duration::from_secs(600), async {
        while body.frame().await.is_some() {}
    });
    end.await.expect("an end");
    let ask = world
        .ask(Method::GET, "/pokes")
        .header("authorization", &bearer);
    ask.send().await.problem(Code::Unauthenticated);
}
