use argala_testkit::{EPOCH, TestClock, device_ref};
use serde_json::json;

use super::{
    super::{
        mint,
        tests::{head, reason},
    },
    *,
};

const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

fn config() -> JwtConfig {
    JwtConfig {
        keys: vec![JwtKey::Secret(SECRET.to_vec())],
        issuers: vec!["https://issuer.test".to_owned()],
        audiences: vec!["argala".to_owned()],
        ..JwtConfig::default()
    }
}

fn auth(config: JwtConfig) -> (JwtAuth, TestClock) {
    let clock = TestClock::new();
    let auth = JwtAuth::new(config, Arc::new(clock.clone())).expect("keys and algorithms fit");
    (auth, clock)
}

fn seconds() -> i64 {
    EPOCH.as_millis() / 1_000
}

/// The claims of a good token.
fn claims() -> Map<String, Value> {
    let claims = json!({
        "iss": "https://issuer.test", "aud": "argala", "sub": "sam", "did": "laptop",
        "exp": seconds() + 3_600, "nbf": seconds(),
    });
    claims.as_object().expect("a map").clone()
}

fn sign(claims: &Map<String, Value>, algorithm: JwtAlgorithm, secret: &[u8]) -> String {
    let key = jsonwebtoken::EncodingKey::from_secret(secret).expect("a secret");
    jsonwebtoken::encode(&jsonwebtoken::Header::new(algorithm), claims, &key).expect("signs")
}

/// A good token with `change` made to its claims.
fn token(change: impl FnOnce(&mut Map<String, Value>)) -> String {
    let mut claims = claims();
    change(&mut claims);
    sign(&claims, JwtAlgorithm::HS256, SECRET)
}

#[test]
fn a_good_token_binds_a_member_and_a_device() {
    let (auth, _) = auth(config());
    let identity = auth.identity(&token(|_| ())).expect("good");
    assert_eq!(identity.device, device_ref("sam", "laptop"));
    // The leeway is part of how long it is believed.
    let end = EPOCH.saturating_add(Duration::from_secs(3_600 + 60));
    assert_eq!(identity.expires_at, Some(end));
}

#[test]
fn each_claim_is_checked() {
    type Change = fn(&mut Map<String, Value>);
    let cases: &[(Change, &str)] = &[
        (
            |c| {
                c.remove("exp");
            },
            "malformed",
        ),
        (
            |c| {
                c["exp"] = "soon".into();
            },
            "malformed",
        ),
        (
            |c| {
                c["exp"] = (seconds() - 60).into();
            },
            "expired",
        ),
        (
            |c| {
                c["exp"] = (-1e300).into();
            },
            "expired",
        ),
        (
            |c| {
                c["nbf"] = (seconds() + 61).into();
            },
            "not_yet_valid",
        ),
        (
            |c| {
                c["nbf"] = Value::Null;
            },
            "malformed",
        ),
        (
            |c| {
                c.remove("iss");
            },
            "wrong_issuer",
        ),
        (
            |c| {
                c["iss"] = "https://else.test".into();
            },
            "wrong_issuer",
        ),
        (
            |c| {
                c["iss"] = json!(["https://issuer.test"]);
            },
            "wrong_issuer",
        ),
        (
            |c| {
                c.remove("aud");
            },
            "wrong_audience",
        ),
        (
            |c| {
                c["aud"] = "else".into();
            },
            "wrong_audience",
        ),
        (
            |c| {
                c["aud"] = json!([]);
            },
            "wrong_audience",
        ),
        (
            |c| {
                c["aud"] = json!([1, "else"]);
            },
            "wrong_audience",
        ),
        (
            |c| {
                c.remove("sub");
            },
            "no_member_claim",
        ),
        (
            |c| {
                c["sub"] = 7.into();
            },
            "bad_member_id",
        ),
        (
            |c| {
                c["sub"] = " sam".into();
            },
            "bad_member_id",
        ),
        (
            |c| {
                c.remove("did");
            },
            "no_device_claim",
        ),
        (
            |c| {
                c["did"] = Value::Null;
            },
            "no_device_claim",
        ),
        (
            |c| {
                c["did"] = json!(["laptop"]);
            },
            "bad_device_id",
        ),
        (
            |c| {
                c["did"] = "".into();
            },
            "bad_device_id",
        ),
        (
            |c| {
                c["did"] = "..".into();
            },
            "bad_device_id",
        ),
    ];
    let (auth, _) = auth(config());
    for (at, (change, want)) in cases.iter().enumerate() {
        assert_eq!(reason(auth.identity(&token(change))), *want, "case {at}");
    }
    for change in [
        (|c| {
            c["exp"] = (seconds() - 59).into();
        }) as Change,
        |c| {
            c["exp"] = 1e300.into();
        },
        |c| {
            c["nbf"] = (seconds() + 60).into();
        },
        |c| {
            c.remove("nbf");
        },
        |c| {
            c["aud"] = json!(["else", "argala"]);
        },
        |c| {
            c["sub"] = "auth0|42".into();
        },
    ] {
        assert!(auth.identity(&token(change)).is_ok());
    }
}

