//! Looks at devices that share a statement, from outside.

use std::time::Duration;

use argala_core::{
    StoreErrorKind,
    ports::{Store, store::Revoke},
};
use argala_testkit::{EPOCH, TestDevice};
use futures_util::{FutureExt, future::join_all};

use crate::scene::Scene;

/// A table that is locked by hand holds up every look at it.
const LOCK: &str = "BEGIN; LOCK TABLE devices IN ACCESS EXCLUSIVE MODE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_together_shares_a_statement() {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 20).await;
    let stranger = TestDevice::new("alex", "nowhere").to_ref();
    let known: Vec<_> = devices.iter().map(TestDevice::to_ref).collect();
    let beside = scene.beside().await;
    beside.run(LOCK).await;
    scene.statements.take();
    // Each device three times, and one that there is not.
    let asked: Vec<_> = (0..3)
        .flat_map(|_| known.iter().chain([&stranger]))
        .collect();
    let mut looks: Vec<_> = asked.iter().map(|device| scene.db.device(device)).collect();
    for look in &mut looks {
        assert!(look.as_mut().now_or_never().is_none(), "it is held up");
        // Time for it to go, if it were to go alone.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // One that hangs up takes nobody with it.
    let mut gone = scene.db.device(&stranger);
    assert!(gone.as_mut().now_or_never().is_none());
    drop(gone);
    beside.run("ROLLBACK").await;
    for (device, told) in asked.iter().zip(join_all(looks).await) {
        let told = told.expect("answered");
        assert_eq!(told.is_some(), **device != stranger, "{device:?}");
        let told = told.map(|it| (it.member_id, it.device_id));
        let wanted = (device.member_id.clone(), device.device_id.clone());
        assert!(told.is_none_or(|told| told == wanted));
    }
    let statements = scene.statements.take().len();
    assert!(
        statements <= 4,
        "{statements} statements for {} looks",
        asked.len()
    );
}

/// However many look at the same time: who asks after a revocation was answered sees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_that_was_answered_is_seen() {
    let scene = Scene::new().await;
    for round in 0..10 {
        let devices = scene.devices(&format!("sam{round}"), 2).await;
        let [by, gone] = [devices[0].to_ref(), devices[1].to_ref()];
        let crowd = (0..20).map(|_| {
            let (db, by) = (scene.db.clone(), by.clone());
            tokio::spawn(async move {
                for _ in 0..20 {
                    db.device(&by).await.expect("answered").expect("there");
                }
            })
        });
        let crowd: Vec<_> = crowd.collect();
        let revoke = Revoke {
            by: by.clone(),
            device_id: gone.device_id.clone(),
            now: EPOCH,
        };
        scene.db.revoke(revoke).await.expect("revokes");
        let told = join_all((0..8).map(|_| scene.db.device(&gone))).await;
        for device in told {
            let device = device.expect("answered").expect("there");
            assert!(device.revoked_at.is_some(), "round {round}");
        }
        for one in crowd {
            one.await.expect("no panic");
        }
    }
}

/// Each is told so, and the next who asks is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_fails_fails_those_who_shared_it_alone() {
    let scene = Scene::with(|options| options.statement_timeout = Duration::from_millis(200)).await;
    let device = scene.devices("sam", 1).await[0].to_ref();
    let beside = scene.beside().await;
    beside.run(LOCK).await;
    let told = join_all((0..6).map(|_| scene.db.device(&device))).await;
    for look in told {
        let error = look.expect_err("it was cut off");
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    }
    beside.run("ROLLBACK").await;
    let found = scene.db.device(&device).await.expect("answered");
    assert!(found.is_some());
}
