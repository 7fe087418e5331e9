//! Pokes between replicas when things go wrong.

use std::time::Duration;

use argala_core::{
    memory::MemoryPokes,
    ports::{Poke, PokeSignal, PokeSubscription},
};
use argala_testkit::{
    PATIENCE, device_ref, eventually, group, member,
    servers::{Passage, PrivateRedis},
};
use argala_wire::StorageKey;
use futures_util::{StreamExt as _, future::join_all};

use crate::bench::{Pokes, arrives, options, patient, up};

fn poke(name: &str, members: &[&str]) -> Poke {
    Poke {
        storage_key: StorageKey::group(&group(name)),
        members: members.iter().map(|name| member(name)).collect(),
        except: None,
    }
}

fn changed(name: &str) -> PokeSignal {
    PokeSignal::Changed(StorageKey::group(&group(name)))
}

async fn next(signals: &mut PokeSubscription) -> PokeSignal {
    let next = tokio::time::timeout(PATIENCE, signals.next()).await;
    next.expect("a signal comes").expect("the source is open")
}

/// Reads until a signal comes, whatever comes before.
async fn until(signals: &mut PokeSubscription, wanted: &PokeSignal) {
    while next(signals).await != *wanted {}
}

/// The client library keeps a bounded number of messages and drops the oldest. Here: ten thousand
/// pokes of as many graphs at a stream that nobody reads. It holds no more than a queue, and its
/// reader is told to resync; so is the one who reads, if anything was lost on the way to them.
#[tokio::test(flavor = "multi_thread")]
async fn fred_287_and_367_ten_thousand_pokes_at_a_slow_stream_become_a_resync() {
    let server = PrivateRedis::start().await;
    let options = patient(server.url());
    let (one, other) = (Pokes::start(&options), Pokes::start(&options));
    up(&one.redis).await;
    up(&other.redis).await;
    let mut slow = one.listen("sam", "laptop").await;
    let mut witness = one.listen("alex", "phone").await;
    for chunk in (0..10_000).collect::<Vec<_>>().chunks(500) {
        let pokes: Vec<_> = chunk
            .iter()
            .map(|at| poke(&format!("graph {at}"), &["sam"]))
            .collect();
        join_all(pokes.iter().map(|poke| other.sink.poke(poke))).await;
    }
    // All of it has arrived, or has been given up, when this does.
    arrives(&other, &poke("last", &["alex"]), &mut witness).await;
    let mut held = 0;
    let mut resyncs = 0;
    while let Ok(Some(signal)) = tokio::time::timeout(Duration::from_millis(300), slow.next()).await
    {
        held += 1;
        resyncs += usize::from(signal == PokeSignal::Resync);
    }
    assert!(resyncs >= 1, "nobody said that anything was lost");
    assert!(held <= MemoryPokes::QUEUE + 1, "{held} were held");
}

