//! Every problem code, provoked once.

use std::collections::BTreeSet;

use argala_core::{Identity, StoreError};
use argala_http::{AuthError, Authenticate, DevAuth, JwtConfig};
use argala_testkit::{TestClock, TestDevice};
use argala_wire::{
    Code,
    limits::{Quotas, Rate, RateLimits},
};
use async_trait::async_trait;
use http::{Method, StatusCode, request::Parts};

use crate::world::{Answer, World, granting, noise, of, pushing, rotation, storage_key};

/// A credential that says how the host's own authentication ends.
struct Unlucky;

#[async_trait]
impl Authenticate for Unlucky {
    async fn authenticate(&self, parts: &Parts) -> Result<Identity, AuthError> {
        match parts.headers.get("x-luck").map(|luck| luck.as_bytes()) {
            Some(b"down") => Err(StoreError::unavailable("asking the host", "secret").into()),
            Some(b"broken") => Err(StoreError::internal("asking the host", "secret").into()),
            Some(b"panic") => panic!("the host's own fault"),
            _ => DevAuth.authenticate(parts).await,
        }
    }
}

/// A small relay, sam's laptop, and what sam's own graph needs.
async fn small() -> (World, TestDevice) {
    let quotas = Quotas {
        max_blob_bytes: 1_000,
        max_push_bytes: 4_000,
        max_devices_per_member: 1,
        ..Quotas::default()
    };
    let plenty = Rate {
        per_minute: 6_000,
        burst: 6_000,
    };
    let once = Rate {
        per_minute: 1,
        burst: 1,
    };
    let rates = RateLimits {
        push: plenty,
        pull: plenty,
        blobs: plenty,
        keys: plenty,
    };
    let world = World::trusting(
        std::sync::Arc::new(Unlucky),
        JwtConfig::default(),
        TestClock::new(),
        |builder| {
            builder.quotas(quotas).rate_limits(RateLimits {
                pull: once,
                ..rates
            })
        },
    );
    let laptop = world.device("sam", "laptop").await;
    (world, laptop)
}

