//! Taking records.

use argala_core::{
    Rejection,
    ports::{
        SweepStore,
        store::{Counters, Push, SignatureVerdict},
    },
};
use argala_wire::{
    Sealed, StorageKey,
    records::{PulledRecord, PushReason, PushRecord, PushResult},
};

use super::{Scene, acme, at, refused};
use crate::{TestDevice, conformance::Fresh, group, member, record_id};

fn accepted(id: &str, seq: u64) -> PushResult {
    PushResult::Accepted {
        id: record_id(id),
        seq,
    }
}

fn rejected(id: &str, reason: PushReason) -> PushResult {
    PushResult::Rejected {
        id: record_id(id),
        reason,
    }
}

/// With every field that it came with, who pushed it and when.
pub async fn what_is_pushed_is_pulled(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b] = scene.devices([("sam", "a"), ("alex", "x")]).await;
    scene.rotate(&acme(), 1, &[&a, &b]).await;
    let signed = a.record(&acme(), "signed", 1, b"one");
    let bare = PushRecord {
        sig: None,
        ..a.record(&acme(), "bare", 1, b"two")
    };
    let dead = b.tombstone(&acme(), "dead", 1);
    let first = scene
        .push(&acme(), &a, vec![signed.clone(), bare.clone()])
        .await;
    assert_eq!(
        first.answer.results,
        [accepted("signed", 1), accepted("bare", 2)]
    );
    assert_eq!(
        (
            first.answer.head,
            first.answer.accepted,
            first.answer.rejected
        ),
        (2, 2, 0)
    );
    assert!(first.changed);
    let second = scene.push(&acme(), &b, vec![dead.clone()]).await;
    assert_eq!(second.answer.results, [accepted("dead", 3)]);

    let pulled = |record: PushRecord, seq: u64, by: &TestDevice| PulledRecord {
        id: record.id,
        seq,
        epoch: record.epoch,
        by: by.to_ref(),
        at: at(1_000),
        ciphertext: record.ciphertext,
        sig: record.sig,
        deleted: record.deleted,
    };
    let wanted = [
        pulled(signed, 1, &a),
        pulled(bare, 2, &a),
        pulled(dead, 3, &b),
    ];
    for device in [&a, &b] {
        assert_eq!(scene.records(&acme(), device).await, wanted);
    }
    let counters = Counters {
        records: 2,
        tombstones: 1,
        ciphertext_bytes: 6,
        blob_bytes: 0,
    };
    assert_eq!(scene.counters(&acme()).await, counters);
}

/// One row for each id, under the seq of its newest version.
pub async fn a_later_push_replaces_and_moves(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b] = scene.devices([("sam", "a"), ("alex", "x")]).await;
    scene.rotate(&acme(), 1, &[&a, &b]).await;
    scene.fill(&acme(), &a, 1, &["one", "two", "three"]).await;
    let newer = vec![
        b.record(&acme(), "two", 1, b"newer"),
        b.record(&acme(), "one", 1, b""),
    ];
    let newer = newer.into_iter().map(|mut record| {
        record.deleted = record.ciphertext.is_empty();
        record
    });
    let pushed = scene.push(&acme(), &b, newer.collect()).await;
    assert_eq!(
        pushed.answer.results,
        [accepted("two", 4), accepted("one", 5)]
    );
    let read = scene.records(&acme(), &a).await;
    let told: Vec<_> = read
        .iter()
        .map(|record| {
            (
                record.id.as_str(),
                record.seq,
                record.deleted,
                record.by.clone(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("three", 3, false, a.to_ref()),
            ("two", 4, false, b.to_ref()),
            ("one", 5, true, b.to_ref())
        ]
    );
    let counters = scene.counters(&acme()).await;
    assert_eq!((counters.records, counters.tombstones), (2, 1));
    assert_eq!(counters.ciphertext_bytes, 10);
}

/// Nothing is written, charged or poked; another device's equal bytes are its own.
pub async fn the_same_content_is_written_once(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b] = scene.devices([("sam", "a"), ("sam", "b")]).await;
    scene.rotate(&acme(), 1, &[&a, &b]).await;
    let record = a.record(&acme(), "one", 1, b"one");
    scene.push(&acme(), &a, vec![record.clone()]).await;
    let before = scene.records(&acme(), &a).await;
    for expect in [None, Some(0), Some(1), Some(77)] {
        let again = PushRecord {
            expect,
            ..record.clone()
        };
        let mut request = scene.push_request(&acme(), &a, vec![again]);
        request.if_head = Some(55);
        request.now = at(9_999);
        let pushed = scene.store().push(request).await.expect("accepted");
        assert_eq!(pushed.answer.results, [accepted("one", 1)]);
        assert_eq!((pushed.answer.head, pushed.changed), (1, false));
    }
    assert_eq!(scene.records(&acme(), &a).await, before);
    // The epoch has passed since, and still it is the same.
    scene.rotate(&acme(), 2, &[&a, &b]).await;
    let pushed = scene.push(&acme(), &a, vec![record.clone()]).await;
    assert_eq!(pushed.answer.results, [accepted("one", 1)]);
    let pushed = scene.push(&acme(), &b, vec![record]).await;
    assert_eq!(
        pushed.answer.results,
        [rejected("one", PushReason::StaleEpoch { epoch: 2 })]
    );
}

