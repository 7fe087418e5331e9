//! Answers that fail on our side, and what is logged of them: the cause is a store's own words, and
//! those like to name values.
//!
//! A relay's database and its folder of blobs are made unusable beneath it in several ways, on a
//! file and on a server. Every route is asked each time.

use std::{collections::BTreeSet, fs, path::Path};

use argala_testkit::servers::{PrivatePostgres, Session};
use argala_wire::{
    Timestamp,
    codec::Format::{Cbor, Json},
    keys::{GrantRequest, RotateRequest},
    records::PushRequest,
};

use super::{
    config,
    group::{ACME, Group, register, registration},
    planted::{Garden, Sort},
    routes,
    stage::{Actor, Ask, Stage, granted},
};
use crate::{
    postgres::{migrated_at, on, runtime},
    process::{Served, ok_with},
};

/// A relay with sam's laptop and a graph, and what is asked of it while it fails.
struct Failing<'a> {
    folder: &'a Path,
    stage: Stage,
    garden: Garden,
    sam: Actor,
    now: Timestamp,
    /// How often everything was asked.
    rounds: usize,
    group: Group,
    push: PushRequest,
    blob: Vec<u8>,
}

/// A database's damage, in the two forms of SQL.
struct Damage {
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
    /// Some of the routes that fail by it.
    fail: &'static [&'static str],
}

/// One after another.
const DAMAGES: [Damage; 5] = [
    Damage {
        name: "ids that are none",
        sqlite: "UPDATE records SET record = record || char(7);
                 UPDATE blobs SET blob = blob || '!';
                 UPDATE epochs SET by_device = by_device || char(7);",
        postgres: "update records set record = record || e'\\x07';
                   update blobs set blob = blob || '!';
                   update epochs set by_device = by_device || e'\\x07'",
        fail: &["GET /graphs/{graphId}/pull"],
    },
    Damage {
        name: "bytes that are cut",
        sqlite: "UPDATE idempotency SET answer = substr(answer, 1, length(answer) - 1);
                 UPDATE records SET record = replace(record, char(7), ''), sig = substr(sig, 1, 60);
                 UPDATE blobs SET blob = replace(blob, '!', ''), sha256 = substr(sha256, 1, 30);",
        postgres: "update idempotency set answer = substr(answer, 1, length(answer) - 1);
                   update records
                   set record = replace(record, e'\\x07', ''), sig = substr(sig, 1, 60);
                   update blobs
                   set blob = replace(blob, '!', ''), sha256 = substr(sha256, 1, 30)",
        fail: &[
            "POST /graphs/{graphId}/push",
            "GET /graphs/{graphId}/blobs/{blobId}",
            "HEAD /graphs/{graphId}/blobs/{blobId}",
        ],
    },
    Damage {
        name: "rows that are refused",
        sqlite: "CREATE TRIGGER no_record BEFORE INSERT ON records BEGIN
                     SELECT RAISE(ABORT, 'no record');
                 END;
                 CREATE TRIGGER no_device BEFORE INSERT ON devices BEGIN
                     SELECT RAISE(ABORT, 'no device');
                 END;
                 CREATE TRIGGER no_blob BEFORE INSERT ON blobs BEGIN
                     SELECT RAISE(ABORT, 'no blob');
                 END;
                 CREATE TRIGGER no_wrap BEFORE INSERT ON wraps BEGIN
                     SELECT RAISE(ABORT, 'no wrap');
                 END;",
        // The server's words then hold the whole row.
        postgres: "alter table records add constraint no check (seq < 0) not valid;
                   alter table devices add constraint no check (kind = '') not valid;
                   alter table blobs add constraint no check (size < 0) not valid;
                   alter table wraps add constraint no check (epoch < 0) not valid",
        fail: &[
            "POST /devices",
            ROTATE,
            "POST /graphs/{graphId}/push",
            "PUT /graphs/{graphId}/blobs/{blobId}",
        ],
    },
    Damage {
        name: "tables of other names",
        sqlite: "ALTER TABLE records RENAME TO notes;
                 ALTER TABLE wraps RENAME TO paper;
                 ALTER TABLE blobs RENAME TO files;",
        postgres: "alter table records rename to notes;
                   alter table wraps rename to paper;
                   alter table blobs rename to files",
        fail: &[
            "GET /graphs/{graphId}/wraps",
            "GET /graphs/{graphId}/pull",
            "GET /graphs/{graphId}/blobs/{blobId}",
            "DELETE /graphs/{graphId}/blobs/{blobId}",
            "POST /graphs/{graphId}/push",
            ROTATE,
        ],
    },
    Damage {
        name: "no table of devices",
        sqlite: "ALTER TABLE devices RENAME TO machines;",
        postgres: "alter table devices rename to machines",
        fail: &[
            "GET /devices",
            "GET /graphs",
            "POST /graphs/{graphId}/grant",
        ],
    },
];

