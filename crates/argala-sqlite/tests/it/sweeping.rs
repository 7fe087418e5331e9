//! What a sweep and an operator ask for.

use std::{collections::BTreeSet, time::Duration};

use argala_core::ports::{
    ForgetReason, ObjectKey, Store, SweepStore, UpkeepStore,
    store::{CommitBlob, Emptiness, Idempotency},
};
use argala_testkit::{EPOCH, TestDevice, blob_id, member};
use argala_wire::{StorageKey, blobs::BlobPolicy};

use crate::scene::{Scene, graph, object, push, records, reserve};

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
    let scene = Scene::new();
    run_all(&scene).await;
    let statements: BTreeSet<String> = scene.statements.take().into_iter().collect();
    let connection = scene.beside();
    let (mut planned, mut faults) = (0, Vec::new());
    for sql in &statements {
        let first = sql.split_whitespace().next().unwrap_or_default();
        if !["SELECT", "INSERT", "UPDATE", "DELETE"].contains(&first) {
            continue;
        }
        planned += 1;
        let mut explain = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let steps = explain
            .raw_query()
            .mapped(|row| row.get::<_, String>(3))
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        for step in &steps {
            // What the statement brings along, and what it has picked by an index before.
            let given = [
                "VIRTUAL TABLE",
                "CONSTANT ROW",
                "VALUES CLAUSE",
                "(subquery",
            ]
            .iter()
            .any(|given| step.contains(given));
            let picked = [
                "SCAN v",
                "SCAN due",
                "SCAN mine",
                "SCAN left_in",
                "SCAN {rows}",
                "SCAN meta",
            ]
            .iter()
            .any(|start| step == *start || step.starts_with(&format!("{start}-")));
            // A table of work to be done, from its beginning, a few rows of it.
            let work = step == "SCAN erasures USING INDEX erasures_by_age";
            if step.starts_with("SCAN") && !given && !picked && !work {
                faults.push(format!("{step}\n  in {sql}\n  of {steps:#?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(planned > 60, "{planned} statements");
}

#[tokio::test]
async fn counters_that_are_wrong_are_mended() {
    let scene = Scene::new();
    let (acme, _, _) = filled(&scene).await;
    let beside = scene.beside();
    let sql = "UPDATE graphs SET records = records + 5, blob_bytes = 0 WHERE low IS NULL";
    beside.execute(sql, []).unwrap();
    let told = scene.db.mend(&acme).await.unwrap().unwrap();
    assert_ne!(told.stored, told.counted);
    scene.counters_are_exact(&acme).await;
}
