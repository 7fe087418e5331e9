//! Routes 1 to 3.

use argala_testkit::TestDevice;
use argala_wire::{Code, Sealed};
use http::StatusCode;
use serde_json::json;

use crate::world::{World, of};

#[tokio::test]
async fn a_device_registers_once_and_says_so_again() {
    let world = World::new();
    let laptop = TestDevice::new("sam", "laptop");
    let ask = || world.post(&laptop, "/devices", &laptop.register_request());
    let first = ask().send().await.is(StatusCode::CREATED).value();
    assert_eq!(first["fresh"], true);
    assert_eq!(first["device"]["suite"], "x25519-ed25519");
    assert_eq!(first["device"]["kind"], "device");
    assert!(
        first["device"].get("lastSeenAt").is_none(),
        "others learn no presence"
    );
    let second = ask().send().await.is(StatusCode::OK).value();
    assert_eq!(second["fresh"], false);
    assert_eq!(second["device"], first["device"]);

    let mut labelled = laptop.register_request();
    labelled.label = Some(Sealed(b"sealed".to_vec()));
    let third = world
        .post(&laptop, "/devices", &labelled)
        .send()
        .await
        .is(StatusCode::OK);
    assert_eq!(third.value()["device"]["label"], "c2VhbGVk");

    let other = TestDevice::with_keys(laptop.to_ref(), 1);
    let answer = world
        .post(&other, "/devices", &other.register_request())
        .send()
        .await;
    answer.problem(Code::DeviceKeyMismatch);
}

#[tokio::test]
async fn what_is_wrong_with_a_registration_is_named() {
    let world = World::new();
    let laptop = TestDevice::new("sam", "laptop");
    let good = serde_json::to_value(laptop.register_request()).expect("writes");
    for (field, value) in [
        ("proof", json!("AAAA")),
        ("signingKey", json!("AAAA")),
        ("encryptionKey", json!("====")),
        ("suite", json!("rot13")),
        ("kind", json!("toaster")),
        ("label", json!("A".repeat(1_368))),
        ("color", json!("red")),
    ] {
        let mut body = good.clone();
        body[field] = value;
        world
            .post(&laptop, "/devices", &body)
            .send()
            .await
            .blames(field);
    }
    let mut without = good.clone();
    without.as_object_mut().expect("a map").remove("proof");
    world
        .post(&laptop, "/devices", &without)
        .send()
        .await
        .blames("proof");
}

#[tokio::test]
async fn a_member_sees_all_their_devices_page_by_page() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let phone = world.device("sam", "phone").await;
    world.device("alex", "desk").await;
    world
        .delete(&laptop, "/devices/phone")
        .send()
        .await
        .is(StatusCode::OK);

    let all = world
        .get(&laptop, "/devices")
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(all["more"], false);
    let devices = all["devices"].as_array().expect("a list");
    let names: Vec<_> = devices
        .iter()
        .map(|device| device["deviceId"].clone())
        .collect();
    assert_eq!(names, ["laptop", "phone"], "alex's are not among them");
    assert!(devices[0]["lastSeenAt"].is_string());
    assert!(devices[0].get("revokedAt").is_none());
    assert!(devices[1]["revokedAt"].is_string());

    let page = world.get(&laptop, "/devices?limit=1").send().await.value();
    assert_eq!(
        (page["devices"][0]["deviceId"].as_str(), &page["more"]),
        (Some("laptop"), &json!(true))
    );
    let cursor = page["cursor"].as_str().expect("a cursor");
    let next = world
        .get(&laptop, &format!("/devices?limit=1&cursor={cursor}"))
        .send()
        .await;
    assert_eq!(next.value()["devices"][0]["deviceId"], "phone");

    let answer = world.get(&phone, "/devices").send().await;
    answer.problem(Code::DeviceRevoked);
}

#[tokio::test]
async fn revoking_flags_what_the_device_holds() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let phone = world.device("sam", "phone").await;
    world.rotate("d:sam", 1, &[&laptop, &phone]).await;
    let revoked = world
        .delete(&laptop, "/devices/phone")
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(revoked, json!({"graphsFlagged": 1, "graphs": ["d:sam"]}));
    let again = world
        .delete(&laptop, "/devices/phone")
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(again["graphsFlagged"], 0);
    let graph = world.get(&laptop, &of("d:sam", "")).send().await.value();
    assert_eq!(graph["rotationReasons"][0]["reason"], "device_revoked");

    world.device("alex", "desk").await;
    world
        .delete(&laptop, "/devices/desk")
        .send()
        .await
        .problem(Code::DeviceNotFound);
    // Registering again included.
    let answer = world
        .post(&phone, "/devices", &phone.register_request())
        .send()
        .await;
    answer.problem(Code::DeviceRevoked);
}

#[tokio::test]
async fn a_recovery_device_is_one_of_another_kind() {
    let world = World::new();
    let code = TestDevice::new("sam", "recovery").recovery();
    let answer = world
        .post(&code, "/devices", &code.register_request())
        .send()
        .await;
    assert_eq!(
        answer.is(StatusCode::CREATED).value()["device"]["kind"],
        "recovery"
    );
    let plain = TestDevice::new("sam", "recovery");
    let answer = world
        .post(&plain, "/devices", &plain.register_request())
        .send()
        .await;
    answer.problem(Code::DeviceKeyMismatch);
}