/// Each is told its own verdict, in the order sent; those that are fine are taken.
pub async fn one_bad_record_stops_no_other(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    scene.rotate(&acme(), 2, &[&a]).await;
    scene.fill(&acme(), &a, 2, &["there"]).await;
    let record = |id: &str, epoch: u64, size: usize| a.record(&acme(), id, epoch, &vec![7; size]);
    let conflict = PushRecord {
        expect: Some(0),
        ..record("there", 2, 3)
    };
    let records = vec![
        record("stale", 1, 1),
        record("fine", 2, 10),
        record("large", 2, 11),
        record("early", 3, 1),
        record("unsigned", 2, 1),
        record("forged", 2, 1),
        conflict,
        record("fine too", 2, 1),
    ];
    let mut request = scene.push_request(&acme(), &a, records);
    request.records[4].signature = SignatureVerdict::Missing;
    request.records[5].signature = SignatureVerdict::Invalid;
    request.quotas.max_record_bytes = 10;
    let pushed = scene.store().push(request).await.expect("pushed");
    let wanted = [
        rejected("stale", PushReason::StaleEpoch { epoch: 2 }),
        accepted("fine", 2),
        rejected("large", PushReason::RecordTooLarge { limit: 10 }),
        rejected("early", PushReason::UnknownEpoch { epoch: 2 }),
        rejected("unsigned", PushReason::SignatureMissing),
        rejected("forged", PushReason::SignatureInvalid),
        rejected("there", PushReason::Conflict { seq: 1 }),
        accepted("fine too", 3),
    ];
    assert_eq!(pushed.answer.results, wanted);
    assert_eq!((pushed.answer.accepted, pushed.answer.rejected), (2, 6));
    let read = scene.records(&acme(), &a).await;
    let ids: Vec<&str> = read.iter().map(|record| record.id.as_str()).collect();
    assert_eq!(ids, ["there", "fine", "fine too"]);
    scene.counters(&acme()).await;
}

/// Neither records, nor head, nor counters move where one is refused.
pub async fn an_atomic_push_is_all_or_nothing(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    scene.fill(&acme(), &a, 1, &["there"]).await;
    let before = (
        scene.store().graph(&acme()).await.expect("answered"),
        scene.records(&acme(), &a).await,
    );
    let record = |id: &str, epoch: u64| a.record(&acme(), id, epoch, b"new");
    let atomic = |records| Push {
        atomic: true,
        ..scene.push_request(&acme(), &a, records)
    };
    let bad = atomic(vec![record("one", 1), record("there", 1), record("bad", 2)]);
    let acceptable = |id: &str| PushResult::Acceptable { id: record_id(id) };
    let wanted = Rejection::PushRejected {
        results: vec![
            acceptable("one"),
            acceptable("there"),
            rejected("bad", PushReason::UnknownEpoch { epoch: 1 }),
        ],
    };
    assert_eq!(refused(scene.store().push(bad).await), wanted);
    let after = (
        scene.store().graph(&acme()).await.expect("answered"),
        scene.records(&acme(), &a).await,
    );
    assert_eq!(before, after);
    let good = atomic(vec![record("one", 1), record("there", 1)]);
    let pushed = scene.store().push(good).await.expect("pushed");
    assert_eq!(
        pushed.answer.results,
        [accepted("one", 2), accepted("there", 3)]
    );
    scene.counters(&acme()).await;
}

