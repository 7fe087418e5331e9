//! What a device remembers between two syncs: the last version of each file on which it and the
//! graph agreed, and what it was doing when it was interrupted.

use std::collections::{BTreeMap, BTreeSet};

use argala_wire::{BlobId, GraphId, RecordId};
use serde::{Deserialize, Serialize};

use super::{
    content::{Content, ContentHash, Part},
    error::SyncError,
    path::RelPath,
    payload::FolderSecret,
};
use crate::Position;

/// What the file system tells of a file without reading it. A file with another stamp than when
/// it was last read has to be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Bytes.
    pub size: u64,
    /// Time of the last change of the content, nanoseconds since 1970.
    pub mtime: i64,
    /// Time of the last change of anything, nanoseconds since 1970.
    pub ctime: i64,
    /// The inode's number.
    pub inode: u64,
}

/// A live record, as this device last agreed with the graph on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Base {
    /// The seq of that version.
    pub seq: u64,
    /// What it held; `None` where the graph has lost it, so that nothing is agreed on.
    pub content: Option<Content>,
    /// The name of the file here, where it is not the record's path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<RelPath>,
    /// The blobs that it is made of; none where the content lies in the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// The device that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<str>>,
    /// The file's stamp when it was seen to hold `content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
}

impl Base {
    /// The name of the file here.
    pub(crate) fn name<'a>(&'a self, path: &'a RelPath) -> &'a RelPath {
        self.local.as_ref().unwrap_or(path)
    }
}

/// Blobs put, or being put, for a version that the graph has not accepted yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Upload {
    /// The file's content as it is being put.
    pub hash: ContentHash,
    /// The seq that the record had then.
    pub expect: u64,
    /// Parts that the relay has.
    pub parts: Vec<Part>,
    /// The part that was on its way: the relay may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<BlobId>,
    /// Whether a run already ended without any use for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

impl Upload {
    /// Every blob that the relay may have.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = &BlobId> {
        self.parts.iter().map(|part| &part.blob).chain(&self.next)
    }
}

/// The folder's record, once this device knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// The graph that the folder is synced with.
    pub graph: GraphId,
    /// What names the records.
    pub secret: FolderSecret,
    /// The seq that a record in its place must expect, where the graph no longer has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

/// A record of the graph that could not be made a file of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRecord {
    /// The seq of the version that was refused.
    pub seq: u64,
    /// The device that is said to have written it.
    pub by: Box<str>,
    /// Why, as a word.
    pub why: Box<str>,
}

/// All that is remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// The folder's record.
    pub(crate) folder: Option<Folder>,
    /// How far the graph was pulled.
    pub(crate) position: Position,
    /// Live records by path.
    pub(crate) base: BTreeMap<RelPath, Base>,
    /// The seq of each tombstone, which a new file at the path must name.
    pub(crate) graves: BTreeMap<RelPath, u64>,
    /// Pushes of which it is not known what came of them: the content sent, `None` for a tombstone.
    pub(crate) sent: BTreeMap<RelPath, Option<Content>>,
    /// Blobs of pushes that are not accepted.
    pub(crate) uploads: BTreeMap<RelPath, Upload>,
    /// Blobs that no record names any longer.
    pub(crate) garbage: BTreeSet<BlobId>,
    /// Records that were refused.
    #[serde(with = "by_id")]
    pub(crate) refused: BTreeMap<RecordId, RefusedRecord>,
}

/// One change of a [`State`]. Each is whole in itself, and making it again changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StateOp {
    /// The folder's record is known.
    Folder(Folder),
    /// The folder begins anew under another record: everything else is forgotten.
    StartOver(Folder),
    /// Pulled up to here.
    Position(Position),
    /// The path has a live record.
    Base(RelPath, Box<Base>),
    /// The path has no live record, but a tombstone with this seq (0: none either).
    Grave(RelPath, u64),
    /// A push is about to be made.
    Sent(RelPath, Option<Content>),
    /// Its outcome is known.
    Unsent(RelPath),
    /// Blobs are being put for this path.
    Upload(RelPath, Upload),
    /// They were accepted with a record, or given up.
    NoUpload(RelPath),
    /// No record names the blob any longer.
    Garbage(BlobId),
    /// The relay no longer has it.
    Collected(BlobId),
    /// A record was refused.
    Refused(RecordId, RefusedRecord),
    /// It no longer is.
    Unrefused(RecordId),
}

impl State {
    pub(crate) fn apply(&mut self, op: StateOp) {
        match op {
            StateOp::Folder(folder) => self.folder = Some(folder),
            StateOp::StartOver(folder) => {
                *self = Self {
                    folder: Some(folder),
                    ..Self::default()
                };
            }
            StateOp::Position(position) => self.position = position,
            StateOp::Base(path, base) => {
                self.graves.remove(&path);
                self.base.insert(path, *base);
            }
            StateOp::Grave(path, seq) => {
                self.base.remove(&path);
                if seq == 0 {
                    self.graves.remove(&path);
                } else {
                    self.graves.insert(path, seq);
                }
            }
            StateOp::Sent(path, content) => {
                self.sent.insert(path, content);
            }
            StateOp::Unsent(path) => {
                self.sent.remove(&path);
            }
            StateOp::Upload(path, upload) => {
                self.uploads.insert(path, upload);
            }
            StateOp::NoUpload(path) => {
                self.uploads.remove(&path);
            }
            StateOp::Garbage(blob) => {
                self.garbage.insert(blob);
            }
            StateOp::Collected(blob) => {
                self.garbage.remove(&blob);
            }
            StateOp::Refused(id, refused) => {
                self.refused.insert(id, refused);
            }
            StateOp::Unrefused(id) => {
                self.refused.remove(&id);
            }
        }
    }

    /// The seq that the record at `path` must have for a push from here to be accepted.
    pub(crate) fn expect(&self, path: &RelPath) -> u64 {
        let base = self.base.get(path).map(|base| base.seq);
        base.or_else(|| self.graves.get(path).copied()).unwrap_or(0)
    }
}

/// Where a [`State`] survives the process.
pub trait StateStore {
    /// What was stored; the default where nothing ever was.
    ///
    /// # Errors
    /// Where it cannot be read, or was written by a newer client.
    fn load(&mut self) -> Result<State, SyncError>;

    /// Appends `ops`. They survive the process once this returns, and a loss of power where
    /// `durable`; a part of them from the front may survive where it does not return.
    ///
    /// # Errors
    /// Where they cannot be written.
    fn append(&mut self, ops: &[StateOp], durable: bool) -> Result<(), SyncError>;
}

/// Record ids are no keys of a JSON map by themselves.
mod by_id {
    use std::collections::BTreeMap;

    use argala_wire::RecordId;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::RefusedRecord;

    type Map = BTreeMap<RecordId, RefusedRecord>;

    pub(super) fn serialize<S: Serializer>(map: &Map, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Map, D::Error> {
        let pairs = Vec::<(RecordId, RefusedRecord)>::deserialize(from)?;
        Ok(pairs.into_iter().collect())
    }
}
