//! Blobs (protocol, routes 12 to 14).

use std::{
    io,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use argala_wire::{
    BlobId, Sealed, StorageKey, Timestamp,
    blobs::{
        BlobPolicy, BlobResponse, DEFAULT_DELIVER_TTL_SECONDS, MAX_TTL_SECONDS, MIN_TTL_SECONDS,
    },
    devices::DeviceRef,
};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::StreamExt;
use sha2::{Digest, Sha256};

use super::{Access, Relay};
use crate::{
    Outcome, Quota, Rejection, StoreError, StoreResult,
    ports::{
        ByteStream, Event, ForgetReason, ObjectKey, ObjectLink,
        store::{Abandoned, Blob, CommitBlob, Committed, ForgetBlob, ReserveBlob, Reserved},
    },
};

/// How long a link to an object is good for.
const LINK_LIFETIME: Duration = Duration::from_secs(60);

/// A blob on its way in.
pub struct Upload {
    /// The blob's id.
    pub id: BlobId,
    /// How many bytes are announced.
    pub size: u64,
    /// How long it is to stay.
    pub policy: BlobPolicy,
    /// Its time to live: required for `expire`, optional for `deliver`, none for `keep`.
    pub ttl_seconds: Option<u64>,
    /// The SHA-256 that is announced, if any.
    pub digest: Option<[u8; 32]>,
    /// The bytes.
    pub body: ByteStream,
}

/// When a blob of this policy is forgotten at the latest.
fn expiry(
    policy: BlobPolicy,
    ttl_seconds: Option<u64>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Rejection> {
    let invalid = |detail: &str| Err(Rejection::invalid("ttl", detail));
    let seconds = match (policy, ttl_seconds) {
        (BlobPolicy::Keep, None) => return Ok(None),
        (BlobPolicy::Keep, Some(_)) => return invalid("a blob that is kept has no ttl"),
        (BlobPolicy::Expire, None) => return invalid("a blob that expires needs a ttl"),
        (BlobPolicy::Deliver, None) => DEFAULT_DELIVER_TTL_SECONDS,
        (BlobPolicy::Expire | BlobPolicy::Deliver, Some(seconds)) => seconds,
    };
    if (MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(&seconds) {
        Ok(Some(now.saturating_add(Duration::from_secs(seconds))))
    } else {
        invalid("a ttl has 60 seconds to 365 days")
    }
}

fn answer(blob: Blob) -> BlobResponse {
    BlobResponse {
        blob_id: blob.id,
        size: blob.size,
        sha256: Sealed(blob.sha256.to_vec()),
        policy: blob.policy,
        expires_at: blob.expires_at,
    }
}

impl Relay {
    /// `PUT /graphs/{graphId}/blobs/{blobId}`: stores a blob. Tells whether it is new.
    ///
    /// # Errors
    /// `InvalidRequest` of the time to live, `BlobTooLarge`, `GraphUnkeyed`, `QuotaExceeded`,
    /// `DigestMismatch`, `BlobExists`.
    pub async fn put_blob(
        self: &Arc<Self>,
        access: &Access,
        upload: Upload,
    ) -> Outcome<(BlobResponse, bool)> {
        let now = self.clock.now();
        let expires_at = expiry(upload.policy, upload.ttl_seconds, now)?;
        let limit = self.quotas.max_blob_bytes;
        if upload.size > limit {
            self.quota_exceeded(access.caller(), access.key().clone(), Quota::BlobBytes);
            return Err(Rejection::BlobTooLarge { limit }.into());
        }
        let object = ObjectKey::new(self.store.instance(), self.random.bytes());
        let reserve = ReserveBlob {
            key: access.key().clone(),
            id: upload.id.clone(),
            by: access.device().clone(),
            object,
            size: upload.size,
            policy: upload.policy,
            expires_at,
            now,
            max_bytes_per_graph: self.quotas.max_blob_bytes_per_graph,
        };
        let relay = Arc::clone(self);
        let access = access.clone();
        self.detached(async move {
            let outcome = relay.upload(&access, reserve, upload).await;
            if let Err(crate::Fault::Rejected(Rejection::QuotaExceeded { what, .. })) = &outcome {
                relay.quota_exceeded(access.caller(), access.key().clone(), *what);
            }
            let (blob, fresh) = relay.settle(access.caller(), outcome)?;
            relay.emit(&Event::BlobPut {
                member_id: access.device().member_id.clone(),
                storage_key: access.key().clone(),
                size: blob.size,
                policy: blob.policy,
            });
            Ok((answer(blob), fresh))
        })
        .await
    }

    async fn upload(
        &self,
        access: &Access,
        reserve: ReserveBlob,
        upload: Upload,
    ) -> Outcome<(Blob, bool)> {
        let (key, object) = (reserve.key.clone(), reserve.object.clone());
        let (body, meter) = Metered::new(upload.body, upload.size, upload.digest);
        match self.store.reserve_blob(reserve).await? {
            Reserved::Exists(_) => self.compare(access, &upload.id, body, &meter).await,
            Reserved::Pending => {
                let stored = self.store_object(&object, upload.size, body, &meter).await;
                let committed = match stored {
                    Ok(sha256) => {
                        let by = access.device().clone();
                        let now = self.clock.now();
                        let commit = CommitBlob {
                            key: key.clone(),
                            object: object.clone(),
                            by,
                            sha256,
                            now,
                        };
                        self.store.commit_blob(commit).await
                    }
                    Err(fault) => Err(fault),
                };
                match committed {
                    Ok(Committed::Live(blob)) => Ok((blob, true)),
                    Ok(other) => {
                        self.discard(&key, &object).await;
                        match other {
                            Committed::Same(blob) => Ok((blob, false)),
                            Committed::Differs => Err(Rejection::BlobExists.into()),
                            Committed::Revoked => Err(Rejection::DeviceRevoked.into()),
                            Committed::Live(_) | Committed::Gone => Err(StoreError::unavailable(
                                "the upload took so long that it was let go",
                                "the row is no longer pending",
                            )
                            .into()),
                        }
                    }
                    Err(fault) => {
                        self.discard(&key, &object).await;
                        Err(fault)
                    }
                }
            }
        }
    }

    /// Compares an upload with the live blob of its id. Nothing is stored, and so nothing is
    /// charged; which blob is live is asked once all bytes are there, since it may have been
    /// deleted while they came.
    async fn compare(
        &self,
        access: &Access,
        id: &BlobId,
        body: Metered,
        meter: &Meter,
    ) -> Outcome<(Blob, bool)> {
        let drained = tokio::time::timeout(self.upload_timeout, drain(body)).await;
        let Some(sha256) = meter.sha256().filter(|_| matches!(drained, Ok(Ok(())))) else {
            return Err(meter.fault().into());
        };
        match self.store.blob(access.key(), id, self.clock.now()).await? {
            Some(blob) if blob.sha256 == sha256 => Ok((blob, false)),
            Some(_) => Err(Rejection::BlobExists.into()),
            None => Err(StoreError::unavailable(
                "comparing an upload with the blob that is there",
                "the blob was deleted meanwhile; the upload can be repeated",
            )
            .into()),
        }
    }

    /// Stores the object whole, and tells the SHA-256 of what was stored.
    async fn store_object(
        &self,
        object: &ObjectKey,
        size: u64,
        body: Metered,
        meter: &Meter,
    ) -> Outcome<[u8; 32]> {
        let put = self.blobs.put(object, size, Box::pin(body));
        match tokio::time::timeout(self.upload_timeout, put).await {
            Ok(Ok(())) => meter.sha256().ok_or_else(|| {
                StoreError::internal("storing a blob", "the store did not read all of it").into()
            }),
            // Whether the store failed or the bytes did not come is the meter's to say.
            Ok(Err(error)) if !meter.failed() => Err(error.into()),
            Ok(Err(_)) | Err(_) => Err(meter.fault().into()),
        }
    }

    /// Lets an upload go that did not become live: its bytes at once, its object and row if they
    /// can be had; the sweep does what is left.
    ///
    /// The store is asked before anything is removed: a commit that was answered with an error may
    /// have taken effect, and then the object belongs to a live row.
    async fn discard(&self, key: &StorageKey, object: &ObjectKey) {
        let discarded = async {
            match self.store.abandon_blob(key, object).await? {
                Abandoned::Live => {
                    tracing::info!("an upload whose commit was not heard of is live");
                    Ok(())
                }
                // Dropping its row here would keep the event from being told.
                Abandoned::Forgotten => Ok(()),
                Abandoned::LetGo => {
                    self.blobs.delete(object).await?;
                    self.store.drop_blob(key, object).await.map(drop)
                }
            }
        };
        let discarded: StoreResult<()> = discarded.await;
        if let Err(error) = discarded {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "an abandoned upload is left for the sweep"
            );
        }
    }

    /// The row of a blob.
    ///
    /// # Errors
    /// `BlobNotFound`.
    pub async fn blob(&self, access: &Access, id: &BlobId) -> Outcome<Blob> {
        let blob = self.store.blob(access.key(), id, self.clock.now()).await?;
        blob.ok_or_else(|| Rejection::BlobNotFound.into())
    }

    /// The bytes of a blob, all of them or those within `range` (end excluded, inside the blob).
    /// A `deliver` blob counts as fetched when the last byte of a whole read has been handed over.
    ///
    /// # Errors
    /// Corrupt where the object of the live row is missing: never answered with nothing.
    pub async fn read_blob(
        self: &Arc<Self>,
        access: &Access,
        blob: &Blob,
        range: Option<Range<u64>>,
    ) -> Outcome<ByteStream> {
        let whole = range.is_none();
        let Some(bytes) = self.blobs.get(&blob.object, range).await? else {
            return Err(StoreError::corrupt("the object of a live blob is missing").into());
        };
        if !whole || blob.policy != BlobPolicy::Deliver {
            return Ok(bytes);
        }
        let (relay, blob, device) = (Arc::clone(self), blob.clone(), access.device().clone());
        if blob.size == 0 {
            // Its last byte is handed over with the answer's head.
            relay.delivered(blob, device);
            return Ok(bytes);
        }
        let mut left = blob.size;
        let mut note = move |bytes: &io::Result<Bytes>| {
            let Ok(bytes) = bytes else { return };
            let length = bytes.len() as u64;
            if length == 0 || length > left {
                return;
            }
            left -= length;
            if left == 0 {
                relay.delivered(blob.clone(), device.clone());
            }
        };
        Ok(Box::pin(bytes.inspect(move |bytes| note(bytes))))
    }

    /// Where the bytes of a blob may be fetched without the relay for a minute, where its store gives
    /// out links. Never those of a `deliver` blob: it counts as fetched when its last byte has been
    /// handed over, and of a link nobody hears.
    ///
    /// # Errors
    /// Corrupt where the object of the live row is missing.
    pub async fn link_blob(&self, blob: &Blob) -> Outcome<Option<String>> {
        if blob.policy == BlobPolicy::Deliver {
            return Ok(None);
        }
        match self.blobs.link(&blob.object, LINK_LIFETIME).await? {
            ObjectLink::At(url) => Ok(Some(url)),
            ObjectLink::None => Ok(None),
            ObjectLink::Missing => {
                Err(StoreError::corrupt("the object of a live blob is missing").into())
            }
        }
    }

    /// Notes, beside the answer, that a device has a `deliver` blob whole.
    fn delivered(self: &Arc<Self>, blob: Blob, device: DeviceRef) {
        let relay = Arc::clone(self);
        self.tasks.spawn(async move {
            let (key, object) = (&blob.graph, &blob.object);
            if let Err(error) = relay.store.note_fetched(key, object, &device).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a delivery was not noted; the device will seem to wait for the blob"
                );
            }
        });
    }

    /// Removes the object of a forgotten blob, then its row. Whoever removes the row tells the
    /// event, so that it is told once.
    async fn remove_object(
        &self,
        graph: &StorageKey,
        object: &ObjectKey,
        reason: ForgetReason,
    ) -> StoreResult<()> {
        self.blobs.delete(object).await?;
        if self.store.drop_blob(graph, object).await? {
            self.emit(&Event::BlobForget {
                storage_key: graph.clone(),
                reason,
            });
        }
        Ok(())
    }

    /// `DELETE /graphs/{graphId}/blobs/{blobId}`: forgets a blob. Its bytes leave the quota at
    /// once; where its object cannot be removed now, the sweep does it.
    ///
    /// # Errors
    /// `BlobNotFound`.
    pub async fn forget_blob(self: &Arc<Self>, access: &Access, id: BlobId) -> Outcome<()> {
        let request = ForgetBlob {
            key: access.key().clone(),
            id,
            by: access.device().clone(),
            now: self.clock.now(),
        };
        let relay = Arc::clone(self);
        let access = access.clone();
        self.detached(async move {
            let outcome = relay.store.forget_blob(request).await;
            let Some(blob) = relay.settle(access.caller(), outcome)? else {
                return Err(Rejection::BlobNotFound.into());
            };
            if let Err(error) = relay
                .remove_object(&blob.graph, &blob.object, ForgetReason::Requested)
                .await
            {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a deleted blob's object is left for the sweep"
                );
            }
            Ok(())
        })
        .await
    }
}

