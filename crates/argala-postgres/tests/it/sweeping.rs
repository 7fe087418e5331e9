//! What a sweep and an operator ask for: found by indexes, and known to whoever remembers a graph.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use argala_core::ports::{
    ForgetReason, ObjectKey, Store, SweepStore, UpkeepStore,
    store::{CommitBlob, Emptiness, Idempotency},
};
use argala_testkit::{EPOCH, TestDevice, blob_id, eventually, member};
use argala_wire::{StorageKey, blobs::BlobPolicy};

use crate::{
    plans::{is_planned, prepare},
    scene::{Scene, graph, object, push, records, reserve},
};

/// A tombstone, a blob that was fetched, and everything else that a sweep looks for.
async fn filled(scene: &Scene) -> (StorageKey, TestDevice, ObjectKey) {
    let sam = scene.devices("sam", 1).await;
    let by = sam[0].clone();
    let (acme, own) = (graph("acme"), StorageKey::own(&member("sam")));
    for key in [&acme, &own] {
        scene.rotate(key, 1, &sam).await;
    }
    let mut pushed = records(&acme, &by, 3, "content");
    pushed.push(by.tombstone(&acme, "gone", 1));
    let mut request = push(&acme, &by, pushed);
    request.idempotency = Some(Idempotency {
        key: "k".to_owned(),
        body: [0; 32],
        since: EPOCH,
    });
    scene.db.push(request).await.unwrap();
    let object = object(&scene.db, 1);
    let mut reserving = reserve(&acme, &by, blob_id("a-blob-of-sixteen"), object.clone());
    reserving.policy = BlobPolicy::Deliver;
    scene.db.reserve_blob(reserving).await.unwrap();
    let commit = CommitBlob {
        key: acme.clone(),
        object: object.clone(),
        by: by.to_ref(),
        sha256: [0; 32],
        now: EPOCH,
    };
    scene.db.commit_blob(commit).await.unwrap();
    let fetched = by.to_ref();
    let fetching = scene.db.note_fetched(&acme, &object, &fetched);
    fetching.await.unwrap();
    (acme, by, object)
}

/// Runs every operation of a sweep and of an operator, on something.
async fn run_all(scene: &Scene) {
    let (acme, by, object) = filled(scene).await;
    let db = &scene.db;
    let later = EPOCH.saturating_add(Duration::from_secs(100 * 24 * 60 * 60));
    assert_eq!(
        db.peek_blobs(later, later, later, 9).await.unwrap().len(),
        0
    );
    assert_eq!(
        db.peek_tombstones(later, 9).await.unwrap(),
        [(acme.clone(), 1)]
    );
    assert_eq!(db.peek_idempotency(later, 9).await.unwrap(), 1);
    assert_eq!(db.deliveries(later, None, 9).await.unwrap().len(), 1);
    assert_eq!(db.deliveries(later, Some(later), 9).await.unwrap().len(), 1);
    assert_eq!(db.groups_to_ask(later, None, 9).await.unwrap().len(), 1);
    let mut groups = db.groups_to_ask(later, Some(later), 9).await.unwrap();
    groups[0].empty = Some(Emptiness {
        since: EPOCH,
        until: later,
    });
    db.note_groups(&groups).await.unwrap();
    assert_eq!(db.groups_to_ask(later, None, 9).await.unwrap(), groups);
    let objects = [object.clone(), crate::scene::object(db, 2)];
    assert_eq!(db.unknown_objects(&objects).await.unwrap(), objects[1..]);
    assert_eq!(db.drop_tombstones(later, 9).await.unwrap(), 1);
    let delivered = [(acme.clone(), object.clone())];
    assert_eq!(db.doom_delivered(&delivered, later).await.unwrap().len(), 1);
    db.put_off(&acme, &object, later).await.unwrap();
    assert!(db.drop_blob(&acme, &object).await.unwrap());
    db.mend(&acme).await.unwrap().unwrap();
    assert_eq!(db.graph_keys(None, 9).await.unwrap().len(), 2);
    assert_eq!(db.renew(&[(acme.clone(), 9)], 1_000).await.unwrap(), 1);
    let member = by.to_ref().member_id;
    assert_eq!(db.graphs_with(&member, None, 9).await.unwrap().len(), 2);
    db.erase_from(&acme, &member, 9, later, 9).await.unwrap();
    let reason = ForgetReason::Requested;
    assert!(db.begin_erasure(&acme, reason, later).await.unwrap());
    let erasures = db.erasures(9).await.unwrap();
    while db.erase_some(&erasures[0], later, 1).await.unwrap().more {}
    assert!(db.erasures(9).await.unwrap().is_empty());
    db.erase_member(&member).await.unwrap();
}

