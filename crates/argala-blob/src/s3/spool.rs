//! An upload, kept where it can be sent a second time.
//!
//! It lies in a file without a name, not in memory: as many uploads as there are connections may
//! be under way, each of the size of a blob. A small one is held, for a file costs more than that.
//! All of it is here before S3 hears of it, so a slow client does not hold up a connection to S3,
//! and one that breaks off leaves nothing there (decision 0017).

use std::{
    fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use argala_core::{StoreError, StoreResult, ports::ByteStream};
use aws_sdk_s3::primitives::SdkBody;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::{fs::File, io::AsyncWriteExt, task::spawn_blocking};

/// The largest upload that is held in memory.
const HELD: u64 = 64 * 1024;
/// Bytes that are read of a file at a time.
const PIECE: usize = 256 * 1024;

/// An upload that has come whole.
pub(super) enum Spooled {
    Held(Bytes),
    /// The file goes with the last that holds it, and with the process.
    File(Arc<fs::File>, u64),
}

impl Spooled {
    /// Takes `size` bytes, no fewer and no more.
    pub(super) async fn take(folder: &Path, size: u64, body: ByteStream) -> StoreResult<Self> {
        let mut body = exactly(size, body);
        if size <= HELD {
            let mut held = BytesMut::new();
            while let Some(piece) = body.try_next().await? {
                held.extend_from_slice(&piece);
            }
            return Ok(Self::Held(held.freeze()));
        }
        let folder = folder.to_owned();
        let file = spawn_blocking(move || tempfile::tempfile_in(folder))
            .await
            .map_err(|error| StoreError::internal("spool an upload", error))?
            .map_err(failed)?;
        let mut file = File::from_std(file);
        while let Some(piece) = body.try_next().await? {
            file.write_all(&piece).await.map_err(failed)?;
        }
        // Not to the disk: nothing has been promised yet.
        file.flush().await.map_err(failed)?;
        Ok(Self::File(Arc::new(file.into_std().await), size))
    }

    /// All of it, from the first byte on. `sent` counts what is taken.
    pub(super) fn body(&self, sent: &Arc<AtomicU64>) -> SdkBody {
        match self {
            Self::Held(bytes) => SdkBody::from(bytes.clone()),
            Self::File(file, size) => {
                let sent = Arc::clone(sent);
                let pieces = pieces(Arc::clone(file), *size).map_ok(move |piece| {
                    sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
                    Frame::data(piece)
                });
                SdkBody::from_body_1_x(StreamBody::new(pieces))
            }
        }
    }
}

fn failed(error: io::Error) -> StoreError {
    StoreError::unavailable("spool an upload", error)
}

/// The body, which ends with an error where it is not of that size.
fn exactly(size: u64, body: ByteStream) -> impl Stream<Item = StoreResult<Bytes>> + Unpin {
    const TAKE: &str = "take an object's bytes from their sender";
    let other = || StoreError::unavailable(TAKE, "there are not as many as were announced");
    Box::pin(stream::try_unfold(
        (body, size),
        move |(mut body, left)| async move {
            match body.next().await.transpose() {
                Err(error) => Err(StoreError::unavailable(TAKE, error)),
                Ok(None) if left == 0 => Ok(None),
                Ok(None) => Err(other()),
                Ok(Some(piece)) => {
                    let left = left.checked_sub(piece.len() as u64).ok_or_else(other)?;
                    Ok(Some((piece, (body, left))))
                }
            }
        },
    ))
}

/// A file's bytes by their place in it: whoever read it before has left no mark.
fn pieces(
    file: Arc<fs::File>,
    size: u64,
) -> impl Stream<Item = io::Result<Bytes>> + Send + Sync + 'static {
    stream::try_unfold((file, 0), move |(file, at)| async move {
        let wanted = usize::try_from(size - at).map_or(PIECE, |left| left.min(PIECE));
        if wanted == 0 {
            return Ok(None);
        }
        let (file, piece) = spawn_blocking(move || {
            let mut piece = vec![0; wanted];
            read_exactly(&file, &mut piece, at)?;
            io::Result::Ok((file, piece))
        })
        .await
        .map_err(io::Error::other)??;
        let next = at + piece.len() as u64;
        Ok(Some((Bytes::from(piece), (file, next))))
    })
}

#[cfg(unix)]
fn read_exactly(file: &fs::File, piece: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, piece, at)
}

#[cfg(windows)]
fn read_exactly(file: &fs::File, mut piece: &mut [u8], mut at: u64) -> io::Result<()> {
    while !piece.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, piece, at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        piece = &mut piece[read..];
        at += read as u64;
    }
    Ok(())
}
