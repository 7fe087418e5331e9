//! Many at once on one graph.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use argala_core::ports::{Store, store::Pulled};
use argala_testkit::TestDevice;
use argala_wire::{StorageKey, records::PushResult};

use crate::scene::{Scene, graph, pull, push};

const PUSHERS: usize = 32;
const PULLERS: usize = 8;
const PUSHES: usize = 40;

/// Follows the graph with one cursor until the pushers are done and the end is reached: every
/// seq that was seen for a record, in the order of seeing.
async fn follow(
    scene: Arc<Scene>,
    key: StorageKey,
    device: TestDevice,
    done: Arc<AtomicBool>,
    limit: usize,
) -> BTreeMap<String, Vec<u64>> {
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut request = pull(&key, &device, limit);
    let mut last = 0;
    let mut heads = 0;
    loop {
        let was_done = done.load(Ordering::SeqCst);
        let Pulled::Page(page) = scene.db.pull(request.clone()).await.unwrap() else {
            panic!("nothing is known");
        };
        assert!(page.page.head >= heads, "heads only rise");
        heads = page.page.head;
        for record in &page.page.records {
            assert!(record.seq > last, "seqs rise, page after page");
            last = record.seq;
            seen.entry(record.id.to_string())
                .or_default()
                .push(record.seq);
        }
        let more = page.page.more;
        request.cursor = Some(page.page.cursor);
        if was_done && !more {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_who_pulls_to_the_end_misses_a_record() {
    let scene = Arc::new(Scene::new());
    let key = graph("acme");
    let devices = scene.devices("sam", PUSHERS).await;
    scene.rotate(&key, 1, &devices).await;
    scene.commits.take();

    let done = Arc::new(AtomicBool::new(false));
    let pullers: Vec<_> = (0..PULLERS)
        .map(|at| {
            let (scene, key, done) = (Arc::clone(&scene), key.clone(), Arc::clone(&done));
            // Pages small and large.
            tokio::spawn(follow(
                scene,
                key,
                devices[at].clone(),
                done,
                [3, 50, 1_000][at % 3],
            ))
        })
        .collect();
    let pushers: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(who, device)| {
            let (scene, key, device) = (Arc::clone(&scene), key.clone(), device.clone());
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for at in 0..PUSHES {
                    // One record of its own, and one that all of them write.
                    let content = format!("{who} {at}");
                    let records = [format!("own {who} {at}"), format!("shared {}", at % 5)]
                        .map(|id| device.record(&key, &id, 1, content.as_bytes()));
                    let pushed = scene.db.push(push(&key, &device, records.to_vec())).await;
                    for result in pushed.unwrap().answer.results {
                        match result {
                            PushResult::Accepted { id, seq } => {
                                acknowledged.push((id.to_string(), seq));
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                }
                acknowledged
            })
        })
        .collect();

    let mut acknowledged = Vec::new();
    for pusher in pushers {
        acknowledged.extend(pusher.await.unwrap());
    }
    done.store(true, Ordering::SeqCst);

    // Every seq was given once, and none was left out.
    let seqs: BTreeSet<_> = acknowledged.iter().map(|(_, seq)| *seq).collect();
    let total = (PUSHERS * PUSHES * 2) as u64;
    assert_eq!(seqs, (1..=total).collect());
    let mut newest = BTreeMap::new();
    for (id, seq) in acknowledged {
        let newest = newest.entry(id).or_insert(seq);
        *newest = seq.max(*newest);
    }
    for puller in pullers {
        let seen = puller.await.unwrap();
        let last: BTreeMap<_, _> = seen
            .into_iter()
            .map(|(id, seqs)| (id, *seqs.last().unwrap()))
            .collect();
        assert_eq!(last, newest, "each follower ends with the newest of each");
    }
    scene.counters_are_exact(&key).await;

    let commits = scene.commits.take();
    let pushes: usize = commits
        .iter()
        .map(|commit| {
            commit
                .iter()
                .filter(|operation| **operation == "push")
                .count()
        })
        .sum();
    println!("{pushes} pushes in {} commits", commits.len());
    assert_eq!(pushes, PUSHERS * PUSHES);
    assert!(
        commits.len() * 2 < pushes,
        "pushes share commits under load"
    );
}
