//! Walks over a graph, page by page (protocol, route 11).

use std::collections::{BTreeMap, BTreeSet};

use argala_core::{Rejection, ports::store::Pull};
use argala_wire::{
    limits::Pages,
    records::{CursorReason, PullResponse},
};
use proptest::prelude::*;

use crate::shelf::{Shelf, next, request};

/// A graph of several epochs with gaps between its seqs.
fn shelves() -> impl Strategy<Value = Shelf> {
    let row = (any::<bool>(), 1..40_usize);
    prop::collection::vec(prop::collection::vec(row, 0..14), 1..5).prop_map(|epochs| {
        let mut shelf = Shelf::new();
        for (at, rows) in epochs.iter().enumerate() {
            if at > 0 {
                shelf.rotate();
            }
            for (gap, bytes) in rows {
                let id = format!("r{}", shelf.head());
                shelf.write(&id, *bytes, false);
                if *gap {
                    // As if a later push had moved it, and that one another.
                    shelf.rows.pop_last();
                }
            }
        }
        shelf
    })
}

fn requests() -> impl Strategy<Value = Pull> {
    (1..6_usize, 1..80_u64, 1..4_u64).prop_map(|(limit, max_pull_bytes, max_filtered)| Pull {
        pages: Pages {
            max_pull_bytes,
            max_filtered,
            ..Pages::default()
        },
        ..request(limit, None)
    })
}

/// Every page of a walk to the end.
fn walk(shelf: &Shelf, first: &Pull, held: &BTreeSet<u64>) -> Vec<PullResponse> {
    let mut request = first.clone();
    let mut pages = Vec::new();
    loop {
        let page = shelf.page(&request, held);
        request = next(first, &page);
        let more = page.page.more;
        pages.push(page.page);
        if !more {
            return pages;
        }
        assert!(pages.len() <= shelf.rows.len() + 1, "the walk does not end");
    }
}

fn held() -> impl Strategy<Value = BTreeSet<u64>> {
    prop::collection::btree_set(1..5_u64, 0..5)
}

/// The seqs of the rows that `keep` keeps.
fn seqs(shelf: &Shelf, keep: impl Fn(u64) -> bool) -> Vec<u64> {
    let rows = shelf.rows.iter().filter(|(_, row)| keep(row.epoch));
    rows.map(|(seq, _)| *seq).collect()
}

