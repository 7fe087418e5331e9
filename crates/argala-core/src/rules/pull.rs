//! Reading a page of records (protocol, route 11).

use std::collections::BTreeSet;

use argala_wire::{
    Sealed, StorageKey,
    limits::Pages,
    records::{CursorReason, PullResponse, PulledRecord},
};
use sha2::{Digest, Sha256};

use crate::{
    Rejection,
    cursor::RecordCursor,
    ports::store::{Graph, Pull, PullPage},
};

/// Where one epoch's seqs lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochSpan {
    /// The first seq the epoch could carry.
    pub first: u64,
    /// The first seq of the epoch that began after it; `None` while none has.
    pub next: Option<u64>,
}

/// What a pull is to read.
#[derive(Debug)]
pub enum Plan {
    /// Nothing: the caller has this page.
    Unchanged {
        /// The page's tag.
        tag: String,
    },
    /// The rows with [`PageBuilder::after`] < seq ≤ [`PageBuilder::until`], ascending.
    Read(Box<PageBuilder>),
}

/// The seq that a pull's cursor has passed, before anything is known of the graph. The page that
/// [`plan`] makes of it begins there or later, but where the cursor is refused.
///
/// # Errors
/// [`Rejection::CursorInvalid`] where the cursor is none, or is another list's: what [`plan`] says
/// of it.
pub fn starts_after(request: &Pull) -> Result<u64, Rejection> {
    match &request.cursor {
        None => Ok(0),
        Some(text) => RecordCursor::read(text, &request.key).map(|cursor| cursor.seq),
    }
}

/// Plans a pull.
///
/// `held` are the epochs of which the device has a wrap, not blanked; `span` is that of the
/// request's epoch, where the request names one and the graph has had it. All of one moment.
///
/// # Errors
/// [`Rejection::CursorInvalid`].
pub fn plan(
    request: &Pull,
    graph: Option<&Graph>,
    held: &BTreeSet<u64>,
    span: Option<EpochSpan>,
) -> Result<Plan, Rejection> {
    let head = graph.map_or(0, |graph| graph.head);
    let incarnation = graph.map_or(0, |graph| graph.incarnation);
    let floor = graph.map_or(0, |graph| graph.floor);
    let epoch = request.epoch.unwrap_or(0);
    let start = RecordCursor {
        incarnation,
        seq: 0,
        began: head,
        epoch,
    };
    let cursor = match &request.cursor {
        None => start,
        Some(text) => {
            let cursor = RecordCursor::read(text, &request.key)?;
            let invalid = |reason| Err(Rejection::CursorInvalid { reason });
            if cursor.epoch != epoch {
                return invalid(CursorReason::Foreign);
            }
            if cursor.incarnation == 0 {
                // Given before the graph existed: nothing has been passed, so the walk begins now.
                start
            } else if cursor.incarnation != incarnation || cursor.seq > head {
                return invalid(CursorReason::Ahead);
            } else if floor > cursor.began && floor > cursor.seq {
                return invalid(CursorReason::Expired);
            } else {
                cursor
            }
        }
    };

    let tag = tag(request, graph, held);
    if request.known.contains(&tag) {
        return Ok(Plan::Unchanged { tag });
    }
    let (first, until) = match (request.epoch, span) {
        (None, _) => (1, head),
        (Some(_), Some(span)) => (span.first, span.next.map_or(head, |next| next - 1)),
        // An epoch that has not begun: nothing now, and a cursor from which it can be walked.
        (Some(_), None) => (1, 0),
    };
    Ok(Plan::Read(Box::new(PageBuilder {
        key: request.key.clone(),
        cursor: RecordCursor {
            seq: cursor.seq.max(first - 1),
            ..cursor
        },
        until,
        limit: request.limit,
        pages: request.pages,
        held: held.clone(),
        only: request.epoch,
        taken: 0,
        bytes: 0,
        full: false,
        tag,
        page: PullResponse {
            records: Vec::new(),
            cursor: String::new(),
            more: false,
            head,
            epoch: graph.map_or(0, |graph| graph.epoch),
            filtered: 0,
            rotation_owed: graph.is_some_and(Graph::rotation_owed),
        },
    })))
}

fn tag(request: &Pull, graph: Option<&Graph>, held: &BTreeSet<u64>) -> String {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    field(request.key.as_str().as_bytes());
    field(request.variant.as_bytes());
    field(request.cursor.as_deref().unwrap_or_default().as_bytes());
    field(&(request.limit as u64).to_be_bytes());
    field(&request.epoch.unwrap_or(0).to_be_bytes());
    if let Some(graph) = graph {
        for number in [graph.incarnation, graph.head, graph.epoch, graph.floor] {
            field(&number.to_be_bytes());
        }
        field(&[u8::from(graph.rotation_owed())]);
    }
    for epoch in held {
        field(&epoch.to_be_bytes());
    }
    Sealed(hash.finalize()[..18].to_vec()).to_base64url()
}

/// What to do with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It belongs to the page: read it and [`PageBuilder::add`] it.
    Take,
    /// It is passed over; go on.
    Pass,
    /// The page is full, and this row is for the next one.
    Full,
}

/// Puts a page together, row by row.
#[derive(Debug)]
pub struct PageBuilder {
    key: StorageKey,
    cursor: RecordCursor,
    until: u64,
    limit: usize,
    pages: Pages,
    held: BTreeSet<u64>,
    only: Option<u64>,
    // Counted when they are offered: a store may choose all of a page's rows before it reads any.
    taken: usize,
    bytes: u64,
    full: bool,
    tag: String,
    page: PullResponse,
}

impl PageBuilder {
    /// Read rows after this seq.
    #[must_use]
    pub const fn after(&self) -> u64 {
        self.cursor.seq
    }

    /// Read rows up to this seq, itself included. May lie before [`after`](Self::after): then
    /// there is nothing to read.
    #[must_use]
    pub const fn until(&self) -> u64 {
        self.until
    }

    /// The most rows that one page can ask to see: those it returns, those it passes over, and
    /// the one that shows that there are more.
    #[must_use]
    pub fn rows_at_most(&self) -> usize {
        self.limit + usize::try_from(self.pages.max_filtered).unwrap_or(usize::MAX / 2) + 1
    }

    /// Says what to do with the row of `seq`, whose ciphertext has `bytes` bytes.
    pub fn offer(&mut self, seq: u64, epoch: u64, bytes: u64) -> Offer {
        if self.only.is_some_and(|only| only != epoch) {
            self.cursor.seq = seq;
            return Offer::Pass;
        }
        let held = self.held.contains(&epoch);
        let no_room = if held {
            self.taken == self.limit
                || (self.taken > 0 && self.bytes + bytes > self.pages.max_pull_bytes)
        } else {
            self.page.filtered == self.pages.max_filtered
        };
        if no_room {
            self.full = true;
            return Offer::Full;
        }
        self.cursor.seq = seq;
        if held {
            self.taken += 1;
            self.bytes += bytes;
            Offer::Take
        } else {
            self.page.filtered += 1;
            Offer::Pass
        }
    }

    /// Adds a record that was to be taken.
    pub fn add(&mut self, record: PulledRecord) {
        self.page.records.push(record);
    }

    /// Ends the page: because it is full, or because there are no more rows.
    #[must_use]
    pub fn finish(mut self) -> PullPage {
        self.page.more = self.full;
        if !self.full {
            // Every seq up to here has been seen: nothing can appear below the head any more.
            self.cursor.seq = self.cursor.seq.max(self.until);
        }
        self.page.cursor = self.cursor.write(&self.key);
        PullPage {
            page: self.page,
            tag: self.tag,
        }
    }
}
