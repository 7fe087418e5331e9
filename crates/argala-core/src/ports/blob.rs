//! Where sealed blobs lie.

use std::{fmt, io, ops::Range, pin::Pin, time::Duration};

use argala_wire::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;

use crate::StoreResult;

/// Bytes on their way in or out, piece by piece.
pub type ByteStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The name of an object: the database's instance id, a slash, and random hex. Made by the relay;
/// no client's id ever becomes part of one, so none becomes part of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Box<str>);

impl ObjectKey {
    /// A key from the database's instance id and random bytes.
    #[must_use]
    pub fn new(instance: &str, random: [u8; 16]) -> Self {
        use fmt::Write as _;
        let mut key = format!("{instance}/");
        for byte in random {
            write!(key, "{byte:02x}").expect("a string takes what is written");
        }
        Self(key.into())
    }

    /// A key that a store gave out before; `None` where it has any form but ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let (instance, object) = text.split_once('/')?;
        (hex(instance) && hex(object)).then(|| Self(text.into()))
    }

    /// The key as text: two parts of lower-case hex with a slash between.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a store tells of an object that it lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its name.
    pub key: ObjectKey,
    /// Its bytes.
    pub size: u64,
    /// When it was last written, by the store's own clock.
    pub modified_at: Timestamp,
}

/// Where an object may be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectLink {
    /// From this URL, which is a secret while it lasts.
    At(String),
    /// Nowhere: there is no such object.
    Missing,
    /// From the store alone: it gives out no links.
    None,
}

/// Keeps objects. Knows nothing of graphs, members or quotas: those are rows in the [`Store`].
///
/// [`Store`]: crate::ports::Store
#[async_trait]
pub trait BlobStore: Send + Sync + 'static {
    /// Stores all of `body` under `key`, which is fresh. Once it returns, the object is durable.
    ///
    /// # Errors
    /// Where the store fails, and where `body` yields an error; nothing readable is then left
    /// under `key`, and what may be left otherwise goes with [`delete`](Self::delete).
    async fn put(&self, key: &ObjectKey, size: u64, body: ByteStream) -> StoreResult<()>;

    /// The object's bytes within `range` (end excluded, inside the object), or all of them.
    /// `None` where there is no such object.
    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> StoreResult<Option<ByteStream>>;

    /// Removes the object. Again, or where there is none: nothing to do, and no error.
    async fn delete(&self, key: &ObjectKey) -> StoreResult<()>;

    /// The objects of one database, which is named by its instance id, after `after`; by key (byte
    /// order), at most `limit` and one at least. Fewer than `limit` are the last. Objects of
    /// other databases and whatever else lies in the store are not told.
    ///
    /// What a put has not finished may be among them: age tells such from those that were left.
    async fn list(
        &self,
        instance: &str,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> StoreResult<Vec<ListedObject>>;

    /// A link by which anybody may read the object for as long as `lifetime`, where the store
    /// gives out links.
    async fn link(&self, key: &ObjectKey, lifetime: Duration) -> StoreResult<ObjectLink> {
        let _ = (key, lifetime);
        Ok(ObjectLink::None)
    }
}
