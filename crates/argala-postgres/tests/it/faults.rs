//! What callers are told where the database is slow, full, locked or gone, and that it passes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use argala_core::{Fault, Outcome, StoreErrorKind, StoreResult, ports::Store};
use argala_postgres::{Postgres, migrate};
use argala_testkit::{
    EPOCH, eventually,
    servers::{PrivatePostgres, Session},
};

use crate::{
    database::options,
    scene::{Scene, graph, push, records, rotate},
};

#[track_caller]
fn unavailable<T: std::fmt::Debug>(outcome: Outcome<T>) {
    match outcome {
        Err(Fault::Store(error)) => {
            assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error:?}");
        }
        other => panic!("{other:?}"),
    }
}

fn as_outcome<T>(result: StoreResult<T>) -> Outcome<T> {
    result.map_err(Fault::Store)
}

#[tokio::test]
async fn a_full_pool_answers_in_time() {
    let scene = Scene::with(|options| {
        options.connections = 2;
        options.wait = Duration::from_millis(100);
        options.lock_timeout = Duration::from_secs(15);
    })
    .await;
    let devices = scene.devices("sam", 1).await;
    let keys = ["a", "b"].map(graph);
    for key in &keys {
        scene.rotate(key, 1, &devices).await;
    }
    let beside = scene.beside().await;
    beside.run("BEGIN; LOCK TABLE graphs").await;
    let stuck: Vec<_> = keys
        .iter()
        .map(|key| {
            let (db, request) = (
                Arc::clone(&scene.db),
                push(key, &devices[0], records(key, &devices[0], 1, "x")),
            );
            tokio::spawn(async move { db.push(request).await })
        })
        .collect();
    eventually("both connections are in use", || async {
        (scene.db.usage().idle == 0 && scene.db.usage().connections == 2).then_some(())
    })
    .await;
    unavailable(as_outcome(scene.db.ping().await));
    beside.run("ROLLBACK").await;
    for push in stuck {
        push.await.unwrap().unwrap();
    }
    scene.db.ping().await.unwrap();
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_cut_off() {
    let scene = Scene::with(|options| {
        options.statement_timeout = Duration::from_millis(200);
        options.lock_timeout = Duration::from_secs(15);
    })
    .await;
    let beside = scene.beside().await;
    beside.run("BEGIN; LOCK TABLE devices").await;
    let device = argala_testkit::TestDevice::new("sam", "d0");
    unavailable(as_outcome(scene.db.device(&device.to_ref()).await));
    unavailable(scene.db.register(device.register(EPOCH)).await);
    beside.run("ROLLBACK").await;
    assert!(
        scene
            .db
            .register(device.register(EPOCH))
            .await
            .unwrap()
            .fresh
    );
}

#[tokio::test]
async fn a_transaction_knows_its_timeouts_by_itself() {
    let scene = Scene::with(|options| {
        options.timeouts = argala_postgres::Timeouts::Transaction;
        options.statement_timeout = Duration::from_millis(200);
        options.lock_timeout = Duration::from_secs(15);
    })
    .await;
    let beside = scene.beside().await;
    beside.run("BEGIN; LOCK TABLE devices").await;
    let device = argala_testkit::TestDevice::new("sam", "d0");
    unavailable(as_outcome(scene.db.device(&device.to_ref()).await));
    unavailable(scene.db.register(device.register(EPOCH)).await);
    beside.run("ROLLBACK").await;
    assert!(
        scene
            .db
            .register(device.register(EPOCH))
            .await
            .unwrap()
            .fresh
    );
}

#[tokio::test]
async fn a_database_that_says_nothing_is_not_waited_for() {
    let scene = Scene::with(|options| {
        options.operation_timeout = Duration::from_millis(300);
        options.lock_timeout = Duration::from_secs(15);
        options.statement_timeout = Duration::from_secs(15);
    })
    .await;
    let devices = scene.devices("sam", 1).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;
    let beside = scene.beside().await;
    beside.run("BEGIN; LOCK TABLE graphs").await;
    unavailable(scene.db.rotate(rotate(&key, 2, &devices)).await);
    beside.run("ROLLBACK").await;
    // The connection that was in the middle of it is not used again.
    eventually("it is given up", || async {
        (scene.db.usage().connections == scene.db.usage().idle).then_some(())
    })
    .await;
    scene.rotate(&key, 2, &devices).await;
}

/// Two transactions that lock the same rows in opposite orders: one of them is the relay's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_tried_again() {
    let scene = Scene::new().await;
    let devices = scene.devices("sam", 2).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;
    let beside = scene.beside().await;
    // The relay takes the device, then the graph.
    beside
        .run("SET deadlock_timeout = '1min'; BEGIN; SELECT 1 FROM graphs FOR UPDATE")
        .await;
    let rotating = {
        let (db, request) = (Arc::clone(&scene.db), rotate(&key, 2, &devices));
        tokio::spawn(async move { db.rotate(request).await })
    };
    let watching = scene.beside().await;
    eventually("the rotation waits for the graph", || async {
        let waiting = watching
            .text(
                "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            .await;
        (waiting == "1").then_some(())
    })
    .await;
    beside
        .run("SELECT 1 FROM devices FOR UPDATE; ROLLBACK")
        .await;
    assert_eq!(rotating.await.unwrap().unwrap().epoch, 2);
    assert!(scene.db.usage().retries >= 1, "{:?}", scene.db.usage());
}

/// What a dropped operation had begun is undone, and no connection comes back in the middle of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_leaves_no_transaction_open() {
    let scene = Scene::with(|options| {
        options.connections = 1;
        options.idle_in_transaction_timeout = Duration::from_secs(300);
    })
    .await;
    let devices = scene.devices("sam", 1).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;
    let (beside, watching) = (scene.beside().await, scene.beside().await);
    let count = async |what: &str| {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'argala' AND {what}"
        );
        watching.text(&sql).await
    };
    beside.run("BEGIN; SELECT 1 FROM graphs FOR UPDATE").await;
    let rotating = {
        let (db, request) = (Arc::clone(&scene.db), rotate(&key, 2, &devices));
        tokio::spawn(async move { db.rotate(request).await.map(drop) })
    };
    eventually("the rotation is in the middle of it", || async {
        (count("wait_event_type = 'Lock'").await == "1").then_some(())
    })
    .await;
    rotating.abort();
    drop(rotating.await);
    // Its connection was the only one there may be.
    scene.db.ping().await.unwrap();
    beside.run("ROLLBACK").await;
    eventually("nobody is in a transaction", || async {
        (count("state <> 'idle'").await == "0").then_some(())
    })
    .await;
    assert_eq!(scene.db.graph(&key).await.unwrap().unwrap().epoch, 1);
    scene.rotate(&key, 2, &devices).await;
}