/// Nothing is written, and the head is told.
pub async fn a_head_that_moved_refuses_the_push(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    scene.fill(&acme(), &a, 1, &["one", "two"]).await;
    let pushed = async |id: &str, head: u64| {
        let mut request = scene.push_request(&acme(), &a, vec![a.record(&acme(), id, 1, b"x")]);
        request.if_head = Some(head);
        scene.store().push(request).await
    };
    for head in [0, 1, 3] {
        assert_eq!(
            refused(pushed("three", head).await),
            Rejection::HeadMoved { head: 2 }
        );
    }
    assert_eq!(scene.records(&acme(), &a).await.len(), 2);
    assert_eq!(pushed("three", 2).await.expect("pushed").answer.head, 3);
}

/// It takes the record's place, and the record may come back.
pub async fn a_tombstone_comes_and_goes(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    let sealed = PushRecord {
        ciphertext: Sealed(b"why".to_vec()),
        ..a.tombstone(&acme(), "one", 1)
    };
    let steps = [
        (a.record(&acme(), "one", 1, b"alive"), (1, 0, 5)),
        (a.tombstone(&acme(), "one", 1), (0, 1, 0)),
        (sealed, (0, 1, 3)),
        (a.record(&acme(), "one", 1, b"again"), (1, 0, 5)),
    ];
    for (step, (record, wanted)) in steps.into_iter().enumerate() {
        let seq = step as u64 + 1;
        let pushed = scene.push(&acme(), &a, vec![record.clone()]).await;
        assert_eq!(pushed.answer.results, [accepted("one", seq)]);
        let counters = scene.counters(&acme()).await;
        let told = (
            counters.records,
            counters.tombstones,
            counters.ciphertext_bytes,
        );
        assert_eq!(told, wanted, "step {step}");
        let read = scene.records(&acme(), &a).await;
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].seq, read[0].deleted), (seq, record.deleted));
        assert_eq!(read[0].ciphertext, record.ciphertext);
    }
}

/// A tombstone's counts as one; 0 asks that there be none.
pub async fn expectations_are_held_to_the_seq(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    let mut number = 0;
    let mut record = |id: &str, expect: u64| {
        number += 1;
        PushRecord {
            expect: Some(expect),
            ..a.record(&acme(), id, 1, format!("{number}").as_bytes())
        }
    };
    let conflict = |seq| rejected("one", PushReason::Conflict { seq });
    let steps = [
        (record("one", 1), conflict(0)),
        (record("one", 0), accepted("one", 1)),
        (record("one", 0), conflict(1)),
        (record("one", 2), conflict(1)),
        (record("one", 1), accepted("one", 2)),
        (record("one", 1), conflict(2)),
        (
            PushRecord {
                expect: Some(2),
                ..a.tombstone(&acme(), "one", 1)
            },
            accepted("one", 3),
        ),
        (record("one", 0), conflict(3)),
        (record("one", 3), accepted("one", 4)),
    ];
    for (step, (record, wanted)) in steps.into_iter().enumerate() {
        let pushed = scene.push(&acme(), &a, vec![record]).await;
        assert_eq!(pushed.answer.results, [wanted], "step {step}");
    }
}

/// Seqs without a gap, in the order sent; half of them replaced by the next thousand.
pub async fn a_thousand_records_are_one_push(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    let push = async |from: usize, content: &[u8]| {
        let record = |number: usize| a.record(&acme(), &format!("r{number}"), 1, content);
        let records = (from..from + 1_000).map(record).collect();
        let pushed = scene.push(&acme(), &a, records).await;
        let seqs: Vec<u64> = pushed
            .answer
            .results
            .iter()
            .map(|result| match result {
                PushResult::Accepted { seq, .. } => *seq,
                other => panic!("{other:?}"),
            })
            .collect();
        seqs
    };
    assert_eq!(push(0, b"one").await, (1..=1_000).collect::<Vec<_>>());
    assert_eq!(
        push(500, b"other").await,
        (1_001..=2_000).collect::<Vec<_>>()
    );
    let read = scene.records(&acme(), &a).await;
    assert_eq!(read.len(), 1_500);
    assert!(read.is_sorted_by_key(|record| record.seq));
    let counters = scene.counters(&acme()).await;
    assert_eq!(
        (counters.records, counters.ciphertext_bytes),
        (1_500, 500 * 3 + 1_000 * 5)
    );
}