impl<'a> Failing<'a> {
    /// Serves, and fills all the tables.
    fn filled(folder: &'a Path, variables: &[(&str, &str)]) -> Self {
        // With room for all that is asked.
        let config = config()
            .replace("burst = 20", "burst = 200")
            .replace("max_records_per_graph = 3", "max_records_per_graph = 300");
        let stage = Stage {
            served: Served::with_config_and(folder, &config, variables),
            told: Vec::new().into(),
        };
        for what in [
            &["member", "add", "sam"][..],
            &["group", "create", "acme"],
            &["group", "join", "acme", "sam"],
        ] {
            let args = [&["admin"], what, &["--config", "relay.toml"]].concat();
            ok_with(&args, folder, variables);
        }
        let mut garden = Garden::default();
        let now = stage.now();
        let sam = Actor::new(&mut garden, "sam", "sams-laptop", now);
        register(&stage, &mut garden, &sam, Json);
        let group = Group::new(&mut garden);
        let record = group.record(
            &mut garden,
            &sam,
            "first-record-of-all",
            "we meet at the mill",
        );
        let blob = group.blob(
            &mut garden,
            "a-blob-that-is-kept",
            &b"a photograph ".repeat(40),
        );
        let mut failing = Self {
            folder,
            stage,
            garden,
            sam,
            now,
            rounds: 0,
            group,
            push: PushRequest {
                records: vec![record],
                ..PushRequest::default()
            },
            blob,
        };
        let rotate = failing.rotation(1);
        failing.ask("POST", "/rotate").body(Json, &rotate).is(200);
        failing
            .ask("POST", "/push")
            .header("idempotency-key", KEY)
            .body(Json, &failing.push)
            .is(200);
        failing
            .ask("PUT", "/blobs/a-blob-that-is-kept")
            .bytes(OCTETS, failing.blob.as_slice())
            .is(201);
        failing
            .garden
            .plant(Sort::RequestKey, "idempotency key", KEY.as_bytes());
        failing
    }

    fn ask<'b>(&'b self, method: &'b str, end: &str) -> Ask<'b> {
        self.stage.ask(&self.sam, method, &format!("{ACME}{end}"))
    }

    /// A planted wrap for sam's laptop.
    fn rotation(&mut self, epoch: u64) -> RotateRequest {
        let wrap = self
            .sam
            .seal(&self.group.key, epoch, &self.group.graph_key, &self.sam);
        self.garden
            .plant(Sort::Wrap, "wrap for sams-laptop", wrap.wrap.as_slice());
        RotateRequest {
            epoch,
            wraps: vec![wrap],
        }
    }

