//! The graph, as the engine works with it: records in plaintext, and blobs.

use argala_wire::{BlobId, devices::DeviceRef};

use super::content::Part;
use crate::{Error, Outcome, Position, Pulled, Write};

/// What may be concluded from the items that a walk over the whole graph does *not* show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The page continues an earlier one.
    No,
    /// The walk began anew, in the same time of the same graph: a record that it does not show was
    /// deleted so long ago that its tombstone is swept.
    Anew,
    /// The walk began anew, and the relay may have been restored from a backup: a record that it
    /// does not show may be one that the relay has lost.
    Unsure,
}

/// One page of a pull.
#[derive(Debug, Clone)]
pub struct Page {
    /// The page.
    pub pulled: Pulled,
    /// Whether it is the first of a walk over the whole graph.
    pub start: Start,
}

/// A graph that files are synced with.
#[expect(
    async_fn_in_trait,
    reason = "the engine is one task of one command; nobody needs these futures to be Send"
)]
pub trait Remote {
    /// This device, as the names of conflicting files tell it.
    fn device(&self) -> &str;

    /// Whether `by` is this device.
    fn is_own(&self, by: &DeviceRef) -> bool;

    /// The most bytes of a file that goes into its record whole.
    fn inline_bytes(&self) -> usize;

    /// The most bytes of one part of any other file.
    fn part_bytes(&self) -> usize;

    /// The next page after `position`.
    async fn pull(&mut self, position: &Position) -> Result<Page, Error>;

    /// Pushes `writes`, each of which names the seq that it expects. One outcome each, in order.
    async fn push(&mut self, writes: &[Write]) -> Result<Vec<Outcome>, Error>;

    /// Puts a part; the same part again does no harm.
    async fn put_part(&mut self, blob: &BlobId, bytes: &[u8]) -> Result<(), Error>;

    /// Gets a part, and makes sure that it is what was put.
    async fn get_part(&mut self, part: &Part) -> Result<Vec<u8>, Error>;

    /// Deletes a blob. That it is gone already is no error.
    async fn forget_blob(&mut self, blob: &BlobId) -> Result<(), Error>;

    /// A blob id that nobody has used.
    fn new_blob_id(&mut self) -> BlobId;

    /// 32 bytes that nobody can guess.
    fn new_secret(&mut self) -> [u8; 32];
}
