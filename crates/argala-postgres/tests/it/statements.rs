//! No operation takes more statements for many things than for one.

use std::{future::Future, time::Duration};

use argala_core::ports::{
    BlobStore, Directory, Store, SweepStore,
    store::{CommitBlob, Idempotency, Revoke},
};
use argala_testkit::{EPOCH, TestDevice, blob_id, member};
use argala_wire::{StorageKey, Timestamp, blobs::BlobPolicy, records::PushRecord};
use bytes::Bytes;

use crate::scene::{
    Scene, devices_query, grant, graph, graphs_query, object, pull, push, records, reserve, rotate,
    wraps_query,
};

/// More statements than this is no bounded number any more. `BEGIN` and `COMMIT` are among them.
const MANY: usize = 13;

impl Scene {
    /// The statements that `operation` takes.
    async fn cost<T>(&self, operation: impl Future<Output = T>) -> Vec<String> {
        self.statements.take();
        operation.await;
        self.statements.take()
    }
}

#[track_caller]
fn same(what: &str, one: &[String], many: &[String]) {
    println!("{what}: {} statements", one.len());
    assert_eq!(one.len(), many.len(), "{what}\n{one:#?}\n{many:#?}");
    assert!(one.len() <= MANY, "{what}: {one:#?}");
    assert!(!one.is_empty(), "{what} runs statements");
}

fn later(seconds: u64) -> Timestamp {
    EPOCH.saturating_add(Duration::from_secs(seconds))
}

#[tokio::test]
async fn pushes() {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 1).await;
    let by = &devices[0];
    let (one, many) = (graph("one"), graph("many"));
    for key in [&one, &many] {
        scene.rotate(key, 1, &devices).await;
    }
    // New records; the same again; others of the same length in their place; of another length.
    for content in ["first", "first", "other", "longer"] {
        let few = scene.push(&one, by, records(&one, by, 1, content));
        let few = scene.cost(few).await;
        let lots = scene.push(&many, by, records(&many, by, 500, content));
        let lots = scene.cost(lots).await;
        same(&format!("push of {content}"), &few, &lots);
    }
    let keyed = |key: &StorageKey, records: Vec<PushRecord>| {
        let mut request = push(key, by, records);
        request.idempotency = Some(Idempotency {
            key: "k".to_owned(),
            body: [1; 32],
            since: EPOCH,
        });
        request
    };
    for what in ["push under a key", "push replayed"] {
        let few = scene
            .cost(scene.db.push(keyed(&one, records(&one, by, 1, "k"))))
            .await;
        let lots = scene.db.push(keyed(&many, records(&many, by, 500, "k")));
        same(what, &few, &scene.cost(lots).await);
    }
}

#[tokio::test]
async fn pulls() {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 1).await;
    let by = &devices[0];
    let (one, many) = (graph("one"), graph("many"));
    for (key, count) in [(&one, 1), (&many, 500)] {
        scene.rotate(key, 1, &devices).await;
        scene
            .push(key, by, records(key, by, count, "content"))
            .await;
    }
    let few = scene.cost(scene.db.pull(pull(&one, by, 1_000))).await;
    let lots = scene.cost(scene.db.pull(pull(&many, by, 1_000))).await;
    same("pull", &few, &lots);
    let of_epoch = |key| {
        let mut request = pull(key, by, 1_000);
        request.epoch = Some(1);
        scene.db.pull(request)
    };
    let few = scene.cost(of_epoch(&one)).await;
    same("pull of an epoch", &few, &scene.cost(of_epoch(&many)).await);
}

#[tokio::test]
async fn keys_of_many_devices() {
    let scene = Scene::new().await;
    let (alone, crowd) = (
        scene.devices("sam", 1).await,
        scene.devices("alex", 200).await,
    );
    let (one, many) = (graph("one"), graph("many"));
    for epoch in [1, 2] {
        let few = scene.cost(scene.rotate(&one, epoch, &alone)).await;
        let lots = scene.cost(scene.rotate(&many, epoch, &crowd)).await;
        same("rotate", &few, &lots);
    }
    let few = scene.cost(scene.db.rotate(rotate(&one, 2, &alone))).await;
    let lots = scene.cost(scene.db.rotate(rotate(&many, 2, &crowd))).await;
    same("rotate replayed", &few, &lots);

    let (few_to, lots_to) = (
        scene.devices("kim", 1).await,
        scene.devices("max", 200).await,
    );
    let few = scene.db.grant(grant(&one, &alone[0], &few_to, 2));
    let few = scene.cost(few).await;
    let lots = scene.db.grant(grant(&one, &alone[0], &lots_to, 2));
    same("grant", &few, &scene.cost(lots).await);

    let sam = [member("sam")];
    let alex = [member("alex")];
    let few = scene.cost(scene.db.standing(&one, &sam)).await;
    same(
        "standing",
        &few,
        &scene.cost(scene.db.standing(&many, &alex)).await,
    );
    let (few, lots) = (
        devices_query(&one, &["sam"]),
        devices_query(&many, &["alex"]),
    );
    let few = scene.cost(scene.db.graph_devices(&few)).await;
    same(
        "graph devices",
        &few,
        &scene.cost(scene.db.graph_devices(&lots)).await,
    );
    let few = scene.db.devices_of_member(&sam[0], None, 1_000);
    let few = scene.cost(few).await;
    let lots = scene.db.devices_of_member(&alex[0], None, 1_000);
    same("devices of a member", &few, &scene.cost(lots).await);

    let refs =
        |devices: &[TestDevice]| -> Vec<_> { devices.iter().map(TestDevice::to_ref).collect() };
    let few = refs(&alone);
    let lots = refs(&crowd);
    let cost = scene.cost(scene.db.revoked_among(&few)).await;
    same(
        "revoked among",
        &cost,
        &scene.cost(scene.db.revoked_among(&lots)).await,
    );
    let seen = |devices: Vec<_>| {
        devices
            .into_iter()
            .map(|it| (it, EPOCH))
            .collect::<Vec<_>>()
    };
    let (few, lots) = (seen(few), seen(lots));
    let cost = scene.cost(scene.db.record_seen(&few)).await;
    same(
        "seen",
        &cost,
        &scene.cost(scene.db.record_seen(&lots)).await,
    );
    let names: Vec<_> = (0..200).map(|at| member(&format!("m{at}"))).collect();
    let cost = scene.cost(scene.db.active_members(&sam)).await;
    same(
        "active members",
        &cost,
        &scene.cost(scene.db.active_members(&names)).await,
    );
}

