//! The graph of a real session.

use argala_wire::{BlobId, Code, GraphId, devices::DeviceRef, records::CursorReason};
use bytes::Bytes;

use super::{
    content::Part,
    payload::file_kind,
    remote::{Page, Remote, Start},
};
use crate::{
    Error, GraphAccess, Outcome, Position, Session, Write,
    crypto::random,
    session::{BlobOptions, BlobSource},
};

/// A file of at most this many bytes goes into its record whole, so that pulling brings it along.
const INLINE: u64 = 256 * 1024;
/// The most bytes of one part of a larger file. What of it is on its way is in memory, and a
/// transfer that was cut begins anew with its part.
const PART: u64 = 8 * 1024 * 1024;
/// What a record says beside the file's bytes, its path included, at the most.
const BESIDE_BYTES: u64 = 8 * 1024;

/// One graph, as a session reads and writes it.
pub struct SessionRemote<'a> {
    session: &'a mut Session,
    graph: GraphId,
    inline_bytes: usize,
    part_bytes: usize,
}

impl<'a> SessionRemote<'a> {
    /// The graph `graph` of `session`, which must have declared [`super::file_kind`] and
    /// [`super::folder_kind`].
    ///
    /// # Errors
    /// [`Error::Relay`] and [`Error::Offline`]: the relay is asked for its limits.
    pub async fn new(session: &'a mut Session, graph: GraphId) -> Result<Self, Error> {
        let body = session.largest_body(&file_kind()).await?;
        let inline = body.saturating_sub(BESIDE_BYTES).min(INLINE);
        let part = session.largest_blob().await?.clamp(1, PART);
        let fitting = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Self {
            session,
            graph,
            inline_bytes: fitting(inline),
            part_bytes: fitting(part),
        })
    }
}

impl Remote for SessionRemote<'_> {
    fn device(&self) -> &str {
        self.session.device().device_id.as_str()
    }

    fn is_own(&self, by: &DeviceRef) -> bool {
        self.session.device() == by
    }

    fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    fn part_bytes(&self) -> usize {
        self.part_bytes
    }

    async fn pull(&mut self, position: &Position) -> Result<Page, Error> {
        let pulled = self.session.pull(&self.graph, position).await?;
        let start = match (pulled.from_start, self.session.started_over(&self.graph)) {
            (false, _) => Start::No,
            // By itself, or since tombstones were swept: either way the graph is the same.
            (true, None | Some(CursorReason::Expired)) => Start::Anew,
            (true, Some(_)) => Start::Unsure,
        };
        Ok(Page { pulled, start })
    }

    async fn push(&mut self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        self.session.push(&self.graph, writes).await
    }

    async fn put_part(&mut self, blob: &BlobId, bytes: &[u8]) -> Result<(), Error> {
        let from = BlobSource::Bytes(Bytes::copy_from_slice(bytes));
        let options = BlobOptions::default();
        let put = self
            .session
            .put_blob_with(&self.graph, blob, &from, options);
        put.await.map(|_| ())
    }

    async fn get_part(&mut self, part: &Part) -> Result<Vec<u8>, Error> {
        let hash = Some(&part.hash.0);
        let get = self.session.get_blob_bytes(&self.graph, &part.blob, hash);
        get.await
    }

    async fn forget_blob(&mut self, blob: &BlobId) -> Result<(), Error> {
        match self.session.api().delete_blob(&self.graph, blob).await {
            Err(error) if error.code() == Some(Code::BlobNotFound) => Ok(()),
            done => done,
        }
    }

    fn new_blob_id(&mut self) -> BlobId {
        Session::new_blob_id()
    }

    fn new_secret(&mut self) -> [u8; 32] {
        random::<32>()
    }
}
