//! Routes 8 and 9.

use argala_wire::Code;
use http::StatusCode;
use serde_json::json;

use crate::world::{World, granting, of, rotation};

#[tokio::test]
async fn a_rotate_covers_the_roster_and_comes_next() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let desk = world.device("alex", "desk").await;
    let kim = world.device("kim", "pad").await;
    let path = of("g:acme", "/rotate");
    let rotate = |epoch, devices: &[&_]| {
        let body = rotation(epoch, devices);
        world.post(&laptop, &path, &body).send()
    };

    let problem = rotate(2, &[&laptop, &desk])
        .await
        .problem(Code::EpochConflict);
    assert_eq!(problem.epoch, Some(0));
    let problem = rotate(1, &[&laptop, &kim])
        .await
        .problem(Code::RotationIncomplete);
    assert_eq!(problem.missing, Some(vec![desk.to_ref()]));
    assert_eq!(problem.extra, Some(vec![kim.to_ref()]));

    let want = json!({"epoch": 1, "firstSeq": 1, "devices": 2});
    let first = rotate(1, &[&laptop, &desk]).await.is(StatusCode::OK);
    assert_eq!(first.value(), want);
    let again = rotate(1, &[&laptop, &desk]).await.is(StatusCode::OK);
    assert_eq!(again.value(), want, "the same rotate again");
    let body = rotation(1, &[&laptop, &desk]);
    let other = world.post(&desk, &path, &body).send().await;
    assert_eq!(other.problem(Code::EpochConflict).epoch, Some(1));
    let twice = rotate(2, &[&laptop, &laptop, &desk]).await;
    twice.problem(Code::InvalidRequest);
}

#[tokio::test]
async fn a_grant_is_judged_wrap_by_wrap() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let path = of("d:sam", "/grant");
    let early = granting(1, &[&laptop]);
    world
        .post(&laptop, &path, &early)
        .send()
        .await
        .problem(Code::GraphUnkeyed);
    world.rotate("d:sam", 1, &[&laptop]).await;
    let phone = world.device("sam", "phone").await;
    let kim = world.device("kim", "pad").await;
    let mut body = granting(1, &[&phone, &kim, &laptop]);
    body.wraps.push(phone.grant_wrap(7, "grant"));
    let answer = world
        .post(&laptop, &path, &body)
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(answer["granted"], 1);
    let reasons: Vec<_> = answer["rejected"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|wrap| wrap["reason"].clone())
        .collect();
    assert_eq!(reasons, ["not_on_roster", "wrap_exists", "unknown_epoch"]);
}