#[test]
fn a_token_is_good_until_the_clock_says_otherwise() {
    let (auth, clock) = auth(config());
    let token = token(|_| ());
    clock.advance(Duration::from_secs(3_600 + 59));
    assert!(auth.identity(&token).is_ok());
    clock.advance(Duration::from_secs(1));
    assert_eq!(reason(auth.identity(&token)), "expired");
}

#[test]
fn the_algorithm_is_the_relays_choice() {
    let (auth, _) = auth(config());
    let other = sign(&claims(), JwtAlgorithm::HS512, SECRET);
    assert_eq!(reason(auth.identity(&other)), "wrong_algorithm");
    // {"alg":"none"}, with and without a signature
    let body = token(|_| ())
        .split('.')
        .nth(1)
        .expect("three parts")
        .to_owned();
    for tail in ["", "AAAA"] {
        let none = format!("eyJhbGciOiJub25lIn0.{body}.{tail}");
        assert_eq!(reason(auth.identity(&none)), "malformed");
    }
}

#[test]
fn a_public_key_is_no_secret() {
    let pem = include_bytes!("../../tests/samples/rs256.pem");
    let (auth, _) = auth(JwtConfig {
        keys: vec![JwtKey::PublicPem(pem.to_vec())],
        algorithms: vec![JwtAlgorithm::RS256],
        ..config()
    });
    let forged = sign(&claims(), JwtAlgorithm::HS256, pem);
    assert_eq!(reason(auth.identity(&forged)), "wrong_algorithm");
}

#[test]
fn a_signature_is_checked() {
    let (auth, _) = auth(config());
    let forged = sign(
        &claims(),
        JwtAlgorithm::HS256,
        b"another secret of thirty-two bytes!",
    );
    assert_eq!(reason(auth.identity(&forged)), "bad_signature");
    for text in ["", ".", "..", "a.b.c", "e30.e30.", "not a token"] {
        assert_eq!(reason(auth.identity(text)), "malformed", "{text:?}");
    }
    let unreadable = sign(&Map::new(), JwtAlgorithm::HS256, SECRET);
    assert_eq!(
        reason(auth.identity(&unreadable)),
        "malformed",
        "no claims at all"
    );
}

#[test]
fn any_of_several_keys_will_do() {
    let other = b"the next secret, being rolled in now".to_vec();
    let keys = vec![
        JwtKey::Secret(other.clone()),
        JwtKey::Secret(SECRET.to_vec()),
    ];
    let (auth, _) = auth(JwtConfig { keys, ..config() });
    assert!(auth.identity(&token(|_| ())).is_ok());
    assert!(
        auth.identity(&sign(&claims(), JwtAlgorithm::HS256, &other))
            .is_ok()
    );
}

