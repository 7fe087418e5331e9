//! The ends of what can be asked.

use argala_core::{
    Rejection,
    ports::{
        ObjectKey, SweepStore,
        store::{GraphDevicesQuery, GraphsQuery, Pull, ReserveBlob, WrapsQuery},
    },
};
use argala_wire::{
    GroupId, StorageKey, Timestamp,
    limits::Quotas,
    records::{PushReason, PushRecord, PushResult},
};

use super::{Scene, acme, at, refused};
use crate::{TestDevice, blob_id, conformance::Fresh, device_ref, group, member};

/// Its name begins object keys.
pub async fn the_store_is_reached_and_has_a_name(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    scene.store().ping().await.expect("reached");
    let instance = scene.store().instance().to_owned();
    let key = ObjectKey::new(&instance, [1; 16]);
    assert_eq!(ObjectKey::parse(key.as_str()), Some(key));
    assert_eq!(scene.store().instance(), instance);
}

/// No number of a request is too large to be answered: neither a fault nor a panic.
pub async fn the_largest_numbers_are_answered(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    let mut first = scene.rotate_request(&acme(), 1, &[&a]);
    // As large as random ones get.
    first.incarnation = u64::MAX >> 1;
    scene.store().rotate(first).await.expect("rotated");
    scene.fill(&acme(), &a, 1, &["there"]).await;

    for epoch in [u64::MAX, u64::MAX >> 1, (u64::MAX >> 1) + 1] {
        let rotate = scene.rotate_request(&acme(), epoch, &[&a]);
        let refusal = refused(scene.store().rotate(rotate).await);
        assert_eq!(refusal, Rejection::EpochConflict { epoch: 1 });
        let wraps = vec![a.grant_wrap(epoch, "w")];
        let granted = scene.grant(&acme(), &a, &["sam"], wraps).await;
        assert_eq!(granted.rejected.len(), 1);
        scene
            .store()
            .flag_directory(&acme(), epoch, true)
            .await
            .expect("answered");
        let query = WrapsQuery {
            key: acme(),
            device: a.to_ref(),
            after: epoch,
            limit: usize::MAX,
        };
        let page = scene.store().wraps(&query).await.expect("answered");
        assert_eq!((page.epoch, page.wraps.len()), (1, 0));
        let alone = Pull {
            epoch: Some(epoch),
            ..scene.pull_request(&acme(), &a, 1_000)
        };
        assert!(scene.page(alone).await.page.records.is_empty());

        let mut request = scene.push_request(&acme(), &a, Vec::new());
        request.if_head = Some(epoch);
        scene
            .store()
            .push(request.clone())
            .await
            .expect("nothing to take");
        let record = a.record(&acme(), "r", epoch, b"x");
        request.records = scene.push_request(&acme(), &a, vec![record]).records;
        let refusal = refused(scene.store().push(request.clone()).await);
        assert_eq!(refusal, Rejection::HeadMoved { head: 1 });
        request.if_head = None;
        let told = scene
            .store()
            .push(request)
            .await
            .expect("answered")
            .answer
            .results;
        let unknown = PushReason::UnknownEpoch { epoch: 1 };
        assert!(matches!(&told[..], [PushResult::Rejected { reason, .. }] if *reason == unknown));
        let expecting = PushRecord {
            expect: Some(epoch),
            ..a.record(&acme(), "there", 1, b"other")
        };
        let told = scene
            .push(&acme(), &a, vec![expecting])
            .await
            .answer
            .results;
        let conflict = PushReason::Conflict { seq: 1 };
        assert!(matches!(&told[..], [PushResult::Rejected { reason, .. }] if *reason == conflict));
    }
    let mut request = scene.push_request(&acme(), &a, vec![a.record(&acme(), "r", 1, b"x")]);
    request.quotas = Quotas {
        max_records_per_graph: u64::MAX,
        max_ciphertext_bytes_per_graph: u64::MAX,
        max_record_bytes: u64::MAX,
        ..Quotas::default()
    };
    let pushed = scene.store().push(request).await.expect("pushed");
    assert_eq!(pushed.answer.accepted, 1);
    let reserve = ReserveBlob {
        max_bytes_per_graph: u64::MAX,
        ..scene.reserve_request(&acme(), &a, &blob_id("x"), 5)
    };
    scene.upload(&reserve, 1).await;

    let everything = usize::MAX;
    let sam = member("sam");
    let devices = scene
        .store()
        .devices_of_member(&sam, None, everything)
        .await;
    assert_eq!(devices.expect("answered").len(), 1);
    let query = GraphsQuery {
        device: a.to_ref(),
        groups: None,
        after: None,
        limit: everything,
    };
    let graphs = scene.store().graphs_of(&query).await.expect("answered");
    assert_eq!(graphs.len(), 1);
    let query = GraphDevicesQuery {
        key: acme(),
        members: vec![sam],
        former: true,
        after: None,
        limit: everything,
    };
    let devices = scene.store().graph_devices(&query).await;
    assert_eq!(devices.expect("answered").len(), 1);
    let (first, last) = (
        Timestamp::from_millis(i64::MIN),
        Timestamp::from_millis(i64::MAX),
    );
    let store = scene.store();
    let none = store.doom_blobs(first, first, first, everything).await;
    assert!(none.expect("answered").is_empty());
    let none = store.doom_blobs(last, last, last, everything).await;
    assert!(
        none.expect("answered").is_empty(),
        "a kept blob never expires"
    );
    assert_eq!(
        store
            .drop_idempotency(first, everything)
            .await
            .expect("answered"),
        0
    );
    assert_eq!(
        store
            .drop_idempotency(last, everything)
            .await
            .expect("answered"),
        0
    );
}

