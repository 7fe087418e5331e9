//! Routes 10 and 11.

use argala_testkit::TestDevice;
use argala_wire::{
    Code,
    records::{CursorReason, PushRequest},
};
use http::{Method, StatusCode};
use serde_json::json;

use crate::world::{Answer, World, of, pushing, storage_key};

async fn keyed() -> (World, TestDevice) {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    world.rotate("d:sam", 1, &[&laptop]).await;
    (world, laptop)
}

fn records(by: &TestDevice, ids: &[&str]) -> PushRequest {
    let key = storage_key(by, "d:sam");
    pushing(
        ids.iter()
            .map(|id| by.record(&key, id, 1, id.as_bytes()))
            .collect(),
    )
}

#[tokio::test]
async fn what_is_pushed_is_pulled() {
    let (world, laptop) = keyed().await;
    let path = of("d:sam", "/push");
    let answer = world
        .post(&laptop, &path, &records(&laptop, &["a", "b"]))
        .send()
        .await;
    let want = json!({"head": 2, "accepted": 2, "rejected": 0,
        "results": [{"id": "a", "seq": 1}, {"id": "b", "seq": 2}]});
    assert_eq!(answer.is(StatusCode::OK).value(), want);

    let pull = of("d:sam", "/pull");
    let page = world
        .get(&laptop, &format!("{pull}?limit=1"))
        .send()
        .await
        .value();
    assert_eq!(page["records"][0]["id"], "a");
    assert_eq!(page["records"][0]["ciphertext"], "YQ");
    assert_eq!(
        page["records"][0]["by"],
        json!({"memberId": "sam", "deviceId": "laptop"})
    );
    assert!(page["records"][0].get("deleted").is_none());
    assert_eq!((&page["more"], &page["head"]), (&json!(true), &json!(2)));
    let cursor = page["cursor"].as_str().expect("a cursor");
    let rest = world
        .get(&laptop, &format!("{pull}?cursor={cursor}"))
        .send()
        .await
        .value();
    assert_eq!(rest["records"][0]["id"], "b");
    assert_eq!(rest["more"], false);
    let epoch = world
        .get(&laptop, &format!("{pull}?epoch=1"))
        .send()
        .await
        .is(StatusCode::OK);
    assert_eq!(epoch.value()["records"].as_array().map(Vec::len), Some(2));
    assert_eq!(epoch.header("cache-control"), "private, no-cache");

    let problem = world
        .get(&laptop, &format!("{pull}?epoch=1&cursor={cursor}"))
        .send()
        .await
        .problem(Code::CursorInvalid);
    assert_eq!(problem.reason, Some(CursorReason::Foreign));
}

#[tokio::test]
async fn one_bad_record_does_not_stop_its_neighbours_unless_it_is_to() {
    let (world, laptop) = keyed().await;
    let path = of("d:sam", "/push");
    let mut body = records(&laptop, &["a", "b", "c"]);
    body.records[1].epoch = 9;
    laptop.sign(&storage_key(&laptop, "d:sam"), &mut body.records[1]);
    body.atomic = true;
    let problem = world
        .post(&laptop, &path, &body)
        .send()
        .await
        .problem(Code::PushRejected);
    let told = serde_json::to_value(problem.results).expect("writes");
    assert_eq!(
        told,
        json!([{"id": "a"}, {"id": "b", "reason": "unknown_epoch", "epoch": 1}, {"id": "c"}])
    );
    body.atomic = false;
    let answer = world
        .post(&laptop, &path, &body)
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(
        (&answer["accepted"], &answer["rejected"]),
        (&json!(2), &json!(1))
    );
}

#[tokio::test]
async fn a_head_that_moved_is_told() {
    let (world, laptop) = keyed().await;
    world.push(&laptop, "d:sam", "a", "sealed").await;
    let mut body = records(&laptop, &["b"]);
    body.if_head = Some(0);
    let answer = world
        .post(&laptop, &of("d:sam", "/push"), &body)
        .send()
        .await;
    assert_eq!(answer.problem(Code::HeadMoved).head, Some(1));
}

