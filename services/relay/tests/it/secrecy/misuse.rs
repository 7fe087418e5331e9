//! Whatever a caller can put into the wrong place, and every way of being refused.

use argala_client::crypto::GraphKey;
use argala_wire::{
    codec::Format::{Cbor, Json},
    devices::DeviceKind,
    keys::{GrantRequest, RotateRequest},
    records::PushRequest,
};
use serde_json::json;

use super::{
    group::ACME,
    planted::{Garden, Sort},
    stage::{Actor, Stage, granted},
};

/// Who misbehaves.
pub(super) struct Cast<'a> {
    /// A member of the group.
    pub(super) sam: &'a Actor,
    /// A member of nothing.
    pub(super) kim: &'a Actor,
    /// A device of Sam's that the relay does not know, and has no room for.
    pub(super) third: &'a Actor,
}

/// What stands where it should not, and is to be repeated to nobody.
pub(super) const HUSH: &str = "hush-do-not-repeat-this";

/// `{ACME}{end}`, where an end may hold the misplaced text.
fn acme(end: &str) -> String {
    format!("{ACME}{}", end.replace("HUSH", HUSH))
}

pub(super) fn everything(stage: &Stage, garden: &mut Garden, cast: &Cast<'_>, push: &PushRequest) {
    garden.plant(
        Sort::Nowhere,
        "what stood in the wrong place",
        HUSH.as_bytes(),
    );
    credentials(stage, cast);
    devices(stage, cast);
    paths_and_queries(stage, cast);
    bodies(stage, cast, push);
    quotas_and_verdicts(stage, garden, cast, push);
    blobs(stage, cast);
}

fn credentials(stage: &Stage, cast: &Cast<'_>) {
    let (head, rest) = cast.sam.token.split_once('.').unwrap();
    let (claims, _) = rest.split_once('.').unwrap();
    for credential in [
        format!("Basic {HUSH}"),
        format!("Bearer {HUSH}"),
        format!("Bearer {head}.{claims}.{HUSH}"),
        format!("Bearer {}x", cast.sam.token),
        format!("Bearer {0} {0}", cast.sam.token),
        format!("Dev {HUSH}/{HUSH}"),
    ] {
        let routes = [
            ("GET", "/limits".to_owned()),
            ("GET", "/devices".to_owned()),
            ("GET", "/graphs".to_owned()),
            ("GET", "/pokes".to_owned()),
            ("POST", acme("/push")),
            ("PUT", acme("/blobs/HUSH")),
        ];
        for (method, path) in routes {
            stage
                .ask(None, method, &path)
                .header("authorization", credential.as_str())
                .is(401);
        }
    }
    stage
        .ask(None, "GET", &format!("/graphs?access_token={HUSH}"))
        .is(401);
    // Known to the host, and not to the relay.
    for path in ["/graphs", "/pokes", "/devices"] {
        stage.ask(cast.third, "GET", path).is(403);
    }
}

fn devices(stage: &Stage, cast: &Cast<'_>) {
    let (sam, third) = (cast.sam, cast.third);
    let body = third.keys.registration(&third.of, DeviceKind::Device, None);
    // A third device is one too many; another's keys and another's proof are none.
    stage
        .ask(third, "POST", "/devices")
        .body(Cbor, &body)
        .is(403);
    let own = third.keys.registration(&sam.of, DeviceKind::Device, None);
    stage.ask(sam, "POST", "/devices").body(Json, &own).is(409);
    stage.ask(sam, "POST", "/devices").body(Json, &body).is(400);
    let mut wrong = serde_json::to_value(&body).unwrap();
    wrong["suite"] = HUSH.into();
    stage
        .ask(sam, "POST", "/devices")
        .body(Json, &wrong)
        .is(400);
    stage
        .ask(sam, "POST", "/devices")
        .body(Cbor, &wrong)
        .is(400);
    stage
        .ask(sam, "DELETE", &format!("/devices/{HUSH}"))
        .is(404);
    stage
        .ask(sam, "DELETE", &format!("/devices/{HUSH}%07"))
        .is(400);
    stage
        .ask(sam, "GET", &format!("/devices?cursor={HUSH}"))
        .is(410);
}

