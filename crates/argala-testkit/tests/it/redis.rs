//! The Redis servers that tests are given.

use std::time::Duration;

use argala_testkit::{
    eventually,
    servers::{Passage, PrivateRedis, redis},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

#[tokio::test]
async fn one_server_answers_and_forgets_everything_at_its_end() {
    let server = PrivateRedis::start().await;
    assert_eq!(server.ask(0, "SET k v").await, "+OK");
    server.kill(0).await;
    server.start_again(0).await;
    assert_eq!(server.ask(0, "GET k").await, "$-1");
    assert!(redis().await.url().starts_with("redis"));
}

#[tokio::test]
async fn a_paused_server_takes_connections_and_says_nothing() {
    let server = PrivateRedis::start().await;
    server.pause(0);
    let mut stream = TcpStream::connect(("127.0.0.1", server.ports()[0]))
        .await
        .unwrap();
    stream.write_all(b"PING\r\n").await.unwrap();
    let mut answer = [0; 7];
    let waited = tokio::time::timeout(
        Duration::from_millis(200),
        stream.read_exact(&mut answer[..]),
    );
    assert!(waited.await.is_err());
    server.resume(0);
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[tokio::test]
async fn a_cluster_of_three_divides_the_slots() {
    let cluster = PrivateRedis::start_cluster().await;
    for at in 0..3 {
        let info = cluster.ask(at, "CLUSTER INFO").await;
        assert!(info.contains("cluster_size:3"), "{info}");
    }
    assert!(cluster.ask(0, "GET foo").await.starts_with("-MOVED 12182"));
}

#[tokio::test]
async fn the_sentinels_choose_another_primary() {
    let servers = PrivateRedis::start_sentinels().await;
    let first = servers.primary().await;
    servers.kill(first).await;
    let next = eventually("another primary", || async {
        let next = servers.primary().await;
        (next != first).then_some(next)
    })
    .await;
    eventually("it takes writes", || async {
        (servers.ask(next, "SET k v").await == "+OK").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_passage_closes_without_a_word() {
    let server = PrivateRedis::start().await;
    let passage = Passage::to(server.ports()[0]).await;
    let ping = async |stream: &mut TcpStream| {
        stream.write_all(b"PING\r\n").await.unwrap();
        let mut answer = [0; 7];
        let read = stream.read_exact(&mut answer);
        let read = tokio::time::timeout(Duration::from_millis(200), read).await;
        read.is_ok_and(|read| read.is_ok())
    };
    let connect = || TcpStream::connect(("127.0.0.1", passage.port()));
    let mut old = connect().await.unwrap();
    assert!(ping(&mut old).await);
    passage.close();
    assert!(!ping(&mut old).await);
    passage.open();
    let mut late = [0; 7];
    old.read_exact(&mut late).await.unwrap();
    assert!(ping(&mut old).await);
    passage.close();
    let mut new = connect().await.unwrap();
    assert!(!ping(&mut new).await);
    passage.open_for_new();
    new.read_exact(&mut late).await.unwrap();
    assert!(ping(&mut new).await);
    assert!(!ping(&mut old).await);
}
