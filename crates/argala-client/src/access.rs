//! The narrow door to a graph's plaintext: what an application that keeps its own copy of the
//! truth needs, the folder sync among them.
//!
//! [`GraphAccess`] is implemented by [`Session`](crate::Session). Writers that have no other home
//! for what they write use the session's outbox instead, which holds writes while the device's
//! keys are behind.

use std::{collections::BTreeSet, fmt, future::Future, path::Path};

use argala_wire::{BlobId, GraphId, RecordId, Timestamp, devices::DeviceRef};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Refusal};

/// What a record is for; declared by the application that writes it. 1 to 64 characters of
/// `a–z 0–9 . _ / -`.
///
/// The kind is sealed with the record, so the relay never sees it, and a record of a kind that the
/// reading application has not declared is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Kind(Box<str>);

impl Kind {
    /// Takes `text` as a kind; `None` where it is none.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let legal = |b: u8| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'/' | b'-')
        };
        let fits = (1..=64).contains(&text.len());
        (fits && text.bytes().all(legal)).then(|| Self(text.into()))
    }

    /// The kind as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Kind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text).ok_or("a kind is 1 to 64 characters of a-z 0-9 . _ / -")
    }
}

impl TryFrom<String> for Kind {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.0.into()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One record to be pushed, in plaintext.
#[derive(Clone, PartialEq, Eq)]
pub struct Write {
    /// The item; a later write to the same id replaces it.
    pub id: RecordId,
    /// What it is for.
    pub kind: Kind,
    /// The item itself; for a tombstone what the application wants to say with it, often nothing.
    pub body: Vec<u8>,
    /// Whether this is a tombstone. It is sealed and signed as any other record.
    pub deleted: bool,
    /// The seq that the record must have now (0: there must be none); `None` overwrites whatever
    /// there is.
    pub expect: Option<u64>,
}

/// Hides what is written.
impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Write({}, {} bytes)", self.kind, self.body.len())
    }
}

/// One pulled record whose signature, pusher, seal and kind were found good.
#[derive(Clone, PartialEq, Eq)]
pub struct Item {
    /// The item's id.
    pub id: RecordId,
    /// The seq of this version, good as [`Write::expect`].
    pub seq: u64,
    /// The epoch that it was sealed under.
    pub epoch: u64,
    /// The device that wrote it, as its signature proves.
    pub by: DeviceRef,
    /// When the relay took it, by the relay's clock.
    pub at: Timestamp,
    /// What it is for.
    pub kind: Kind,
    /// The item itself.
    pub body: Vec<u8>,
    /// Whether it is a tombstone.
    pub deleted: bool,
}

/// Hides the id and the body.
impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Item(seq {}, {}, {} bytes)",
            self.seq,
            self.kind,
            self.body.len()
        )
    }
}

/// A pulled record that was refused. It is no deletion: the relay has *some* version of the item
/// at this seq, only not one to be believed or understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The item's id.
    pub id: RecordId,
    /// The seq that the relay gave it.
    pub seq: u64,
    /// The device that the relay names as its pusher.
    pub by: DeviceRef,
    /// Why it was refused.
    pub why: Refusal,
}

/// How far a reader has come in one graph. Opaque; the reader stores it beside what it made of
/// the items, in the same transaction where it can, and hands it back. `Default` is the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Position {
    /// Cursor of the walk over all epochs; `None` before its first page.
    pub(crate) cursor: Option<String>,
    /// The greatest head that any page of that walk told.
    pub(crate) head: u64,
    /// Epochs whose records the walk could read, or that were read by a walk of their own.
    pub(crate) epochs: BTreeSet<u64>,
    /// Whether the relay held records back on the main walk, for want of their epochs' keys.
    pub(crate) held_back: bool,
    /// Whether the last page of the main walk said that there is a next one.
    pub(crate) in_walk: bool,
    /// The walk over one epoch that is under way, its key having come late.
    pub(crate) late: Option<Late>,
    /// Kinds declared when the walk began: a new one means that refused records may be wanted.
    pub(crate) kinds: BTreeSet<Kind>,
}

/// A walk over the records of one epoch whose key came after the main walk had passed them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Late {
    pub(crate) epoch: u64,
    pub(crate) cursor: Option<String>,
}