fn paths_and_queries(stage: &Stage, cast: &Cast<'_>) {
    let (sam, kim) = (cast.sam, cast.kim);
    stage.ask(sam, "GET", &format!("/{HUSH}")).is(404);
    stage.ask(sam, "PATCH", &format!("/graphs/{HUSH}")).is(405);
    for end in ["", "/devices", "/wraps", "/pull"] {
        stage.ask(kim, "GET", &acme(end)).is(404);
        stage
            .ask(sam, "GET", &format!("/graphs/{HUSH}{end}"))
            .is(400);
        stage
            .ask(sam, "GET", &format!("/graphs/g%3A{HUSH}{end}"))
            .is(404);
        stage
            .ask(sam, "GET", &format!("/graphs/d%3A{HUSH}{end}"))
            .is(404);
        stage
            .ask(sam, "GET", &acme(&format!("{end}?HUSH=HUSH")))
            .is(400);
    }
    for end in [
        "/devices?limit=HUSH",
        "/wraps?after=HUSH",
        "/pull?epoch=HUSH",
        "/pull?limit=%FFHUSH",
    ] {
        stage.ask(sam, "GET", &acme(end)).is(400);
    }
    for end in [
        "/pull?cursor=HUSH",
        "/devices?cursor=HUSH",
        "/wraps?cursor=HUSH",
    ] {
        stage.ask(sam, "GET", &acme(end)).is(410);
    }
    for path in [acme("/pull"), "/limits".to_owned(), "/graphs".to_owned()] {
        stage
            .ask(sam, "GET", &path)
            .header("accept", format!("text/{HUSH}"))
            .is(406);
    }
    stage
        .ask(sam, "GET", &acme("/pull"))
        .header("if-none-match", format!("\"{HUSH}\""))
        .is(200);
}

fn bodies(stage: &Stage, cast: &Cast<'_>, push: &PushRequest) {
    let sam = cast.sam;
    let good = serde_json::to_value(push).unwrap();
    let bend = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = good.clone();
        change(&mut value["records"][0]);
        value
    };
    let bent = [
        bend(&|record| record["epoch"] = HUSH.into()),
        bend(&|record| record["id"] = format!("{HUSH}\u{7}").into()),
        bend(&|record| record["id"] = 7.into()),
        bend(&|record| record["ciphertext"] = format!("{HUSH}!").into()),
        bend(&|record| record["sig"] = json!({ HUSH: HUSH })),
        bend(&|record| record["deleted"] = HUSH.into()),
        bend(&|record| record[HUSH] = HUSH.into()),
        json!({ "records": HUSH }),
        json!({ "records": [], HUSH: 1 }),
        json!([HUSH]),
    ];
    for body in &bent {
        for format in [Json, Cbor] {
            for end in ["/push", "/rotate", "/grant"] {
                stage
                    .ask(sam, "POST", &acme(end))
                    .body(format, body)
                    .is(400);
            }
        }
    }
    let wraps =
        json!([{"memberId": "sam", "deviceId": HUSH, "wrap": format!("{HUSH}?"), "epoch": 1}]);
    for (end, body) in [
        ("/rotate", json!({"epoch": 2, "wraps": wraps})),
        ("/grant", json!({"wraps": wraps})),
    ] {
        stage.ask(sam, "POST", &acme(end)).body(Json, &body).is(400);
    }
    for end in ["/push", "/rotate", "/grant"] {
        let path = acme(end);
        let cut = format!("{{\"records\":[{{\"id\":\"{HUSH}\",\"ciphertext\":\"{HUSH}");
        stage
            .ask(sam, "POST", &path)
            .bytes("application/json", cut.as_bytes())
            .is(400);
        stage
            .ask(sam, "POST", &path)
            .bytes("application/cbor", HUSH.as_bytes())
            .is(400);
        stage
            .ask(sam, "POST", &path)
            .bytes(&format!("text/{HUSH}"), HUSH.as_bytes())
            .is(415);
        let coded = stage
            .ask(sam, "POST", &path)
            .header("content-encoding", HUSH);
        coded.body(Json, &good).is(415);
        stage.ask(cast.kim, "POST", &path).body(Json, &good).is(404);
    }
    let keyed = |key: String| {
        stage
            .ask(sam, "POST", ACME_PUSH)
            .header("idempotency-key", key)
    };
    keyed(HUSH.repeat(9)).body(Json, &good).is(400);
}

const ACME_PUSH: &str = "/graphs/g%3Aacme/push";

