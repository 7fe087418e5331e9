//! The same over HTTP/2, whose implementation tells at trace level of every frame.

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::stage::{Actor, Stage, Told};

/// A request: whose, method, path, media type, body.
pub(super) type Asked<'a> = (Option<&'a Actor>, &'a str, &'a str, &'a str, Vec<u8>);

/// Asks all of it on one connection, and keeps the answers beside the others.
pub(super) fn ask(stage: &Stage, all: Vec<Asked<'_>>) {
    let target = &stage.served.public;
    let talk = async {
        let stream = tokio::net::TcpStream::connect(&target.address)
            .await
            .unwrap();
        let io = TokioIo::new(stream);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        for (by, method, path, media_type, body) in all {
            let bearer = by.map_or("Bearer hush-do-not-repeat-this".to_owned(), |by| {
                format!("Bearer {}", by.token)
            });
            let request = Request::builder()
                .method(method)
                .uri(format!("http://{}{}{path}", target.address, target.prefix))
                .header("authorization", bearer)
                .header("content-type", media_type)
                .body(Full::new(Bytes::from(body)))
                .unwrap();
            let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes().to_vec();
            stage.told.borrow_mut().push(Told {
                by: by.map(|by| by.of.clone()),
                asked: format!("{method} {path}"),
                status: parts.status.as_u16(),
                head: format!("{:?}", parts.headers).into_bytes(),
                body,
            });
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(talk);
}
