//! The real process with its log at trace level, its dependencies' included: what was planted is
//! found where the protocol puts it and nowhere else.
//!
//! Two members' devices with true keys ask every route, in both forms, and are refused by every
//! route; whatever a caller can put into the wrong place is put there. Then the log, the events in
//! it, every answer, the database and the folder of blobs are searched, in every spelling.

use std::{collections::BTreeMap, path::Path};

use argala_client::{
    Kind,
    crypto::{
        GraphKey,
        blob::{BlobContext, NonceDigest, Sealer},
        record::{self, RecordCipher},
    },
};
use argala_wire::{
    BlobId, StorageKey, Timestamp,
    codec::Format::{Cbor, Json},
    devices::DeviceKind,
    keys::{GrantRequest, RotateRequest},
    records::{PushRecord, PushRequest},
};
use serde_json::{Value, json};

use crate::{
    http::Events,
    process::{Served, ok},
};

mod http2;
mod misuse;
mod planted;
mod stage;

use planted::{Garden, Sort, files};
use stage::{Actor, SECRET, Stage, granted};

const ACME: &str = "/graphs/g%3Aacme";

fn config() -> String {
    format!(
        "[auth.jwt]\nsecret = \"{SECRET}\"\n[store]\npath = \"kept/relay.db\"\n\
         [blobs]\nkind = \"filesystem\"\npath = \"kept/blobs\"\n\
         [directory]\ncache_ttl = \"0s\"\n\
         [quotas]\nmax_devices_per_member = 2\nmax_records_per_graph = 3\n\
         [rate_limits]\nblobs = {{ per_minute = 1, burst = 14 }}\n\
         [log]\nlevel = \"trace\"\n"
    )
}

/// The graph of the group, with the keys of its epochs.
struct Group {
    key: StorageKey,
    graph_key: GraphKey,
    kind: Kind,
}

impl Group {
    /// A sealed and signed record, planted in all its parts.
    fn record(&self, garden: &mut Garden, by: &Actor, id: &str, text: &str) -> PushRecord {
        let id = id.parse().unwrap();
        let cipher = RecordCipher::new(&self.graph_key, &self.key, 1);
        let sealed = cipher.seal(&id, false, &self.kind, 1, text.as_bytes());
        let sig = by.keys.sign_record(&self.key, 1, &id, false, &sealed);
        garden.plant(
            Sort::Store,
            format!("record id {id}"),
            id.as_str().as_bytes(),
        );
        garden.plant(Sort::Store, format!("ciphertext of {id}"), &sealed);
        garden.plant(Sort::Store, format!("signature of {id}"), sig.as_slice());
        garden.plant(Sort::Nowhere, format!("plaintext of {id}"), text.as_bytes());
        PushRecord {
            id,
            epoch: 1,
            ciphertext: sealed.as_slice().into(),
            sig: Some(sig),
            deleted: false,
            expect: None,
        }
    }

    /// A sealed file, planted with its id.
    fn blob(&self, garden: &mut Garden, id: &str, plain: &[u8]) -> Vec<u8> {
        let blob: BlobId = id.parse().unwrap();
        let context = BlobContext {
            graph: &self.key,
            epoch: 1,
            blob: &blob,
        };
        let mut digest = NonceDigest::new(&self.graph_key, &context);
        digest.update(plain);
        let mut sealer = Sealer::new(&self.graph_key, &context, digest.finish());
        let mut sealed = sealer.header().to_vec();
        sealed.extend(sealer.chunk(plain, true));
        garden.plant(Sort::Nowhere, format!("plaintext of {id}"), plain);
        garden.plant(Sort::Blob, format!("bytes of {id}"), &sealed);
        garden.plant(Sort::Store, format!("blob id {id}"), id.as_bytes());
        sealed
    }
}

fn admin(folder: &Path, what: &[&str]) {
    let args = [&["admin"], what, &["--config", "relay.toml"]].concat();
    ok(&args, folder);
}

