//! The servers that tests are given.

use argala_testkit::servers::{PrivatePostgres, Session, postgres, postgres_from};

#[tokio::test]
async fn a_database_is_empty_its_own_and_gone_afterwards() {
    let (one, other) = (postgres().await, postgres().await);
    let client = Session::open(&one.url()).await;
    client.run("create table t (n int)").await;
    let count = "select count(*) from information_schema.tables where table_schema = 'public'";
    assert_eq!(Session::open(&other.url()).await.text(count).await, "0");
    // Even while somebody is connected.
    let name = one.name().to_owned();
    drop(one);
    let left = format!("select count(*) from pg_database where datname = '{name}'");
    assert_eq!(Session::open(&other.url()).await.text(&left).await, "0");
}

#[tokio::test]
async fn a_template_is_filled_once_and_copied() {
    let fill = async |url: String| {
        let client = Session::open(&url).await;
        client
            .run("create table t (n int); insert into t values (7)")
            .await;
    };
    let first = postgres_from("filled", fill).await;
    let second = postgres_from("filled", async |_| panic!("filled twice")).await;
    let changed = Session::open(&first.url()).await;
    changed.run("update t set n = 8").await;
    let copy = Session::open(&second.url()).await;
    assert_eq!(copy.text("select n from t").await, "7");
}

#[tokio::test]
async fn the_bouncer_gives_each_transaction_another_session() {
    let database = postgres().await;
    let client = Session::open(&database.bouncer_url()).await;
    assert_eq!(
        client.text("select current_database()").await,
        database.name()
    );
    let holder = Session::open(&database.bouncer_url()).await;
    let before = client.text("select pg_backend_pid()").await;
    // Takes the session that the first one gave back.
    let taken = holder.text("begin; select pg_backend_pid()").await;
    let after = client.text("select pg_backend_pid()").await;
    assert_eq!(taken, before);
    assert_ne!(after, before);
}

#[tokio::test]
async fn what_was_committed_survives_a_kill() {
    let server = PrivatePostgres::start().await;
    let client = Session::open(&server.url()).await;
    assert_eq!(client.text("show fsync").await, "on");
    client
        .run("create table t (n int); insert into t values (7)")
        .await;
    server.kill().await;
    assert!(client.try_run("select 1").await.is_err());
    server.start_again().await;
    let client = Session::open(&server.url()).await;
    assert_eq!(client.text("select n from t").await, "7");
    server.configure("max_connections", "20");
    server.restart().await;
    let client = Session::open(&server.url()).await;
    assert_eq!(client.text("show max_connections").await, "20");
}

#[tokio::test]
async fn a_small_disk_can_be_filled() {
    let server = PrivatePostgres::start_with_small_disk(4).await;
    let client = Session::open(&server.url()).await;
    let folder = server.small_disk();
    client
        .run(&format!(
            "create tablespace small location '{}'",
            folder.display()
        ))
        .await;
    client
        .run("create table t (filling text) tablespace small")
        .await;
    let filled = client
        .try_run("insert into t select repeat('x', 1000) from generate_series(1, 10000)")
        .await
        .unwrap_err();
    assert_eq!(filled.code().unwrap().code(), "53100", "{filled:?}");
    client.run("insert into t values ('a little')").await;
}

#[tokio::test]
async fn a_disk_under_the_log_outlives_the_server_and_grows() {
    let server = PrivatePostgres::start_with_small_log_disk(12).await;
    let client = Session::open(&server.url()).await;
    client
        .run("create table t (n int); insert into t values (7)")
        .await;
    let some = "select pg_logical_emit_message(false, 'filling', repeat('x', 100000))";
    while client.try_run(some).await.is_ok() {}
    server.kill().await;
    server.grow_small_disk(24).await;
    server.start_again().await;
    let client = Session::open(&server.url()).await;
    assert_eq!(client.text("select n from t").await, "7");
    for _ in 0..20 {
        client.run(some).await;
    }
}