/// Tokens that another implementation signed, for an audience among others.
#[tokio::test]
async fn public_keys_verify_what_others_signed() {
    let samples = [
        (
            JwtAlgorithm::RS256,
            include_str!("../../tests/samples/rs256.pem"),
            include_str!("../../tests/samples/rs256.jwt"),
        ),
        (
            JwtAlgorithm::ES256,
            include_str!("../../tests/samples/es256.pem"),
            include_str!("../../tests/samples/es256.jwt"),
        ),
        (
            JwtAlgorithm::EdDSA,
            include_str!("../../tests/samples/eddsa.pem"),
            include_str!("../../tests/samples/eddsa.jwt"),
        ),
    ];
    for (algorithm, pem, token) in samples {
        let (auth, _) = auth(JwtConfig {
            keys: vec![JwtKey::PublicPem(pem.into())],
            algorithms: vec![algorithm],
            ..config()
        });
        let parts = head(&[&format!("Bearer {}", token.trim())]);
        let identity = auth.authenticate(&parts).await.expect("good");
        assert_eq!(
            identity.device,
            device_ref("sam", "laptop"),
            "{algorithm:?}"
        );
        let (start, signature) = token.trim().rsplit_once('.').expect("three parts");
        let flipped = if signature.starts_with('A') { "B" } else { "A" };
        let forged = format!("{start}.{flipped}{}", &signature[1..]);
        assert_eq!(
            reason(auth.identity(&forged)),
            "bad_signature",
            "{algorithm:?}"
        );
    }
}

#[test]
fn claims_may_have_other_names() {
    let config = JwtConfig {
        member_claim: "https://app.test/user".to_owned(),
        device_claim: "device".to_owned(),
        ..config()
    };
    let device = device_ref("auth0|42", "user:7/🦀");
    let token = mint(&config, &device, EPOCH, Duration::from_secs(60)).expect("mints");
    let (auth, _) = auth(config);
    assert_eq!(auth.identity(&token).expect("good").device, device);
    assert_eq!(
        reason(auth.identity(&self::token(|_| ()))),
        "no_member_claim"
    );
}

#[test]
fn what_is_minted_is_believed_for_its_time() {
    let (auth, clock) = auth(config());
    let device = device_ref("sam", "laptop");
    let token = mint(&config(), &device, EPOCH, Duration::from_secs(60)).expect("mints");
    assert_eq!(auth.identity(&token).expect("good").device, device);
    clock.advance(Duration::from_secs(120));
    assert_eq!(reason(auth.identity(&token)), "expired");
    let public = JwtConfig {
        keys: vec![JwtKey::PublicPem(
            include_bytes!("../../tests/samples/es256.pem").to_vec(),
        )],
        algorithms: vec![JwtAlgorithm::ES256],
        ..config()
    };
    assert!(mint(&public, &device, EPOCH, Duration::from_secs(60)).is_err());
}

#[test]
fn a_token_for_others_is_refused_where_we_have_no_name() {
    let (auth, _) = auth(JwtConfig {
        audiences: vec![],
        issuers: vec![],
        ..config()
    });
    assert_eq!(reason(auth.identity(&token(|_| ()))), "wrong_audience");
    assert!(
        auth.identity(&token(|c| {
            c.remove("aud");
            c.remove("iss");
        }))
        .is_ok()
    );
}

#[test]
fn keys_and_algorithms_must_fit() {
    let new = |change: fn(&mut JwtConfig)| {
        let mut config = config();
        change(&mut config);
        JwtAuth::new(config, Arc::new(TestClock::new())).err()
    };
    assert_eq!(new(|_| ()), None);
    assert_eq!(
        new(|c| c.algorithms.clear()),
        Some(JwtConfigError::NoAlgorithms)
    );
    assert_eq!(
        new(|c| c.keys.clear()),
        Some(JwtConfigError::NoKey(JwtAlgorithm::HS256))
    );
    let both = |c: &mut JwtConfig| c.algorithms.push(JwtAlgorithm::ES256);
    assert_eq!(new(both), Some(JwtConfigError::NoKey(JwtAlgorithm::ES256)));
    let garbage = |c: &mut JwtConfig| c.keys.push(JwtKey::PublicPem(b"-----BEGIN".to_vec()));
    assert_eq!(new(garbage), Some(JwtConfigError::UselessKey(1)));
    let empty = |c: &mut JwtConfig| c.keys.push(JwtKey::Secret(vec![]));
    assert_eq!(new(empty), Some(JwtConfigError::EmptyKey(1)));
    let same = |c: &mut JwtConfig| c.device_claim = c.member_claim.clone();
    assert_eq!(new(same), Some(JwtConfigError::ClaimNames));
    assert!(
        !format!("{:?}", config()).contains("secret of"),
        "a secret is not printed"
    );
}
