//! Pulling while others push.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use argala_core::ports::{
    SweepStore,
    store::{Pull, Pulled},
};
use argala_wire::records::{PullResponse, PushResult};

use super::{Start, all};
use crate::{
    TestDevice,
    conformance::{
        Fresh,
        store::{Scene, acme},
    },
};

const PUSHERS: usize = 32;
const PULLERS: usize = 8;
const ROUNDS: usize = 10;

async fn page(store: &dyn SweepStore, request: Pull) -> PullResponse {
    match store.pull(request).await.expect("pulled") {
        Pulled::Page(page) => page.page,
        Pulled::Unchanged { .. } => panic!("nothing is known"),
    }
}

/// What a puller has seen.
#[derive(Default)]
struct Seen {
    /// The newest seq of each record.
    newest: BTreeMap<String, u64>,
    seqs: Vec<u64>,
    head: u64,
    cursor: Option<String>,
}

impl Seen {
    fn take(&mut self, page: PullResponse) -> bool {
        assert!(page.head >= self.head, "the head never goes back");
        self.head = page.head;
        for record in page.records {
            assert!(record.seq <= page.head, "nothing lies past the head");
            assert!(self.seqs.last() < Some(&record.seq), "seqs rise");
            self.seqs.push(record.seq);
            self.newest
                .insert(record.id.as_str().to_owned(), record.seq);
        }
        assert_eq!(page.filtered, 0);
        self.cursor = Some(page.cursor);
        page.more
    }
}

/// 32 push, 8 pull with small pages: each puller ends with every record, in order; what each
/// pusher was told is what is stored; and the counters are the sums.
pub async fn no_puller_misses_what_pushers_write(fresh: Fresh<dyn SweepStore>) {
    let scene = Arc::new(Scene::new(fresh));
    let mut devices = Vec::new();
    for number in 0..PUSHERS {
        let member = format!("m{}", number / 8);
        devices.push(scene.device(&member, &format!("d{number}")).await);
    }
    scene
        .rotate(&acme(), 1, &devices.iter().collect::<Vec<_>>())
        .await;

    let start = Start::of(PUSHERS + PULLERS);
    let pushing = Arc::new(AtomicUsize::new(PUSHERS));
    let pushers: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(number, device)| {
            let (scene, device, pushing) =
                (Arc::clone(&scene), device.clone(), Arc::clone(&pushing));
            start.spawn(async move {
                let told = push_rounds(&scene, number, &device).await;
                pushing.fetch_sub(1, Ordering::SeqCst);
                told
            })
        })
        .collect();
    let pullers: Vec<_> = (0..PULLERS)
        .map(|number| {
            let (scene, device, pushing) = (
                Arc::clone(&scene),
                devices[number].clone(),
                Arc::clone(&pushing),
            );
            start.spawn(async move {
                let store = scene.handle();
                let first = scene.pull_request(&acme(), &device, 1 + number * 3);
                let mut seen = Seen::default();
                loop {
                    // Asked before the page: what is pushed until then must be in the walk.
                    let done = pushing.load(Ordering::SeqCst) == 0;
                    let request = Pull {
                        cursor: seen.cursor.clone(),
                        ..first.clone()
                    };
                    let more = seen.take(page(store.as_ref(), request).await);
                    if done && !more {
                        return seen;
                    }
                    // A store that answers at once would keep the pushers off the threads.
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();

    let mut acknowledged: BTreeMap<u64, String> = BTreeMap::new();
    for told in all(pushers).await {
        assert!(
            told.is_sorted_by_key(|(_, seq)| *seq),
            "the seqs of one pusher rise"
        );
        for (id, seq) in told {
            assert!(
                acknowledged.insert(seq, id).is_none(),
                "a seq is given once"
            );
        }
    }
    let head = acknowledged.len() as u64;
    assert!(acknowledged.keys().copied().eq(1..=head), "there is no gap");
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    for (seq, id) in &acknowledged {
        newest.insert(id.clone(), *seq);
    }
    let stored = scene.records(&acme(), &devices[0]).await;
    let stored: BTreeMap<String, u64> = stored
        .iter()
        .map(|record| (record.id.as_str().to_owned(), record.seq))
        .collect();
    assert_eq!(stored, newest, "what was acknowledged is stored");
    for seen in all(pullers).await {
        assert_eq!(seen.newest, newest, "a puller has every record");
        assert_eq!(seen.head, head);
        for seq in &seen.seqs {
            assert!(
                acknowledged.contains_key(seq),
                "only what was acknowledged is seen"
            );
        }
    }
    let counters = scene.counters(&acme()).await;
    assert_eq!(counters.records, newest.len() as u64);
}

/// Pushes some records of its own and some that all pushers share, round after round.
async fn push_rounds(scene: &Scene, number: usize, device: &TestDevice) -> Vec<(String, u64)> {
    let store = scene.handle();
    let mut told = Vec::new();
    for round in 0..ROUNDS {
        let mut ids = vec![
            format!("own {number} {round}"),
            format!("own {number} again"),
        ];
        if (number + round).is_multiple_of(3) {
            ids.push(format!("shared {}", round % 4));
        }
        let content = format!("{number} {round}");
        let record = |id: &String| device.record(&acme(), id, 1, content.as_bytes());
        let request = scene.push_request(&acme(), device, ids.iter().map(record).collect());
        let answer = store.push(request).await.expect("pushed").answer;
        for result in answer.results {
            match result {
                PushResult::Accepted { id, seq } => told.push((id.as_str().to_owned(), seq)),
                other => panic!("{other:?}"),
            }
        }
        assert!(told.last().is_none_or(|(_, seq)| *seq <= answer.head));
    }
    told
}

/// Each push moves two records at once: no page shows one of them without the other.
pub async fn a_page_is_of_one_moment(fresh: Fresh<dyn SweepStore>) {
    let scene = Arc::new(Scene::new(fresh));
    let device = scene.device("sam", "a").await;
    scene.rotate(&acme(), 1, &[&device]).await;
    let pairs = |round: usize| {
        let content = format!("{round}");
        ["left", "right"]
            .map(|id| device.record(&acme(), id, 1, content.as_bytes()))
            .to_vec()
    };
    scene.push(&acme(), &device, pairs(0)).await;

    let start = Start::of(5);
    let done = Arc::new(AtomicUsize::new(0));
    let pusher = {
        let (scene, device, done) = (Arc::clone(&scene), device.clone(), Arc::clone(&done));
        let rounds: Vec<_> = (1..120).map(pairs).collect();
        start.spawn(async move {
            for records in rounds {
                scene.push(&acme(), &device, records).await;
            }
            done.store(1, Ordering::SeqCst);
        })
    };
    let pullers: Vec<_> = (0..4)
        .map(|_| {
            let (scene, device, done) = (Arc::clone(&scene), device.clone(), Arc::clone(&done));
            start.spawn(async move {
                let store = scene.handle();
                let request = scene.pull_request(&acme(), &device, 1_000);
                while done.load(Ordering::SeqCst) == 0 {
                    let page = page(store.as_ref(), request.clone()).await;
                    let contents: BTreeSet<_> = page
                        .records
                        .iter()
                        .map(|record| record.ciphertext.as_slice().to_vec())
                        .collect();
                    assert_eq!((page.records.len(), contents.len()), (2, 1));
                    assert_eq!(page.records[1].seq, page.head);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    all(pullers).await;
    pusher.await.expect("no panic");
}