#[tokio::test]
async fn every_statement_searches() {
    let scene = Scene::new().await;
    run_all(&scene).await;
    let sent: BTreeSet<String> = scene.statements.take().into_iter().collect();
    let statements: Vec<_> = sent.into_iter().filter(|sql| is_planned(sql)).collect();
    assert!(statements.len() > 50, "{} statements", statements.len());
    let beside = scene.beside().await;
    // Where a table is still read from end to end, there is no index for what is asked.
    beside
        .run("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
        .await;
    let mut faults = Vec::new();
    for (at, sql) in statements.iter().enumerate() {
        let explain = prepare(&beside, at, sql).await;
        for step in beside.column(&explain).await.iter().flatten() {
            let scans = step.contains("Seq Scan on ") && !step.contains("on relay_schema");
            // What is due is found by its time, not by walking an index from end to end.
            if scans || step.contains("Filter: (deleted") || step.contains("Filter: (look_at") {
                faults.push(format!("{}\n  in {sql}", step.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn counters_that_are_wrong_are_mended() {
    let scene = Scene::new().await;
    let (acme, _, _) = filled(&scene).await;
    let beside = scene.beside().await;
    beside
        .run("UPDATE graphs SET records = records + 5, blob_bytes = 0 WHERE low IS NULL")
        .await;
    let told = scene.db.mend(&acme).await.unwrap().unwrap();
    assert_ne!(told.stored, told.counted);
    scene.counters_are_exact(&acme).await;
}

/// What others write meanwhile is counted, too.
#[tokio::test]
async fn counters_are_mended_under_the_graphs_lock() {
    let scene = Scene::new().await;
    let (acme, _, _) = filled(&scene).await;
    let beside = scene.beside().await;
    beside
        .run(
            "UPDATE graphs SET tombstones = 77 WHERE low IS NULL;
             BEGIN;
             UPDATE graphs SET records = records + 1 WHERE low IS NULL;
             INSERT INTO records (graph, record, seq, epoch, by_member, by_device, at, deleted, bytes,
                                  ciphertext)
             SELECT id, 'another', 99, 1, 'sam', 'd0', 0, false, 0, '' FROM graphs WHERE low IS NULL",
        )
        .await;
    let mending = {
        let (db, acme) = (Arc::clone(&scene.db), acme.clone());
        tokio::spawn(async move { db.mend(&acme).await })
    };
    until_somebody_waits(&scene).await;
    beside.run("COMMIT").await;
    mending.await.unwrap().unwrap().unwrap();
    scene.counters_are_exact(&acme).await;
}

/// What was due when it was looked for and is not any more stays; what is still is not passed over,
/// though somebody writes to its graph just then.
#[tokio::test]
async fn what_is_due_is_looked_at_again_under_the_graphs_lock() {
    let scene = Scene::new().await;
    let (acme, by, _) = filled(&scene).await;
    let [lives, stays] = [(2, "a-blob-that-lives-on"), (3, "a-blob-that-is-given-up")]
        .map(|(number, id)| (object(&scene.db, number), blob_id(id)));
    for (object, id) in [&lives, &stays] {
        let request = reserve(&acme, &by, id.clone(), object.clone());
        scene.db.reserve_blob(request).await.unwrap();
    }
    let beside = scene.beside().await;
    beside
        .run(&format!(
            "BEGIN; SELECT 1 FROM graphs WHERE low IS NULL FOR NO KEY UPDATE;
             UPDATE blobs SET state = 'live', sha256 = '' WHERE object = '{}'",
            lives.0
        ))
        .await;
    let later = EPOCH.saturating_add(Duration::from_secs(1));
    let dooming = {
        let db = Arc::clone(&scene.db);
        tokio::spawn(async move { db.doom_blobs(later, later, EPOCH, 9).await })
    };
    until_somebody_waits(&scene).await;
    beside.run("COMMIT").await;
    let doomed = dooming.await.unwrap().unwrap();
    let objects: Vec<_> = doomed.into_iter().map(|it| it.object).collect();
    assert_eq!(objects, [stays.0]);
    scene.counters_are_exact(&acme).await;
}

/// Its bytes are given back once, and its object has a row until that is removed.
#[tokio::test]
async fn a_delivered_blob_is_marked_once() {
    let scene = Scene::new().await;
    let (acme, by, delivered) = filled(&scene).await;
    let delivering = [(acme.clone(), delivered.clone())];
    for count in [1, 0] {
        let doomed = scene.db.doom_delivered(&delivering, EPOCH).await.unwrap();
        assert_eq!(doomed.len(), count);
        scene.counters_are_exact(&acme).await;
    }
    let pending = object(&scene.db, 2);
    let request = reserve(&acme, &by, blob_id("a-blob-on-its-way"), pending.clone());
    scene.db.reserve_blob(request).await.unwrap();
    let named = [pending, delivered];
    assert_eq!(scene.db.unknown_objects(&named).await.unwrap(), []);
}

/// Returns once a session of the scene's database waits for a lock.
async fn until_somebody_waits(scene: &Scene) {
    let watch = scene.beside().await;
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("somebody waits", || async {
        (watch.text(waiting).await != "0").then_some(())
    })
    .await;
}

/// A slot that was old when it was looked at may have got a key before it is locked.
#[tokio::test]
async fn a_slot_that_gets_a_key_meanwhile_is_not_emptied() {
    let scene = Scene::new().await;
    filled(&scene).await;
    let beside = scene.beside().await;
    beside
        .run(
            "BEGIN;
             INSERT INTO idempotency (slot, graph, member, device, key, at, body, answer)
             SELECT slot, graph, member, device, 'newer', 1::bigint << 50, '', '' FROM idempotency",
        )
        .await;
    let later = EPOCH.saturating_add(Duration::from_secs(100 * 24 * 60 * 60));
    let dropping = {
        let db = Arc::clone(&scene.db);
        tokio::spawn(async move { db.drop_idempotency(later, 9).await })
    };
    until_somebody_waits(&scene).await;
    beside.run("COMMIT").await;
    assert!(dropping.await.unwrap().unwrap() <= 1);
    let left = "SELECT count(*) FROM idempotency WHERE key = 'newer'";
    assert_eq!(beside.text(left).await, "1");
}

/// Whoever remembers a graph writes to it only where its row has the version still that it had.
#[tokio::test]
async fn whatever_is_swept_gives_the_graph_another_version() {
    let scene = Scene::new().await;
    let (acme, by, object) = filled(&scene).await;
    let beside = scene.beside().await;
    let mut seen = BTreeSet::new();
    let mut changed = async |what: &str| {
        let version = beside
            .text("SELECT xmin FROM graphs WHERE storage_key = 'g:acme'")
            .await;
        assert!(seen.insert(version), "{what} leaves the version as it was");
    };
    changed("the beginning").await;
    let later = EPOCH.saturating_add(Duration::from_secs(100 * 24 * 60 * 60));
    let db = &scene.db;
    assert_eq!(db.drop_tombstones(later, 9).await.unwrap(), 1);
    changed("a swept tombstone").await;
    let delivered = [(acme.clone(), object)];
    assert_eq!(db.doom_delivered(&delivered, later).await.unwrap().len(), 1);
    changed("a delivered blob").await;
    let member = by.to_ref().member_id;
    let erased = db.erase_from(&acme, &member, 9, later, 1).await.unwrap();
    assert_eq!(erased.records, 1);
    changed("an erased member").await;
    db.renew(&[(acme.clone(), 9)], 1_000).await.unwrap();
    changed("a restored database").await;
    beside.run("UPDATE graphs SET records = 77").await;
    changed("an operator's hand").await;
    db.mend(&acme).await.unwrap();
    changed("a mended counter").await;
}
