//! Reading pages of records.

use std::collections::BTreeSet;

use argala_core::{
    Rejection,
    ports::{
        SweepStore,
        store::{Pull, PullPage, Pulled},
    },
};
use argala_wire::{StorageKey, limits::Pages, records::CursorReason};

use super::{Scene, acme, refused};
use crate::{TestDevice, conformance::Fresh, group, member};

fn seqs(pages: &[PullPage]) -> Vec<u64> {
    let records = pages.iter().flat_map(|page| &page.page.records);
    records.map(|record| record.seq).collect()
}

fn after(request: &Pull, page: &PullPage) -> Pull {
    Pull {
        cursor: Some(page.page.cursor.clone()),
        ..request.clone()
    }
}

async fn ready(fresh: Fresh<dyn SweepStore>) -> (Scene, TestDevice) {
    let scene = Scene::new(fresh);
    let device = scene.device("sam", "a").await;
    scene.rotate(&acme(), 1, &[&device]).await;
    (scene, device)
}

/// Each version that is the newest, ascending, whatever the page; then only what is new.
pub async fn a_walk_finds_everything_in_order(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let ids: Vec<String> = (0..40).map(|number| format!("r{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    scene.fill(&acme(), &a, 1, &ids).await;
    let newer: Vec<_> = ids
        .iter()
        .step_by(3)
        .map(|id| a.record(&acme(), id, 1, b"newer"))
        .collect();
    let moved = newer.len() as u64;
    scene.push(&acme(), &a, newer).await;
    let mut wanted: Vec<u64> = (1..=40).filter(|seq| (seq - 1) % 3 != 0).collect();
    wanted.extend(41..=40 + moved);
    for limit in [1, 7, wanted.len() - 1, wanted.len(), 1_000] {
        let request = scene.pull_request(&acme(), &a, limit);
        let pages = scene.walk(&request).await;
        assert_eq!(seqs(&pages), wanted, "pages of {limit}");
        for page in &pages {
            assert!(page.page.records.len() <= limit);
            assert_eq!(
                (page.page.head, page.page.epoch, page.page.filtered),
                (40 + moved, 1, 0)
            );
        }
        assert_eq!(
            pages.len(),
            wanted.len().div_ceil(limit),
            "no page is empty"
        );
    }
    let request = scene.pull_request(&acme(), &a, 1_000);
    let end = scene.page(request.clone()).await;
    let still = scene.page(after(&request, &end)).await;
    assert!(still.page.records.is_empty() && !still.page.more);
    scene.fill(&acme(), &a, 1, &["new"]).await;
    for end in [&end, &still] {
        let new = scene.page(after(&request, end)).await;
        assert_eq!(seqs(&[new]), [41 + moved]);
    }
}

/// And counted; it does not count toward the limit.
pub async fn what_a_device_does_not_hold_is_held_back(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    scene.fill(&acme(), &a, 1, &["one", "two"]).await;
    let late = scene.device("sam", "late").await;
    scene.rotate(&acme(), 2, &[&a, &late]).await;
    scene.fill(&acme(), &a, 2, &["three"]).await;
    scene.rotate(&acme(), 3, &[&a, &late]).await;
    scene.fill(&acme(), &a, 3, &["four"]).await;
    assert_eq!(scene.records(&acme(), &a).await.len(), 4);
    let stranger = TestDevice::new("kim", "x");
    for (device, limit, wanted, filtered) in [
        (&late, 9, &[3, 4][..], &[2][..]),
        (&late, 1, &[3, 4], &[2, 0]),
        (&stranger, 1, &[], &[4]),
    ] {
        let pages = scene
            .walk(&scene.pull_request(&acme(), device, limit))
            .await;
        assert_eq!(seqs(&pages), wanted, "pages of {limit}");
        let told: Vec<u64> = pages.iter().map(|page| page.page.filtered).collect();
        assert_eq!(told, filtered, "pages of {limit}");
    }
}

/// Whichever comes first; one record is always told.
pub async fn a_page_ends_at_its_bytes_and_at_what_it_holds_back(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    let sizes = [4, 4, 1, 20, 5, 5];
    let records = sizes.iter().enumerate();
    let records = records.map(|(n, size)| a.record(&acme(), &format!("r{n}"), 1, &vec![1; *size]));
    scene.push(&acme(), &a, records.collect()).await;
    let pages = Pages {
        max_pull_bytes: 10,
        max_filtered: 4,
        ..Pages::default()
    };
    let request = Pull {
        pages,
        ..scene.pull_request(&acme(), &a, 99)
    };
    let told: Vec<usize> = scene
        .walk(&request)
        .await
        .iter()
        .map(|page| page.page.records.len())
        .collect();
    assert_eq!(told, [3, 1, 2]);
    let stranger = Pull {
        device: TestDevice::new("kim", "x").to_ref(),
        ..request
    };
    let told: Vec<u64> = scene
        .walk(&stranger)
        .await
        .iter()
        .map(|page| page.page.filtered)
        .collect();
    assert_eq!(told, [4, 2]);
}

/// From its first seq to the next one's, with cursors of its own.
pub async fn one_epoch_is_walked_alone(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    scene.fill(&acme(), &a, 1, &["one", "two", "three"]).await;
    scene.rotate(&acme(), 2, &[&a]).await;
    scene.rotate(&acme(), 3, &[&a]).await;
    scene.fill(&acme(), &a, 3, &["four", "two", "five"]).await;
    for limit in [1, 2, 9] {
        for (epoch, wanted) in [(1, &[1, 3][..]), (2, &[]), (3, &[4, 5, 6]), (4, &[])] {
            let request = Pull {
                epoch: Some(epoch),
                ..scene.pull_request(&acme(), &a, limit)
            };
            let pages = scene.walk(&request).await;
            assert_eq!(seqs(&pages), wanted, "epoch {epoch}, pages of {limit}");
            let elsewhere = Pull {
                epoch: None,
                ..after(&request, &pages[0])
            };
            let foreign = Rejection::CursorInvalid {
                reason: CursorReason::Foreign,
            };
            assert_eq!(refused(scene.store().pull(elsewhere).await), foreign);
        }
    }
    let early = Pull {
        epoch: Some(4),
        ..scene.pull_request(&acme(), &a, 9)
    };
    let page = scene.page(early.clone()).await;
    scene.rotate(&acme(), 4, &[&a]).await;
    scene.fill(&acme(), &a, 4, &["six"]).await;
    assert_eq!(seqs(&[scene.page(after(&early, &page)).await]), [7]);
}

/// By a tag that changes with head, epoch, flag, and what the device holds.
pub async fn who_has_the_page_is_told_so(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    scene.fill(&acme(), &a, 1, &["one"]).await;
    let late = scene.device("sam", "late").await;
    let request = scene.pull_request(&acme(), &late, 9);
    let mut tags = BTreeSet::new();
    let mut check = async |what: &str| {
        let tag = scene.page(request.clone()).await.tag;
        let known = Pull {
            known: vec!["other".to_owned(), tag.clone()],
            ..request.clone()
        };
        let told = scene.store().pull(known).await.expect("answered");
        assert_eq!(told, Pulled::Unchanged { tag: tag.clone() }, "{what}");
        let stale = Pull {
            known: tags.iter().cloned().collect(),
            ..request.clone()
        };
        scene.page(stale).await;
        assert!(tags.insert(tag), "{what} changes the tag");
    };
    check("the beginning").await;
    scene.fill(&acme(), &a, 1, &["two"]).await;
    check("a push").await;
    scene
        .grant(&acme(), &a, &["sam"], vec![late.grant_wrap(1, "w")])
        .await;
    check("a grant").await;
    scene
        .store()
        .flag_directory(&acme(), 1, true)
        .await
        .expect("flagged");
    check("the directory's flag").await;
    scene.rotate(&acme(), 2, &[&a, &late]).await;
    check("a rotation").await;
    scene.revoke(&a, &late).await;
    check("a revocation").await;
}

/// It is no error to ask early.
pub async fn an_unknown_graph_is_empty_and_its_cursor_stays_good(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    let request = scene.pull_request(&acme(), &a, 9);
    let page = scene.page(request.clone()).await;
    assert_eq!(
        (page.page.head, page.page.epoch, page.page.more),
        (0, 0, false)
    );
    assert!(page.page.records.is_empty() && !page.page.rotation_owed);
    let again = scene.page(after(&request, &page)).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    scene.fill(&acme(), &a, 1, &["one", "two"]).await;
    for page in [&page, &again] {
        assert_eq!(seqs(&[scene.page(after(&request, page)).await]), [1, 2]);
    }
}

/// By what is wrong with them.
pub async fn bad_cursors_are_told_apart(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    scene.fill(&acme(), &a, 1, &["one", "two"]).await;
    let other = StorageKey::own(&member("sam"));
    scene.rotate(&other, 1, &[&a]).await;
    let request = scene.pull_request(&acme(), &a, 1);
    let cursor = scene.page(request.clone()).await.page.cursor;
    let reason = async |key: &StorageKey, cursor: &str| {
        let request = Pull {
            cursor: Some(cursor.to_owned()),
            ..scene.pull_request(key, &a, 1)
        };
        match refused(scene.store().pull(request).await) {
            Rejection::CursorInvalid { reason } => reason,
            other => panic!("{other:?}"),
        }
    };
    for bad in ["", "x", &cursor[1..], &format!("{cursor}A")] {
        assert_eq!(reason(&acme(), bad).await, CursorReason::Malformed, "{bad}");
    }
    for key in [&other, &StorageKey::group(&group("none"))] {
        assert_eq!(reason(key, &cursor).await, CursorReason::Foreign);
    }
}

/// What was held back is not lost: it comes with a walk of its own, or of the epoch alone.
pub async fn a_granted_epoch_is_found_by_a_new_walk(fresh: Fresh<dyn SweepStore>) {
    let (scene, a) = ready(fresh).await;
    scene.fill(&acme(), &a, 1, &["one", "two"]).await;
    let late = scene.device("sam", "late").await;
    scene.rotate(&acme(), 2, &[&a, &late]).await;
    scene.fill(&acme(), &a, 2, &["three"]).await;
    let request = scene.pull_request(&acme(), &late, 9);
    let page = scene.page(request.clone()).await;
    assert_eq!(
        (seqs(std::slice::from_ref(&page)), page.page.filtered),
        (vec![3], 2)
    );
    scene
        .grant(&acme(), &a, &["sam"], vec![late.grant_wrap(1, "w")])
        .await;
    let rest = scene.page(after(&request, &page)).await;
    assert!(rest.page.records.is_empty() && rest.page.filtered == 0);
    let alone = Pull {
        epoch: Some(1),
        ..request.clone()
    };
    assert_eq!(seqs(&[scene.page(alone).await]), [1, 2]);
    assert_eq!(seqs(&[scene.page(request).await]), [1, 2, 3]);
}