/// Seqs, ids and counters of one are nothing to another.
pub async fn graphs_count_for_themselves(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    let keys = [
        acme(),
        StorageKey::own(&member("sam")),
        StorageKey::group(&group("acme:")),
    ];
    for (number, key) in keys.iter().enumerate() {
        scene.rotate(key, 1, &[&a]).await;
        for _ in 0..=number {
            scene.fill(key, &a, 1, &["one"]).await;
            let content = format!("{number}");
            let record = a.record(key, "two", 1, content.as_bytes());
            let pushed = scene.push(key, &a, vec![record]).await;
            assert_eq!(
                pushed.answer.head, 2,
                "the second round is the same content"
            );
        }
    }
    for (number, key) in keys.iter().enumerate() {
        let read = scene.records(key, &a).await;
        assert_eq!(read.len(), 2);
        assert_eq!(
            read[1].ciphertext.as_slice(),
            format!("{number}").as_bytes()
        );
        assert_eq!(scene.counters(key).await.records, 2);
    }
}

/// Ids are bytes, and so is what is sealed.
pub async fn odd_ids_and_every_byte_survive(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a] = scene.devices([("sam", "a")]).await;
    scene.rotate(&acme(), 1, &[&a]).await;
    let long = "🦀".repeat(32);
    let ids = [
        "id", "ID", "é", "e\u{301}", "50%", "_", "a/b", "../x", "it's", "\"", "a\u{a0}b", "0",
        "00", "1e3", "null", &long,
    ];
    let content = |number: usize| -> Vec<u8> {
        let bytes = 0..=u8::MAX;
        bytes
            .map(|byte| byte.wrapping_add(u8::try_from(number).expect("few")))
            .collect()
    };
    let records = ids.iter().enumerate();
    let records = records.map(|(number, id)| a.record(&acme(), id, 1, &content(number)));
    let pushed = scene.push(&acme(), &a, records.collect()).await;
    assert_eq!(pushed.answer.accepted, ids.len() as u64);
    let read = scene.records(&acme(), &a).await;
    assert_eq!(read.len(), ids.len());
    for (number, record) in read.iter().enumerate() {
        assert_eq!(record.id.as_str(), ids[number]);
        assert!(
            record.ciphertext.as_slice() == content(number),
            "{}",
            ids[number]
        );
    }
}

/// Registered, not revoked, with a wrap of the current epoch.
pub async fn only_holders_push_and_only_where_there_is_a_key(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, gone] = scene.devices([("sam", "a"), ("sam", "gone")]).await;
    let push = async |by: &TestDevice, epoch: u64| {
        let record = by.record(
            &acme(),
            "r",
            epoch,
            by.to_ref().device_id.as_str().as_bytes(),
        );
        scene
            .store()
            .push(scene.push_request(&acme(), by, vec![record]))
            .await
    };
    assert_eq!(refused(push(&a, 1).await), Rejection::GraphUnkeyed);
    let stranger = TestDevice::new("sam", "stranger");
    assert_eq!(
        refused(push(&stranger, 1).await),
        Rejection::DeviceUnregistered
    );
    scene.rotate(&acme(), 1, &[&a, &gone]).await;
    scene.revoke(&a, &gone).await;
    assert_eq!(refused(push(&gone, 1).await), Rejection::DeviceRevoked);
    assert_eq!(
        refused(push(&stranger, 1).await),
        Rejection::DeviceUnregistered
    );
    let late = scene.device("sam", "late").await;
    let verdict = async |by, epoch| push(by, epoch).await.expect("answered").answer.results;
    assert_eq!(
        verdict(&late, 1).await,
        [rejected("r", PushReason::NotHolder)]
    );
    scene
        .grant(&acme(), &a, &["sam"], vec![late.grant_wrap(1, "w")])
        .await;
    assert_eq!(verdict(&late, 1).await, [accepted("r", 1)]);
    // A wrap of an older epoch is not enough.
    scene.rotate(&acme(), 2, &[&a, &late]).await;
    let later = scene.device("sam", "later").await;
    scene
        .grant(&acme(), &a, &["sam"], vec![later.grant_wrap(1, "w")])
        .await;
    assert_eq!(
        verdict(&later, 2).await,
        [rejected("r", PushReason::NotHolder)]
    );
}