/// A subscription that was interrupted returns by itself, and its streams are told to resync.
async fn comes_back(pause: bool, for_new_only: bool) {
    let server = PrivateRedis::start().await;
    let passage = Passage::to(server.ports()[0]).await;
    let options = options(&format!("redis://127.0.0.1:{}", passage.port()));
    let (one, other) = (Pokes::start(&options), Pokes::start(&options));
    up(&one.redis).await;
    up(&other.redis).await;
    let mut sam = one.listen("sam", "laptop").await;
    other.sink.poke(&poke("acme", &["sam"])).await.unwrap();
    assert_eq!(next(&mut sam).await, changed("acme"));

    if pause {
        server.pause(0);
    } else {
        passage.close();
    }
    eventually("it is noticed", || async {
        (!one.redis.status().up && !other.redis.status().up).then_some(())
    })
    .await;
    // Neither end waits: a push is not held up, and a stream opens.
    let begun = tokio::time::Instant::now();
    other
        .sink
        .poke(&poke("lost", &["sam", "alex"]))
        .await
        .unwrap();
    let mut alex = one.listen("alex", "phone").await;
    assert!(begun.elapsed() < Duration::from_millis(500));
    // What this replica knows by itself it tells at once.
    one.sink.poke(&poke("here", &["sam"])).await.unwrap();
    assert_eq!(next(&mut sam).await, changed("here"));

    if pause {
        server.resume(0);
    } else if for_new_only {
        passage.open_for_new();
    } else {
        passage.open();
    }
    until(&mut sam, &PokeSignal::Resync).await;
    until(&mut alex, &PokeSignal::Resync).await;
    up(&other.redis).await;
    arrives(&other, &poke("after", &["sam"]), &mut sam).await;
    arrives(&other, &poke("after", &["alex"]), &mut alex).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hung_and_goes_on_tells_streams_to_resync() {
    comes_back(true, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fred_307_and_315_a_network_that_swallowed_everything_tells_streams_to_resync() {
    comes_back(false, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_dead_for_ever_is_replaced() {
    comes_back(false, true).await;
}

/// Two replicas on one server, of which only the second reaches it by a passage that can be closed.
async fn near_and_far() -> (PrivateRedis, Passage, Pokes, Pokes) {
    let server = PrivateRedis::start().await;
    let passage = Passage::to(server.ports()[0]).await;
    let near = options(server.url());
    let far = argala_redis::Options {
        url: format!("redis://127.0.0.1:{}", passage.port()),
        ..near.clone()
    };
    let (near, far) = (Pokes::start(&near), Pokes::start(&far));
    up(&near.redis).await;
    up(&far.redis).await;
    (server, passage, near, far)
}

/// Only the one who listens was cut off, and who published meanwhile noticed nothing: nobody but
/// the one who comes back can know that something may have been missed.
#[tokio::test(flavor = "multi_thread")]
async fn who_could_not_listen_meanwhile_is_told_to_resync() {
    let (_server, passage, other, one) = near_and_far().await;
    let mut sam = one.listen("sam", "laptop").await;
    arrives(&other, &poke("before", &["sam"]), &mut sam).await;
    let resyncs = one.redis.status().resyncs;
    passage.close();
    eventually("it is noticed", || async {
        (!one.redis.status().up).then_some(())
    })
    .await;
    other.sink.poke(&poke("missed", &["sam"])).await.unwrap();
    assert!(other.redis.status().up, "the publisher noticed nothing");
    passage.open_for_new();
    until(&mut sam, &PokeSignal::Resync).await;
    up(&one.redis).await;
    assert!(one.redis.status().resyncs > resyncs);
    arrives(&other, &poke("after", &["sam"]), &mut sam).await;
}

/// Only the publisher was cut off: nobody else noticed anything. It tells those whose pokes were
/// lost to resync when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_not_told_is_told_to_resync_later() {
    let (_server, passage, one, other) = near_and_far().await;
    let mut sam = one.listen("sam", "laptop").await;
    let mut alex = one.listen("alex", "phone").await;
    passage.close();
    other.sink.poke(&poke("lost", &["sam"])).await.unwrap();
    passage.open_for_new();
    until(&mut sam, &PokeSignal::Resync).await;
    up(&other.redis).await;
    other.sink.poke(&poke("after", &["alex"])).await.unwrap();
    assert_eq!(
        next(&mut alex).await,
        changed("after"),
        "alex missed nothing"
    );
    assert_eq!(one.redis.status().resyncs, 1, "the one at the beginning");
}

/// More members than anybody remembers: all streams everywhere are told.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_to_remember_are_everybody() {
    let (_server, passage, one, other) = near_and_far().await;
    let mut alex = one.listen("alex", "phone").await;
    passage.close();
    let many: Vec<_> = (0..5_000).map(|at| format!("m{at}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    other.sink.poke(&poke("lost", &many)).await.unwrap();
    passage.open();
    until(&mut alex, &PokeSignal::Resync).await;
}

/// A replica listens for the members that are connected to it, and for nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_listened_for_who_is_not_there() {
    let server = PrivateRedis::start().await;
    let options = patient(server.url());
    let one = Pokes::start(&options);
    up(&one.redis).await;
    let channels = || async {
        let told = server.ask(0, "PUBSUB CHANNELS *:poke:*").await;
        told.lines()
            .filter(|line| line.starts_with("test-"))
            .count()
    };
    let streams: Vec<_> = join_all((0..300).map(|at| {
        let (source, name) = (one.source.clone(), format!("m{}", at % 100));
        async move {
            source
                .subscribe(&device_ref(&name, &format!("d{at}")))
                .await
        }
    }))
    .await;
    assert_eq!(channels().await, 100);
    drop(streams);
    eventually("nobody is listened for", || async {
        (channels().await == 0).then_some(())
    })
    .await;
}

/// What a replica cannot read it takes as a reason to resync: another version may have said it.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_a_resync() {
    let server = PrivateRedis::start().await;
    let options = patient(server.url());
    let one = Pokes::start(&options);
    up(&one.redis).await;
    let mut sam = one.listen("sam", "laptop").await;
    for text in ["what", "{}"] {
        let told = server
            .ask(0, &format!("PUBLISH {}:poke:sam {text}", options.prefix))
            .await;
        assert_eq!(told, ":1", "{text}");
        assert_eq!(next(&mut sam).await, PokeSignal::Resync, "{text}");
    }
}
