//! The eleven events, exactly as the protocol has them (section 8).

use argala_testkit::TestDevice;
use argala_wire::limits::{Quotas, Rate, RateLimits};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{World, granting, noise, of, pushing, storage_key};

fn told(world: &World) -> Vec<Value> {
    let events = world.events.take();
    events
        .iter()
        .map(|event| serde_json::to_value(event).expect("writes"))
        .collect()
}

#[tokio::test]
async fn each_request_emits_its_own() {
    let quotas = Quotas {
        max_records_per_graph: 2,
        max_devices_per_member: 2,
        max_push_bytes: 2_000,
        max_blob_bytes: 100,
        ..Quotas::default()
    };
    let plenty = Rate {
        per_minute: 6_000,
        burst: 6_000,
    };
    let rates = RateLimits {
        push: plenty,
        pull: Rate {
            per_minute: 1,
            burst: 2,
        },
        blobs: plenty,
        keys: plenty,
    };
    let world = World::with(|builder| builder.quotas(quotas).rate_limits(rates));

    let laptop = world.device("sam", "laptop").await;
    let again = laptop.register_request();
    world
        .post(&laptop, "/devices", &again)
        .send()
        .await
        .is(StatusCode::OK);
    let fresh = |fresh| json!({"type": "device.register", "memberId": "sam", "deviceId": "laptop", "fresh": fresh});
    assert_eq!(told(&world), [fresh(true), fresh(false)]);

    world.rotate("d:sam", 1, &[&laptop]).await;
    let own = |name: &str, rest: Value| {
        let mut event = json!({"type": name, "memberId": "sam", "storageKey": "d:sam:sam"});
        event
            .as_object_mut()
            .expect("a map")
            .extend(rest.as_object().expect("a map").clone());
        event
    };
    assert_eq!(
        told(&world),
        [own("graph.rotate", json!({"epoch": 1, "devices": 1}))]
    );

    let phone = world.device("sam", "phone").await;
    told(&world);
    let grant = granting(1, &[&phone]);
    world
        .post(&laptop, &of("d:sam", "/grant"), &grant)
        .send()
        .await
        .is(StatusCode::OK);
    assert_eq!(
        told(&world),
        [own("graph.grant", json!({"epoch": 1, "devices": 1}))]
    );

    let key = storage_key(&laptop, "d:sam");
    let body = pushing(
        ["a", "b", "c"]
            .iter()
            .map(|id| laptop.record(&key, id, 1, b"12345"))
            .collect(),
    );
    let push = of("d:sam", "/push");
    world
        .post(&laptop, &push, &body)
        .send()
        .await
        .is(StatusCode::OK);
    let pushed = own(
        "graph.push",
        json!({"accepted": 2, "rejected": 1, "bytes": 10}),
    );
    let full = |what: &str| own("quota.exceeded", json!({"what": what}));
    assert_eq!(told(&world), [full("records"), pushed]);
    let large = world
        .ask(Method::POST, &push)
        .by(&laptop.to_ref())
        .body(noise(2_001));
    large.send().await.is(StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(told(&world), [full("pushBytes")]);

    for _ in 0..2 {
        world
            .get(&laptop, &of("d:sam", "/pull"))
            .send()
            .await
            .is(StatusCode::OK);
    }
    let pulled = own("graph.pull", json!({"returned": 2, "filtered": 0}));
    assert_eq!(told(&world), [pulled.clone(), pulled]);
    let limited = world.get(&laptop, &of("d:sam", "/pull")).send().await;
    limited.is(StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        told(&world),
        [json!({"type": "ratelimit.hit", "memberId": "sam", "bucket": "pull"})]
    );

    let blob = of("d:sam", "/blobs/a-blob-chosen-at-random");
    world
        .put(&laptop, &blob, noise(101))
        .send()
        .await
        .is(StatusCode::PAYLOAD_TOO_LARGE);
    world
        .put(&laptop, &blob, noise(9))
        .send()
        .await
        .is(StatusCode::CREATED);
    world
        .put(&laptop, &blob, noise(9))
        .send()
        .await
        .is(StatusCode::OK);
    let stored = own("blob.put", json!({"size": 9, "policy": "keep"}));
    assert_eq!(told(&world), [full("blobBytes"), stored.clone(), stored]);
    world
        .delete(&laptop, &blob)
        .send()
        .await
        .is(StatusCode::NO_CONTENT);
    let forgotten =
        json!({"type": "blob.forget", "storageKey": "d:sam:sam", "reason": "requested"});
    assert_eq!(told(&world), [forgotten]);

    let third = TestDevice::new("sam", "pad");
    let answer = world
        .post(&third, "/devices", &third.register_request())
        .send()
        .await;
    answer.is(StatusCode::FORBIDDEN);
    assert_eq!(told(&world), [full("devices")]);

    let revoke = || world.delete(&laptop, "/devices/phone").send();
    revoke().await.is(StatusCode::OK);
    revoke().await.is(StatusCode::OK);
    let revoked = |flagged| {
        json!({"type": "device.revoke", "memberId": "sam", "deviceId": "phone",
            "graphsFlagged": flagged})
    };
    assert_eq!(told(&world), [revoked(1), revoked(0)]);
}

#[tokio::test]
async fn a_refusal_of_the_caller_as_such_says_why() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let lost = world.device("sam", "lost").await;
    world
        .delete(&laptop, "/devices/lost")
        .send()
        .await
        .is(StatusCode::OK);
    let ask = || world.ask(Method::GET, "/devices");
    told(&world);
    for (ask, reason) in [
        (ask(), "missing"),
        (ask().header("authorization", "Basic c2FtOg=="), "missing"),
        (ask().header("authorization", "Dev sam"), "malformed"),
        (
            ask().header("authorization", "Bearer nonsense"),
            "malformed",
        ),
        (
            ask().by(&TestDevice::new("sam", "new").to_ref()),
            "device_unregistered",
        ),
        (ask().by(&lost.to_ref()), "device_revoked"),
    ] {
        ask.send().await;
        assert_eq!(
            told(&world),
            [json!({"type": "auth.rejected", "reason": reason})]
        );
        assert!(argala_http::AUTH_REASONS.contains(&reason));
    }
    world.directory.set_member("sam", false);
    ask()
        .by(&laptop.to_ref())
        .send()
        .await
        .is(StatusCode::FORBIDDEN);
    assert_eq!(
        told(&world),
        [json!({"type": "auth.rejected", "reason": "member_inactive"})]
    );
}