async fn drain(mut body: Metered) -> io::Result<()> {
    while let Some(bytes) = body.next().await {
        bytes?;
    }
    Ok(())
}

/// What has come of an upload's bytes, seen from beside the stream.
#[derive(Clone)]
struct Meter(Arc<Mutex<Reading>>);

enum Reading {
    Running { seen: u64, hash: Sha256 },
    Whole([u8; 32]),
    Wrong(&'static str),
    Broken,
}

impl Meter {
    fn read<T>(&self, look: impl FnOnce(&Reading) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn sha256(&self) -> Option<[u8; 32]> {
        self.read(|reading| match reading {
            Reading::Whole(sha256) => Some(*sha256),
            _ => None,
        })
    }

    fn failed(&self) -> bool {
        self.read(|reading| matches!(reading, Reading::Wrong(_) | Reading::Broken))
    }

    /// What to tell a caller whose bytes did not come as announced, or not in time: a body that
    /// breaks off has fewer bytes than its `Content-Length`.
    fn fault(&self) -> Rejection {
        self.read(|reading| {
            let announced = match reading {
                Reading::Wrong(announced) => announced,
                Reading::Broken | Reading::Running { .. } | Reading::Whole(_) => "Content-Length",
            };
            Rejection::DigestMismatch { announced }
        })
    }
}

/// Counts and hashes bytes as they pass, and ends with an error where they are not those
/// announced: so no store takes them for whole.
struct Metered {
    body: ByteStream,
    size: u64,
    digest: Option<[u8; 32]>,
    meter: Meter,
}

impl Metered {
    fn new(body: ByteStream, size: u64, digest: Option<[u8; 32]>) -> (Self, Meter) {
        let meter = Meter(Arc::new(Mutex::new(Reading::Running {
            seen: 0,
            hash: Sha256::new(),
        })));
        (
            Self {
                body,
                size,
                digest,
                meter: meter.clone(),
            },
            meter,
        )
    }

