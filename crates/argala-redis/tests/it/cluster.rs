//! A cluster of three.

use argala_core::ports::{Poke, PokeSignal};
use argala_testkit::{group, member, servers::PrivateRedis};
use argala_wire::StorageKey;
use futures_util::StreamExt as _;

use crate::bench::{Pokes, arrives, options, up};

crate::suites::suites!(PrivateRedis::start_cluster);

/// A slot that goes to another node takes its subscriptions with it, without a word: whoever was
/// listened for there is told to resync, and told of what comes after.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_takes_nobodys_pokes_with_it() {
    let servers = PrivateRedis::start_cluster().await;
    let options = options(servers.url());
    let (one, other) = (Pokes::start(&options), Pokes::start(&options));
    up(&one.redis).await;
    up(&other.redis).await;
    let mut sam = one.listen("sam", "laptop").await;
    let poke = Poke {
        storage_key: StorageKey::group(&group("acme")),
        members: vec![member("sam")],
        except: None,
    };
    other.sink.poke(&poke).await.unwrap();
    let changed = PokeSignal::Changed(poke.storage_key.clone());
    assert_eq!(sam.next().await, Some(changed.clone()));

    let channel = format!("{}:poke:sam", options.prefix);
    let answer = servers.ask(0, &format!("CLUSTER KEYSLOT {channel}")).await;
    let slot: u16 = answer.trim_start_matches(':').parse().unwrap();
    let from = if slot <= 5_460 {
        0
    } else if slot <= 10_922 {
        1
    } else {
        2
    };
    let to = (from + 1) % 3;
    let id = servers.ask(to, "CLUSTER MYID").await;
    let id = id.lines().last().unwrap();
    for at in [to, from, (to + 1) % 3] {
        let told = servers
            .ask(at, &format!("CLUSTER SETSLOT {slot} NODE {id}"))
            .await;
        assert_eq!(told, "+OK");
    }
    assert_eq!(sam.next().await, Some(PokeSignal::Resync));
    arrives(&other, &poke, &mut sam).await;
}