/// Nothing asked is nothing done.
pub async fn empty_requests_are_answered(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    let before = scene.store().graph(&acme()).await.expect("answered");
    let pushed = scene.push(&acme(), &a, Vec::new()).await;
    assert_eq!((pushed.answer.head, pushed.changed), (0, false));
    let mut atomic = scene.push_request(&acme(), &a, Vec::new());
    atomic.atomic = true;
    scene.store().push(atomic).await.expect("pushed");
    scene.grant(&acme(), &a, &[], Vec::new()).await;
    let store = scene.store();
    store.record_seen(&[]).await.expect("noted");
    assert!(store.revoked_among(&[]).await.expect("answered").is_empty());
    let standing = store.standing(&acme(), &[]).await.expect("answered");
    assert!(standing.expect("there").roster.is_empty());
    assert!(
        store
            .doom_blobs(at(0), at(0), at(0), 0)
            .await
            .expect("answered")
            .is_empty()
    );
    assert_eq!(
        store
            .drop_idempotency(at(9_999), 0)
            .await
            .expect("answered"),
        0
    );
    assert_eq!(
        scene.store().graph(&acme()).await.expect("answered"),
        before
    );
}

/// 128 bytes each, of characters that need escaping wherever they can.
pub async fn the_longest_ids_are_kept(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let (colons, percents, crabs) = (":".repeat(128), "%".repeat(128), "🦀".repeat(32));
    let a = scene.device(&colons, &crabs).await;
    let b = scene.device(&percents, &colons).await;
    let pair = StorageKey::pair(&member(&colons), &member(&percents));
    let of_group = StorageKey::group(&group(&percents));
    for key in [&pair, &of_group] {
        scene.rotate(key, 1, &[&a, &b]).await;
        scene.fill(key, &b, 1, &[&colons, &percents, &crabs]).await;
        let read = scene.records(key, &a).await;
        assert_eq!(read.len(), 3);
        assert_eq!(read[2].id.as_str(), crabs);
        assert_eq!(read[0].by, device_ref(&percents, &colons));
        assert_eq!(scene.wraps(key, &b.to_ref()).await.len(), 1);
    }
    let query = GraphsQuery {
        device: a.to_ref(),
        groups: Some(vec![GroupId::new(percents).expect("legal")]),
        after: None,
        limit: 9,
    };
    let listed = scene.store().graphs_of(&query).await.expect("answered");
    let keys: Vec<_> = listed.iter().map(|listing| &listing.graph.key).collect();
    assert_eq!(keys, [&pair, &of_group]);
    assert_eq!(listed[0].graph.key.owners(), pair.owners());
}

/// As large as a record may be, and more of them than one page holds.
pub async fn a_megabyte_survives(fresh: Fresh<dyn SweepStore>) {
    use argala_core::ports::Random;
    let scene = Scene::new(fresh);
    let a: TestDevice = scene.device("sam", "a").await;
    scene.rotate(&acme(), 1, &[&a]).await;
    let random = crate::TestRandom::new(9);
    let contents: Vec<Vec<u8>> = (0..6)
        .map(|_| {
            let mut bytes = vec![0; 1 << 20];
            random.fill(&mut bytes);
            bytes
        })
        .collect();
    for (number, content) in contents.iter().enumerate() {
        let record = a.record(&acme(), &format!("r{number}"), 1, content);
        let pushed = scene.push(&acme(), &a, vec![record]).await;
        assert_eq!(pushed.answer.accepted, 1);
    }
    let pages = scene.walk(&scene.pull_request(&acme(), &a, 1_000)).await;
    let counts: Vec<usize> = pages.iter().map(|page| page.page.records.len()).collect();
    assert_eq!(counts, [4, 2]);
    let records = pages.iter().flat_map(|page| &page.page.records);
    for (record, content) in records.zip(&contents) {
        assert!(
            record.ciphertext.as_slice() == content,
            "seq {}",
            record.seq
        );
    }
    assert_eq!(scene.counters(&acme()).await.ciphertext_bytes, 6 << 20);
}