fn pulled(pages: &[PullResponse]) -> Vec<u64> {
    let records = pages.iter().flat_map(|page| &page.records);
    records.map(|record| record.seq).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_walk_finds_all_that_the_device_may_read(
        shelf in shelves(),
        request in requests(),
        held in held(),
    ) {
        let pages = walk(&shelf, &request, &held);
        prop_assert_eq!(pulled(&pages), seqs(&shelf, |epoch| held.contains(&epoch)));
        let filtered: u64 = pages.iter().map(|page| page.filtered).sum();
        prop_assert_eq!(filtered, seqs(&shelf, |epoch| !held.contains(&epoch)).len() as u64);

        for page in &pages {
            prop_assert!(page.records.len() <= request.limit);
            prop_assert!(page.filtered <= request.pages.max_filtered);
            let bytes: usize = page.records.iter().map(|record| record.ciphertext.len()).sum();
            prop_assert!(page.records.len() == 1 || bytes as u64 <= request.pages.max_pull_bytes);
            prop_assert_eq!(page.head, shelf.head());
            prop_assert_eq!(page.epoch, shelf.firsts.len() as u64);
        }
        for page in &pages[..pages.len() - 1] {
            prop_assert!(page.more);
            prop_assert!(page.records.len() as u64 + page.filtered > 0, "each page moves");
            // It ends for a reason: one more record or one more that is held back has no room.
            let bytes: usize = page.records.iter().map(|record| record.ciphertext.len()).sum();
            prop_assert!(
                page.records.len() == request.limit
                    || page.filtered == request.pages.max_filtered
                    || bytes + 40 > usize::try_from(request.pages.max_pull_bytes).unwrap()
            );
        }
    }

    #[test]
    fn one_epoch_is_walked_alone(
        shelf in shelves(),
        request in requests(),
        held in held(),
        epoch in 1..6_u64,
    ) {
        let request = Pull { epoch: Some(epoch), ..request };
        let pages = walk(&shelf, &request, &held);
        let wanted = if held.contains(&epoch) { seqs(&shelf, |of| of == epoch) } else { Vec::new() };
        prop_assert_eq!(pulled(&pages), wanted);
        let filtered: u64 = pages.iter().map(|page| page.filtered).sum();
        let wanted = if held.contains(&epoch) { 0 } else { seqs(&shelf, |of| of == epoch).len() };
        prop_assert_eq!(filtered, wanted as u64);
    }

    /// A walk that has ended goes on where it was: what is pushed later is the next page.
    #[test]
    fn the_last_cursor_is_the_first_of_what_comes(
        shelf in shelves(),
        request in requests(),
        held in held(),
        later in 0..5_usize,
    ) {
        let mut shelf = shelf;
        let pages = walk(&shelf, &request, &held);
        let before = shelf.head();
        for at in 0..later {
            shelf.write(&format!("later{at}"), 3, false);
        }
        let resumed = Pull { cursor: Some(pages[pages.len() - 1].cursor.clone()), ..request.clone() };
        let pages = walk(&shelf, &resumed, &held);
        let new = |epoch| held.contains(&epoch);
        let wanted: Vec<u64> = seqs(&shelf, new).into_iter().filter(|seq| *seq > before).collect();
        prop_assert_eq!(pulled(&pages), wanted);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write { id: u8, bytes: usize, deleted: bool },
    Rotate,
    Sweep { to: u8 },
    Pull,
    Lose,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (0..8_u8, 1..20_usize, any::<bool>())
        .prop_map(|(id, bytes, deleted)| Step::Write { id, bytes, deleted });
    prop::collection::vec(
        prop_oneof![
            12 => write,
            8 => Just(Step::Pull),
            2 => any::<u8>().prop_map(|to| Step::Sweep { to }),
            1 => Just(Step::Rotate),
            1 => Just(Step::Lose),
        ],
        0..120,
    )
}

/// A device that keeps what it pulled.
#[derive(Debug, Default)]
struct Replica {
    cursor: Option<String>,
    records: BTreeMap<String, u64>,
    more: bool,
}

impl Replica {
    fn pull(&mut self, shelf: &Shelf, request: &Pull, held: &BTreeSet<u64>) {
        let asked = Pull {
            cursor: self.cursor.clone(),
            ..request.clone()
        };
        match shelf.pull(&asked, held) {
            Ok(page) => {
                let page = page.expect("nothing is known").page;
                for record in page.records {
                    let id = record.id.as_str().to_owned();
                    if record.deleted {
                        self.records.remove(&id);
                    } else {
                        self.records.insert(id, record.seq);
                    }
                }
                self.cursor = Some(page.cursor);
                self.more = page.more;
            }
            Err(Rejection::CursorInvalid {
                reason: CursorReason::Expired,
            }) => {
                *self = Self {
                    more: true,
                    ..Self::default()
                };
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    /// While others push, delete and rotate, and tombstones are swept, a device that pulls to the
    /// end has every record and no ghost: a cursor is expired in time.
    #[test]
    fn no_order_of_pushes_pulls_and_sweeps_loses_a_record(steps in steps(), request in requests()) {
        let held: BTreeSet<u64> = (1..200).collect();
        let mut shelf = Shelf::new();
        let mut replica = Replica::default();
        for step in steps {
            match step {
                Step::Write { id, bytes, deleted } => shelf.write(&format!("r{id}"), bytes, deleted),
                Step::Rotate => shelf.rotate(),
                Step::Sweep { to } => {
                    let head = shelf.head();
                    shelf.sweep(u64::from(to) % (head + 1));
                }
                Step::Pull => replica.pull(&shelf, &request, &held),
                // The device starts over for a reason of its own.
                Step::Lose => replica = Replica::default(),
            }
        }
        let mut pulls = 0;
        loop {
            replica.pull(&shelf, &request, &held);
            pulls += 1;
            prop_assert!(pulls < 100, "the walk does not end");
            if !replica.more {
                break;
            }
        }
        let there: BTreeMap<String, u64> = shelf.rows.iter()
            .filter(|(_, row)| !row.deleted)
            .map(|(seq, row)| (row.id.clone(), *seq))
            .collect();
        prop_assert_eq!(replica.records, there);
    }
}

#[test]
fn a_record_larger_than_a_page_is_a_page() {
    let mut shelf = Shelf::new();
    for id in ["small", "large", "small too"] {
        shelf.write(id, if id == "large" { 50 } else { 5 }, false);
    }
    let pages = Pages {
        max_pull_bytes: 10,
        ..Pages::default()
    };
    let request = Pull {
        pages,
        ..request(9, None)
    };
    let sizes: Vec<usize> = walk(&shelf, &request, &BTreeSet::from([1]))
        .iter()
        .map(|page| page.records.len())
        .collect();
    assert_eq!(sizes, [1, 1, 1]);
}

#[test]
fn a_page_ends_exactly_at_its_bytes() {
    let mut shelf = Shelf::new();
    for id in ["a", "b", "c"] {
        shelf.write(id, 5, false);
    }
    let sizes = |max_pull_bytes: u64| -> Vec<usize> {
        let pages = Pages {
            max_pull_bytes,
            ..Pages::default()
        };
        let request = Pull {
            pages,
            ..request(9, None)
        };
        let pages = walk(&shelf, &request, &BTreeSet::from([1]));
        pages.iter().map(|page| page.records.len()).collect()
    };
    assert_eq!(sizes(9), [1, 1, 1]);
    assert_eq!(sizes(10), [2, 1]);
    assert_eq!(sizes(14), [2, 1]);
    assert_eq!(sizes(15), [3]);
}
