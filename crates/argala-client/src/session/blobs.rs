//! Files as blobs: sealed to a spool beside the key file and sent from there, received chunk by
//! chunk and put in place once they are known to be whole.

use std::{
    fs::File,
    io::{BufWriter, Read, Seek, Write},
    path::{Path, PathBuf},
};

use argala_wire::{
    BlobId, Code, GraphId, Problem, StorageKey,
    blobs::{BlobPolicy, BlobResponse},
};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::Session;
use crate::{
    access::StoredBlob,
    api::{BlobBody, BlobUpload, Range},
    crypto::{
        GraphKey,
        blob::{self, BlobContext, CHUNK, HEADER, NonceDigest, Opener, Sealer},
        random,
    },
    error::Error,
    events::Progress,
    files::{self, Spool},
};

/// How long a blob stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlobOptions {
    /// The policy.
    pub policy: BlobPolicy,
    /// Its time to live in seconds, where the policy takes one.
    pub ttl: Option<u64>,
}

/// A file that was sealed to a spool.
struct Sealed {
    spool: Spool,
    sealed_size: u64,
    sealed_sha256: [u8; 32],
    size: u64,
    sha256: [u8; 32],
}

/// What is put as a blob.
#[derive(Debug, Clone)]
pub enum BlobSource {
    /// A file; it is never held whole.
    File(PathBuf),
    /// Bytes that are in memory already.
    Bytes(Bytes),
}

impl BlobSource {
    fn open(&self) -> Result<Box<dyn Read>, Error> {
        match self {
            Self::File(path) => {
                let opened = File::open(path);
                let file = opened.map_err(Error::io(format!("opening {}", path.display())))?;
                Ok(Box::new(file))
            }
            Self::Bytes(bytes) => Ok(Box::new(std::io::Cursor::new(bytes.clone()))),
        }
    }

    fn size(&self) -> Result<u64, Error> {
        match self {
            Self::File(path) => {
                let metadata = std::fs::metadata(path);
                let metadata = metadata.map_err(Error::io(format!("{}", path.display())))?;
                Ok(metadata.len())
            }
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }
}

/// What a file is sealed under; owned, to be handed to a thread.
struct SealJob {
    key: GraphKey,
    graph: StorageKey,
    epoch: u64,
    blob: BlobId,
    from: BlobSource,
    /// A file in the folder for the spool.
    beside: PathBuf,
}

const READING: &str = "reading the file";
const SPOOLING: &str = "sealing the file";
const RECEIVING: &str = "writing the file";

/// Reads until `buffer` is full or the file ends.
fn fill(file: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, Error> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]).map_err(Error::io(READING))? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

