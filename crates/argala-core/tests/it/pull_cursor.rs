//! Which cursors are good, and what is told of those that are not (protocol, route 11).

use std::collections::BTreeSet;

use argala_core::{
    Rejection,
    ports::store::{Pull, PullPage},
};
use argala_testkit::group;
use argala_wire::{StorageKey, records::CursorReason};
use proptest::prelude::*;

use crate::shelf::{Shelf, next, request};

fn held() -> BTreeSet<u64> {
    BTreeSet::from([1, 2])
}

/// A graph with a row at every seq up to `head`.
fn full(head: u64) -> Shelf {
    let mut shelf = Shelf::new();
    for seq in 1..=head {
        shelf.write(&seq.to_string(), 1, false);
    }
    shelf
}

/// Why the page after `page` is refused, if it is.
fn refusal(shelf: &Shelf, asked: &Pull) -> Option<CursorReason> {
    match shelf.pull(asked, &held()) {
        Ok(_) => None,
        Err(Rejection::CursorInvalid { reason }) => Some(reason),
        Err(other) => panic!("{other:?}"),
    }
}

fn seqs(page: &PullPage) -> Vec<u64> {
    page.page.records.iter().map(|record| record.seq).collect()
}

fn at(text: &str) -> Pull {
    Pull {
        cursor: Some(text.to_owned()),
        ..request(9, None)
    }
}

proptest! {
    #[test]
    fn what_no_relay_wrote_is_malformed(text in "\\PC{0,90}", bytes in "[A-Za-z0-9_=-]{0,90}") {
        let shelf = full(3);
        prop_assert_eq!(refusal(&shelf, &at(&text)), Some(CursorReason::Malformed));
        prop_assert_eq!(refusal(&shelf, &at(&bytes)), Some(CursorReason::Malformed));
    }

    /// Nor can one be changed into another: not by a character, not by a cut, not by padding, on
    /// its own graph or on another.
    #[test]
    fn a_mangled_one_is_malformed_everywhere(place in any::<prop::sample::Index>(), to in "[A-Za-z0-9_-]") {
        let shelf = full(3);
        let good = shelf.page(&request(2, None), &held()).page.cursor;
        let place = place.index(good.len());
        let changed = format!("{}{to}{}", &good[..place], &good[place + 1..]);
        prop_assume!(changed != good);
        for bad in [changed, good[..place].to_owned(), format!("{good}{to}"), format!("{good}=")] {
            let asked = at(&bad);
            prop_assert_eq!(refusal(&shelf, &asked), Some(CursorReason::Malformed));
            let elsewhere = Pull { key: StorageKey::group(&group("other")), ..asked.clone() };
            prop_assert_eq!(refusal(&shelf, &elsewhere), Some(CursorReason::Malformed));
            let of_epoch = Pull { epoch: Some(1), ..asked };
            prop_assert_eq!(refusal(&shelf, &of_epoch), Some(CursorReason::Malformed));
        }
    }

    /// Expired exactly where the floor lies above both the head at which the cursorless walk began
    /// and the seq that the cursor has passed.
    #[test]
    fn the_floor_spares_what_began_above_it(
        began in 1..12_u64,
        stop in 1..12_usize,
        grown in 0..12_u64,
        onward in 0..20_usize,
        floor in 0..40_u64,
    ) {
        let mut shelf = full(began);
        let mut page = shelf.page(&request(stop, None), &held());
        let mut passed = (stop as u64).min(began);
        for seq in 0..grown {
            shelf.write(&format!("grown{seq}"), 1, false);
        }
        let head = began + grown;
        if onward > 0 {
            page = shelf.page(&next(&request(onward, None), &page), &held());
            passed = (passed + onward as u64).min(head);
        }
        let floor = floor % (head + 1);
        shelf.sweep(floor);
        let asked = next(&request(99, None), &page);
        let wanted = (floor > began && floor > passed).then_some(CursorReason::Expired);
        prop_assert_eq!(refusal(&shelf, &asked), wanted);
        if wanted.is_none() {
            let rest: Vec<u64> = (passed + 1..=head).collect();
            prop_assert_eq!(seqs(&shelf.page(&asked, &held())), rest);
        }
    }

    /// Whatever happens to a graph after a cursor of an unkeyed one was given out, that cursor
    /// walks all of it.
    #[test]
    fn a_cursor_from_before_the_first_epoch_stays_good(head in 0..9_u64, floor in 0..9_u64, epoch in prop::option::of(1..3_u64)) {
        let before = Shelf::unkeyed();
        let first = request(99, epoch);
        let page = before.page(&first, &held());
        prop_assert_eq!((page.page.head, page.page.epoch, page.page.more), (0, 0, false));
        prop_assert!(page.page.records.is_empty());
        let again = before.page(&next(&first, &page), &held());

        let mut shelf = full(head);
        shelf.sweep(floor.min(head));
        for given in [page, again] {
            let wanted: Vec<u64> = match epoch {
                Some(2) => Vec::new(),
                _ => (1..=head).collect(),
            };
            prop_assert_eq!(seqs(&shelf.page(&next(&first, &given), &held())), wanted);
        }
    }
}

