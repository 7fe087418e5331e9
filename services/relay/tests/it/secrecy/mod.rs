//! The real process with its log at trace level, its dependencies' included: what was planted is
//! found where the protocol puts it and nowhere else.
//!
//! Two members' devices with true keys ask every route, in both forms, and are refused by every
//! route; whatever a caller can put into the wrong place is put there. Then the log, the events in
//! it, every answer, the database and the folder of blobs are searched, in every spelling.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use argala_boot::server::admin_paths;
use argala_wire::{
    codec::Format::{Cbor, Json},
    keys::{GrantRequest, RotateRequest},
    records::PushRequest,
};
use serde_json::Value;

use crate::process::{Served, ok};

mod failing;
mod group;
mod http2;
mod leaking;
mod listening;
mod misuse;
mod operator;
mod planted;
mod routes;
mod spelling;
mod stage;

use group::{ACME, Group, register};
use listening::Listening;
use planted::{Garden, STORED, Search, Sort, files};
use stage::{Actor, SECRET, Stage, granted};

fn config() -> String {
    format!(
        "[auth.jwt]\nsecret = \"{SECRET}\"\n[store]\npath = \"kept/relay.db\"\n\
         [blobs]\nkind = \"filesystem\"\npath = \"kept/blobs\"\n\
         [directory]\ncache_ttl = \"0s\"\n\
         [quotas]\nmax_devices_per_member = 2\nmax_records_per_graph = 3\n\
         max_push_bytes = \"16 KiB\"\nmax_record_bytes = \"8 KiB\"\nmax_blob_bytes = \"16 KiB\"\n\
         [rate_limits]\nblobs = {{ per_minute = 1, burst = 20 }}\n\
         [sweep]\ninterval = \"1s\"\n\
         [log]\nlevel = \"trace\"\n"
    )
}

fn admin(folder: &Path, what: &[&str]) {
    let args = [&["admin"], what, &["--config", "relay.toml"]].concat();
    ok(&args, folder);
}

#[test]
fn what_is_planted_is_found_where_the_protocol_puts_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut garden = Garden::default();
    garden.plant(Sort::Nowhere, "the host's secret", SECRET.as_bytes());
    let mut stage = Stage {
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

    let now = stage.now();
    let mut actor = |member, device| Actor::new(&mut garden, member, device, now);
    let (sam, alex) = (actor("sam", "sams-laptop"), actor("alex", "alexs-phone"));
    let (tablet, third) = (actor("sam", "sams-tablet"), actor("sam", "sams-third"));
    let kim = actor("kim", "kims-laptop");
    for (who, form) in [(&sam, Json), (&alex, Cbor), (&kim, Json)] {
        register(&stage, &mut garden, who, form);
    }
    let mut listening = Listening::open(&stage, &alex);
    let group = Group::new(&mut garden);

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
    listening.are_poked(1);
    register(&stage, &mut garden, &tablet, Cbor);
    let given = sam.seal(&group.key, 1, &group.graph_key, &tablet);
    garden.plant(Sort::Wrap, "wrap for sams-tablet", given.wrap.as_slice());
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
    garden.plant(Sort::RequestKey, "idempotency key", key.as_bytes());
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
    listening.are_poked(2);
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

    let kept = group.blob(
        &mut garden,
        "a-blob-that-is-kept",
        &b"a photograph of the mill ".repeat(40),
    );
    let gone = group.blob(
        &mut garden,
        "gone-is-this-blob",
        &b"another one, soon deleted".repeat(40),
    );
    let blob = format!("{ACME}/blobs/a-blob-that-is-kept");
    let other = format!("{ACME}/blobs/gone-is-this-blob");
    let given = group.blob(
        &mut garden,
        "handed-over-to-everybody",
        &b"a third, for those who are here".repeat(40),
    );
    let delivered = format!("{ACME}/blobs/handed-over-to-everybody");
    let deliver = format!("{delivered}?policy=deliver");
    for (path, bytes) in [(&blob, &kept), (&other, &gone), (&deliver, &given)] {
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
    stage.ask(&alex, "HEAD", &blob).is(200);
    stage.ask(&sam, "HEAD", &format!("{other}-by")).is(404);
    stage.ask(&sam, "DELETE", &other).is(204);
    for who in [&alex, &tablet] {
        stage.ask(who, "GET", &delivered).is(200);
    }
    stage.served.wait_for_log("\"reason\":\"delivered\"");

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
    garden.plant(Sort::Cursor, "cursor", cursor.as_bytes());
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
    listening.are_poked(3);

    let search = garden.search();
    for path in admin_paths() {
        let answer = stage.served.admin.get(path, &[]);
        assert_eq!(answer.status, 200, "{path}");
        search.holds_only(&[], answer.head.as_bytes(), path);
        search.holds_only(&[], &answer.body, path);
    }
    operator::asks(folder.path(), &search);
    stage.served.signal("TERM");
    listening.end(&search);
    let (status, log) = stage.served.stop();
    assert!(status.success());
    the_log_holds_nothing(&log, &search);
    let met = routes::answers(&stage.told.borrow(), &garden, &search);
    routes::say_no_more_than(&met);
    files_hold_what_they_are_for(folder.path(), &garden, &search);
    operator::ends(folder.path(), &search);
}

/// In which the events are.
fn the_log_holds_nothing(log: &str, search: &Search<'_>) {
    search.holds_only(&[], log.as_bytes(), "the log");
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
}

/// Each thing lies where it is kept.
fn files_hold_what_they_are_for(folder: &Path, garden: &Garden, search: &Search<'_>) {
    let (mut database, mut blobs) = (Vec::new(), Vec::new());
    for (path, bytes) in files(&folder.join("kept")) {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
        search.holds_only(&[], name.as_bytes(), "the name of a file");
        match name.starts_with("kept/blobs") {
            true => blobs.extend(bytes),
            false => database.extend(bytes),
        }
    }
    let found = search.holds_only(&STORED, &database, "the database");
    // And it is there: whoever searches has to know that the search finds. Of what is gone, and of
    // what was refused, no trace stays.
    let mut kept = garden.all(&STORED);
    let gone = [
        // Blanked when its device was revoked.
        "wrap for sams-tablet",
        "blob id gone-is-this-blob",
        "blob id handed-over-to-everybody",
    ];
    kept.retain(|name| !gone.contains(name));
    assert_eq!(found, kept);
    let found = search.holds_only(&[Sort::Bytes], &blobs, "the folder of blobs");
    assert_eq!(found, BTreeSet::from(["bytes of a-blob-that-is-kept"]));
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
    for (route, _) in routes::ROUTES {
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