/// Registers a device under a sealed name.
fn register(stage: &Stage, garden: &mut Garden, who: &Actor, form: argala_wire::codec::Format) {
    let own = StorageKey::own(&who.of.member_id);
    let name = format!("the very own name of {}", who.of.device_id);
    let label = record::seal_label(&GraphKey::generate(), &own, 1, &name);
    let about = &who.of.device_id;
    garden.plant(Sort::Nowhere, format!("name of {about}"), name.as_bytes());
    garden.plant(Sort::Store, format!("sealed name of {about}"), &label);
    let body = who
        .keys
        .registration(&who.of, DeviceKind::Device, Some(label.as_slice().into()));
    garden.plant(
        Sort::Nowhere,
        format!("proof of {about}"),
        body.proof.as_slice(),
    );
    stage.ask(who, "POST", "/devices").body(form, &body).is(201);
}

#[test]
fn what_is_planted_is_found_where_the_protocol_puts_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut garden = Garden::default();
    garden.plant(Sort::Nowhere, "the host's secret", SECRET.as_bytes());
    let stage = Stage {
        served: Served::with_config(folder.path(), &config()),
        told: Vec::new().into(),
    };
    for member in ["sam", "alex", "kim"] {
        admin(folder.path(), &["member", "add", member]);
    }
    admin(folder.path(), &["group", "create", "acme"]);
    for member in ["sam", "alex"] {
        admin(folder.path(), &["group", "join", "acme", member]);
    }

    let now = date_of(&stage);
    let mut actor = |member, device| Actor::new(&mut garden, member, device, now);
    let (sam, alex) = (actor("sam", "sams-laptop"), actor("alex", "alexs-phone"));
    let (tablet, third) = (actor("sam", "sams-tablet"), actor("sam", "sams-third"));
    let kim = actor("kim", "kims-laptop");
    for (who, form) in [(&sam, Json), (&alex, Cbor), (&kim, Json)] {
        register(&stage, &mut garden, who, form);
    }
    let mut pokes = Events::open(
        &stage.served.public,
        &[("authorization", &format!("Bearer {}", alex.token))],
    );
    let group = Group {
        key: "g:acme".parse().unwrap(),
        graph_key: GraphKey::generate(),
        kind: Kind::new("text").unwrap(),
    };
    garden.plant(Sort::Nowhere, "the graph's key", group.graph_key.as_bytes());

    // Keys.
    let wraps = [&sam, &alex].map(|to| sam.seal(&group.key, 1, &group.graph_key, to));
    for wrap in &wraps {
        let name = format!("wrap for {}", wrap.device_id);
        garden.plant(Sort::Wrap, name, wrap.wrap.as_slice());
    }
    let rotate = RotateRequest {
        epoch: 1,
        wraps: wraps.into(),
    };
    stage
        .ask(&sam, "POST", &format!("{ACME}/rotate"))
        .body(Json, &rotate)
        .is(200);
    register(&stage, &mut garden, &tablet, Cbor);
    let given = sam.seal(&group.key, 1, &group.graph_key, &tablet);
    // What a revoked device held is blanked: no trace of it is to stay.
    garden.plant(Sort::Nowhere, "wrap for the tablet", given.wrap.as_slice());
    let grant = GrantRequest {
        wraps: vec![granted(1, given)],
    };
    stage
        .ask(&sam, "POST", &format!("{ACME}/grant"))
        .body(Cbor, &grant)
        .is(200);

    // Records and blobs.
    let records = vec![
        group.record(
            &mut garden,
            &sam,
            "first-record-of-all",
            "we meet at the old mill",
        ),
        group.record(
            &mut garden,
            &sam,
            "second-record-here",
            "bring the money with you",
        ),
    ];
    let key = "an-idempotency-key-of-sams";
    garden.plant(Sort::Store, "idempotency key", key.as_bytes());
    let push = PushRequest {
        records,
        ..PushRequest::default()
    };
    let pushing = format!("{ACME}/push");
    for form in [Json, Json] {
        stage
            .ask(&sam, "POST", &pushing)
            .header("idempotency-key", key)
            .body(form, &push)
            .is(200);
    }
    let answer = group.record(
        &mut garden,
        &alex,
        "third-record-by-alex",
        "I shall be there at ten",
    );
    let push = PushRequest {
        records: vec![answer],
        ..PushRequest::default()
    };
    stage.ask(&alex, "POST", &pushing).body(Cbor, &push).is(200);
    assert!(pokes.wait_for("argala.poke"));

    let kept = group.blob(
        &mut garden,
        "a-blob-that-is-kept",
        &b"a photograph of the mill ".repeat(40),
    );
    let gone = group.blob(
        &mut garden,
        "a-blob-that-is-gone",
        &b"another one, soon deleted".repeat(40),
    );
    let blob = format!("{ACME}/blobs/a-blob-that-is-kept");
    let other = format!("{ACME}/blobs/a-blob-that-is-gone");
    for (path, bytes) in [(&blob, &kept), (&other, &gone)] {
        stage
            .ask(&sam, "PUT", path)
            .bytes("application/octet-stream", bytes.as_slice())
            .is(201);
    }
    stage.ask(&alex, "GET", &blob).is(200);
    stage
        .ask(&alex, "GET", &blob)
        .header("range", "bytes=1-9")
        .is(206);
    stage.ask(&sam, "DELETE", &other).is(204);

    // Every reading route, in both forms.
    let by_epoch = format!("{ACME}/pull?epoch=1&limit=1");
    let [info, roster, wraps, pull] = ["", "/devices?revoked=include", "/wraps", "/pull?limit=2"]
        .map(|end| format!("{ACME}{end}"));
    for who in [&sam, &alex, &tablet] {
        for path in [
            "/devices", "/graphs", "/limits", &info, &roster, &wraps, &pull, &by_epoch,
        ] {
            for media in ["application/json", "application/cbor"] {
                stage.ask(who, "GET", path).header("accept", media).is(200);
            }
        }
    }
    let page = stage.ask(&sam, "GET", &pull).is(200).ok();
    let cursor = page["cursor"].as_str().unwrap();
    garden.plant(Sort::Store, "cursor", cursor.as_bytes());
    stage
        .ask(&sam, "GET", &format!("{pull}&cursor={cursor}"))
        .is(200);

    let form = Json.media_type();
    let pushed = Json.encode(&push);
    let octets = "application/octet-stream";
    let hush = format!("{ACME}/pull?cursor={}", misuse::HUSH);
    http2::ask(
        &stage,
        vec![
            (Some(&alex), "POST", &pushing, form, pushed.clone()),
            (Some(&alex), "GET", &pull, form, Vec::new()),
            (Some(&alex), "GET", &wraps, form, Vec::new()),
            (Some(&sam), "PUT", &blob, octets, kept.clone()),
            (Some(&sam), "GET", &hush, form, Vec::new()),
            (Some(&sam), "POST", &pushing, form, misuse::HUSH.into()),
            (Some(&kim), "POST", &pushing, form, pushed),
            (None, "GET", &pull, form, Vec::new()),
        ],
    );

    misuse::everything(
        &stage,
        &mut garden,
        &misuse::Cast {
            sam: &sam,
            kim: &kim,
            third: &third,
        },
        &push,
    );
    stage.ask(&sam, "DELETE", "/devices/sams-tablet").is(200);
    stage.ask(&tablet, "GET", "/graphs").is(403);
    for path in ["/healthz", "/readyz", "/version"] {
        let answer = stage.served.admin.get(path, &[]);
        garden.holds_only(&[], &answer.body, path);
    }
    drop(pokes);
    search(folder.path(), stage, &garden);
}