impl Position {
    /// Whether nothing has been pulled with it yet.
    #[must_use]
    pub fn is_start(&self) -> bool {
        self.cursor.is_none()
    }
}

/// One page of a pull.
#[derive(Debug, Clone)]
pub struct Pulled {
    /// Good records, each the newest version of its item as of this page. Within a page seqs
    /// rise. The same version may come again on a later page; an older one never does.
    pub items: Vec<Item>,
    /// Records that were refused, and why.
    pub refused: Vec<Refused>,
    /// Where the next page begins. Store it once the items are dealt with.
    pub position: Position,
    /// Whether there is a next page now.
    pub more: bool,
    /// Whether this page is the first of a walk from the graph's start: at the first pull, when
    /// the relay no longer accepts the position, or when a kind was declared since. An item that
    /// does not appear from here to the page without `more` exists no longer (only if none were
    /// [`filtered`](Self::filtered) on the way).
    pub from_start: bool,
    /// Records held back by the relay on this page, since the device has no key of their epoch.
    pub filtered: u64,
    /// The graph's newest seq.
    pub head: u64,
    /// Whether the device has no key of the current epoch, so that pushes are held.
    pub behind: bool,
}

/// What became of one [`Write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is stored and durable.
    Accepted {
        /// The seq that the graph gave it.
        seq: u64,
    },
    /// It was refused; a `conflict` tells the seq that the record has.
    Refused(Refusal),
    /// It was not sent: the device has no key of the current epoch, or the graph has no key. The
    /// caller keeps it and tries again after a grant (or a first rotate).
    KeysBehind,
}

/// A blob that was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// The blob.
    pub id: BlobId,
    /// Bytes of plaintext.
    pub size: u64,
    /// SHA-256 of the plaintext; carried in a signed record it proves who wrote the blob.
    pub sha256: [u8; 32],
    /// The epoch that it was sealed under.
    pub epoch: u64,
}

/// Reading and writing the plaintext of graphs.
pub trait GraphAccess {
    /// The device that this is.
    fn device(&self) -> &DeviceRef;

    /// Pulls the next page after `position`: verified, decrypted, of declared kinds.
    ///
    /// # Errors
    /// [`Error::Relay`], [`Error::Offline`] and failures of the local files. A cursor that the
    /// relay no longer accepts is no error: the page then is [`Pulled::from_start`].
    fn pull(
        &mut self,
        graph: &GraphId,
        position: &Position,
    ) -> impl Future<Output = Result<Pulled, Error>> + Send;

    /// Seals, signs and pushes `writes`, split into as many requests as the relay's limits ask
    /// for. One outcome for each write, in order. Ids must not repeat. Nothing is held: what is
    /// [`Outcome::KeysBehind`] stays with the caller.
    ///
    /// # Errors
    /// [`Error::Relay`] where the push as a whole was refused, [`Error::Offline`] where it is open
    /// whether it was made.
    fn push(
        &mut self,
        graph: &GraphId,
        writes: &[Write],
    ) -> impl Future<Output = Result<Vec<Outcome>, Error>> + Send;

    /// Seals the file at `from` and puts it as the blob `id`, never held whole in memory. The same
    /// file under the same id and epoch is the same blob, so a repeat does no harm.
    ///
    /// # Errors
    /// [`Error::KeysBehind`] and [`Error::Unkeyed`] where nothing could be sealed,
    /// [`Error::Relay`] with `blob_exists` where the id holds another file.
    fn put_blob(
        &mut self,
        graph: &GraphId,
        id: &BlobId,
        from: &Path,
    ) -> impl Future<Output = Result<StoredBlob, Error>> + Send;

    /// Gets the blob `id`, opens it and writes it to `to`, which appears whole or not at all
    /// (temporary name in the same folder, fsync, rename; what was at `to` is replaced). Where
    /// `sha256` is given the plaintext must have it. Answers with its size.
    ///
    /// # Errors
    /// [`Error::Unreadable`] where the blob is not what was sealed, [`Error::KeysBehind`] where
    /// the device has no key of its epoch, [`Error::Relay`] with `blob_not_found`.
    fn get_blob(
        &mut self,
        graph: &GraphId,
        id: &BlobId,
        to: &Path,
        sha256: Option<&[u8; 32]>,
    ) -> impl Future<Output = Result<u64, Error>> + Send;
}