#[tokio::test]
async fn an_idempotency_key_stands_for_the_bytes_of_one_body() {
    let (world, laptop) = keyed().await;
    let push = |body: Vec<u8>, key: &str| {
        let ask = world
            .ask(Method::POST, &of("d:sam", "/push"))
            .by(&laptop.to_ref());
        ask.header("idempotency-key", key).body(body).send()
    };
    let body = serde_json::to_vec(&records(&laptop, &["a"])).expect("writes");
    let first = push(body.clone(), "key-1").await.is(StatusCode::OK).value();
    world.push(&laptop, "d:sam", "a", "replaced since").await;
    let again = push(body.clone(), "key-1").await.is(StatusCode::OK).value();
    assert_eq!(again, first);
    // The same request in other bytes.
    let spaced = [b" ".as_slice(), &body].concat();
    push(spaced, "key-1")
        .await
        .problem(Code::IdempotencyConflict);
    for bad in ["", "with space", &"x".repeat(129), "caf\u{e9}"] {
        push(body.clone(), bad).await.blames("Idempotency-Key");
    }
    push(body.clone(), &"~".repeat(128))
        .await
        .is(StatusCode::OK);
    let mut twice = world
        .ask(Method::POST, &of("d:sam", "/push"))
        .by(&laptop.to_ref())
        .body(body)
        .request();
    for key in ["a", "b"] {
        twice
            .headers_mut()
            .append("idempotency-key", key.parse().expect("a value"));
    }
    let answer = tower::ServiceExt::oneshot(world.app.clone(), twice)
        .await
        .expect("answers");
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_page_that_the_caller_has_is_not_sent_again() {
    let (world, laptop) = keyed().await;
    world.push(&laptop, "d:sam", "a", "sealed").await;
    let path = of("d:sam", "/pull");
    let first = world.get(&laptop, &path).send().await.is(StatusCode::OK);
    let tag = first.header("etag").to_owned();
    assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    let ask = async |known: &str| -> Answer {
        world
            .get(&laptop, &path)
            .header("if-none-match", known)
            .send()
            .await
    };
    drop(world.events.take());
    for known in [
        tag.clone(),
        format!("W/{tag}"),
        format!("\"x\", {tag}"),
        "*".to_owned(),
    ] {
        let answer = ask(&known).await.is(StatusCode::NOT_MODIFIED);
        assert_eq!(answer.header("etag"), tag);
        assert!(answer.body.is_empty() && !answer.headers.contains_key("content-type"));
    }
    // A 304 emits as what it answers.
    for event in world.events.take() {
        let event = serde_json::to_value(event).expect("writes");
        assert_eq!(
            (&event["type"], &event["returned"]),
            (&json!("graph.pull"), &json!(0))
        );
    }
    for unknown in ["\"x\"", tag.trim_matches('"')] {
        ask(unknown).await.is(StatusCode::OK);
    }
    let cbor = world
        .get(&laptop, &path)
        .header("accept", "application/cbor");
    let cbor = cbor
        .header("if-none-match", &tag)
        .send()
        .await
        .is(StatusCode::OK);
    assert_ne!(cbor.header("etag"), tag, "another form has another tag");
    world.push(&laptop, "d:sam", "b", "sealed").await;
    ask(&tag).await.is(StatusCode::OK);
}

#[tokio::test]
async fn limits_and_cursors_are_held_to() {
    let (world, laptop) = keyed().await;
    for path in [
        "/devices".to_owned(),
        "/graphs".to_owned(),
        of("d:sam", "/pull"),
        of("d:sam", "/wraps"),
        of("d:sam", "/devices"),
    ] {
        for limit in ["0", "1001", "x", "", "-1", "01"] {
            let answer = world
                .get(&laptop, &format!("{path}?limit={limit}"))
                .send()
                .await;
            answer.blames("limit");
        }
        world
            .get(&laptop, &format!("{path}?limit=1000"))
            .send()
            .await
            .is(StatusCode::OK);
        for cursor in ["", "garbage", "AAAA"] {
            let answer = world
                .get(&laptop, &format!("{path}?cursor={cursor}"))
                .send()
                .await;
            let problem = answer.problem(Code::CursorInvalid);
            assert_eq!(
                problem.reason,
                Some(CursorReason::Malformed),
                "{path} {cursor}"
            );
        }
    }
    for epoch in ["0", "x", "1.5"] {
        let answer = world
            .get(&laptop, &of("d:sam", &format!("/pull?epoch={epoch}")))
            .send()
            .await;
        answer.blames("epoch");
    }
    world
        .get(&laptop, &of("d:sam", "/wraps?after=x"))
        .send()
        .await
        .blames("after");
}

#[tokio::test]
async fn what_is_wrong_with_a_push_is_named_by_its_path() {
    let (world, laptop) = keyed().await;
    let path = of("d:sam", "/push");
    let ask = |body: &'static str| {
        let ask = world.ask(Method::POST, &path).by(&laptop.to_ref());
        ask.header("content-type", "application/json")
            .body(body)
            .send()
    };
    for (body, field) in [
        (
            r#"{"records":[{"id":"a","epoch":1,"ciphertext":"AA","color":1}]}"#,
            "records[0].color",
        ),
        (
            r#"{"records":[{"id":"a","epoch":1}]}"#,
            "records[0].ciphertext",
        ),
        (
            r#"{"records":[{"id":" a","epoch":1,"ciphertext":"AA"}]}"#,
            "records[0].id",
        ),
        (r#"{"records":[],"atomic":"yes"}"#, "atomic"),
        (r#"{"records":[],"records":[]}"#, "records"),
    ] {
        ask(body).await.blames(field);
    }
    for body in [
        "",
        "[]",
        "null",
        r#"{"records":[]} x"#,
        r#"{"records":[]"#,
        "\u{0}",
    ] {
        assert_eq!(
            ask(body).await.problem(Code::InvalidRequest).field,
            None,
            "{body}"
        );
    }
    let mut twice = records(&laptop, &["a", "b"]);
    twice.records[1].id = twice.records[0].id.clone();
    world
        .post(&laptop, &path, &twice)
        .send()
        .await
        .problem(Code::InvalidRequest);
    let empty = world
        .post(&laptop, &path, &records(&laptop, &[]))
        .send()
        .await;
    assert_eq!(empty.is(StatusCode::OK).value()["results"], json!([]));
}