#[test]
fn an_empty_one_is_malformed() {
    assert_eq!(refusal(&full(3), &at("")), Some(CursorReason::Malformed));
    assert_eq!(
        refusal(&Shelf::unkeyed(), &at("")),
        Some(CursorReason::Malformed)
    );
}

#[test]
fn one_of_another_graph_is_foreign() {
    let shelf = full(3);
    let page = shelf.page(&request(1, None), &held());
    for other in ["other", "acme:", "acm"] {
        let elsewhere = Pull {
            key: StorageKey::group(&group(other)),
            ..next(&request(9, None), &page)
        };
        assert_eq!(refusal(&shelf, &elsewhere), Some(CursorReason::Foreign));
    }
}

#[test]
fn one_of_one_epoch_is_foreign_elsewhere() {
    let mut shelf = full(3);
    shelf.rotate();
    let epochs = [None, Some(1), Some(2), Some(3)];
    for given in epochs {
        let page = shelf.page(&request(1, given), &held());
        for asked in epochs {
            let wanted = (given != asked).then_some(CursorReason::Foreign);
            let next = next(&request(1, asked), &page);
            assert_eq!(refusal(&shelf, &next), wanted, "{given:?} at {asked:?}");
        }
    }
}

#[test]
fn one_of_a_time_that_was_lost_is_ahead() {
    let shelf = full(5);
    let page = shelf.page(&request(3, None), &held());
    let asked = next(&request(9, None), &page);
    assert_eq!(refusal(&shelf, &asked), None);
    assert_eq!(refusal(&full(3), &asked), None);
    assert_eq!(refusal(&full(2), &asked), Some(CursorReason::Ahead));

    let mut restored = full(5);
    restored.graph().incarnation += 1;
    assert_eq!(refusal(&restored, &asked), Some(CursorReason::Ahead));
    // Even where the floor would have it expired.
    restored.sweep(5);
    assert_eq!(refusal(&restored, &asked), Some(CursorReason::Ahead));
    // And where the whole graph was lost.
    assert_eq!(
        refusal(&Shelf::unkeyed(), &asked),
        Some(CursorReason::Ahead)
    );
}

#[test]
fn an_epoch_that_has_not_begun_is_empty_until_it_does() {
    let mut shelf = full(4);
    let first = request(99, Some(2));
    let page = shelf.page(&first, &held());
    assert!(page.page.records.is_empty() && !page.page.more);
    shelf.rotate();
    shelf.write("new", 1, false);
    let page = shelf.page(&next(&first, &page), &held());
    assert_eq!(seqs(&page), [5]);
}

#[test]
fn an_epoch_is_walked_from_its_first_seq_whatever_the_floor() {
    let mut shelf = full(4);
    shelf.rotate();
    shelf.write("new", 1, false);
    shelf.sweep(5);
    assert_eq!(seqs(&shelf.page(&request(9, Some(2)), &held())), [5]);
    assert_eq!(
        seqs(&shelf.page(&request(9, Some(1)), &held())),
        [1, 2, 3, 4]
    );
}
