//! The routes of blobs (12 to 14): bytes in, bytes out, never held whole.

use std::path::Path;

use argala_wire::{
    BlobId, GraphId, Sealed,
    blobs::{BlobPolicy, BlobResponse},
};
use bytes::Bytes;
use futures_util::TryStreamExt;
use reqwest::{
    Method, Response,
    header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, RANGE},
};
use tokio_util::io::ReaderStream;

use super::{Client, Request, piece, with_query};
use crate::{
    error::Error,
    events::{Progress, ProgressFn},
};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// Bytes of a file that are read, and handed on, at once.
const PIECE: usize = 64 * 1024;

/// Bytes to put as a blob. They lie in a file, so that a repeat sends the same ones.
#[derive(Clone)]
pub struct BlobUpload<'a> {
    /// The file with the sealed bytes.
    pub path: &'a Path,
    /// How many they are.
    pub size: u64,
    /// Their SHA-256, sent as `Content-Digest`, so that bytes damaged on the way are refused.
    pub sha256: [u8; 32],
    /// How long the blob stays.
    pub policy: BlobPolicy,
    /// Its time to live in seconds, where the policy takes one.
    pub ttl: Option<u64>,
    /// Told of every piece that is handed to the connection.
    pub progress: Option<ProgressFn>,
}

/// Part of a blob: from the byte `from` (0 is the first) to the byte `to`, that one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub from: u64,
    /// The last byte; the blob's last where `None`.
    pub to: Option<u64>,
}

/// A blob's bytes as they arrive.
pub struct BlobBody {
    response: Response,
    size: Option<u64>,
}

impl BlobBody {
    /// How many bytes are to come, where the relay told.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// SHA-256 of the whole blob as the relay keeps it, where it told.
    #[must_use]
    pub fn sha256(&self) -> Option<Sealed> {
        let tag = self.response.headers().get(ETAG)?.to_str().ok()?;
        // Where the relay has sent us elsewhere for the bytes, the tag is that place's own.
        Sealed::from_base64url(tag.strip_prefix('"')?.strip_suffix('"')?)
            .filter(|tag| tag.0.len() == 32)
    }

    /// The next bytes; `None` after the last.
    ///
    /// # Errors
    /// [`Error::Offline`] where the connection was cut.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        piece(&mut self.response).await
    }
}

/// `sha-256=:…:` (RFC 9530), which takes the standard base64 alphabet.
fn digest(sha256: &[u8; 32]) -> String {
    format!(
        "sha-256=:{}:",
        base64_simd::STANDARD.encode_to_string(sha256)
    )
}

impl Client {
    fn blob_url(&self, graph: &GraphId, blob: &BlobId) -> String {
        self.url(&["graphs", graph.as_str(), "blobs", blob.as_str()])
    }

    /// `PUT /graphs/{graphId}/blobs/{blobId}`: streams a file (route 12).
    ///
    /// # Errors
    /// [`Error::Relay`] with `blob_exists`, `blob_too_large`, `quota_exceeded`, `graph_unkeyed`,
    /// `digest_mismatch`; [`Error::Io`] where the file cannot be opened.
    pub async fn put_blob(
        &self,
        graph: &GraphId,
        blob: &BlobId,
        upload: &BlobUpload<'_>,
    ) -> Result<BlobResponse, Error> {
        let mut query = vec![("policy", upload.policy.as_str().to_owned())];
        query.extend(upload.ttl.map(|ttl| ("ttl", ttl.to_string())));
        let url = with_query(&self.blob_url(graph, blob), &query);
        let answer = self
            .fetch(upload.size, || {
                let file = std::fs::File::open(upload.path)
                    .map_err(Error::io("the sealed file cannot be opened"))?;
                let pieces = ReaderStream::with_capacity(tokio::fs::File::from_std(file), PIECE);
                let progress = upload.progress.clone();
                let mut sent = 0;
                let size = upload.size;
                let pieces = pieces.inspect_ok(move |piece| {
                    sent += piece.len() as u64;
                    if let Some(progress) = &progress {
                        progress(Progress {
                            done: sent,
                            total: Some(size),
                        });
                    }
                });
                Ok(self
                    .http
                    .put(&url)
                    .header(ACCEPT, self.format.media_type())
                    .header(CONTENT_TYPE, argala_wire::OCTET_STREAM)
                    .header(CONTENT_LENGTH, upload.size)
                    .header(CONTENT_DIGEST, digest(&upload.sha256))
                    .body(reqwest::Body::wrap_stream(pieces)))
            })
            .await?;
        answer.read()
    }

    /// `GET /graphs/{graphId}/blobs/{blobId}`: streams a blob, or a `range` of it (route 13).
    ///
    /// # Errors
    /// [`Error::Relay`] with `blob_not_found`, `range_not_satisfiable`.
    pub async fn get_blob(
        &self,
        graph: &GraphId,
        blob: &BlobId,
        range: Option<Range>,
    ) -> Result<BlobBody, Error> {
        let url = self.blob_url(graph, blob);
        let range = range.map(|range| match range.to {
            Some(to) => format!("bytes={}-{to}", range.from),
            None => format!("bytes={}-", range.from),
        });
        let response = self
            .open(|| {
                let request = self.http.get(&url);
                match &range {
                    Some(range) => request.header(RANGE, range),
                    None => request,
                }
            })
            .await?;
        let size = response.content_length();
        Ok(BlobBody { response, size })
    }

    /// `HEAD /graphs/{graphId}/blobs/{blobId}`: size and SHA-256 without the bytes (route 13).
    ///
    /// # Errors
    /// [`Error::Relay`] with `blob_not_found`; a `HEAD` has no body, so mostly [`Error::Status`].
    pub async fn head_blob(&self, graph: &GraphId, blob: &BlobId) -> Result<BlobBody, Error> {
        let url = self.blob_url(graph, blob);
        let response = self.open(|| self.http.head(&url)).await?;
        let size = response
            .headers()
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(BlobBody { response, size })
    }

    /// `DELETE /graphs/{graphId}/blobs/{blobId}` (route 14).
    ///
    /// # Errors
    /// [`Error::Relay`] with `blob_not_found`, where it is gone already too.
    pub async fn delete_blob(&self, graph: &GraphId, blob: &BlobId) -> Result<(), Error> {
        let request = Request::new(Method::DELETE, self.blob_url(graph, blob));
        self.fetch(0, || Ok(self.build(&request))).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_digest_is_in_the_standard_alphabet() {
        assert_eq!(
            super::digest(&[0xfb; 32]),
            "sha-256=:+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/s=:"
        );
    }
}