    /// Asks every route for what was stored and for what is new, and searches what is said: the
    /// routes that failed are at least these.
    fn fails(&mut self, name: &str, at_least: &[&str]) {
        let tag = name.replace(' ', "-");
        self.rounds += 1;
        let device = format!("sams-{}", self.rounds);
        let third = Actor::new(&mut self.garden, "sam", &device, self.now);
        let rotate = self.rotation(2);
        let grant = GrantRequest {
            wraps: vec![granted(1, rotate.wraps[0].clone())],
        };
        let id = format!("{tag}-new-record");
        let record = self
            .group
            .record(&mut self.garden, &self.sam, &id, "bring it with you");
        let push = PushRequest {
            records: vec![record],
            ..PushRequest::default()
        };
        let id = format!("{tag}-new-blob");
        let new = self
            .group
            .blob(&mut self.garden, &id, &name.as_bytes().repeat(40));

        registration(&self.stage, &mut self.garden, &third, Cbor).answered();
        for path in ["/devices", "/graphs", "/limits"] {
            self.stage.ask(&self.sam, "GET", path).answered();
        }
        for end in [
            "",
            "/devices?revoked=include",
            "/wraps",
            "/pull",
            "/pull?epoch=1",
        ] {
            self.ask("GET", end).answered();
        }
        for form in [Json, Cbor] {
            self.ask("POST", "/push").body(form, &push).answered();
            // Where it succeeded, no push would come as far as the records any more.
            if at_least.contains(&ROTATE) {
                self.ask("POST", "/rotate").body(form, &rotate).answered();
            }
            self.ask("POST", "/grant").body(form, &grant).answered();
        }
        self.ask("POST", "/push")
            .header("idempotency-key", KEY)
            .body(Json, &self.push)
            .answered();
        self.ask("PUT", &format!("/blobs/{id}"))
            .bytes(OCTETS, new)
            .answered();
        for method in ["GET", "HEAD"] {
            self.ask(method, "/blobs/a-blob-that-is-kept").answered();
        }
        self.ask("DELETE", &format!("/blobs/{id}")).answered();
        self.stage
            .ask(&self.sam, "DELETE", &format!("/devices/{device}"))
            .answered();

        let search = self.garden.search();
        let told = std::mem::take(&mut *self.stage.told.borrow_mut());
        routes::answers(&told, &self.garden, &search);
        for path in argala_boot::server::admin_paths() {
            let answer = self.stage.served.admin.get(path, &[]);
            search.holds_only(&[], &answer.body, path);
        }
        let failed = told.iter().filter(|told| told.status >= 500);
        let failed: BTreeSet<_> = failed
            .filter_map(|told| routes::route_of(&told.asked))
            .collect();
        for route in at_least {
            assert!(
                failed.contains(route),
                "{name}: {route} is none of {failed:?}"
            );
        }
    }

    /// Stops the relay and searches its log, which tells a cause of each of these.
    fn end(mut self, causes: &[&str]) {
        let (_, log) = self.stage.served.stop();
        for cause in causes {
            assert!(log.contains(cause), "{cause} is not in the log");
        }
        self.garden
            .search()
            .holds_only(&[], log.as_bytes(), "the log");
    }

    /// Puts a file where the folder of blobs was.
    fn loses_its_blobs(&mut self) {
        let blobs = self.folder.join("kept/blobs");
        fs::rename(&blobs, self.folder.join("elsewhere")).unwrap();
        fs::write(&blobs, b"no folder").unwrap();
        let put = "PUT /graphs/{graphId}/blobs/{blobId}";
        let get = "GET /graphs/{graphId}/blobs/{blobId}";
        self.fails("no folder of blobs", &[put, get]);
        fs::remove_file(&blobs).unwrap();
        fs::rename(self.folder.join("elsewhere"), &blobs).unwrap();
    }
}

const ROTATE: &str = "POST /graphs/{graphId}/rotate";
const KEY: &str = "an-idempotency-key-of-sams";
const OCTETS: &str = "application/octet-stream";

#[test]
fn a_database_that_fails_names_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut failing = Failing::filled(folder.path(), &[]);
    failing.loses_its_blobs();
    let path = folder.path().join("kept/relay.db");
    for damage in &DAMAGES {
        let database = rusqlite::Connection::open(&path).unwrap();
        database.execute_batch(damage.sqlite).unwrap();
        failing.fails(damage.name, damage.fail);
    }
    // In the end there is nothing left to read.
    for name in ["relay.db", "relay.db-wal"] {
        let file = fs::File::options()
            .write(true)
            .open(folder.path().join("kept").join(name));
        file.unwrap().set_len(0).unwrap();
    }
    failing.fails("an empty file", &["GET /graphs", ROTATE]);
    failing.end(&["no record", "no such table", "Not a directory"]);
}

#[test]
fn a_server_that_fails_names_nothing() {
    let runtime = runtime();
    let server = runtime.block_on(PrivatePostgres::start());
    let url = server.url();
    migrated_at(&url);
    let folder = tempfile::tempdir().unwrap();
    let mut failing = Failing::filled(folder.path(), &on(&url));
    failing.loses_its_blobs();
    let session = runtime.block_on(Session::open(&url));
    for damage in &DAMAGES {
        runtime.block_on(session.run(damage.postgres));
        failing.fails(damage.name, damage.fail);
    }
    runtime.block_on(server.stop());
    failing.fails("a server away", &["GET /devices", "GET /graphs", ROTATE]);
    failing.end(&[
        "new row for relation \\\"records\\\" violates check constraint",
        "relation \\\"wraps\\\" does not exist",
        "Not a directory",
        "the connection failed",
    ]);
}
