//! Paths and query strings: ids of every kind, unknown paths, other methods.

use argala_testkit::TestDevice;
use argala_wire::Code;
use http::{Method, StatusCode};
use serde_json::json;

use crate::world::{World, encoded, of};

#[tokio::test]
async fn ids_are_what_hosts_make_them() {
    let world = World::new();
    for (member, device, group) in [
        ("auth0|42", "user:7", "team:a/b"),
        ("sam@example.org", "a/b/../c", "50% off?"),
        ("🦀", "crab 🦀 & co", "🦀#1"),
        ("a b", "...", "+"),
        ("..", "a%2Fb", ".."),
    ] {
        world.directory.set_member(member, true);
        world.directory.set_group(group, &[member]);
        let mine = world.device(member, device).await;
        let other = world.device(member, "other").await;
        for graph in [format!("g:{group}"), format!("d:{member}")] {
            world.rotate(&graph, 1, &[&mine, &other]).await;
            assert_eq!(world.push(&mine, &graph, "a:b/c", "sealed").await, 1);
            let told = world
                .get(&mine, &of(&graph, ""))
                .send()
                .await
                .is(StatusCode::OK)
                .value();
            assert_eq!(told["graphId"], json!(graph));
        }
        let path = format!("/devices/{}", encoded(device));
        let revoked = world
            .delete(&other, &path)
            .send()
            .await
            .is(StatusCode::OK)
            .value();
        assert_eq!(revoked["graphsFlagged"], 2);
    }
}

#[tokio::test]
async fn a_malformed_graph_id_is_named() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    for segment in [
        "acme", "/pull", "x%3Aacme", "g%3A", "g%3A%20a", "g%3A%ff", "g%3A%zz", "g%3A%00", "g%3Aa%",
    ] {
        let answer = world
            .get(&laptop, &format!("/graphs/{segment}"))
            .send()
            .await;
        answer.blames("graphId");
    }
    let long = format!("/graphs/g%3A{}", "x".repeat(129));
    world.get(&laptop, &long).send().await.blames("graphId");
    for segment in [".", "..", "%20", "%ff", &"x".repeat(129)] {
        let path = format!("/devices/{segment}");
        world.delete(&laptop, &path).send().await.blames("deviceId");
    }
    for segment in [
        "short",
        "%ff",
        "a-blob-of-too-odd%20a-name",
        &"x".repeat(129),
    ] {
        let path = of("d:sam", &format!("/blobs/{segment}"));
        world.get(&laptop, &path).send().await.blames("blobId");
        // The graph comes first.
        let path = of("g:none", &format!("/blobs/{segment}"));
        world
            .get(&laptop, &path)
            .send()
            .await
            .problem(Code::GraphNotFound);
    }
}

#[tokio::test]
async fn what_is_no_route_is_a_problem_too() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    for path in [
        "",
        "/none",
        "/devices/",
        "/graphs/g%3Aacme/",
        "/graphs/g:a/b/pull",
        "/pokes/x",
        "/%00",
        "/%ff",
    ] {
        let answer = world.get(&laptop, path).send().await;
        answer.problem(Code::NotFound);
        assert_eq!(answer.template, argala_http::UNMATCHED, "{path}");
    }
    // The host's own routes are the host's.
    let mut request = world.get(&laptop, "").request();
    *request.uri_mut() = "/".parse().expect("a path");
    let answer = tower::ServiceExt::oneshot(world.app.clone(), request)
        .await
        .expect("answers");
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(!answer.headers().contains_key("x-request-id"));
}

#[tokio::test]
async fn every_route_tells_which_methods_it_has() {
    let world = World::new();
    let document = serde_json::to_value(argala_http::openapi()).expect("writes");
    for (path, item) in document["paths"].as_object().expect("paths") {
        let mut has: Vec<_> = item
            .as_object()
            .expect("methods")
            .keys()
            .map(|method| method.to_uppercase())
            .collect();
        // What answers GET answers HEAD, without being a route of its own.
        if has.iter().any(|method| method == "GET") && !has.iter().any(|method| method == "HEAD") {
            has.push("HEAD".to_owned());
        }
        has.sort();
        let real = path
            .replace("{graphId}", "d%3Asam")
            .replace("{deviceId}", "x");
        let real = real.replace("{blobId}", "a-blob-chosen-at-random");
        for method in [
            "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW",
        ] {
            let asked: Method = method.parse().expect("a method");
            let answer = world.ask(asked, &real).send().await;
            if has.iter().any(|has| has == method) {
                answer.is(StatusCode::UNAUTHORIZED);
            } else {
                assert_eq!(answer.header("allow"), has.join(", "), "{method} {path}");
                answer.is(StatusCode::METHOD_NOT_ALLOWED);
            }
        }
    }
}

#[tokio::test]
async fn an_unknown_parameter_is_refused_on_every_route() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let document = serde_json::to_value(argala_http::openapi()).expect("writes");
    for (path, item) in document["paths"].as_object().expect("paths") {
        let path = path
            .replace("{graphId}", "d%3Asam")
            .replace("{deviceId}", "x");
        let path = path.replace("{blobId}", "a-blob-chosen-at-random");
        for method in item.as_object().expect("methods").keys() {
            let method: Method = method.to_uppercase().parse().expect("a method");
            for (query, field) in [
                ("color=red", Some("color")),
                ("color", Some("color")),
                ("a=1&a=1", Some("a")),
                ("Dear%20Alex=1", None),
            ] {
                let ask = world.ask(method.clone(), &format!("{path}?{query}"));
                let answer = ask
                    .by(&laptop.to_ref())
                    .send()
                    .await
                    .is(StatusCode::BAD_REQUEST);
                if method != Method::HEAD {
                    let problem = answer.problem(Code::InvalidRequest);
                    assert_eq!(problem.field.as_deref(), field, "{method} {path}?{query}");
                    assert!(!problem.detail.contains("Alex"));
                }
            }
        }
    }
}

#[tokio::test]
async fn the_router_needs_no_prefix() {
    let world = World::new();
    let laptop = TestDevice::new("sam", "laptop");
    let bare: axum::Router = argala_http::router(
        world.relay.clone(),
        std::sync::Arc::new(argala_http::DevAuth),
    );
    let nested = axum::Router::new().nest("/a/{tenant}/b", bare.clone());
    let service = axum::Router::new().nest_service("/s", bare.clone());
    for (app, prefix) in [(bare, ""), (nested, "/a/x/b"), (service, "/s")] {
        let mut request = world.get(&laptop, "").request();
        *request.uri_mut() = format!("{prefix}/graphs/nonsense").parse().expect("a path");
        let answer = tower::ServiceExt::oneshot(app, request)
            .await
            .expect("answers");
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        let template = answer
            .extensions()
            .get::<argala_http::RouteTemplate>()
            .expect("told");
        assert_eq!(template.as_str(), "/graphs/{graphId}");
    }
}