impl SealJob {
    fn context(&self) -> BlobContext<'_> {
        BlobContext {
            graph: &self.graph,
            epoch: self.epoch,
            blob: &self.blob,
        }
    }

    /// Reads the file twice: for its nonces, and to seal it. A file that is not the same both
    /// times is not sent, since two files must never share a nonce.
    fn run(&self) -> Result<Sealed, Error> {
        self.seal(|| self.from.open())
    }

    fn seal(&self, open: impl Fn() -> Result<Box<dyn Read>, Error>) -> Result<Sealed, Error> {
        let mut buffer = vec![0; CHUNK];
        let mut file = open()?;
        let mut digest = NonceDigest::new(&self.key, &self.context());
        loop {
            let len = fill(&mut file, &mut buffer)?;
            digest.update(&buffer[..len]);
            if len < CHUNK {
                break;
            }
        }
        let prefix = digest.finish();

        let mut file = open()?;
        let (path, spooled) = files::unfinished(&self.beside).map_err(Error::io(SPOOLING))?;
        let spool = Spool { path };
        let mut out = BufWriter::new(spooled);
        let mut sealer = Sealer::new(&self.key, &self.context(), prefix);
        let mut again = NonceDigest::new(&self.key, &self.context());
        let (mut plain_hash, mut sealed_hash) = (Sha256::new(), Sha256::new());
        let (mut size, mut sealed_size) = (0, 0);
        let mut put = |bytes: &[u8]| {
            sealed_hash.update(bytes);
            sealed_size += bytes.len() as u64;
            out.write_all(bytes).map_err(Error::io(SPOOLING))
        };
        put(sealer.header())?;
        let mut next = vec![0; CHUNK];
        let mut len = fill(&mut file, &mut buffer)?;
        loop {
            // Whether a full chunk is the last shows only in whether another follows.
            let following = if len < CHUNK {
                0
            } else {
                fill(&mut file, &mut next)?
            };
            let chunk = &buffer[..len];
            again.update(chunk);
            plain_hash.update(chunk);
            size += len as u64;
            put(&sealer.chunk(chunk, following == 0))?;
            if following == 0 {
                break;
            }
            std::mem::swap(&mut buffer, &mut next);
            len = following;
        }
        out.flush().map_err(Error::io(SPOOLING))?;
        if again.finish() != prefix {
            return Err(Error::FileChanged);
        }
        Ok(Sealed {
            spool,
            sealed_size,
            sealed_sha256: sealed_hash.finalize().into(),
            size,
            sha256: plain_hash.finalize().into(),
        })
    }
}

