//! Accepting connections: no more than fit, each with its timeouts, and an orderly end.

use std::{sync::Arc, time::Duration};

use argala_core::ports::Random;
use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::stream::Watched;

/// Streams at once within one connection of HTTP/2.
const MAX_HTTP2_STREAMS: u32 = 256;
/// Bytes of the headers of one request.
const MAX_HEAD_BYTES: u32 = 32 * 1024;
/// How often a silent HTTP/2 peer is asked whether it is there, and how long it may take to say.
const HTTP2_PING: Duration = Duration::from_secs(20);
/// Connections that are being told 503 at once; beyond them, one is closed without a word.
const MAX_REFUSALS: usize = 64;
/// How long a refused peer may take to read why.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait before accepting again where the system has no descriptors left.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// What connections may do.
#[derive(Clone)]
pub(crate) struct Limits {
    pub(crate) header_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) max_connections: u32,
    /// For the request ids of those that are refused.
    pub(crate) random: Arc<dyn Random>,
}

/// Accepts connections until `stop`, then lets those that are open finish. Returns when the last
/// one is gone, WebSockets included.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(limits.max_connections as usize));
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let graceful = GracefulShutdown::new();
    let tasks = TaskTracker::new();
    let http = protocol(&limits);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // A connection that was gone before it was taken costs nothing; with no
                // descriptors left, trying at once would only spin.
                if error.kind() != std::io::ErrorKind::ConnectionAborted {
                    tracing::warn!(%error, "cannot accept connections");
                    tokio::time::sleep(OUT_OF_DESCRIPTORS).await;
                }
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            if let Ok(slot) = Arc::clone(&refusals).try_acquire_owned() {
                let id = u128::from_be_bytes(limits.random.bytes());
                tasks.spawn(async move {
                    refuse(stream, id).await;
                    drop(slot);
                });
            }
            continue;
        };
        // Small answers leave at once; where it fails the connection is dying anyway.
        let _ = stream.set_nodelay(true);
        let io = Watched::new(stream, limits.header_timeout, limits.write_timeout, place);
        let service = TowerToHyperService::new(router.clone());
        let connection = http
            .serve_connection_with_upgrades(TokioIo::new(io), service)
            .into_owned();
        let connection = graceful.watch(connection);
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "a connection ended early");
            }
        });
    }
    // Further connections are refused by the system from here on.
    drop(listener);
    tasks.close();
    graceful.shutdown().await;
    tasks.wait().await;
    // Upgraded connections have left their task and keep their place.
    let _ = places.acquire_many(limits.max_connections).await;
}

fn protocol(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_HTTP2_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES)
        .keep_alive_interval(HTTP2_PING)
        .keep_alive_timeout(HTTP2_PING);
    http
}

/// Tells a connection that has no place why, whatever it asks, and closes it.
async fn refuse(mut stream: TcpStream, id: u128) {
    const BODY: &str = concat!(
        r#"{"type":"urn:argala:problem:unavailable","title":"The relay cannot answer now","#,
        r#""status":503,"code":"unavailable","detail":"too many connections; try again"}"#,
    );
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\nconnection: close\r\n\
         x-request-id: {id:032x}\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let told = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Closing with bytes unread would reset the connection and take the answer with it.
        let mut unread = [0; 4_096];
        while stream.read(&mut unread).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = tokio::time::timeout(REFUSAL_TIMEOUT, told).await;
}
