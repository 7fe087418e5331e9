//! Reading wraps.

use argala_core::ports::{
    SweepStore,
    store::{WrapsPage, WrapsQuery},
};
use argala_wire::StorageKey;

use super::{Scene, acme};
use crate::{TestDevice, conformance::Fresh, member};

async fn page(scene: &Scene, by: &TestDevice, after: u64, limit: usize) -> WrapsPage {
    let query = WrapsQuery {
        key: acme(),
        device: by.to_ref(),
        after,
        limit,
    };
    scene.store().wraps(&query).await.expect("answered")
}

/// Not its member's other devices', not a namesake's, not another graph's.
pub async fn a_device_reads_its_own_wraps_alone(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b, namesake] = scene
        .devices([("sam", "a"), ("sam", "b"), ("alex", "a")])
        .await;
    let empty = page(&scene, &a, 0, 9).await;
    assert_eq!((empty.epoch, empty.wraps.len()), (0, 0));
    scene.rotate(&acme(), 1, &[&a, &b, &namesake]).await;
    scene
        .rotate(&StorageKey::own(&member("sam")), 1, &[&a, &b])
        .await;
    for device in [&a, &b, &namesake] {
        let read = page(&scene, device, 0, 9).await;
        assert_eq!(read.epoch, 1);
        assert_eq!(read.wraps.len(), 1);
        let text = super::wrap_text(1, &device.to_ref());
        assert_eq!(read.wraps[0].wrap.as_slice(), text.as_bytes());
    }
    let late = scene.device("sam", "late").await;
    let none = page(&scene, &late, 0, 9).await;
    assert_eq!(
        (none.epoch, none.wraps.len()),
        (1, 0),
        "the epoch is told to all"
    );
}

/// After an epoch, a few at a time, gaps and blanks left out.
pub async fn wraps_are_listed_page_by_page(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b] = scene.devices([("sam", "a"), ("alex", "x")]).await;
    for epoch in 1..=9 {
        // B is not of the fourth and the seventh.
        let both = [&a, &b];
        let holders = if epoch == 4 || epoch == 7 {
            &both[..1]
        } else {
            &both[..]
        };
        scene.rotate(&acme(), epoch, holders).await;
    }
    let wanted = [1, 2, 3, 5, 6, 8, 9];
    for limit in [1, 2, 3, 7, 1_000] {
        let mut all: Vec<u64> = Vec::new();
        loop {
            let after = all.last().copied().unwrap_or(0);
            let next = page(&scene, &b, after, limit).await;
            assert_eq!(next.epoch, 9);
            assert!(next.wraps.len() <= limit);
            if next.wraps.is_empty() {
                break;
            }
            all.extend(next.wraps.iter().map(|wrap| wrap.epoch));
        }
        assert_eq!(all, wanted, "pages of {limit}");
    }
    for (after, count) in [(3, 4), (4, 4), (8, 1), (9, 0), (10, 0)] {
        assert_eq!(
            page(&scene, &b, after, 99).await.wraps.len(),
            count,
            "after {after}"
        );
    }
    assert_eq!(page(&scene, &a, 0, 99).await.wraps.len(), 9);
    scene.revoke(&b, &b).await;
    assert!(page(&scene, &b, 0, 99).await.wraps.is_empty());
}