#[tokio::test]
async fn each_can_be_met() {
    let (world, laptop) = small().await;
    let mut met = BTreeSet::new();
    let mut meet = |answer: Answer, code: Code| {
        answer.problem(code);
        met.insert(code.as_str());
    };
    let post = |path: &str, body: &'static str| {
        world
            .ask(Method::POST, path)
            .by(&laptop.to_ref())
            .body(body)
            .send()
    };
    let key = storage_key(&laptop, "d:sam");
    let push = of("d:sam", "/push");
    let blob = of("d:sam", "/blobs/a-blob-chosen-at-random");

    meet(post(&push, "nonsense").await, Code::InvalidRequest);
    let anonymous = world.ask(Method::GET, "/devices").send().await;
    assert_eq!(anonymous.header("www-authenticate"), "Bearer");
    meet(anonymous, Code::Unauthenticated);
    meet(
        world
            .get(&TestDevice::new("sam", "x"), "/devices")
            .send()
            .await,
        Code::DeviceUnregistered,
    );
    world.directory.set_member("sam", false);
    meet(
        world.get(&laptop, "/devices").send().await,
        Code::MemberInactive,
    );
    world.directory.set_member("sam", true);
    let second = TestDevice::new("sam", "phone");
    let register = second.register_request();
    meet(
        world.post(&second, "/devices", &register).send().await,
        Code::QuotaExceeded,
    );
    let other = TestDevice::with_keys(laptop.to_ref(), 1);
    let register = other.register_request();
    meet(
        world.post(&other, "/devices", &register).send().await,
        Code::DeviceKeyMismatch,
    );
    meet(
        world.delete(&laptop, "/devices/none").send().await,
        Code::DeviceNotFound,
    );

    meet(
        post(&of("g:none", "/push"), "{}").await,
        Code::GraphNotFound,
    );
    meet(post(&push, r#"{"records":[]}"#).await, Code::GraphUnkeyed);
    let rotate = of("d:sam", "/rotate");
    let nobody = rotation(1, &[]);
    meet(
        world.post(&laptop, &rotate, &nobody).send().await,
        Code::RotationIncomplete,
    );
    let late = rotation(7, &[&laptop]);
    meet(
        world.post(&laptop, &rotate, &late).send().await,
        Code::EpochConflict,
    );
    world.rotate("d:sam", 1, &[&laptop]).await;

    let mut body = pushing(vec![laptop.record(&key, "a", 2, b"sealed")]);
    body.atomic = true;
    meet(
        world.post(&laptop, &push, &body).send().await,
        Code::PushRejected,
    );
    body.if_head = Some(7);
    meet(
        world.post(&laptop, &push, &body).send().await,
        Code::HeadMoved,
    );
    for text in ["one", "two"] {
        let body = pushing(vec![laptop.record(&key, "a", 1, text.as_bytes())]);
        let ask = world
            .post(&laptop, &push, &body)
            .header("idempotency-key", "k");
        let answer = ask.send().await;
        if text == "two" {
            meet(answer, Code::IdempotencyConflict);
        }
    }
    let large = world
        .ask(Method::POST, &push)
        .by(&laptop.to_ref())
        .body(noise(4_001));
    meet(large.send().await, Code::BodyTooLarge);

    meet(world.get(&laptop, &blob).send().await, Code::BlobNotFound);
    let put = |length| world.put(&laptop, &blob, noise(length));
    meet(
        put(9).header("content-length", "8").send().await,
        Code::DigestMismatch,
    );
    meet(put(1_001).send().await, Code::BlobTooLarge);
    let unsized_put = world
        .ask(Method::PUT, &blob)
        .by(&laptop.to_ref())
        .body("bytes");
    meet(unsized_put.send().await, Code::LengthRequired);
    put(9).send().await.is(StatusCode::CREATED);
    meet(put(8).send().await, Code::BlobExists);
    let range = world.get(&laptop, &blob).header("range", "bytes=9-");
    meet(range.send().await, Code::RangeNotSatisfiable);

    let wraps = |query: &str| world.get(&laptop, &of("d:sam", &format!("/wraps{query}")));
    meet(wraps("?cursor=nonsense").send().await, Code::CursorInvalid);
    meet(
        wraps("").header("accept", "text/plain").send().await,
        Code::NotAcceptable,
    );
    let grant = world.post(&laptop, &of("d:sam", "/grant"), &granting(1, &[]));
    let text = grant.header("content-type", "text/plain");
    meet(text.send().await, Code::UnsupportedMediaType);
    meet(world.get(&laptop, "/none").send().await, Code::NotFound);
    let wrong = world.delete(&laptop, "/graphs").send().await;
    assert_eq!(wrong.header("allow"), "GET, HEAD");
    meet(wrong, Code::MethodNotAllowed);

    world
        .get(&laptop, "/graphs")
        .send()
        .await
        .is(StatusCode::OK);
    meet(
        world.get(&laptop, "/graphs").send().await,
        Code::RateLimited,
    );
    world.directory.set_failing(true);
    let down = world.get(&laptop, "/devices").send().await;
    assert!(down.headers.contains_key("retry-after"));
    meet(down, Code::Unavailable);
    world.directory.set_failing(false);
    let broken = world
        .get(&laptop, "/devices")
        .header("x-luck", "broken")
        .send()
        .await;
    assert!(!String::from_utf8_lossy(&broken.body).contains("secret"));
    meet(broken, Code::Internal);

    world
        .delete(&laptop, "/devices/laptop")
        .send()
        .await
        .is(StatusCode::OK);
    meet(
        world.get(&laptop, "/devices").send().await,
        Code::DeviceRevoked,
    );

    let all: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(met, all);
}

#[tokio::test]
async fn what_the_host_does_wrong_is_contained() {
    let (world, laptop) = small().await;
    let unlucky = |luck: &str| world.get(&laptop, "/devices").header("x-luck", luck).send();
    unlucky("down").await.problem(Code::Unavailable);
    unlucky("panic").await.problem(Code::Internal);
    unlucky("none").await.is(StatusCode::OK);
}
