//! JSON and CBOR say the same, in bodies, answers and problems.

use argala_testkit::TestDevice;
use argala_wire::{
    CBOR, Code, JSON, PROBLEM_JSON, Problem,
    codec::Format,
    devices::{DevicesResponse, RegisterResponse, RevokeResponse},
    graphs::{GraphResponse, GraphsResponse},
    keys::{GrantResponse, RotateResponse, WrapsResponse},
    limits::LimitsResponse,
    records::{PullResponse, PushResponse},
};
use http::{Method, StatusCode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::world::{Ask, World, granting, noise, of, pushing, rotation, storage_key};

/// Asks for the answer in both forms and returns it, once they have been found to be the same.
async fn both<T: Serialize + DeserializeOwned>(ask: impl Fn() -> Ask) -> Value {
    let mut told = Vec::new();
    for format in [Format::Json, Format::Cbor] {
        let answer = ask().accept(format).send().await;
        assert_eq!(answer.format(), format);
        assert_eq!(answer.header("vary"), "accept");
        let read: T = answer.read();
        let mut value = serde_json::to_value(read).expect("writes");
        // Presence moves on by itself.
        for device in value["devices"].as_array_mut().into_iter().flatten() {
            device
                .as_object_mut()
                .map(|device| device.remove("lastSeenAt"));
        }
        told.push(value);
    }
    assert_eq!(told[0], told[1]);
    told.remove(0)
}

#[tokio::test]
async fn every_answer_is_the_same_in_both() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    world.rotate("d:sam", 1, &[&laptop]).await;
    let phone = world.device("sam", "phone").await;
    let own = |rest: &str| of("d:sam", rest);

    both::<RegisterResponse>(|| world.post(&laptop, "/devices", &laptop.register_request())).await;
    both::<DevicesResponse>(|| world.get(&laptop, "/devices")).await;
    both::<GraphsResponse>(|| world.get(&laptop, "/graphs")).await;
    both::<GraphResponse>(|| world.get(&laptop, &own(""))).await;
    both::<DevicesResponse>(|| world.get(&laptop, &own("/devices"))).await;
    both::<WrapsResponse>(|| world.get(&laptop, &own("/wraps"))).await;
    both::<RotateResponse>(|| world.post(&laptop, &own("/rotate"), &rotation(1, &[&laptop]))).await;
    both::<GrantResponse>(|| world.post(&laptop, &own("/grant"), &granting(1, &[&phone]))).await;
    let body = pushing(vec![laptop.record(
        &storage_key(&laptop, "d:sam"),
        "a",
        1,
        &noise(5_000),
    )]);
    both::<PushResponse>(|| world.post(&laptop, &own("/push"), &body)).await;
    let page = both::<PullResponse>(|| world.get(&laptop, &own("/pull"))).await;
    assert_eq!(page["records"].as_array().map(Vec::len), Some(1));
    both::<LimitsResponse>(|| world.get(&laptop, "/limits")).await;
    world
        .delete(&laptop, "/devices/phone")
        .send()
        .await
        .is(StatusCode::OK);
    both::<RevokeResponse>(|| world.delete(&laptop, "/devices/phone")).await;
}

#[tokio::test]
async fn every_body_is_the_same_in_both() {
    for format in [Format::Json, Format::Cbor] {
        let world = World::new();
        let laptop = TestDevice::new("sam", "laptop");
        let post = |path: &str| world.ask(Method::POST, path).by(&laptop.to_ref());
        let ask = post("/devices").in_form(format, &laptop.register_request());
        ask.send().await.is(StatusCode::CREATED);
        let ask = post(&of("d:sam", "/rotate")).in_form(format, &rotation(1, &[&laptop]));
        ask.send().await.is(StatusCode::OK);
        let ask = post(&of("d:sam", "/grant")).in_form(format, &granting(1, &[&laptop]));
        ask.send().await.is(StatusCode::OK);
        let record = laptop.record(&storage_key(&laptop, "d:sam"), "a", 1, &noise(100_000));
        let ask = post(&of("d:sam", "/push")).in_form(format, &pushing(vec![record]));
        assert_eq!(ask.send().await.is(StatusCode::OK).value()["accepted"], 1);
        let page = world.get(&laptop, &of("d:sam", "/pull")).send().await;
        let page: PullResponse = page.read();
        assert_eq!(page.records[0].ciphertext.0, noise(100_000));
    }
}

