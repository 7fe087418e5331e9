//! A graph's rows as a store would read them for a pull, in memory.

use std::collections::{BTreeMap, BTreeSet};

use argala_core::{
    Rejection,
    ports::store::{Graph, Pull, PullPage},
    rules::pull::{EpochSpan, Offer, Plan, plan},
};
use argala_testkit::{EPOCH, device_ref, record_id};
use argala_wire::{Sealed, limits::Pages, records::PulledRecord};

use crate::given::{graph, key};

/// A row: enough of it to be pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub id: String,
    pub epoch: u64,
    pub bytes: usize,
    pub deleted: bool,
}

/// A graph, its rows by seq, and where its epochs began.
#[derive(Debug, Clone)]
pub(crate) struct Shelf {
    pub graph: Option<Graph>,
    pub rows: BTreeMap<u64, Row>,
    pub firsts: Vec<u64>,
}

impl Shelf {
    /// A graph of epoch 1 without rows.
    pub(crate) fn new() -> Self {
        Self {
            graph: Some(graph(1, 0)),
            rows: BTreeMap::new(),
            firsts: vec![1],
        }
    }

    /// A graph that nobody has rotated yet.
    pub(crate) fn unkeyed() -> Self {
        Self {
            graph: None,
            rows: BTreeMap::new(),
            firsts: Vec::new(),
        }
    }

    pub(crate) fn graph(&mut self) -> &mut Graph {
        self.graph.as_mut().expect("keyed")
    }

    pub(crate) fn head(&self) -> u64 {
        self.graph.as_ref().map_or(0, |graph| graph.head)
    }

    /// Writes a row at the next seq, in place of the one of its id.
    pub(crate) fn write(&mut self, id: &str, bytes: usize, deleted: bool) {
        self.rows.retain(|_, row| row.id != id);
        let graph = self.graph();
        graph.head += 1;
        let (seq, epoch) = (graph.head, graph.epoch);
        let row = Row {
            id: id.to_owned(),
            epoch,
            bytes,
            deleted,
        };
        self.rows.insert(seq, row);
    }

    pub(crate) fn rotate(&mut self) {
        let graph = self.graph();
        graph.epoch += 1;
        let first = graph.head + 1;
        self.firsts.push(first);
    }

    /// Sweeps tombstones up to `floor`.
    pub(crate) fn sweep(&mut self, floor: u64) {
        self.rows.retain(|seq, row| !row.deleted || *seq > floor);
        let graph = self.graph();
        graph.floor = graph.floor.max(floor);
    }

    fn span(&self, epoch: u64) -> Option<EpochSpan> {
        let at = usize::try_from(epoch).unwrap().checked_sub(1)?;
        Some(EpochSpan {
            first: *self.firsts.get(at)?,
            next: self.firsts.get(at + 1).copied(),
        })
    }

    /// What a store does: plans, then offers row after row.
    pub(crate) fn pull(
        &self,
        request: &Pull,
        held: &BTreeSet<u64>,
    ) -> Result<Option<PullPage>, Rejection> {
        let span = request.epoch.and_then(|epoch| self.span(epoch));
        let mut page = match plan(request, self.graph.as_ref(), held, span)? {
            Plan::Unchanged { .. } => return Ok(None),
            Plan::Read(page) => page,
        };
        let (after, until) = (page.after(), page.until());
        let most = page.rows_at_most();
        let rows = self
            .rows
            .iter()
            .filter(|(seq, _)| after < **seq && **seq <= until);
        let mut full = false;
        for (at, (seq, row)) in rows.enumerate() {
            assert!(at < most, "a page asks for no more rows than it says");
            let alone = request.epoch.is_none_or(|epoch| epoch == row.epoch);
            assert!(alone, "a walk of one epoch reads no other's rows");
            match page.offer(*seq, row.epoch, row.bytes as u64) {
                Offer::Take => page.add(PulledRecord {
                    id: record_id(&row.id),
                    seq: *seq,
                    epoch: row.epoch,
                    by: device_ref("sam", "laptop"),
                    at: EPOCH,
                    ciphertext: Sealed(vec![1; row.bytes]),
                    sig: None,
                    deleted: row.deleted,
                }),
                Offer::Pass => {}
                Offer::Full => {
                    full = true;
                    break;
                }
            }
        }
        let page = page.finish();
        assert_eq!(page.page.more, full);
        Ok(Some(page))
    }

    /// A page, where there must be one.
    pub(crate) fn page(&self, request: &Pull, held: &BTreeSet<u64>) -> PullPage {
        self.pull(request, held).unwrap().expect("nothing is known")
    }
}

/// Asks for the first page of all, or of one epoch.
pub(crate) fn request(limit: usize, epoch: Option<u64>) -> Pull {
    Pull {
        key: key(),
        device: device_ref("sam", "laptop"),
        cursor: None,
        limit,
        epoch,
        variant: "json",
        known: Vec::new(),
        pages: Pages::default(),
    }
}

/// Asks for the page after `page`.
pub(crate) fn next(request: &Pull, page: &PullPage) -> Pull {
    Pull {
        cursor: Some(page.page.cursor.clone()),
        ..request.clone()
    }
}
