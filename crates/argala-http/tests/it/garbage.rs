//! Whatever is sent, the answer is a problem or a success, and never a fault of ours.

use argala_testkit::TestDevice;
use argala_wire::{CBOR, PROBLEM_JSON};
use axum::body::Body;
use http::{HeaderValue, Method, Request, header};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::world::{PREFIX, World, of};

struct Ready {
    world: World,
    laptop: TestDevice,
    runtime: Runtime,
}

fn ready() -> Ready {
    let runtime = Runtime::new().expect("a runtime");
    let (world, laptop) = runtime.block_on(async {
        let rate = argala_wire::limits::Rate {
            per_minute: u32::MAX,
            burst: u32::MAX,
        };
        let rates = argala_wire::limits::RateLimits {
            push: rate,
            pull: rate,
            blobs: rate,
            keys: rate,
        };
        let world = World::with(|builder| builder.rate_limits(rates));
        let laptop = world.device("sam", "laptop").await;
        world.rotate("d:sam", 1, &[&laptop]).await;
        (world, laptop)
    });
    Ready {
        world,
        laptop,
        runtime,
    }
}

impl Ready {
    fn send(&self, request: Request<Body>) -> u16 {
        let app = self.world.app.clone();
        let answered = tower::ServiceExt::oneshot(app, request);
        let answer = self.runtime.block_on(answered).expect("answers");
        let (status, headers) = (answer.status().as_u16(), answer.headers());
        assert!(headers.contains_key("x-request-id"));
        if status >= 400 {
            let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
            let problem = [Some(PROBLEM_JSON.as_bytes()), Some(CBOR.as_bytes())];
            assert!(
                problem.contains(&kind),
                "{status} is no problem document: {kind:?}"
            );
        }
        status
    }
}

fn paths() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        Just("graphs".to_owned()),
        Just("devices".to_owned()),
        Just("d%3Asam".to_owned()),
        Just("pull".to_owned()),
        Just("push".to_owned()),
        Just("blobs".to_owned()),
        Just("a-blob-chosen-at-random".to_owned()),
        "[!$&'()*+,;:@A-Za-z0-9._~%-]{0,12}",
    ];
    let query = "(\\?[A-Za-z0-9=&%+._~-]{0,24})?";
    (proptest::collection::vec(segment, 0..5), query)
        .prop_map(|(segments, query)| format!("{PREFIX}/{}{query}", segments.join("/")))
}

fn methods() -> impl Strategy<Value = Method> {
    prop_oneof![
        Just(Method::GET),
        Just(Method::HEAD),
        Just(Method::POST),
        Just(Method::PUT),
        Just(Method::DELETE),
        Just(Method::PATCH),
    ]
}

fn headers() -> impl Strategy<Value = Vec<(&'static str, Vec<u8>)>> {
    let name = proptest::sample::select(vec![
        "accept",
        "content-type",
        "content-encoding",
        "content-length",
        "content-digest",
        "idempotency-key",
        "if-none-match",
        "if-range",
        "range",
        "x-request-id",
        "connection",
        "upgrade",
        "sec-websocket-version",
    ]);
    let value = prop_oneof![
        "[ -~]{0,40}".prop_map(String::into_bytes),
        proptest::collection::vec(0x20..=0xff_u8, 0..20),
        proptest::sample::select(vec![
            "application/json",
            "application/cbor",
            "bytes=0-",
            "*",
            "upgrade",
            "websocket",
            "13",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    proptest::collection::vec((name, value), 0..4)
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let near_json = "[\\[\\]{}\":,a-z0-9 ]{0,60}".prop_map(String::into_bytes);
    let nearly = Just(br#"{"records":[{"id":"a","epoch":1,"ciphertext":"AA"}]}"#.to_vec());
    let mangled =
        (nearly, any::<(prop::sample::Index, u8)>()).prop_map(|(mut body, (at, byte))| {
            let at = at.index(body.len());
            body[at] = byte;
            body
        });
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        near_json,
        mangled
    ]
}

#[test]
fn no_request_is_our_fault() {
    let ready = ready();
    let config = ProptestConfig {
        cases: 400,
        ..ProptestConfig::default()
    };
    proptest!(config, |(path in paths(), method in methods(), headers in headers(), body in bodies(),
        by_laptop in proptest::bool::weighted(0.9))| {
        let Ok(uri) = path.parse::<http::Uri>() else { return Ok(()) };
        // The prefix with a slash and no more is the host's, by axum's rules.
        prop_assume!(uri.path() != format!("{PREFIX}/"));
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                request.headers_mut().append(name, value);
            }
        }
        let credential = if by_laptop { "Dev sam/laptop" } else { "Dev %ff/é" };
        let credential = HeaderValue::from_bytes(credential.as_bytes()).expect("legal");
        request.headers_mut().insert(header::AUTHORIZATION, credential);
        let status = ready.send(request);
        prop_assert!(status < 500, "{status}");
    });
    // The relay is as well as before.
    let status = ready.send(
        ready
            .world
            .get(&ready.laptop, &of("d:sam", "/pull"))
            .request(),
    );
    assert_eq!(status, 200);
}

#[test]
fn no_credential_is_our_fault() {
    let ready = ready();
    let schemes = proptest::sample::select(vec!["Bearer ", "Dev ", "bearer", "", "Basic "]);
    proptest!(|(scheme in schemes, rest in proptest::collection::vec(0x20..=0xff_u8, 0..60))| {
        let value = [scheme.as_bytes(), &rest].concat();
        let mut request = ready.world.ask(Method::GET, "/devices").request();
        let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
        request.headers_mut().insert(header::AUTHORIZATION, value);
        let status = ready.send(request);
        prop_assert!(status == 401 || status == 403, "{status}");
    });
}