impl Session {
    /// [`GraphAccess::put_blob`](crate::GraphAccess::put_blob), with a policy.
    ///
    /// # Errors
    /// As there.
    pub async fn put_blob_with(
        &mut self,
        graph: &GraphId,
        id: &BlobId,
        from: &BlobSource,
        options: BlobOptions,
    ) -> Result<(StoredBlob, BlobResponse), Error> {
        let key = self.storage_key(graph);
        let Some(mut epoch) = self.writable_epoch(graph, false).await? else {
            let graph = graph.clone();
            return Err(match self.is_behind(&key) {
                Some(true) => Error::KeysBehind { graph },
                _ => Error::Unkeyed { graph },
            });
        };
        let limit = self.limits().await?.quotas.max_blob_bytes;
        if blob::sealed_size(from.size()?) > limit {
            // What the relay would say, without asking it to count the bytes.
            let mut problem = Problem::new(Code::BlobTooLarge, "the file is too large for a blob");
            problem.limit = Some(limit);
            return Err(Error::Relay(Box::new(problem)));
        }
        loop {
            let sealed = self.seal_file(&key, epoch, id, from).await?;
            let upload = BlobUpload {
                path: &sealed.spool.path,
                size: sealed.sealed_size,
                sha256: sealed.sealed_sha256,
                policy: options.policy,
                ttl: options.ttl,
                progress: self.progress.clone(),
            };
            match self.api.put_blob(graph, id, &upload).await {
                Ok(answer) => {
                    let stored = StoredBlob {
                        id: id.clone(),
                        size: sealed.size,
                        sha256: sealed.sha256,
                        epoch,
                    };
                    return Ok((stored, answer));
                }
                // The same file may be there from before a rotation, sealed under the key of then.
                Err(error) if error.code() == Some(Code::BlobExists) => {
                    match self.epoch_of_blob(graph, id).await? {
                        Some(then) if then < epoch && self.holds(&key, then) => epoch = then,
                        _ => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn holds(&self, key: &StorageKey, epoch: u64) -> bool {
        self.file.contents().key(key, epoch).is_some()
    }

    async fn seal_file(
        &mut self,
        key: &StorageKey,
        epoch: u64,
        id: &BlobId,
        from: &BlobSource,
    ) -> Result<Sealed, Error> {
        let graph_key = self.file.contents().key(key, epoch);
        let temporary = std::env::temp_dir();
        let folder = self.state.path().unwrap_or(&temporary);
        let job = SealJob {
            key: graph_key.expect("the caller has looked").clone(),
            graph: key.clone(),
            epoch,
            blob: id.clone(),
            from: from.clone(),
            beside: folder.join("spool"),
        };
        let done = tokio::task::spawn_blocking(move || job.run()).await;
        done.map_err(|why| Error::io(SPOOLING)(why.into()))?
    }

    /// The epoch that a blob was sealed under, from its first bytes.
    async fn epoch_of_blob(&self, graph: &GraphId, id: &BlobId) -> Result<Option<u64>, Error> {
        let range = Range {
            from: 0,
            to: Some(HEADER as u64 - 1),
        };
        let mut body = self.api.get_blob(graph, id, Some(range)).await?;
        let mut header = Vec::with_capacity(HEADER);
        while let Some(bytes) = body.next().await? {
            header.extend_from_slice(&bytes);
        }
        Ok(header.first_chunk::<HEADER>().and_then(blob::epoch_of))
    }

    /// A new id for a blob, 128 random bits as hex: never one that a command line takes for an
    /// option, as base64url is that begins with a hyphen.
    #[must_use]
    pub fn new_blob_id() -> BlobId {
        let random = u128::from_be_bytes(random());
        BlobId::new(format!("{random:032x}")).expect("32 characters of hex")
    }

    pub(super) async fn get_blob_to(
        &mut self,
        graph: &GraphId,
        id: &BlobId,
        to: &Path,
        sha256: Option<&[u8; 32]>,
    ) -> Result<u64, Error> {
        let about = || format!("writing {}", to.display());
        let (path, file) = files::unfinished(to).map_err(Error::io(about()))?;
        let part = Spool { path };
        let mut out = BufWriter::with_capacity(CHUNK, file);
        let size = self.receive(graph, id, sha256, &mut out).await?;
        let file = out
            .into_inner()
            .map_err(|why| Error::io(about())(why.into_error()))?;
        files::finish(&file, &part.path, to).map_err(Error::io(about()))?;
        Ok(size)
    }

    /// Gets the blob `id` into memory: for blobs that are known to be small, or that the caller
    /// holds whole anyhow. Where `sha256` is given the plaintext must have it.
    ///
    /// # Errors
    /// As [`GraphAccess::get_blob`](crate::GraphAccess::get_blob).
    pub async fn get_blob_bytes(
        &mut self,
        graph: &GraphId,
        id: &BlobId,
        sha256: Option<&[u8; 32]>,
    ) -> Result<Vec<u8>, Error> {
        let mut out = std::io::Cursor::new(Vec::new());
        self.receive(graph, id, sha256, &mut out).await?;
        Ok(out.into_inner())
    }

    /// Opens a blob into `out`, which is written from its start again where the transfer was cut.
    async fn receive(
        &mut self,
        graph: &GraphId,
        id: &BlobId,
        sha256: Option<&[u8; 32]>,
        out: &mut (impl Write + Seek + Send),
    ) -> Result<u64, Error> {
        let mut tries = self.api.retry().tries;
        loop {
            let body = self.api.get_blob(graph, id, None).await?;
            match self.receive_once(graph, id, body, out).await {
                Ok((size, hash)) if sha256.is_none_or(|expected| *expected == hash) => {
                    return Ok(size);
                }
                Ok(_) => return Err(UNREADABLE),
                // Cut in the midst of it. The wait was the transfer itself; a relay that is gone
                // is waited for by the next request.
                Err(Error::Offline(_)) if tries > 1 => tries -= 1,
                Err(error) => return Err(error),
            }
            // Every try gives out the same bytes or fails, so nothing longer is left behind.
            out.rewind().map_err(Error::io(RECEIVING))?;
        }
    }

    async fn receive_once(
        &mut self,
        graph: &GraphId,
        id: &BlobId,
        mut body: BlobBody,
        out: &mut (impl Write + Send),
    ) -> Result<(u64, [u8; 32]), Error> {
        let key = self.storage_key(graph);
        let total = body.size();
        let mut head = Vec::with_capacity(HEADER);
        let mut opener = None;
        let (mut hash, mut size, mut done) = (Sha256::new(), 0, 0);
        let mut written = Ok(());
        let mut put = |plain: &[u8]| {
            hash.update(plain);
            size += plain.len() as u64;
            if written.is_ok() {
                written = out.write_all(plain);
            }
        };
        while let Some(bytes) = body.next().await? {
            done += bytes.len() as u64;
            let mut bytes = &bytes[..];
            if opener.is_none() {
                let (now, later) = bytes.split_at(bytes.len().min(HEADER - head.len()));
                head.extend_from_slice(now);
                bytes = later;
                if let Some(header) = head.first_chunk::<HEADER>() {
                    opener = Some(self.opener(graph, &key, id, header).await?);
                }
            }
            if let Some(opener) = &mut opener {
                opener.update(bytes, &mut put).map_err(|_| UNREADABLE)?;
            }
            if let Some(progress) = &self.progress {
                progress(Progress { done, total });
            }
        }
        put(&opener.ok_or(UNREADABLE)?.finish().map_err(|_| UNREADABLE)?);
        written.map_err(Error::io(RECEIVING))?;
        Ok((size, hash.finalize().into()))
    }

    async fn opener(
        &mut self,
        graph: &GraphId,
        key: &StorageKey,
        id: &BlobId,
        header: &[u8; HEADER],
    ) -> Result<Opener, Error> {
        let epoch = blob::epoch_of(header).ok_or(UNREADABLE)?;
        if !self.holds(key, epoch) {
            let current = self.refresh_keys(graph).await?;
            // The blob came first, so an epoch that is not there yet was never sealed under.
            if epoch == 0 || epoch > current {
                return Err(UNREADABLE);
            }
        }
        let graph_key = self.file.contents().key(key, epoch);
        let graph_key = graph_key.ok_or_else(|| Error::KeysBehind {
            graph: graph.clone(),
        })?;
        let context = BlobContext {
            graph: key,
            epoch,
            blob: id,
        };
        Ok(Opener::new(graph_key, &context, header))
    }
}

const UNREADABLE: Error = Error::Unreadable("the blob");

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_new_id_is_an_argument_and_no_option() {
        let ids: std::collections::BTreeSet<_> = (0..200).map(|_| Session::new_blob_id()).collect();
        assert_eq!(ids.len(), 200);
        assert!(ids.iter().all(|id| !id.as_str().starts_with('-')));
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_not_sealed() {
        let folder = tempfile::tempdir().expect("a folder");
        let job = SealJob {
            key: GraphKey::generate(),
            graph: "g:acme".parse().expect("a key"),
            epoch: 1,
            blob: BlobId::new("0123456789abcdef").expect("an id"),
            from: BlobSource::Bytes(Bytes::new()),
            beside: folder.path().join("spool"),
        };
        let reading = |contents: [Vec<u8>; 2]| {
            let next = Cell::new(0);
            job.seal(move || {
                let at = next.replace(next.get() + 1);
                Ok(Box::new(std::io::Cursor::new(contents[at].clone())))
            })
        };
        let (one, mut two) = (vec![1; 2 * CHUNK], vec![1; 2 * CHUNK]);
        assert!(reading([one.clone(), one.clone()]).is_ok());
        for change in [0, CHUNK, 2 * CHUNK - 1] {
            two[change] ^= 1;
            let sealed = reading([one.clone(), two.clone()]);
            assert!(matches!(sealed, Err(Error::FileChanged)), "{change}");
            two[change] ^= 1;
        }
        for two in [vec![1; 2 * CHUNK + 1], vec![1; CHUNK], Vec::new()] {
            assert!(matches!(
                reading([one.clone(), two]),
                Err(Error::FileChanged)
            ));
        }
        // Nothing half sealed is left behind.
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
    }
}
