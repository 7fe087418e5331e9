//! The writes, each as one caller makes it.

use std::{sync::Arc, time::Duration};

use argala_core::{Gate, Outcome, Relay, Upload};
use argala_wire::{
    blobs::BlobPolicy,
    keys::{GrantRequest, RotateRequest},
    limits::Bucket,
    records::PushRequest,
};
use bytes::Bytes;
use futures_util::stream;

use super::stage::{NEW, Stage, THERE};
use crate::{TestDevice, blob_id};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// The phone's.
    Push,
    /// The laptop's, for all that are registered at the beginning.
    Rotate,
    /// Of the phone, by the laptop.
    Revoke,
    /// Of a new device.
    Register,
    /// To the device without a key, by the laptop.
    Grant,
    /// The phone's, of an id that is not there yet.
    PutNew,
    /// The phone's, of the bytes that are there already.
    PutAgain,
    /// The phone's.
    DeleteThere,
    /// The phone's, of the id that `PutNew` has.
    DeleteNew,
    /// A pass that waits for no upload.
    Sweep,
}

impl Write {
    pub(super) const ALL: [Self; 10] = [
        Self::Push,
        Self::Rotate,
        Self::Revoke,
        Self::Register,
        Self::Grant,
        Self::PutNew,
        Self::PutAgain,
        Self::DeleteThere,
        Self::DeleteNew,
        Self::Sweep,
    ];

    /// Whether this may be told to try again because of `other`: an upload that a sweep took for
    /// abandoned, or that was compared with a blob which is gone by its end.
    pub(super) fn may_be_let_go(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::PutNew, Self::Sweep) | (Self::PutAgain, Self::DeleteThere)
        )
    }

    /// Does it by way of `relay`, and tells the answer.
    pub(super) async fn run(self, stage: &Stage, relay: &Arc<Relay>) -> Outcome<String> {
        match self {
            Self::Push => Self::push(stage, relay, "new").await,
            Self::Rotate => {
                let all = [&stage.laptop, &stage.phone, &stage.late, &stage.tablet];
                Self::rotate(stage, relay, 2, &all).await
            }
            Self::Revoke => Self::revoke(stage, relay).await,
            Self::Register => Self::register(stage, relay, &stage.next).await,
            Self::Grant => Self::grant(stage, relay).await,
            Self::PutNew => Self::put(stage, relay, NEW, None).await,
            Self::PutAgain => Self::put(stage, relay, THERE, None).await,
            Self::DeleteThere => Self::delete(stage, relay, THERE).await,
            Self::DeleteNew => Self::delete(stage, relay, NEW).await,
            Self::Sweep => Self::sweep(stage, relay).await,
        }
    }

    pub(super) async fn push(stage: &Stage, relay: &Arc<Relay>, id: &str) -> Outcome<String> {
        let access = stage.access(relay, &stage.phone, Bucket::Push).await?;
        let request = PushRequest {
            records: vec![stage.phone.record(stage.key(), id, 1, b"text")],
            if_head: None,
            atomic: false,
        };
        let told = relay.push(&access, request, None).await?;
        Ok(format!("{:?}", told.results))
    }

    pub(super) async fn rotate(
        stage: &Stage,
        relay: &Arc<Relay>,
        epoch: u64,
        devices: &[&TestDevice],
    ) -> Outcome<String> {
        let access = stage.access(relay, &stage.laptop, Bucket::Keys).await?;
        let wraps = devices.iter().map(|device| device.rotate_wrap("a key"));
        let request = RotateRequest {
            epoch,
            wraps: wraps.collect(),
        };
        let told = relay.rotate(&access, request).await?;
        Ok(format!("rotated from {}", told.first_seq))
    }

    async fn revoke(stage: &Stage, relay: &Arc<Relay>) -> Outcome<String> {
        let caller = stage
            .caller(relay, &stage.laptop, Bucket::Keys, Gate::Registered)
            .await?;
        let phone = stage.phone.to_ref().device_id;
        let told = relay.revoke(&caller, phone).await?;
        Ok(format!("revoked, {} graphs", told.graphs_flagged))
    }

    pub(super) async fn register(
        stage: &Stage,
        relay: &Arc<Relay>,
        device: &TestDevice,
    ) -> Outcome<String> {
        let caller = stage
            .caller(relay, device, Bucket::Keys, Gate::Anyone)
            .await?;
        let told = relay.register(&caller, device.register_request()).await?;
        Ok(format!("registered {}", told.device.device_id))
    }

    async fn grant(stage: &Stage, relay: &Arc<Relay>) -> Outcome<String> {
        let access = stage.access(relay, &stage.laptop, Bucket::Keys).await?;
        let wraps = vec![stage.late.grant_wrap(1, "a key")];
        let told = relay.grant(&access, GrantRequest { wraps }).await?;
        Ok(format!("granted {}, {:?}", told.granted, told.rejected))
    }

    pub(super) async fn put(
        stage: &Stage,
        relay: &Arc<Relay>,
        id: &str,
        ttl_seconds: Option<u64>,
    ) -> Outcome<String> {
        let access = stage.access(relay, &stage.phone, Bucket::Blobs).await?;
        let bytes = Bytes::from(vec![7; 40_000]);
        let upload = Upload {
            id: blob_id(id),
            size: bytes.len() as u64,
            policy: ttl_seconds.map_or(BlobPolicy::Keep, |_| BlobPolicy::Expire),
            ttl_seconds,
            digest: None,
            body: Box::pin(stream::iter([Ok(bytes)])),
        };
        let (_, is_new) = relay.put_blob(&access, upload).await?;
        Ok(format!("stored, new {is_new}"))
    }

    async fn delete(stage: &Stage, relay: &Arc<Relay>, id: &str) -> Outcome<String> {
        let access = stage.access(relay, &stage.phone, Bucket::Blobs).await?;
        relay.forget_blob(&access, blob_id(id)).await?;
        Ok("deleted".to_owned())
    }

    async fn sweep(stage: &Stage, relay: &Arc<Relay>) -> Outcome<String> {
        let sweep = if Arc::ptr_eq(relay, &stage.held) {
            &stage.held_sweep
        } else {
            &stage.free_sweep
        };
        // An upload is taken for abandoned as soon as it is older than this moment.
        stage.clock.advance(Duration::from_millis(1));
        sweep.pass().await?;
        Ok("swept".to_owned())
    }
}
