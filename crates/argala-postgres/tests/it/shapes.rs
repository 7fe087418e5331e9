//! What the server plans for the hot statements where there are a million records: held against what
//! `tests/plans` has of it.
//!
//! A plan's shape is its steps, the indexes that they use, and by which columns they look. No costs
//! and no counts of rows: those are other ones on every machine, and in every version of Postgres.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use argala_core::ports::{
    Directory, DirectoryTables, Store, SweepStore,
    store::{CommitBlob, ForgetBlob, Idempotency, Revoke},
};
use argala_testkit::{EPOCH, TestDevice, blob_id, group, member, servers::Session};
use argala_wire::{StorageKey, blobs::BlobPolicy};

use crate::{
    plans::{in_short, is_planned, prepare},
    scene::{
        Scene, devices_query, grant, graph, graphs_query, object, pull, push, reserve, rotate,
        wraps_query,
    },
};

/// Where it is set, what the server plans now takes the place of what is kept.
const RENEW: &str = "ARGALA_TEST_RENEW_PLANS";

/// The oldest Postgres that there are plans of.
const OLDEST: u32 = 15;

/// Statements of operations that belong together.
struct Hot {
    /// Names the file.
    name: &'static str,
    statements: Vec<String>,
}

/// Takes down the statements since the last time, each once, in the order in which they came.
fn note(hot: &mut Vec<Hot>, scene: &Scene, name: &'static str) {
    let mut statements = Vec::new();
    for sql in scene.statements.take() {
        if is_planned(&sql) && !statements.contains(&sql) {
            statements.push(sql);
        }
    }
    hot.push(Hot { name, statements });
}

/// What a request asks before anything else, and what devices ask for often.
async fn hot_statements(scene: &Scene) -> Vec<Hot> {
    let mut hot = Vec::new();
    let db = &scene.db;
    let sam = scene.devices("sam", 3).await;
    let by = &sam[0];
    let (acme, own) = (graph("acme"), StorageKey::own(&member("sam")));
    for key in [&acme, &own] {
        scene.rotate(key, 1, &sam).await;
    }
    db.add_member(&member("sam")).await.unwrap();
    db.create_group(&group("acme")).await.unwrap();
    db.join_group(&group("acme"), &member("sam")).await.unwrap();
    scene.statements.take();

    db.device(&by.to_ref()).await.unwrap();
    db.graph(&acme).await.unwrap();
    db.is_active_member(&member("sam")).await.unwrap();
    let (acme_group, sams) = (group("acme"), [member("sam")]);
    db.is_group_member(&acme_group, &sams[0]).await.unwrap();
    db.members_of_group(&acme_group).await.unwrap();
    db.groups_of_member(&sams[0]).await.unwrap();
    db.active_members(&sams).await.unwrap();
    db.revoked_among(&[by.to_ref()]).await.unwrap();
    db.record_seen(&[(by.to_ref(), EPOCH)]).await.unwrap();
    note(&mut hot, scene, "admission");

    pushes(scene, &acme, by).await;
    note(&mut hot, scene, "push");

    let mut pulling = pull(&acme, by, 3);
    db.pull(pulling.clone()).await.unwrap();
    pulling.epoch = Some(1);
    db.pull(pulling).await.unwrap();
    note(&mut hot, scene, "pull");

    let mut listing = graphs_query(by);
    db.graphs_of(&listing).await.unwrap();
    listing.groups = Some(vec![group("acme")]);
    db.graphs_of(&listing).await.unwrap();
    db.wraps(&wraps_query(&acme, by)).await.unwrap();
    db.standing(&acme, &sams).await.unwrap();
    let asked = devices_query(&acme, &["sam"]);
    db.graph_devices(&asked).await.unwrap();
    db.devices_of_member(&sams[0], None, 10).await.unwrap();
    note(&mut hot, scene, "lists");

    let alex = scene.devices("alex", 2).await;
    db.grant(grant(&acme, by, &alex, 1)).await.unwrap();
    db.rotate(rotate(&acme, 2, &sam)).await.unwrap();
    let revoke = Revoke {
        by: by.to_ref(),
        device_id: sam[2].to_ref().device_id,
        now: EPOCH,
    };
    db.revoke(revoke).await.unwrap();
    note(&mut hot, scene, "keys");

    blobs(scene, &acme, by).await;
    note(&mut hot, scene, "blobs");

    sweep(scene).await;
    note(&mut hot, scene, "sweep");
    hot
}

