//! The order of the checks (protocol, section 4): what a caller is told never depends on what
//! comes later, so answers leak nothing and a flood stays cheap.

use std::time::Duration;

use argala_testkit::TestDevice;
use argala_wire::{
    Code,
    limits::{Bucket, Rate, RateLimits},
};
use http::{Method, StatusCode};

use crate::world::{Ask, PREFIX, World, of};

/// Allowances so small that one request uses them up, until a second has passed.
fn tight() -> RateLimits {
    let rate = Rate {
        per_minute: 60,
        burst: 1,
    };
    RateLimits {
        push: rate,
        pull: rate,
        blobs: rate,
        keys: Rate {
            per_minute: 6_000,
            burst: 100,
        },
    }
}

fn pause(world: &World) {
    world.clock.advance(Duration::from_secs(60));
}

/// A push in which everything is wrong, the caller and the graph's address aside.
fn hopeless(world: &World, graph: &str) -> Ask {
    world
        .ask(Method::POST, &of(graph, "/push?color=red"))
        .header("accept", "text/plain")
        .header("content-type", "text/plain")
        .header("content-length", "999999999")
        .header("idempotency-key", "two words")
        .body("nonsense")
}

type Step = fn(&World) -> Ask;

#[tokio::test]
async fn a_hopeless_request_is_told_the_first_fault_alone() {
    let world = World::with(|builder| builder.rate_limits(tight()));
    let laptop = world.device("sam", "laptop").await;
    let lost = world.device("sam", "lost").await;
    world
        .delete(&laptop, "/devices/lost")
        .send()
        .await
        .is(StatusCode::OK);
    let new = TestDevice::new("sam", "new");

    // 401 before all else.
    hopeless(&world, "nonsense")
        .send()
        .await
        .problem(Code::Unauthenticated);
    let forged = hopeless(&world, "nonsense").header("authorization", "Bearer e30.e30.AA");
    forged.send().await.problem(Code::Unauthenticated);

    // sam's allowance of pushes is used up; a revocation that is known comes first all the same.
    hopeless(&world, "d:sam")
        .by(&laptop.to_ref())
        .send()
        .await
        .problem(Code::InvalidRequest);
    hopeless(&world, "nonsense")
        .by(&lost.to_ref())
        .send()
        .await
        .problem(Code::DeviceRevoked);

    // The rate limit before the device's state.
    let limited = hopeless(&world, "nonsense").by(&new.to_ref()).send().await;
    let problem = limited.problem(Code::RateLimited);
    assert_eq!(problem.bucket, Some(Bucket::Push));
    let seconds: u64 = limited
        .header("retry-after")
        .parse()
        .expect("whole seconds");
    assert_eq!(
        seconds,
        problem.retry_after_ms.expect("told").div_ceil(1_000)
    );

    // The device's state, then the member's, before the graph.
    pause(&world);
    hopeless(&world, "nonsense")
        .by(&new.to_ref())
        .send()
        .await
        .problem(Code::DeviceUnregistered);
    pause(&world);
    world.directory.set_member("sam", false);
    hopeless(&world, "nonsense")
        .by(&laptop.to_ref())
        .send()
        .await
        .problem(Code::MemberInactive);
    pause(&world);
    hopeless(&world, "nonsense")
        .by(&new.to_ref())
        .send()
        .await
        .problem(Code::DeviceUnregistered);
    world.directory.set_member("sam", true);

    // The graph: its address, then whether it is the caller's.
    pause(&world);
    hopeless(&world, "nonsense")
        .by(&laptop.to_ref())
        .send()
        .await
        .blames("graphId");
    pause(&world);
    hopeless(&world, "g:others")
        .by(&laptop.to_ref())
        .send()
        .await
        .problem(Code::GraphNotFound);

    // The rest of the address, the answer's form, the body's: its kind, its size, its content.
    pause(&world);
    hopeless(&world, "g:acme")
        .by(&laptop.to_ref())
        .send()
        .await
        .blames("color");
    let steps: [(Step, Code); 6] = [
        (|w| hopeless(w, "g:acme"), Code::NotAcceptable),
        (
            |w| hopeless(w, "g:acme").header("accept", "*/*"),
            Code::InvalidRequest,
        ),
        (
            |w| {
                hopeless(w, "g:acme")
                    .header("accept", "*/*")
                    .header("idempotency-key", "k")
            },
            Code::UnsupportedMediaType,
        ),
        (
            |w| {
                let ask = hopeless(w, "g:acme").header("accept", "*/*");
                ask.header("idempotency-key", "k")
                    .header("content-type", "application/json")
            },
            Code::BodyTooLarge,
        ),
        (
            |w| {
                let ask = hopeless(w, "g:acme")
                    .header("accept", "*/*")
                    .header("content-length", "8");
                ask.header("idempotency-key", "k")
                    .header("content-type", "application/json")
            },
            Code::InvalidRequest,
        ),
        (
            |w| {
                let ask = hopeless(w, "g:acme")
                    .header("accept", "*/*")
                    .body(r#"{"records":[]}"#);
                let ask = ask
                    .header("content-length", "14")
                    .header("idempotency-key", "k");
                ask.header("content-type", "application/json")
            },
            Code::GraphUnkeyed,
        ),
    ];
    for (ask, code) in steps {
        pause(&world);
        let mut request = ask(&world).by(&laptop.to_ref()).request();
        let path = format!("{PREFIX}{}", of("g:acme", "/push"));
        *request.uri_mut() = path.parse().expect("a path");
        let answer = tower::ServiceExt::oneshot(world.app.clone(), request)
            .await
            .expect("answers");
        assert_eq!(answer.status().as_u16(), code.status(), "{code:?}");
    }
}

/// The first refusal that every route gives, by identity and state alone.
#[tokio::test]
async fn every_route_has_the_same_gate() {
    let world = World::new();
    let laptop = world.device("sam", "laptop").await;
    let lost = world.device("sam", "lost").await;
    world
        .delete(&laptop, "/devices/lost")
        .send()
        .await
        .is(StatusCode::OK);
    let new = TestDevice::new("sam", "new");
    let document = serde_json::to_value(argala_http::openapi()).expect("writes");
    let mut routes = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        let path = path
            .replace("{graphId}", "nonsense")
            .replace("{deviceId}", ".")
            .replace("{blobId}", "x");
        for method in item.as_object().expect("methods").keys() {
            routes += 1;
            let method: Method = method.to_uppercase().parse().expect("a method");
            let ask = || world.ask(method.clone(), &format!("{path}?color=red"));
            ask().send().await.is(StatusCode::UNAUTHORIZED);
            ask()
                .by(&lost.to_ref())
                .send()
                .await
                .is(StatusCode::FORBIDDEN);
            let open = method == Method::POST && path == "/devices" || path == "/limits";
            let status = if open {
                StatusCode::BAD_REQUEST
            } else {
                StatusCode::FORBIDDEN
            };
            ask().by(&new.to_ref()).send().await.is(status);
            ask()
                .by(&laptop.to_ref())
                .send()
                .await
                .is(StatusCode::BAD_REQUEST);
            world.directory.set_member("sam", false);
            ask()
                .by(&laptop.to_ref())
                .send()
                .await
                .is(StatusCode::FORBIDDEN);
            world.directory.set_member("sam", true);
        }
    }
    assert_eq!(routes, 17);
}

