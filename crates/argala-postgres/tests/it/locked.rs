//! Locks that somebody holds: who waits for them, for how long, and who does not.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use argala_core::{Fault, StoreErrorKind, ports::Store};
use argala_postgres::{Options, Postgres, Timeouts};
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::{
    database::{migrated, options},
    scene::{Scene, graph, push, records},
};

/// The middle of so many pushes' times, to a few graphs in turn.
async fn middle(scene: &Scene, by: &argala_testkit::TestDevice, turn: &str) -> Duration {
    let mut times = Vec::new();
    for at in 0..90 {
        let key = graph(&format!("free {}", at % 3));
        let record = by.record(&key, &format!("{turn} {at}"), 1, b"content");
        let began = Instant::now();
        scene.push(&key, by, vec![record]).await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// With and without the lock in one run, in turns: whatever else the machine does meets both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_graph_slows_no_other() {
    let scene = Scene::with(|options| {
        options.connections = 4;
        options.lock_timeout = Duration::from_secs(3_600);
        options.statement_timeout = Duration::from_secs(3_600);
        options.operation_timeout = Duration::from_secs(3_600);
    })
    .await;
    let devices = scene.devices("sam", 1).await;
    let by = &devices[0];
    let stuck = graph("stuck");
    for name in ["stuck", "free 0", "free 1", "free 2"] {
        let key = graph(name);
        scene.rotate(&key, 1, &devices).await;
        scene.push(&key, by, records(&key, by, 1, "content")).await;
    }
    let mut ratios = Vec::new();
    for turn in 0..3 {
        let without = middle(&scene, by, &format!("without {turn}")).await;
        let beside = scene.beside().await;
        beside
            .run(&format!(
                "BEGIN; SELECT 1 FROM graphs WHERE storage_key = '{stuck}' FOR UPDATE"
            ))
            .await;
        let mut waiting: Vec<_> = (0..20)
            .map(|at| {
                let record = by.record(&stuck, &format!("{turn} {at}"), 1, b"content");
                scene.db.push(push(&stuck, by, vec![record]))
            })
            .collect();
        for push in &mut waiting {
            assert!(push.as_mut().now_or_never().is_none(), "it waits");
        }
        let with = middle(&scene, by, &format!("with {turn}")).await;
        beside.run("ROLLBACK").await;
        for push in waiting {
            push.await.unwrap();
        }
        ratios.push(with.as_secs_f64() / without.as_secs_f64());
    }
    println!("with the lock to without it: {ratios:.2?}");
    assert!(ratios.iter().any(|ratio| *ratio < 3.0), "{ratios:.2?}");
    scene.counters_are_exact(&stuck).await;
}

/// Where the role has the timeouts, nobody here says others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_roles_timeouts_are_kept() {
    let database = migrated().await;
    let beside = argala_testkit::servers::Session::open(&database.url()).await;
    beside
        .run(
            "DO $$ BEGIN EXECUTE format(
                 'ALTER ROLE CURRENT_USER IN DATABASE %I SET lock_timeout = 200',
                 current_database()
             ); END $$",
        )
        .await;
    let sent = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&sent);
    let options = Options {
        timeouts: Timeouts::Role,
        lock_timeout: Duration::from_secs(3_600),
        statement_timeout: Duration::from_secs(3_600),
        operation_timeout: Duration::from_secs(3_600),
        probe: Some(Arc::new(move |sql| {
            told.lock().unwrap().push(sql.to_owned());
        })),
        ..options(database.url())
    };
    let db = Arc::new(Postgres::open(&options).await.unwrap());
    let device = argala_testkit::TestDevice::new("sam", "laptop");
    db.register(device.register(argala_testkit::EPOCH))
        .await
        .unwrap();
    let key = graph("acme");
    db.rotate(crate::scene::rotate(&key, 1, std::slice::from_ref(&device)))
        .await
        .unwrap();
    beside.run("BEGIN; SELECT 1 FROM graphs FOR UPDATE").await;
    let record = device.record(&key, "r", 1, b"content");
    match db.push(push(&key, &device, vec![record])).await {
        Err(Fault::Store(error)) => {
            assert_eq!(error.kind, StoreErrorKind::Unavailable);
            let why = format!("{:?}", error.source);
            assert!(why.contains("55P03"), "the role's timeout: {why}");
        }
        other => panic!("{other:?}"),
    }
    beside.run("ROLLBACK").await;
    let record = device.record(&key, "r", 1, b"content");
    db.push(push(&key, &device, vec![record])).await.unwrap();
    let sent = sent.lock().unwrap();
    assert!(!sent.is_empty());
    assert!(sent.iter().all(|sql| !sql.contains("timeout")), "{sent:#?}");
}