fn quotas_and_verdicts(stage: &Stage, garden: &mut Garden, cast: &Cast<'_>, push: &PushRequest) {
    let sam = cast.sam;
    let mut refused = push.clone();
    let record = &mut refused.records[0];
    // Known to be refused, so no database is to know it; the answer repeats the id to its pusher.
    record.id = "a-record-that-is-refused".parse().unwrap();
    garden.plant(
        Sort::Nowhere,
        "ciphertext that is refused",
        b"sealed and not to be taken in",
    );
    record.ciphertext = b"sealed and not to be taken in".as_slice().into();
    stage
        .ask(sam, "POST", ACME_PUSH)
        .body(Json, &refused)
        .is(200);
    let atomic = PushRequest {
        atomic: true,
        ..refused.clone()
    };
    for format in [Json, Cbor] {
        stage
            .ask(sam, "POST", ACME_PUSH)
            .header("accept", format.media_type())
            .body(format, &atomic)
            .is(409);
    }
    let moved = PushRequest {
        if_head: Some(99),
        ..refused.clone()
    };
    stage.ask(sam, "POST", ACME_PUSH).body(Cbor, &moved).is(412);
    // The graph is full: three records are all that it may have.
    let record = &mut refused.records[0];
    let graph = "g:acme".parse().unwrap();
    let sealed = record.ciphertext.as_slice();
    record.sig = Some(sam.keys.sign_record(&graph, 1, &record.id, false, sealed));
    let answer = stage
        .ask(sam, "POST", ACME_PUSH)
        .body(Json, &refused)
        .is(200);
    assert_eq!(answer.json()["results"][0]["reason"], "quota_records");
    too_much(stage, cast, push);
    rotations_and_grants(stage, garden, cast);
}

/// More than fits.
fn too_much(stage: &Stage, cast: &Cast<'_>, push: &PushRequest) {
    let sam = cast.sam;
    let mut large = push.clone();
    large.records[0].ciphertext = HUSH.repeat(1_000).into_bytes().into();
    for format in [Json, Cbor] {
        stage
            .ask(sam, "POST", ACME_PUSH)
            .body(format, &large)
            .is(413);
    }
    stage
        .ask(sam, "PUT", &acme("/blobs/HUSH"))
        .bytes("application/octet-stream", HUSH.repeat(1_000))
        .is(413);
}

/// Wraps that are refused, which the answers tell by the devices alone.
fn rotations_and_grants(stage: &Stage, garden: &mut Garden, cast: &Cast<'_>) {
    let sam = cast.sam;
    let graph = "g:acme".parse().unwrap();
    let wrap = sam.seal(&graph, 1, &GraphKey::generate(), cast.kim);
    garden.plant(Sort::Nowhere, "wrap that is refused", wrap.wrap.as_slice());
    let grant = GrantRequest {
        wraps: vec![granted(1, wrap.clone())],
    };
    let rotate = RotateRequest {
        epoch: 2,
        wraps: vec![wrap],
    };
    for format in [Json, Cbor] {
        let told = stage
            .ask(sam, "POST", &acme("/grant"))
            .header("accept", "application/json")
            .body(format, &grant)
            .is(200);
        assert_eq!(told.json()["rejected"][0]["reason"], "not_on_roster");
        stage
            .ask(sam, "POST", &acme("/rotate"))
            .body(format, &rotate)
            .is(422);
    }
    // A rotation to an epoch that is in force.
    let old = json!({"epoch": 1, "wraps": [{"memberId": "sam", "deviceId": HUSH, "wrap": "AAAA"}]});
    stage
        .ask(sam, "POST", &acme("/rotate"))
        .body(Json, &old)
        .is(409);
}

fn blobs(stage: &Stage, cast: &Cast<'_>) {
    let sam = cast.sam;
    let kept = acme("/blobs/a-blob-that-is-kept");
    let hushed = acme("/blobs/HUSH");
    let bytes = HUSH.repeat(9);
    let octets = "application/octet-stream";
    stage
        .ask(sam, "PUT", &kept)
        .bytes(octets, bytes.as_bytes())
        .is(409);
    stage
        .ask(sam, "PUT", &acme("/blobs/HUSH?policy=HUSH"))
        .bytes(octets, bytes.as_bytes())
        .is(400);
    let digested = stage
        .ask(sam, "PUT", &hushed)
        .header("content-digest", format!("sha-256=:{HUSH}:"));
    digested.bytes(octets, bytes.as_bytes()).is(400);
    stage.ask(sam, "GET", &hushed).is(404);
    stage.ask(sam, "DELETE", &hushed).is(404);
    stage
        .ask(sam, "GET", &kept)
        .header("range", "bytes=999999-")
        .is(416);
    // Until the allowance is used up, and then no more.
    for _ in 0..20 {
        let path = acme("/blobs/HUSH");
        let ask = stage.ask(sam, "GET", &path);
        if ask.status_of(&[404, 429]) == 429 {
            return;
        }
    }
    panic!("no allowance ends");
}