/// Which allowance each route draws from.
#[tokio::test]
async fn every_route_draws_from_its_bucket() {
    let once = Rate {
        per_minute: 1,
        burst: 1,
    };
    let plenty = Rate {
        per_minute: 60_000,
        burst: 60_000,
    };
    let buckets = [
        (
            Bucket::Keys,
            vec![
                (Method::POST, "/devices".to_owned()),
                (Method::GET, "/devices".to_owned()),
                (Method::DELETE, "/devices/x".to_owned()),
                (Method::GET, of("d:sam", "/devices")),
                (Method::GET, of("d:sam", "/wraps")),
                (Method::POST, of("d:sam", "/rotate")),
                (Method::POST, of("d:sam", "/grant")),
            ],
        ),
        (
            Bucket::Pull,
            vec![
                (Method::GET, "/graphs".to_owned()),
                (Method::GET, of("d:sam", "")),
                (Method::GET, of("d:sam", "/pull")),
                (Method::GET, "/pokes".to_owned()),
                (Method::GET, "/limits".to_owned()),
            ],
        ),
        (Bucket::Push, vec![(Method::POST, of("d:sam", "/push"))]),
        (
            Bucket::Blobs,
            vec![
                (Method::PUT, of("d:sam", "/blobs/x")),
                (Method::GET, of("d:sam", "/blobs/x")),
                (Method::HEAD, of("d:sam", "/blobs/x")),
                (Method::DELETE, of("d:sam", "/blobs/x")),
            ],
        ),
    ];
    for (bucket, routes) in buckets {
        let mut rates = RateLimits {
            push: plenty,
            pull: plenty,
            blobs: plenty,
            keys: plenty,
        };
        match bucket {
            Bucket::Push => rates.push = once,
            Bucket::Pull => rates.pull = once,
            Bucket::Blobs => rates.blobs = once,
            Bucket::Keys => rates.keys = once,
        }
        let world = World::with(|builder| builder.rate_limits(rates));
        let new = TestDevice::new("sam", "new");
        for (method, path) in routes {
            let ask = || world.ask(method.clone(), &path).by(&new.to_ref());
            pause(&world);
            assert_ne!(
                ask().open().await.status(),
                StatusCode::TOO_MANY_REQUESTS,
                "{method} {path}"
            );
            let second = ask().open().await;
            assert_eq!(
                second.status(),
                StatusCode::TOO_MANY_REQUESTS,
                "{method} {path}"
            );
        }
    }
}