#[tokio::test]
async fn many_graphs_and_epochs() {
    let scene = Scene::new().await;
    let (sam, alex) = (
        scene.devices("sam", 1).await,
        scene.devices("alex", 1).await,
    );
    scene.rotate(&graph("one"), 1, &sam).await;
    for at in 0..100 {
        scene.rotate(&graph(&format!("many {at}")), 1, &alex).await;
    }
    for epoch in 2..60 {
        scene.rotate(&graph("many 0"), epoch, &alex).await;
    }
    let (few, lots) = (graphs_query(&sam[0]), graphs_query(&alex[0]));
    let cost = scene.cost(scene.db.graphs_of(&few)).await;
    same(
        "graphs",
        &cost,
        &scene.cost(scene.db.graphs_of(&lots)).await,
    );
    let listing = |query: &argala_core::ports::store::GraphsQuery, count| {
        let mut query = query.clone();
        query.groups = Some(
            (0..count)
                .map(|at| argala_testkit::group(&format!("many {at}")))
                .collect(),
        );
        query
    };
    let (few, lots) = (listing(&few, 1), listing(&lots, 100));
    let cost = scene.cost(scene.db.graphs_of(&few)).await;
    same(
        "listed graphs",
        &cost,
        &scene.cost(scene.db.graphs_of(&lots)).await,
    );
    let (few, lots) = (
        wraps_query(&graph("one"), &sam[0]),
        wraps_query(&graph("many 0"), &alex[0]),
    );
    let cost = scene.cost(scene.db.wraps(&few)).await;
    same("wraps", &cost, &scene.cost(scene.db.wraps(&lots)).await);
    let revoke = |device: &TestDevice| {
        scene.db.revoke(Revoke {
            by: device.to_ref(),
            device_id: device.to_ref().device_id,
            now: EPOCH,
        })
    };
    let cost = scene.cost(revoke(&sam[0])).await;
    same("revoke", &cost, &scene.cost(revoke(&alex[0])).await);
}

#[tokio::test]
async fn sweeps_of_many_rows() {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 1).await;
    let by = &devices[0];
    let keys: Vec<_> = (0..3).map(|at| graph(&format!("graph {at}"))).collect();
    for key in &keys {
        scene.rotate(key, 1, &devices).await;
    }
    let (mut few, mut lots) = (Vec::new(), Vec::new());
    for count in [2, 80] {
        for at in 0..count {
            let object = object(&scene.db, count * 1_000 + at);
            let id = blob_id(&format!("blob-{count}-{at}"));
            let mut request = reserve(&keys[at as usize % 3], by, id, object.clone());
            request.policy = BlobPolicy::Expire;
            request.expires_at = Some(later(60));
            scene.db.reserve_blob(request).await.unwrap();
            if at % 2 == 0 {
                let commit = CommitBlob {
                    key: keys[at as usize % 3].clone(),
                    object,
                    by: by.to_ref(),
                    sha256: [0; 32],
                    now: EPOCH,
                };
                scene.db.commit_blob(commit).await.unwrap();
            }
            let mut request = push(&keys[0], by, Vec::new());
            request.idempotency = Some(Idempotency {
                key: format!("k{at}"),
                body: [0; 32],
                since: EPOCH,
            });
            scene.db.push(request).await.unwrap();
        }
        let doom = scene.db.doom_blobs(later(61), later(61), later(61), 1_000);
        let doom = scene
            .cost(async { assert_eq!(doom.await.unwrap().len() as u64, count) })
            .await;
        let answers = scene.db.drop_idempotency(later(1), 1_000);
        let answers = scene
            .cost(async { assert_eq!(answers.await.unwrap(), count) })
            .await;
        (few, lots) = (lots, [doom, answers].to_vec());
        for at in 0..count {
            scene
                .db
                .drop_blob(
                    &keys[at as usize % 3],
                    &object(&scene.db, count * 1_000 + at),
                )
                .await
                .unwrap();
        }
    }
    same("doom", &few[0], &lots[0]);
    same("idempotency", &few[1], &lots[1]);
}

/// The bytes of a blob are read a chunk at a time, and one chunk takes as many statements as the
/// next.
#[tokio::test]
async fn an_object_takes_statements_by_its_size_alone() {
    let scene = Scene::new().await;
    let cost = async |number: u64, size: usize| {
        let key = object(&scene.db, number);
        let body = Bytes::from(vec![7; size]);
        let body = futures_util::stream::iter([Ok(body)]);
        let put = scene.db.put(&key, size as u64, Box::pin(body));
        scene.cost(async { put.await.unwrap() }).await.len()
    };
    let (small, large, larger) = (
        cost(1, 10).await,
        cost(2, 4 << 20).await,
        cost(3, 8 << 20).await,
    );
    // A megabyte a command.
    let command = (larger - large) / 4;
    assert!(command <= 6, "{command} statements a command");
    assert!(large <= small + 4 * command, "{small} {large} {larger}");
}
