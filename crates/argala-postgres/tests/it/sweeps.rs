//! Idempotency keys go slot by slot.

use std::time::Duration;

use argala_core::ports::{Store, SweepStore, store::Idempotency};
use argala_testkit::{EPOCH, TestDevice};
use argala_wire::{StorageKey, Timestamp};

use crate::scene::{Scene, graph, push};

/// So many half days after the beginning of one.
fn half_days(count: u64) -> Timestamp {
    let half_day = 12 * 60 * 60 * 1_000;
    let begin = EPOCH.as_millis() - EPOCH.as_millis().rem_euclid(half_day);
    Timestamp::from_millis(begin).saturating_add(Duration::from_secs(count * 12 * 60 * 60))
}

/// Pushes under so many keys at `now`.
async fn keys(scene: &Scene, key: &StorageKey, by: &TestDevice, count: usize, now: Timestamp) {
    for at in 0..count {
        let mut request = push(key, by, Vec::new());
        request.now = now;
        request.idempotency = Some(Idempotency {
            key: format!("{} {at}", now.as_millis()),
            body: [0; 32],
            since: EPOCH,
        });
        scene.db.push(request).await.unwrap();
    }
}

async fn ready() -> (Scene, StorageKey, Vec<TestDevice>) {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 1).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;
    (scene, key, devices)
}

fn emptied(scene: &Scene) -> Vec<String> {
    let mut sent = scene.statements.take();
    sent.retain(|sql| sql.starts_with("TRUNCATE"));
    sent
}

#[tokio::test]
async fn a_slot_whose_time_has_passed_is_emptied_in_one_step() {
    let (scene, key, devices) = ready().await;
    for slot in 0..3 {
        keys(&scene, &key, &devices[0], 5, half_days(slot)).await;
    }
    scene.statements.take();
    // More at once than were asked for: it is one step all the same.
    assert_eq!(scene.db.drop_idempotency(half_days(1), 2).await.unwrap(), 5);
    assert_eq!(emptied(&scene).len(), 1);
    assert_eq!(scene.db.drop_idempotency(half_days(1), 2).await.unwrap(), 0);
    assert!(emptied(&scene).is_empty());
    // In the middle of a slot it is row by row.
    let within = half_days(1).saturating_add(Duration::from_millis(1));
    keys(&scene, &key, &devices[0], 1, within).await;
    scene.statements.take();
    assert_eq!(scene.db.drop_idempotency(within, 2).await.unwrap(), 2);
    assert!(emptied(&scene).is_empty());
    assert_eq!(
        scene.db.drop_idempotency(half_days(9), 99).await.unwrap(),
        9
    );
    assert_eq!(emptied(&scene).len(), 2);
}

#[tokio::test]
async fn a_slot_that_came_round_again_keeps_what_is_new() {
    let (scene, key, devices) = ready().await;
    // Four slots further it is the same one.
    keys(&scene, &key, &devices[0], 3, half_days(0)).await;
    keys(&scene, &key, &devices[0], 2, half_days(4)).await;
    scene.statements.take();
    assert_eq!(
        scene.db.drop_idempotency(half_days(2), 99).await.unwrap(),
        3
    );
    assert!(emptied(&scene).is_empty());
    let left = scene
        .beside()
        .await
        .text("SELECT count(*) FROM idempotency")
        .await;
    assert_eq!(left, "2");
}

#[tokio::test]
async fn a_slot_that_somebody_reads_is_left_for_the_next_pass() {
    let (scene, key, devices) = ready().await;
    keys(&scene, &key, &devices[0], 3, half_days(0)).await;
    let beside = scene.beside().await;
    beside
        .run("BEGIN; SELECT 1 FROM idempotency FOR UPDATE")
        .await;
    assert_eq!(
        scene.db.drop_idempotency(half_days(2), 99).await.unwrap(),
        0
    );
    // Pushes were not held up for longer than that.
    keys(&scene, &key, &devices[0], 1, half_days(3)).await;
    beside.run("ROLLBACK").await;
    assert_eq!(
        scene.db.drop_idempotency(half_days(2), 99).await.unwrap(),
        3
    );
}
