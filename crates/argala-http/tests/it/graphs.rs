//! Routes 4 to 7.

use argala_wire::Code;
use http::StatusCode;
use serde_json::json;

use crate::world::{World, granting, of};

#[tokio::test]
async fn a_graph_without_a_key_answers_with_zeros() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let graph = world
        .get(&laptop, &of("g:acme", ""))
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!((&graph["epoch"], &graph["head"]), (&json!(0), &json!(0)));
    assert_eq!(graph["graphId"], "g:acme");
    assert_eq!(graph["quotas"]["maxRecordsPerGraph"], 250_000);
    let page = world
        .get(&laptop, &of("g:acme", "/pull"))
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(page["records"], json!([]));
    let wraps = world
        .get(&laptop, &of("g:acme", "/wraps"))
        .send()
        .await
        .is(StatusCode::OK);
    assert_eq!(wraps.value()["epoch"], 0);
    let list = world
        .get(&laptop, "/graphs")
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(list["graphs"], json!([]), "it does not exist yet");
}

#[tokio::test]
async fn each_member_is_told_their_own_name_of_a_graph() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let desk = world.device("alex", "desk").await;
    world.rotate("d:alex", 1, &[&laptop, &desk]).await;
    world.rotate("g:acme", 1, &[&laptop, &desk]).await;
    let late = world.device("alex", "phone").await;

    let list = world.get(&laptop, "/graphs").send().await.value();
    let ids: Vec<_> = list["graphs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|graph| graph["graphId"].clone())
        .collect();
    assert_eq!(ids, ["d:alex", "g:acme"]);
    let list = world.get(&late, "/graphs").send().await.value();
    assert_eq!(list["graphs"][0]["graphId"], "d:sam");
    assert_eq!(list["graphs"][0]["behind"], true);

    let page = world.get(&laptop, "/graphs?limit=1").send().await.value();
    assert_eq!(page["more"], true);
    let cursor = page["cursor"].as_str().expect("a cursor");
    let next = world
        .get(&laptop, &format!("/graphs?cursor={cursor}"))
        .send()
        .await
        .value();
    assert_eq!(
        (&next["graphs"][0]["graphId"], &next["more"]),
        (&json!("g:acme"), &json!(false))
    );

    let graph = world.get(&laptop, &of("g:acme", "")).send().await.value();
    assert_eq!(
        graph["grantsOwed"],
        json!([{"memberId": "alex", "deviceId": "phone"}])
    );
}

#[tokio::test]
async fn the_roster_with_and_without_those_who_left() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let desk = world.device("alex", "desk").await;
    world.rotate("g:acme", 1, &[&laptop, &desk]).await;
    world.directory.leave("acme", "alex");
    let names = |value: serde_json::Value| -> Vec<String> {
        let devices = value["devices"].as_array().expect("a list").clone();
        devices
            .iter()
            .map(|d| d["deviceId"].as_str().expect("an id").to_owned())
            .collect()
    };
    let path = of("g:acme", "/devices");
    let now = world
        .get(&laptop, &path)
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(names(now), ["laptop"]);
    let ever = world
        .get(&laptop, &format!("{path}?revoked=include"))
        .send()
        .await
        .value();
    assert_eq!(names(ever), ["desk", "laptop"]);
    let page = world
        .get(&laptop, &format!("{path}?revoked=include&limit=1"))
        .send()
        .await
        .value();
    assert_eq!(page["more"], true);
    world
        .get(&laptop, &format!("{path}?revoked=yes"))
        .send()
        .await
        .blames("revoked");
    world
        .get(&desk, &path)
        .send()
        .await
        .problem(Code::GraphNotFound);
}

#[tokio::test]
async fn a_device_is_given_its_own_wraps() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    world.rotate("d:sam", 1, &[&laptop]).await;
    world.push(&laptop, "d:sam", "note", "sealed").await;
    world.rotate("d:sam", 2, &[&laptop]).await;
    let phone = world.device("sam", "phone").await;
    let body = granting(2, &[&phone]);
    world
        .post(&laptop, &of("d:sam", "/grant"), &body)
        .send()
        .await
        .is(StatusCode::OK);

    let path = of("d:sam", "/wraps");
    let mine = world
        .get(&laptop, &path)
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(mine["epoch"], 2);
    let first: Vec<_> = mine["wraps"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|wrap| (wrap["epoch"].clone(), wrap["firstSeq"].clone()))
        .collect();
    assert_eq!(first, [(json!(1), json!(1)), (json!(2), json!(2))]);
    assert_eq!(
        mine["wraps"][0]["by"],
        json!({"memberId": "sam", "deviceId": "laptop"})
    );
    let newer = world
        .get(&laptop, &format!("{path}?after=1"))
        .send()
        .await
        .value();
    assert_eq!(newer["wraps"].as_array().map(Vec::len), Some(1));
    let theirs = world.get(&phone, &path).send().await.value();
    assert_eq!(theirs["wraps"][0]["epoch"], 2);
    assert_eq!(theirs["wraps"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn the_limits_are_told_to_anybody_with_an_identity() {
    let world = World::new();
    let stranger = argala_testkit::TestDevice::new("sam", "new");
    let limits = world
        .get(&stranger, "/limits")
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(limits["quotas"]["maxPushBytes"], 8 * 1024 * 1024);
    assert_eq!(
        limits["rateLimits"]["push"],
        json!({"perMinute": 600, "burst": 1200})
    );
    assert_eq!(limits["suites"], json!(["x25519-ed25519"]));
    assert_eq!(limits["signatures"], "required");
}
