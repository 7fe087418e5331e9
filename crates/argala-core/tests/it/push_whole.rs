//! What concerns a push as a whole: its body, its caller, `ifHead`, `atomic` and its key
//! (protocol, route 10 and section 6).

use std::collections::HashMap;

use argala_core::{
    Rejection,
    ports::store::{Idempotency, Push, PushOutcome, PushedRecord, SignatureVerdict},
    rules::{PushDecision, PushView, push, push::Existing, push::check},
};
use argala_testkit::{EPOCH, record_id};
use argala_wire::{
    RecordId, Sealed,
    limits::Quotas,
    records::{PushReason, PushRecord, PushRequest, PushResponse, PushResult},
};
use proptest::prelude::*;

use crate::given::{Standing, caller, graph, key};

fn record(id: &str, epoch: u64) -> PushRecord {
    PushRecord {
        id: record_id(id),
        epoch,
        ciphertext: Sealed(b"sealed".to_vec()),
        sig: None,
        deleted: false,
        expect: None,
    }
}

fn request(records: Vec<PushRecord>) -> Push {
    Push {
        key: key(),
        by: caller().to_ref(),
        records: records
            .into_iter()
            .map(|record| PushedRecord {
                record,
                signature: SignatureVerdict::Good,
            })
            .collect(),
        if_head: None,
        atomic: false,
        idempotency: None,
        now: EPOCH,
        quotas: Quotas::default(),
    }
}

/// Decides `request` on a graph of epoch 1 and head 10, where the record "old" is what
/// `record("old", 1)` pushes.
fn decide(
    request: &Push,
    replay: Option<(&[u8; 32], &PushResponse)>,
) -> Result<PushDecision, Rejection> {
    let mut graph = graph(1, 10);
    graph.counters.records = 1;
    graph.counters.ciphertext_bytes = 6;
    let row = Standing::Active.row(&caller());
    let old = Existing {
        seq: 4,
        epoch: 1,
        by: caller().to_ref(),
        deleted: false,
        bytes: 6,
        same_ciphertext: true,
    };
    push(
        request,
        PushView {
            caller: row.as_ref(),
            graph: Some(&graph),
            holds_current: true,
            existing: &HashMap::from([(record_id("old"), old)]),
            replay,
        },
    )
}

fn answer(decision: Result<PushDecision, Rejection>) -> Result<PushOutcome, Rejection> {
    decision.map(|decision| match decision {
        PushDecision::Replay(outcome) | PushDecision::Write { outcome, .. } => outcome,
    })
}

