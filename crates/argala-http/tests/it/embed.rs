//! The host of `examples/embed.rs` is asked for each of its parts.

use std::sync::Arc;

use argala_testkit::{TestDevice, eventually};
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;

use crate::world::{noise, of, pushing, rotation, storage_key};

#[path = "../../examples/embed.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "main is for whoever runs the example"
)]
mod example;

use example::Host;

struct App(axum::Router);

impl App {
    async fn send(&self, session: &str, method: &str, path: &str, body: Vec<u8>) -> StatusCode {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-session", session)
            .header("content-length", body.len())
            .body(Body::from(body))
            .expect("a request");
        let answer = tower::ServiceExt::oneshot(self.0.clone(), request)
            .await
            .expect("answers");
        let (parts, body) = answer.into_parts();
        body.collect().await.expect("whole");
        parts.status
    }
}

fn bytes<T: serde::Serialize>(body: &T) -> Vec<u8> {
    serde_json::to_vec(body).expect("writes")
}

#[tokio::test]
async fn each_part_of_the_host_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = Arc::new(Host::default());
    for (session, member, device) in [("s1", "sam", "laptop"), ("s2", "alex", "desk")] {
        let who = (member.to_owned(), device.to_owned());
        host.sessions
            .lock()
            .expect("whole")
            .insert(session.to_owned(), who);
    }
    let members = vec!["sam".to_owned(), "alex".to_owned()];
    host.groups
        .lock()
        .expect("whole")
        .insert("acme".to_owned(), members);
    let app = App(example::app(&host, &folder.path().join("relay.db")).expect("an app"));

    assert_eq!(
        app.send("", "GET", "/members", vec![]).await,
        StatusCode::OK
    );
    assert_eq!(
        app.send("s3", "GET", "/sync/limits", vec![]).await,
        StatusCode::UNAUTHORIZED
    );
    let laptop = TestDevice::new("sam", "laptop");
    let desk = TestDevice::new("alex", "desk");
    for (session, device) in [("s1", &laptop), ("s2", &desk)] {
        let body = bytes(&device.register_request());
        assert_eq!(
            app.send(session, "POST", "/sync/devices", body).await,
            StatusCode::CREATED
        );
    }
    let path = |rest: &str| format!("/sync{}", of("d:alex", rest));
    let body = bytes(&rotation(1, &[&laptop, &desk]));
    assert_eq!(
        app.send("s1", "POST", &path("/rotate"), body).await,
        StatusCode::OK
    );
    let record = laptop.record(&storage_key(&laptop, "d:alex"), "a", 1, b"sealed");
    let body = bytes(&pushing(vec![record]));
    assert_eq!(
        app.send("s1", "POST", &path("/push"), body).await,
        StatusCode::OK
    );
    assert_eq!(
        app.send("s1", "GET", &path("/pull"), vec![]).await,
        StatusCode::OK
    );
    let blob = path("/blobs/a-blob-chosen-at-random");
    assert_eq!(
        app.send("s1", "PUT", &blob, noise(99)).await,
        StatusCode::CREATED
    );
    assert_eq!(app.send("s1", "GET", &blob, vec![]).await, StatusCode::OK);
    assert_eq!(
        app.send("s1", "DELETE", &blob, vec![]).await,
        StatusCode::NO_CONTENT
    );
    // The host's quota, and not the default.
    let large = app.send("s1", "PUT", &blob, noise(1024 * 1024 + 1)).await;
    assert_eq!(large, StatusCode::PAYLOAD_TOO_LARGE);
    let group = format!("/sync{}", of("g:acme", ""));
    assert_eq!(app.send("s1", "GET", &group, vec![]).await, StatusCode::OK);

    // Told to each member by the name that they know the graph by.
    for line in [
        "authenticate",
        "members of acme",
        "limit keys sam",
        "limit push sam",
        "limit pull sam",
        "limit blobs sam",
        "event device.register",
        "event graph.push",
        "event auth.rejected",
        "event quota.exceeded",
        "object put",
        "object get",
        "object delete",
        "poke alex: d:sam",
    ] {
        eventually(line, async || {
            let journal = host.journal.lock().expect("whole");
            journal.iter().any(|noted| noted == line).then_some(())
        })
        .await;
    }
}