/// In one round trip and the long way, with a key and without.
async fn pushes(scene: &Scene, key: &StorageKey, by: &TestDevice) {
    let keyed = |id: &str| {
        let mut request = push(key, by, vec![by.record(key, id, 1, b"content")]);
        request.idempotency = Some(Idempotency {
            key: id.to_owned(),
            body: [0; 32],
            since: EPOCH,
        });
        request
    };
    let mut answered_alone = keyed("alone");
    answered_alone.records.clear();
    for request in [
        keyed("first"),
        push(key, by, vec![by.record(key, "second", 1, b"content")]),
        keyed("third"),
        answered_alone,
    ] {
        scene.db.push(request).await.unwrap();
    }
}

async fn blobs(scene: &Scene, key: &StorageKey, by: &TestDevice) {
    let db = &scene.db;
    let object = object(db, 1);
    let mut request = reserve(key, by, blob_id("a-blob-of-sixteen"), object.clone());
    request.policy = BlobPolicy::Deliver;
    db.reserve_blob(request).await.unwrap();
    let commit = CommitBlob {
        key: key.clone(),
        object: object.clone(),
        by: by.to_ref(),
        sha256: [0; 32],
        now: EPOCH,
    };
    db.commit_blob(commit).await.unwrap();
    db.blob(key, &blob_id("a-blob-of-sixteen"), EPOCH)
        .await
        .unwrap();
    db.note_fetched(key, &object, &by.to_ref()).await.unwrap();
    db.fetched_by(key, &object).await.unwrap();
    let forget = ForgetBlob {
        key: key.clone(),
        id: blob_id("a-blob-of-sixteen"),
        by: by.to_ref(),
        now: EPOCH,
    };
    db.forget_blob(forget).await.unwrap();
    db.drop_blob(key, &object).await.unwrap();
}

/// What a pass asks each time, on something that it finds and on nothing.
async fn sweep(scene: &Scene) {
    let db = &scene.db;
    let later = EPOCH.saturating_add(Duration::from_secs(100 * 24 * 60 * 60));
    let (key, by) = (graph("acme"), TestDevice::new("sam", "d0"));
    let object = object(db, 2);
    let mut request = reserve(&key, &by, blob_id("another-of-sixteen"), object.clone());
    request.expires_at = Some(EPOCH);
    db.reserve_blob(request).await.unwrap();
    let tombstone = vec![by.tombstone(&key, "gone", 2)];
    scene.push(&key, &by, tombstone).await;
    scene.statements.take();

    db.doom_blobs(later, later, later, 100).await.unwrap();
    db.deliveries(later, Some(later), 100).await.unwrap();
    db.groups_to_ask(later, Some(later), 100).await.unwrap();
    db.unknown_objects(&[object]).await.unwrap();
    db.drop_tombstones(later, 100).await.unwrap();
    db.drop_idempotency(EPOCH, 100).await.unwrap();
}

/// The shape of a plan: for each step a line, and after an index the columns by which it is asked.
fn shape(plan: &[Option<String>]) -> Vec<String> {
    let mut shape: Vec<String> = Vec::new();
    // How far those steps are indented that the next one may lie below.
    let mut above: Vec<usize> = Vec::new();
    for line in plan.iter().flatten() {
        let told = line.trim_start();
        if let Some(condition) = told.strip_prefix("Index Cond: ") {
            if let Some(last) = shape.last_mut() {
                last.push_str(&format!(" by {}", columns(condition)));
            }
            continue;
        }
        let step = match told.strip_prefix("->  ") {
            Some(step) => step,
            None if shape.is_empty() || told.starts_with("CTE ") => told,
            // What follows is a number, and in some versions what it returns.
            None if told.starts_with("InitPlan") => "InitPlan",
            None if told.starts_with("SubPlan") => "SubPlan",
            None => continue,
        };
        let indent = line.len() - told.len();
        while above.pop_if(|last| *last >= indent).is_some() {}
        // Newer versions sort before an aggregate that wants an order, older ones within it.
        let last = shape.last().map(|last| last.trim_start());
        if last == Some("Aggregate") && ["Sort", "Incremental Sort"].contains(&step) {
            continue;
        }
        shape.push(format!("{}{step}", "  ".repeat(above.len())));
        above.push(indent);
    }
    shape
}

/// The columns of an index condition, each once: `graph, seq` of `((r.graph = g.id) AND (r.seq > $4))`.
fn columns(condition: &str) -> String {
    let names = |term: &str| {
        let term = term.trim_start_matches('(');
        let names = match term.strip_prefix("ROW(") {
            Some(row) => row.split(')').next(),
            None => term.split(' ').next(),
        };
        let names = names.unwrap_or_default().split(", ");
        let bare = names.map(|name| name.rsplit('.').next().unwrap_or(name).to_owned());
        bare.collect::<Vec<_>>()
    };
    let mut columns: Vec<String> = Vec::new();
    for column in condition.split(" AND ").flat_map(names) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns.join(", ")
}