/// The relay's own idea of the time, so that tokens are good and no clock of the test is asked.
fn date_of(stage: &Stage) -> Timestamp {
    let minted: Value = {
        let answer = stage.served.admin.get("/healthz", &[]);
        let date = crate::http::header(&answer.head, "date").expect("a date");
        json!(date)
    };
    let date = minted.as_str().unwrap();
    httpdate(date).parse().unwrap()
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` as RFC 3339.
fn httpdate(date: &str) -> String {
    let parts: Vec<&str> = date.split(' ').collect();
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = months.find(parts[2]).expect("a month") / 3 + 1;
    format!("{}-{month:02}-{}T{}.000Z", parts[3], parts[1], parts[4])
}

fn search(folder: &Path, mut stage: Stage, garden: &Garden) {
    let (status, log) = stage.served.stop();
    assert!(status.success());

    // The log, in which the events are: nothing at all.
    garden.holds_only(&[], log.as_bytes(), "the log");
    let lines: Vec<Value> = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let frames = lines.iter().filter(|line| {
        line["level"] == "TRACE"
            && line["target"]
                .as_str()
                .is_some_and(|at| at.starts_with("h2"))
    });
    assert!(frames.count() > 100, "dependencies are listened to as well");
    everything_was_asked(&lines);

    // Answers: what is stored goes to those who are entitled, a wrap to its holder alone; an
    // error tells the ids of an atomic push that was refused, and nothing else.
    for told in stage.told.borrow().iter() {
        let by = told
            .by
            .as_ref()
            .map_or("nobody", |by| by.device_id.as_str());
        let place = format!("the answer {} to {} by {by}", told.status, told.asked);
        let entitled = if told.status < 400 {
            vec![Sort::Store, Sort::Wrap, Sort::Blob]
        } else {
            Vec::new()
        };
        let mut found = garden.found(&told.whole);
        let own = format!("wrap for {by}");
        let wraps = garden.all(Sort::Wrap);
        for wrap in found.iter().filter(|name| wraps.contains(*name)) {
            assert_eq!(*wrap, own, "{place}");
            assert!(told.asked.contains("/wraps"), "{place}");
        }
        if told.asked.contains("/wraps") && told.status == 200 && by == "sams-tablet" {
            // Its own, before it was revoked.
            assert!(found.remove("wrap for the tablet"), "{place}");
        } else if told.status == 409 && told.asked.ends_with("/push") {
            let ids: Vec<&str> = found.iter().copied().collect();
            assert!(
                ids.iter().all(|name| name.starts_with("record id")),
                "{place}: {ids:?}"
            );
        } else {
            garden.holds_only(&entitled, &told.whole, &place);
        }
    }

    // The files: each thing where it is kept.
    let (mut database, mut blobs) = (Vec::new(), Vec::new());
    for (path, bytes) in files(&folder.join("kept")) {
        let name = path
            .strip_prefix(folder)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        garden.holds_only(&[], name.as_bytes(), "the name of a file");
        match name.starts_with("kept/blobs") {
            true => blobs.extend(bytes),
            false => database.extend(bytes),
        }
    }
    garden.holds_only(&[Sort::Store, Sort::Wrap], &database, "the database");
    garden.holds_only(&[Sort::Blob], &blobs, "the folder of blobs");
    // And it is there: whoever searches has to know that the search finds.
    let found = garden.found(&database);
    for name in garden.all(Sort::Store).union(&garden.all(Sort::Wrap)) {
        let unkept = ["cursor", "blob id a-blob-that-is-gone", "idempotency key"];
        assert!(
            found.contains(name) || unkept.contains(name),
            "{name} is not kept"
        );
    }
    let kept = garden.found(&blobs);
    assert!(kept.contains("bytes of a-blob-that-is-kept"));
    assert!(
        !kept.contains("bytes of a-blob-that-is-gone"),
        "a deleted blob's bytes stay"
    );
}

/// Every route has answered well and has refused, and every kind of event was told.
fn everything_was_asked(lines: &[Value]) {
    let mut asked: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    for line in lines.iter().filter(|line| line["message"] == "answered") {
        let span = &line["span"];
        let route = format!("{} {}", span["method"], span["route"]).replace('"', "");
        let entry = asked.entry(route).or_default();
        match line["status"].as_u64().unwrap() < 400 {
            true => entry.0 = true,
            false => entry.1 = true,
        }
    }
    let routes = [
        "POST /devices",
        "GET /devices",
        "DELETE /devices/{deviceId}",
        "GET /graphs",
        "GET /graphs/{graphId}",
        "GET /graphs/{graphId}/devices",
        "GET /graphs/{graphId}/wraps",
        "POST /graphs/{graphId}/rotate",
        "POST /graphs/{graphId}/grant",
        "POST /graphs/{graphId}/push",
        "GET /graphs/{graphId}/pull",
        "PUT /graphs/{graphId}/blobs/{blobId}",
        "GET /graphs/{graphId}/blobs/{blobId}",
        "DELETE /graphs/{graphId}/blobs/{blobId}",
        "GET /pokes",
        "GET /limits",
    ];
    for route in routes {
        assert_eq!(asked.get(route), Some(&(true, true)), "{route}: {asked:?}");
    }
    for kind in [
        "device.register",
        "device.revoke",
        "graph.push",
        "graph.pull",
        "graph.rotate",
        "graph.grant",
        "blob.put",
        "blob.forget",
        "quota.exceeded",
        "ratelimit.hit",
        "auth.rejected",
    ] {
        assert!(
            lines.iter().any(|line| line["type"] == kind),
            "no {kind} was told"
        );
    }
}