/// What pushers are told from outside, and tell.
#[derive(Default)]
struct Pushers {
    stop: AtomicBool,
    /// How often one was told that the database is not there.
    refused: AtomicUsize,
}

/// Pushes until told to stop; what was acknowledged. Failures must be such as may pass.
async fn push_on(db: Arc<Postgres>, who: usize, pushers: Arc<Pushers>) -> Vec<(String, u64)> {
    let key = graph(&format!("g{}", who % 3));
    let device = argala_testkit::TestDevice::new("sam", "d0");
    let mut acknowledged = Vec::new();
    let mut at = 0;
    while !pushers.stop.load(Ordering::SeqCst) {
        let ids = [format!("{who}-{at}-a"), format!("{who}-{at}-b")];
        let records = ids.iter().map(|id| device.record(&key, id, 1, b"content"));
        match db.push(push(&key, &device, records.collect())).await {
            Ok(pushed) => {
                for result in pushed.answer.results {
                    match result {
                        argala_wire::records::PushResult::Accepted { id, seq } => {
                            acknowledged.push((id.to_string(), seq));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            Err(Fault::Store(error)) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error:?}");
                pushers.refused.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(other) => panic!("{other:?}"),
        }
        at += 1;
    }
    acknowledged
}

/// Puts a server under load, does something to it, three times, and holds that nothing which was
/// acknowledged is lost and that it goes on.
async fn under_load<F: Future<Output = ()>>(
    server: PrivatePostgres,
    harm: impl Fn(PrivatePostgres, Arc<Pushers>) -> F,
) {
    let mut options = options(server.url());
    options.connections = 4;
    options.wait = Duration::from_millis(500);
    migrate(&options).await.unwrap();
    let db = Arc::new(Postgres::open(&options).await.unwrap());
    let device = argala_testkit::TestDevice::new("sam", "d0");
    db.register(device.register(EPOCH)).await.unwrap();
    let keys: Vec<_> = (0..3).map(|at| graph(&format!("g{at}"))).collect();
    for key in &keys {
        let request = rotate(key, 1, std::slice::from_ref(&device));
        db.rotate(request).await.unwrap();
    }
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let told = Arc::new(Pushers::default());
        let pushers: Vec<_> = (0..9)
            .map(|who| tokio::spawn(push_on(Arc::clone(&db), round * 9 + who, Arc::clone(&told))))
            .collect();
        let head = async || {
            let graph = db.graph(&keys[0]).await;
            graph.ok().flatten().map_or(0, |graph| graph.head)
        };
        let before = head().await;
        eventually("they push", || async {
            (head().await > before + 60).then_some(())
        })
        .await;
        harm(server.clone(), Arc::clone(&told)).await;
        // It goes on by itself, with the same handle.
        let then = eventually("it answers again", || async {
            let graph = db.graph(&keys[0]).await;
            graph.ok().flatten().map(|graph| graph.head)
        })
        .await;
        eventually("they push again", || async {
            (head().await > then + 20).then_some(())
        })
        .await;
        told.stop.store(true, Ordering::SeqCst);
        for pusher in pushers {
            acknowledged.extend(pusher.await.unwrap());
        }
    }
    let beside = Session::open(&server.url()).await;
    let there = beside
        .column("SELECT record || ' ' || seq FROM records")
        .await;
    let there: std::collections::BTreeSet<_> = there.into_iter().flatten().collect();
    for (id, seq) in &acknowledged {
        assert!(
            there.contains(&format!("{id} {seq}")),
            "{id} was acknowledged"
        );
    }
    println!("{} acknowledged, {} there", acknowledged.len(), there.len());
    // What was not acknowledged is whole or absent, and no seq was left out.
    let halves = beside
        .text(
            "SELECT count(*) FROM (
                 SELECT 1 FROM records GROUP BY left(record, -2) HAVING count(*) <> 2
             ) halves",
        )
        .await;
    assert_eq!(halves, "0");
    let gaps = beside
        .text(
            "SELECT count(*) FROM graphs g
             WHERE g.head <> (SELECT count(*) FROM records r WHERE r.graph = g.id)
                OR g.head <> (SELECT max(seq) FROM records r WHERE r.graph = g.id)",
        )
        .await;
    assert_eq!(gaps, "0");
    for key in &keys {
        let recount = db.recount(key).await.unwrap().unwrap();
        assert_eq!(recount.stored, recount.counted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_to_kill_9() {
    under_load(PrivatePostgres::start().await, |server, _| async move {
        server.kill().await;
        server.start_again().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_an_interruption() {
    under_load(PrivatePostgres::start().await, |server, _| async move {
        server.restart().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_an_operator_ends_are_made_anew() {
    under_load(PrivatePostgres::start().await, |server, _| async move {
        let beside = Session::open(&server.url()).await;
        beside
            .run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            .await;
    })
    .await;
}

/// Writes to the log of changes until its disk is full: whoever writes next stops the server.
async fn fill_the_log(server: &PrivatePostgres) {
    let Ok(session) = Session::try_open(&server.url()).await else {
        return;
    };
    let some = "SELECT pg_logical_emit_message(false, 'filling', repeat('x', 100000))";
    while session.try_run(some).await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_the_log_is_an_interruption() {
    let mebibytes = AtomicU32::new(16);
    let server = PrivatePostgres::start_with_small_log_disk(mebibytes.load(Ordering::SeqCst)).await;
    // The usual reason: somebody wants all of it and does not fetch it. A server that begins anew
    // could make room by itself otherwise.
    let session = Session::open(&server.url()).await;
    session
        .run("SELECT pg_create_physical_replication_slot('kept', true)")
        .await;
    under_load(server, |server, pushers| {
        let larger = mebibytes.fetch_add(16, Ordering::SeqCst) + 16;
        async move {
            let before = pushers.refused.load(Ordering::SeqCst);
            fill_the_log(&server).await;
            eventually("everybody is told that it is not there", || async {
                (pushers.refused.load(Ordering::SeqCst) > before + 50).then_some(())
            })
            .await;
            server.grow_small_disk(larger).await;
            // Whether it still tries to begin anew, or has given up. Not in order: a server that is
            // told to stop while it recovers may wait for ever (seen with 15.18).
            server.kill().await;
            server.start_again().await;
        }
    })
    .await;
}