    /// Takes note of what came; an error where the upload ends with it.
    fn note(&self, came: Option<&io::Result<Bytes>>) -> Result<(), &'static str> {
        let mut reading = self.meter.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Reading::Running { seen, hash } = &mut *reading else {
            return match *reading {
                Reading::Whole(_) if came.is_none() => Ok(()),
                _ => Err("the body has ended"),
            };
        };
        let after = match came {
            Some(Ok(bytes)) => {
                *seen += bytes.len() as u64;
                if *seen <= self.size {
                    hash.update(bytes);
                    return Ok(());
                }
                Reading::Wrong("Content-Length")
            }
            Some(Err(_)) => Reading::Broken,
            None if *seen != self.size => Reading::Wrong("Content-Length"),
            None => {
                let sha256: [u8; 32] = hash.finalize_reset().into();
                if self.digest.is_some_and(|digest| digest != sha256) {
                    Reading::Wrong("Content-Digest")
                } else {
                    Reading::Whole(sha256)
                }
            }
        };
        let whole = matches!(after, Reading::Whole(_));
        *reading = after;
        if whole {
            Ok(())
        } else {
            Err("the body is not as announced")
        }
    }
}

impl Stream for Metered {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Poll::Ready(came) = self.body.poll_next_unpin(context) else {
            return Poll::Pending;
        };
        Poll::Ready(match self.note(came.as_ref()) {
            Ok(()) => came,
            Err(fault) => Some(Err(io::Error::new(io::ErrorKind::InvalidData, fault))),
        })
    }
}