#[tokio::test]
async fn a_problem_takes_the_form_that_is_asked_for() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    for (path, code) in [
        ("/devices?color=red", Code::InvalidRequest),
        ("/none", Code::NotFound),
        ("/graphs/g%3Anone", Code::GraphNotFound),
        (
            "/graphs/d%3Asam/blobs/a-blob-chosen-at-random",
            Code::BlobNotFound,
        ),
        ("/pokes?color=red", Code::InvalidRequest),
    ] {
        for (accept, media_type) in [
            (CBOR, CBOR),
            (JSON, PROBLEM_JSON),
            (PROBLEM_JSON, PROBLEM_JSON),
            ("*/*", PROBLEM_JSON),
            ("text/event-stream", PROBLEM_JSON),
            ("application/octet-stream, application/cbor;q=0.5", CBOR),
        ] {
            let answer = world
                .get(&laptop, path)
                .header("accept", accept)
                .send()
                .await;
            if code != Code::InvalidRequest || answer.status != StatusCode::NOT_ACCEPTABLE {
                answer.problem(code);
            }
            assert_eq!(answer.header("content-type"), media_type, "{path} {accept}");
        }
    }
}

#[tokio::test]
async fn blob_and_poke_routes_look_at_accept_for_errors_alone() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    world.rotate("d:sam", 1, &[&laptop]).await;
    let blob = of("d:sam", "/blobs/a-blob-chosen-at-random");
    for accept in ["text/html", CBOR, "application/json;q=0"] {
        let put = world
            .put(&laptop, &blob, noise(9))
            .header("accept", accept)
            .send()
            .await;
        assert!(put.status.is_success());
        assert_eq!(put.header("content-type"), JSON);
        let get = world
            .get(&laptop, &blob)
            .header("accept", accept)
            .send()
            .await;
        assert_eq!(get.is(StatusCode::OK).body, noise(9));
        let pokes = world
            .get(&laptop, "/pokes")
            .header("accept", accept)
            .open()
            .await;
        assert_eq!(pokes.status(), StatusCode::OK);
        let delete = world
            .delete(&laptop, &blob)
            .header("accept", accept)
            .send()
            .await;
        delete.is(StatusCode::NO_CONTENT);
        let gone = world
            .delete(&laptop, &blob)
            .header("accept", accept)
            .send()
            .await;
        let problem: Problem = gone.read();
        assert_eq!(problem.code, Code::BlobNotFound);
        assert_eq!(
            gone.format(),
            if accept == CBOR {
                Format::Cbor
            } else {
                Format::Json
            }
        );
    }
}

#[tokio::test]
async fn other_media_types_are_refused() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let body = serde_json::to_vec(&laptop.register_request()).expect("writes");
    let post = |name: &str, value: &str| {
        let ask = world.ask(Method::POST, "/devices").by(&laptop.to_ref());
        ask.header(name, value).body(body.clone()).send()
    };
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/problem+json",
        "",
    ] {
        post("content-type", kind)
            .await
            .problem(Code::UnsupportedMediaType);
    }
    post("content-encoding", "gzip")
        .await
        .problem(Code::UnsupportedMediaType);
    for kind in ["application/json; charset=utf-8", "APPLICATION/JSON"] {
        post("content-type", kind).await.is(StatusCode::OK);
    }
    post("x-nothing", "at all").await.is(StatusCode::OK);
    for accept in [
        "text/html",
        "application/json;q=0, application/cbor;q=0",
        "application/xml, */*;q=0",
    ] {
        post("accept", accept).await.problem(Code::NotAcceptable);
    }
    // A body where none is looked for is nobody's fault.
    let get = world
        .get(&laptop, "/devices")
        .header("content-type", "text/plain")
        .body("hello");
    get.send().await.is(StatusCode::OK);
}