fn path(result: Result<(), Rejection>) -> Option<String> {
    match result {
        Ok(()) => None,
        Err(Rejection::InvalidRequest { field, detail }) => {
            assert!(!detail.contains("secret"), "{detail}");
            field
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn the_body_is_checked_by_itself() {
    let check = |records: Vec<PushRecord>, most: u64| {
        let quotas = Quotas {
            max_records_per_push: most,
            ..Quotas::default()
        };
        let request = PushRequest {
            records,
            ..PushRequest::default()
        };
        path(check(&request, &quotas))
    };
    let empty = |deleted| PushRecord {
        ciphertext: Sealed::default(),
        deleted,
        ..record("secret", 1)
    };
    let some = |count: usize| (0..count).map(|n| record(&n.to_string(), 1)).collect();
    assert_eq!(check(some(0), 0), None);
    assert_eq!(check(some(3), 3), None);
    assert_eq!(check(some(4), 3).as_deref(), Some("records"));
    assert_eq!(
        check(
            vec![record("secret", 1), record("b", 1), record("secret", 2)],
            9
        )
        .as_deref(),
        Some("records[2].id")
    );
    assert_eq!(check(vec![empty(true)], 9), None);
    assert_eq!(
        check(vec![record("a", 1), empty(false)], 9).as_deref(),
        Some("records[1].ciphertext")
    );
    // Ids are compared byte for byte.
    assert_eq!(
        check(
            vec![record("é", 1), record("e\u{301}", 1), record("É", 1)],
            9
        ),
        None
    );
}

#[test]
fn caller_then_key_then_the_rest() {
    let row = |standing: Standing| standing.row(&caller());
    let refusal = |standing: Standing, epoch: Option<u64>| {
        let (row, graph) = (row(standing), epoch.map(|epoch| graph(epoch, 10)));
        let mut request = request(Vec::new());
        request.if_head = Some(9);
        push(
            &request,
            PushView {
                caller: row.as_ref(),
                graph: graph.as_ref(),
                holds_current: false,
                existing: &HashMap::new(),
                replay: None,
            },
        )
        .map(|_| ())
    };
    assert_eq!(
        refusal(Standing::Unregistered, None),
        Err(Rejection::DeviceUnregistered)
    );
    assert_eq!(
        refusal(Standing::Revoked, Some(1)),
        Err(Rejection::DeviceRevoked)
    );
    assert_eq!(
        refusal(Standing::Active, None),
        Err(Rejection::GraphUnkeyed)
    );
    assert_eq!(
        refusal(Standing::Active, Some(0)),
        Err(Rejection::GraphUnkeyed)
    );
    // No record is no fault, and every one of none is the same content.
    assert_eq!(refusal(Standing::Active, Some(1)), Ok(()));
}

#[test]
fn if_head_is_not_examined_where_all_is_the_same() {
    let moved = Err(Rejection::HeadMoved { head: 10 });
    let pushed = |ids: &[&str], if_head: u64| {
        let mut request = request(ids.iter().map(|id| record(id, 1)).collect());
        request.if_head = Some(if_head);
        answer(decide(&request, None)).map(|outcome| outcome.answer.head)
    };
    assert_eq!(pushed(&["new"], 10), Ok(11));
    assert_eq!(pushed(&["new"], 9), moved);
    assert_eq!(pushed(&["new"], 11), moved);
    assert_eq!(pushed(&["new"], 0), moved);
    assert_eq!(pushed(&["new"], u64::MAX), moved);
    assert_eq!(pushed(&["old"], 3), Ok(10));
    assert_eq!(pushed(&["old", "new"], 3), moved);
    assert_eq!(pushed(&[], 3), Ok(10));
}

#[test]
fn a_moved_head_is_told_before_any_verdict() {
    let mut request = request(vec![record("bad", 7)]);
    request.if_head = Some(3);
    request.atomic = true;
    assert_eq!(
        answer(decide(&request, None)),
        Err(Rejection::HeadMoved { head: 10 })
    );
}

proptest! {
    /// Atomic: all or none, and the same verdicts as without it.
    #[test]
    fn atomic_is_all_or_none(
        kinds in prop::collection::vec(0..3_u8, 0..6),
    ) {
        let records = || kinds.iter().enumerate().map(|(at, kind)| match kind {
            0 => record(&format!("new{at}"), 1),
            1 => record(&format!("bad{at}"), 2),
            // One of them is there already.
            _ => record(if at == kinds.len() - 1 { "old" } else { "older" }, 1),
        });
        let mut seen = std::collections::BTreeSet::new();
        let records: Vec<PushRecord> = records().filter(|record| seen.insert(record.id.as_str().to_owned())).collect();
        let each = answer(decide(&request(records.clone()), None)).unwrap().answer;
        let whole = decide(&Push { atomic: true, ..request(records) }, None);
        let acceptable: Vec<PushResult> = each.results.iter().cloned().map(|result| match result {
            PushResult::Accepted { id, .. } => PushResult::Acceptable { id },
            other => other,
        }).collect();
        match whole {
            Ok(_) => {
                prop_assert_eq!(each.rejected, 0);
                prop_assert_eq!(answer(whole).unwrap().answer, each);
            }
            Err(rejection) => {
                prop_assert!(each.rejected > 0);
                prop_assert_eq!(rejection, Rejection::PushRejected { results: acceptable });
            }
        }
    }
}

#[test]
fn acceptable_ones_are_told_by_their_id_alone() {
    let mut request = request(vec![record("old", 1), record("new", 1), record("bad", 2)]);
    request.atomic = true;
    let id = |text: &str| -> RecordId { record_id(text) };
    let wanted = Rejection::PushRejected {
        results: vec![
            PushResult::Acceptable { id: id("old") },
            PushResult::Acceptable { id: id("new") },
            PushResult::Rejected {
                id: id("bad"),
                reason: PushReason::UnknownEpoch { epoch: 1 },
            },
        ],
    };
    assert_eq!(answer(decide(&request, None)), Err(wanted));
}

#[test]
fn a_repeat_answers_as_it_did_the_first_time() {
    let first = PushResponse {
        head: 3,
        accepted: 1,
        rejected: 0,
        results: vec![PushResult::Accepted {
            id: record_id("new"),
            seq: 3,
        }],
    };
    let mut again = request(vec![record("new", 1)]);
    // Whatever else is wrong with it by now.
    again.if_head = Some(2);
    again.atomic = true;
    again.idempotency = Some(Idempotency {
        key: "k".to_owned(),
        body: [1; 32],
        since: EPOCH,
    });
    let replayed = answer(decide(&again, Some((&[1; 32], &first)))).unwrap();
    assert_eq!(replayed.answer, first);
    assert!(!replayed.changed);
    assert_eq!(
        answer(decide(&again, Some((&[2; 32], &first)))),
        Err(Rejection::IdempotencyConflict)
    );
    assert_eq!(
        answer(decide(&again, None)),
        Err(Rejection::HeadMoved { head: 10 })
    );
}

#[test]
fn who_was_revoked_is_not_even_told_what_was_answered() {
    let first = PushResponse {
        head: 3,
        accepted: 0,
        rejected: 0,
        results: Vec::new(),
    };
    let mut again = request(Vec::new());
    again.idempotency = Some(Idempotency {
        key: "k".to_owned(),
        body: [1; 32],
        since: EPOCH,
    });
    let row = Standing::Revoked.row(&caller());
    let got = push(
        &again,
        PushView {
            caller: row.as_ref(),
            graph: Some(&graph(1, 10)),
            holds_current: true,
            existing: &HashMap::new(),
            replay: Some((&[1; 32], &first)),
        },
    );
    assert_eq!(got, Err(Rejection::DeviceRevoked));
}