/// What is prepared on a session: for each statement its text, and what asks for its plan.
struct Prepared(Vec<(String, String)>);

impl Prepared {
    /// What the server plans now, as it is kept.
    async fn plans(&self, session: &Session) -> String {
        let mut text = String::new();
        for (sql, explain) in &self.0 {
            let shape = shape(&session.column(explain).await);
            text.push_str(&format!("{}\n", in_short(sql)));
            for step in shape {
                text.push_str(&format!("  {step}\n"));
            }
            text.push('\n');
        }
        text
    }
}

/// Where plans are kept: those of one version and those after it in a file of their own where they
/// are others, `lists.17.txt`, else in the one that all have in common.
fn kept(name: &str, version: u32) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let of_its_own = (OLDEST..=version)
        .rev()
        .map(|version| folder.join(format!("{name}.{version}.txt")))
        .find(|path| path.exists());
    of_its_own.unwrap_or_else(|| folder.join(format!("{name}.txt")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_at_a_million_records_are_those_that_are_kept() {
    let scene = Scene::new().await;
    let hot = hot_statements(&scene).await;
    let session = scene.beside().await;
    session.run(include_str!("../plans/fill.sql")).await;
    session.run("VACUUM (ANALYZE)").await;
    session
        .run("SET plan_cache_mode = force_generic_plan")
        .await;
    let version = session.text("SHOW server_version_num").await;
    let version = version.parse::<u32>().unwrap() / 10_000;
    let mut number = 0;
    let mut faults = Vec::new();
    for Hot { name, statements } in hot {
        let mut prepared = Prepared(Vec::new());
        for sql in statements {
            number += 1;
            let explain = prepare(&session, number, &sql).await;
            prepared.0.push((sql, explain));
        }
        let plans = prepared.plans(&session).await;
        for plan in plans.split("\n\n") {
            let reads = plan.contains("Seq Scan");
            assert!(!reads, "{name} reads a table from end to end:\n{plan}");
        }
        if env::var_os(RENEW).is_some() {
            fs::write(kept(name, version), &plans).unwrap();
        }
        let path = kept(name, version);
        let there = fs::read_to_string(&path).unwrap_or_default();
        if there != plans {
            faults.push(difference(&path, &there, &plans));
        }
        if name == "pull" {
            // What holds the others up is seen where it is missing.
            session.run("BEGIN; DROP INDEX records_by_seq").await;
            let without = prepared.plans(&session).await;
            session.run("ROLLBACK").await;
            assert_ne!(without, plans);
        }
    }
    assert!(
        faults.is_empty(),
        "{}\nWhere that is what you want: {RENEW}=1",
        faults.join("\n")
    );
}

/// The lines in which two texts differ, from the first to the last.
fn difference(path: &Path, kept: &str, now: &str) -> String {
    let (kept, now): (Vec<_>, Vec<_>) = (kept.lines().collect(), now.lines().collect());
    let before = kept.iter().zip(&now).take_while(|(a, b)| a == b).count();
    let ends = kept[before..].iter().rev().zip(now[before..].iter().rev());
    let after = ends.take_while(|(a, b)| a == b).count();
    let part = |sign: &str, lines: &[&str]| {
        let lines = &lines[before..lines.len() - after];
        let lines = lines.iter().map(|line| format!("{sign} {line}\n"));
        lines.collect::<String>()
    };
    format!(
        "{}, line {}:\n{}{}",
        path.display(),
        before + 1,
        part("-", &kept),
        part("+", &now)
    )
}

#[test]
fn a_shape_is_what_versions_have_in_common() {
    let lines = |text: &str| -> Vec<_> { text.lines().map(|it| Some(it.to_owned())).collect() };
    let older = lines(
        "Limit\n  InitPlan 1 (returns $0)\n    ->  Index Scan using a on t\n          Index Cond: \
         (k = $1)\n  ->  Index Scan using b on r\n        Index Cond: ((graph = $0) AND \
         (ROW(member, device) > ROW($2, $3)))\n        Filter: (seq > 1)",
    );
    let newer = lines(
        "Limit\n  InitPlan 1\n    ->  Index Scan using a on t\n          Index Cond: (k = $1)\n  \
         ->  Index Scan using b on r\n        Index Cond: ((graph = (InitPlan 1).col1) AND \
         (ROW(r.member, r.device) > ROW($2, $3)))",
    );
    assert_eq!(shape(&older), shape(&newer));
    assert_eq!(
        shape(&older),
        [
            "Limit",
            "  InitPlan",
            "    Index Scan using a on t by k",
            "  Index Scan using b on r by graph, member, device"
        ]
    );
}
