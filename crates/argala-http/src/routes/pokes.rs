//! `GET /pokes`: what to pull, as it happens; server-sent events or a WebSocket.

use std::{convert::Infallible, sync::Arc, time::Duration};

use argala_core::{PokeStream, Relay};
use argala_wire::{Code, codec::Format, limits::Bucket, pokes::PokeMessage};
use axum::{
    extract::{FromRequestParts, State, WebSocketUpgrade, ws},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, header, request::Parts};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::{EVERY, Endpoint, REGISTERED};
use crate::{
    Api,
    error::ApiError,
    extract::{Admitted, Query},
    openapi::Problems,
};

pub(crate) struct Pokes;

impl Endpoint for Pokes {
    const BUCKET: Bucket = Bucket::Pull;
    const PROBLEMS: &'static [&'static [Code]] = &[EVERY, REGISTERED];
}

/// How often something is sent to a stream on which nothing happens: proxies cut what is silent.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How long a WebSocket may take to accept what is sent, and may be silent, pongs included.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long is waited for a WebSocket's other end to close, too.
const FAREWELL: Duration = Duration::from_secs(2);
/// The most bytes of a message that a WebSocket may send us. Nothing that it says matters.
const MAX_INCOMING: usize = 4 * 1024;

/// Open a poke stream
///
/// Server-sent events, or a WebSocket where the request asks to upgrade; the same JSON as an
/// event's data or a text frame. It says which graphs to pull, and nothing else. It ends when the
/// credential expires or the device is revoked.
#[utoipa::path(
    get,
    path = "/pokes",
    operation_id = "pokes",
    tag = "pokes",
    responses(
        (status = 200, description = "The stream, one message an event", content(
            (PokeMessage = "text/event-stream"),
        )),
        (status = 101, description = "The stream, one message a text frame"),
        Problems<Pokes>,
    ),
)]
pub(crate) async fn pokes(
    State(relay): State<Arc<Relay>>,
    Admitted(caller, ..): Admitted<Pokes>,
    Query(()): Query<()>,
    Upgrade(upgrade): Upgrade,
) -> Result<Response, ApiError> {
    let stream = relay.pokes(&caller).await?;
    Ok(match upgrade {
        None => events(stream),
        Some(upgrade) => upgrade
            .max_message_size(MAX_INCOMING)
            .max_frame_size(MAX_INCOMING)
            .on_upgrade(|socket| converse(socket, stream)),
    })
}

/// The WebSocket that a request asks for, where it does.
pub(crate) struct Upgrade(Option<WebSocketUpgrade>);

impl FromRequestParts<Api> for Upgrade {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        if !asks_for_websocket(&parts.headers) {
            return Ok(Self(None));
        }
        let upgrade = WebSocketUpgrade::from_request_parts(parts, api).await;
        upgrade
            .map(|upgrade| Self(Some(upgrade)))
            .map_err(|_| ApiError::invalid("Upgrade", "the WebSocket handshake is malformed"))
    }
}

fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let has = |name: header::HeaderName, token: &str| {
        let values = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|part| part.trim().eq_ignore_ascii_case(token))
    };
    has(header::CONNECTION, "upgrade") && has(header::UPGRADE, "websocket")
}

fn text(message: &PokeMessage) -> String {
    String::from_utf8(Format::Json.encode(message)).expect("JSON is UTF-8")
}

/// The stream as server-sent events.
fn events(stream: PokeStream) -> Response {
    let events = stream.map(|message| Ok::<_, Infallible>(Event::default().data(text(&message))));
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    let headers = response.headers_mut();
    // Intermediaries that compress or buffer would hold a poke back until the next ones come.
    let untouched = HeaderValue::from_static("no-cache, no-transform");
    headers.insert(header::CACHE_CONTROL, untouched);
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The stream over a WebSocket, until either end has had enough.
async fn converse(mut socket: ws::WebSocket, mut stream: PokeStream) {
    let mut pings = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        let outgoing = tokio::select! {
            message = stream.next() => match message {
                Some(message) => ws::Message::Text(text(&message).into()),
                None => break,
            },
            _ = pings.tick() => {
                if heard.elapsed() > PATIENCE {
                    return;
                }
                ws::Message::Ping(bytes::Bytes::new())
            }
            incoming = socket.recv() => match incoming {
                None | Some(Err(_) | Ok(ws::Message::Close(_))) => return,
                Some(Ok(_)) => {
                    heard = Instant::now();
                    continue;
                }
            },
        };
        if !matches!(timeout(PATIENCE, socket.send(outgoing)).await, Ok(Ok(()))) {
            return;
        }
    }
    let farewell = async {
        if socket.send(ws::Message::Close(None)).await.is_ok() {
            while let Some(Ok(_)) = socket.recv().await {}
        }
    };
    // The relay's stream is over: whether the other end noticed matters no more.
    let _ = timeout(FAREWELL, farewell).await;
}
