//! What the client does about answers that are no answers, and about those that are final.

use std::time::Duration;

use argala_client::{Credential, Error, api::PullQuery};
use argala_testkit::device_ref;
use argala_wire::{
    Code,
    limits::{Bucket, Rate, RateLimits},
};
use axum::body::Body;
use http::{Method, Response};

use crate::world::{Meddle, World, acme, problem, quick};

fn unavailable() -> Meddle {
    let mut answer = problem(Code::Unavailable, |_| ());
    answer
        .headers_mut()
        .insert("retry-after", "0".parse().expect("a header"));
    Meddle::Answer(answer)
}

#[tokio::test]
async fn a_relay_that_is_away_for_a_moment_is_asked_again() {
    let world = World::new().await;
    let (sam, _) = world.pair().await;
    let mut left = 3;
    world.meddler.set(move |asked| {
        if !asked.is(Method::GET, "/pull") || left == 0 {
            return Meddle::Pass;
        }
        left -= 1;
        match left {
            2 => unavailable(),
            1 => Meddle::Cut,
            // A proxy's own words.
            _ => Meddle::Answer(
                Response::builder()
                    .status(502)
                    .body(Body::from("<html>"))
                    .expect("an answer"),
            ),
        }
    });
    world.meddler.take();
    let page = sam.session.api().pull(&acme(), &PullQuery::default()).await;
    page.expect("the fourth try is answered");
    assert_eq!(world.meddler.take().len(), 4);
}

#[tokio::test]
async fn it_gives_up_and_says_what_the_relay_said_last() {
    let world = World::new().await;
    let (sam, _) = world.pair().await;
    world.meddler.set(|_| unavailable());
    world.meddler.take();
    let error = sam.session.api().graphs().await.expect_err("away");
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert_eq!(world.meddler.take().len(), quick().tries as usize);
}

#[tokio::test]
async fn final_answers_are_not_asked_for_again() {
    let world = World::new().await;
    let (sam, _) = world.pair().await;
    let cases = [
        Code::Unauthenticated,
        Code::DeviceRevoked,
        Code::DeviceUnregistered,
        Code::MemberInactive,
        Code::QuotaExceeded,
        Code::GraphNotFound,
        Code::Internal,
    ];
    for code in cases {
        world
            .meddler
            .set(move |_| Meddle::Answer(problem(code, |_| ())));
        world.meddler.take();
        let error = sam.session.api().graph(&acme()).await.expect_err("final");
        assert_eq!(error.code(), Some(code));
        assert_eq!(world.meddler.take().len(), 1, "{code:?}");
    }
    // A code of a later relay is told by its name, anything else by its status alone.
    for (body, expected) in [
        (r#"{"code":"moon_phase","title":"x"}"#, Some("moon_phase")),
        (r#"{"code":"Dear Alex"}"#, None),
        ("<html>", None),
    ] {
        world.meddler.set(move |_| {
            let answer = Response::builder()
                .status(418)
                .header("content-type", "application/problem+json")
                .body(Body::from(body));
            Meddle::Answer(answer.expect("an answer"))
        });
        let error = sam.session.api().graph(&acme()).await.expect_err("final");
        match error {
            Error::Status { status: 418, code } => assert_eq!(code.as_deref(), expected),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_as_told() {
    let rate = Rate {
        per_minute: 6_000,
        burst: 1,
    };
    let rates = RateLimits {
        pull: rate,
        ..RateLimits::default()
    };
    let world = World::with(|builder| builder.rate_limits(rates)).await;
    let (sam, _) = world.pair().await;
    world.meddler.take();
    for _ in 0..20 {
        sam.session
            .api()
            .graph(&acme())
            .await
            .expect("waits and is served");
    }
    let asked = world.meddler.take().len();
    assert!(
        (21..=60).contains(&asked),
        "{asked} requests for 20 answers"
    );
}

#[tokio::test]
async fn a_limit_that_lasts_is_told_and_not_waited_for() {
    let world = World::new().await;
    let (sam, _) = world.pair().await;
    world.meddler.set(|_| {
        Meddle::Answer(problem(Code::RateLimited, |problem| {
            problem.bucket = Some(Bucket::Pull);
            problem.retry_after_ms = Some(3_600_000);
        }))
    });
    world.meddler.take();
    let error = sam
        .session
        .api()
        .graphs()
        .await
        .expect_err("an hour is too long");
    assert_eq!(error.code(), Some(Code::RateLimited));
    assert_eq!(world.meddler.take().len(), 1);
}

#[tokio::test]
async fn answers_may_grow() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    sam.say(&acme(), "a", "one").await;
    world.meddler.set(|_| {
        Meddle::Change(Box::new(|value| {
            if let Some(map) = value.as_object_mut() {
                map.insert("color".to_owned(), "green".into());
                for value in map.values_mut() {
                    if let Some(first) = value.as_array_mut().and_then(|list| list.first_mut())
                        && let Some(map) = first.as_object_mut()
                    {
                        map.insert("mood".to_owned(), serde_json::json!({"good": [1]}));
                    }
                }
            }
        }))
    });
    assert_eq!(alex.pull(&acme()).await.texts().len(), 1);
    alex.say(&acme(), "b", "two").await;
    alex.session.own_devices().await.expect("reads");
    alex.session.rotate(&acme()).await.expect("rotates");
    alex.session.status().await.expect("reads");
}

#[tokio::test]
async fn an_answer_of_another_shape_is_told_by_its_field_alone() {
    let world = World::new().await;
    let (sam, _) = world.pair().await;
    world
        .meddler
        .change(Method::GET, "/graphs/g%3Aacme", |value| {
            value["epoch"] = "Dear Alex".into();
        });
    let error = sam
        .session
        .api()
        .graph(&acme())
        .await
        .expect_err("no number");
    let text = error.to_string();
    assert!(text.contains("epoch") && !text.contains("Alex"), "{text}");
}

#[tokio::test]
async fn nobody_there_is_told_without_the_url() {
    let mut world = World::new().await;
    let (sam, _) = world.pair().await;
    world.stop().await;
    let error = sam.session.api().graph(&acme()).await.expect_err("gone");
    assert!(matches!(error, Error::Offline(_)), "{error}");
    assert!(!error.to_string().contains("acme"), "{error}");
}

#[tokio::test]
async fn a_bearer_token_is_spoken() {
    use argala_http::{JwtAuth, JwtConfig, JwtKey, mint};
    use std::sync::Arc;
    let world = World::new().await;
    let config = JwtConfig {
        keys: vec![JwtKey::Secret(
            b"the host's secret, thirty-two bytes and more".to_vec(),
        )],
        ..JwtConfig::default()
    };
    let clock = Arc::clone(world.relay.clock());
    let device = device_ref("sam", "laptop");
    let token = mint(&config, &device, clock.now(), Duration::from_secs(600)).expect("a token");
    let auth = JwtAuth::new(config, clock).expect("a good config");
    let url = world.serve(Arc::new(auth)).await;
    let credential = Credential::bearer(&token).expect("a token");
    assert_eq!(credential.device(), Some(device));
    let client = argala_client::Client::new(&url, &credential).expect("a URL");
    client.limits().await.expect("served");
    let other = Credential::bearer("x.y.z").expect("a token");
    let client = argala_client::Client::new(&url, &other).expect("a URL");
    let error = client.limits().await.expect_err("no such token");
    assert_eq!(error.code(), Some(Code::Unauthenticated));
}
