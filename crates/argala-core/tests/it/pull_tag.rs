//! What the tag of a page covers (protocol, route 11).

use std::collections::BTreeSet;

use argala_core::{
    Rejection,
    ports::store::{Graph, Pull},
};
use argala_testkit::group;
use argala_wire::{StorageKey, records::CursorReason};
use proptest::prelude::*;

use crate::shelf::{Shelf, next, request};

/// All that a tag covers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Covered {
    head: u64,
    epoch: u64,
    revocation: bool,
    directory: bool,
    held: BTreeSet<u64>,
    limit: usize,
    only: Option<u64>,
    cursor: bool,
    variant: &'static str,
}

fn covered() -> impl Strategy<Value = Covered> {
    (
        (1..4_u64, 1..4_u64, any::<bool>(), any::<bool>()),
        prop::collection::btree_set(1..4_u64, 0..3),
        (1..4_usize, prop::option::of(1..3_u64), any::<bool>()),
        prop::sample::select(vec!["json", "cbor"]),
    )
        .prop_map(
            |((head, epoch, revocation, directory), held, (limit, only, cursor), variant)| {
                Covered {
                    head,
                    epoch,
                    revocation,
                    directory,
                    held,
                    limit,
                    only,
                    cursor,
                    variant,
                }
            },
        )
}

impl Covered {
    fn shelf(&self) -> Shelf {
        let mut shelf = Shelf::new();
        for epoch in 1..=self.epoch {
            if epoch > 1 {
                shelf.rotate();
            }
        }
        let graph = shelf.graph();
        graph.head = self.head;
        graph.revocation_owed = self.revocation;
        graph.directory_owed = self.directory;
        shelf
    }

    fn request(&self) -> Pull {
        let first = Pull {
            variant: self.variant,
            ..request(self.limit, self.only)
        };
        if !self.cursor {
            return first;
        }
        // One and the same cursor wherever one is sent: from when the graph was new.
        let page = Shelf::new().page(&first, &BTreeSet::new());
        next(&first, &page)
    }

    fn tag(&self) -> String {
        self.shelf().page(&self.request(), &self.held).tag
    }

    /// What the tag should tell apart: the flag that is told, not what it is made of.
    fn essence(&self) -> Self {
        Self {
            revocation: self.revocation || self.directory,
            directory: false,
            ..self.clone()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn equal_where_all_that_it_covers_is_and_only_there(one in covered(), other in covered()) {
        prop_assert_eq!(one.tag() == other.tag(), one.essence() == other.essence());
    }

    /// One difference alone is enough.
    #[test]
    fn each_part_counts(base in covered(), part in 0..8) {
        let mut other = base.clone();
        match part {
            0 => other.head += 1,
            1 => other.epoch += 1,
            2 => {
                other.revocation = !(base.revocation || base.directory);
                other.directory = false;
            }
            3 => { other.held.insert(9); }
            4 => other.limit += 1,
            5 => other.only = Some(base.only.unwrap_or(0) + 1),
            6 => other.cursor = !base.cursor,
            _ => other.variant = "xml",
        }
        prop_assert_ne!(base.tag(), other.tag());
    }

    #[test]
    fn who_has_the_page_is_told_so_and_nobody_else(base in covered(), others in prop::collection::vec("[a-z]{1,5}", 0..3), known: bool) {
        let mut request = base.request();
        request.known = others;
        if known {
            request.known.push(base.tag());
        }
        let page = base.shelf().pull(&request, &base.held).unwrap();
        prop_assert_eq!(page.is_none(), known);
    }
}

#[test]
fn the_graph_is_part_of_it() {
    let shelf = Shelf::new();
    let held = BTreeSet::new();
    let elsewhere = Pull {
        key: StorageKey::group(&group("other")),
        ..request(5, None)
    };
    let tag = shelf.page(&request(5, None), &held).tag;
    assert_ne!(tag, shelf.page(&elsewhere, &held).tag);
    // And so is the incarnation: the same numbers may stand for other records.
    let mut restored = shelf.clone();
    restored.graph = restored.graph.map(|graph| Graph {
        incarnation: 1,
        ..graph
    });
    assert_ne!(tag, restored.page(&request(5, None), &held).tag);
}

#[test]
fn a_bad_cursor_is_told_even_to_who_knows_the_tag() {
    let (shelf, held) = (Shelf::new(), BTreeSet::new());
    let mut asked = next(&request(5, None), &shelf.page(&request(5, None), &held));
    asked.known = vec![shelf.page(&asked, &held).tag];
    assert!(shelf.pull(&asked, &held).unwrap().is_none());
    let mut restored = shelf;
    restored.graph().incarnation += 1;
    assert_eq!(
        restored.pull(&asked, &held).map(|_| ()),
        Err(Rejection::CursorInvalid {
            reason: CursorReason::Ahead
        })
    );
}
