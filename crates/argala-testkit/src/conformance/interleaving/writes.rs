//! The writes, each as one caller makes it, and what must be told of what came of it.

use std::{io, sync::Arc, time::Duration};

use argala_core::{
    Gate as Admission, Outcome, Rejection, Upload,
    ports::{
        Clock as _, Event, ForgetReason, Poke,
        store::{Emptiness, GroupWatch},
    },
    sweep::SweepReport,
};
use argala_wire::{
    blobs::BlobPolicy,
    devices::{Device, DeviceRef},
    keys::{GrantRequest, RotateRequest},
    limits::Bucket,
    records::{PushRequest, PushResult},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};

use super::{
    gate::Gate,
    stage::{DELIVERED, FIRST, NEW, SECOND, Side, Stage, THERE},
};
use crate::{MemoryDirectory, TestClock, TestDevice, blob_id};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The pieces of an upload, and the bytes of each.
const PIECES: (usize, usize) = (3, 10_000);
/// Records of a push: as many signatures as are verified on a thread of their own.
const RECORDS: u64 = 8;

/// What the bytes of blobs are that are there from the beginning.
pub(super) const CONTENT: u8 = 7;

/// Each side of a pair has contents of its own: two of the same kind are rivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// The phone's: records that must not be there yet, and one where a tombstone is.
    Push,
    /// The laptop's, for all that are registered at the beginning.
    Rotate,
    /// Of the phone, by the laptop.
    Revoke,
    /// Of the device that a grant gives a key, by the laptop.
    RevokeLate,
    /// Of the device that registers, by the laptop.
    RevokeNext,
    /// Of the laptop, by the phone.
    RevokeLaptop,
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
    /// The phone's, of the blob that everybody has. Its object cannot be removed, so that its row
    /// is left for a sweep.
    DeleteDelivered,
    /// A pass that waits for no upload, a row at a time.
    Sweep,
    /// One when tombstones have grown old.
    SweepOld,
    /// One to which the group has long had no members.
    SweepAbandoned,
}

/// What came of a write, and what must have been told of it.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) words: String,
    /// Whether it changed what a rival is after.
    pub(super) won: bool,
    pub(super) events: Vec<Event>,
    pub(super) pokes: Vec<Poke>,
    /// The device that is revoked now, and what its member's own graph is told of it where it was
    /// not before: of two that revoke it, by one.
    pub(super) revoked: Option<(DeviceRef, Poke)>,
}

impl Told {
    /// Of a refusal, which has an event where it is of the caller as such.
    pub(super) fn refused(rejection: &Rejection) -> Self {
        let reason = rejection.auth_reason();
        Self {
            words: format!("{rejection:?}"),
            events: reason
                .map(|reason| Event::AuthRejected { reason })
                .into_iter()
                .collect(),
            ..Self::default()
        }
    }
}

impl Write {
    /// What meets every other.
    const COMMON: [Self; 10] = [
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

    /// Those that have something to do with this one.
    pub(super) fn others(self) -> Vec<Self> {
        use Write::{
            DeleteDelivered, DeleteThere, Grant, Push, PutAgain, PutNew, Register, Revoke,
            RevokeLaptop, RevokeLate, RevokeNext, Rotate, Sweep, SweepAbandoned, SweepOld,
        };
        let particular: &[Self] = match self {
            Self::Push => &[SweepOld, SweepAbandoned],
            Self::Rotate => &[RevokeLate, RevokeLaptop, SweepAbandoned],
            Self::Revoke => &[RevokeLaptop, SweepAbandoned],
            Self::Register => &[RevokeNext],
            Self::Grant => &[RevokeLate, RevokeLaptop, SweepAbandoned],
            Self::PutNew => &[SweepOld, SweepAbandoned],
            Self::PutAgain | Self::DeleteThere => &[SweepAbandoned],
            Self::DeleteNew => &[],
            Self::Sweep => &[DeleteDelivered],
            Self::RevokeLate => &[Rotate, Grant],
            Self::RevokeNext => &[Register],
            Self::RevokeLaptop => &[Rotate, Revoke, Grant],
            Self::DeleteDelivered => &[Sweep],
            Self::SweepOld => &[Push, PutNew],
            Self::SweepAbandoned => &[Push, Rotate, Revoke, Grant, PutNew, PutAgain, DeleteThere],
        };
        let mut others = particular.to_vec();
        if Self::COMMON.contains(&self) {
            others.extend(Self::COMMON);
        }
        others
    }

    /// Those that may wait for what it locks in a database. Of a sweep, which has many statements, a
    /// few.
    pub(super) fn others_within_the_store(self) -> Vec<Self> {
        let mut others = self.others();
        if self.is_sweep() {
            others.retain(|other| {
                matches!(
                    other,
                    Self::Push
                        | Self::PutNew
                        | Self::DeleteThere
                        | Self::DeleteDelivered
                        | Self::Sweep
                )
            });
        }
        others
    }

    /// Whether the two are after the same thing, which one alone can have.
    pub(super) fn is_rival_of(self, other: Self) -> bool {
        match (self, other) {
            (Self::Revoke, Self::RevokeLaptop) | (Self::RevokeLaptop, Self::Revoke) => true,
            (Self::PutAgain | Self::DeleteNew | Self::Sweep, _) => false,
            _ => self == other,
        }
    }

    /// Whether this may be told to try again because of `other`: an upload that a sweep took for
    /// abandoned, or that was compared with a blob which is gone by its end.
    pub(super) fn may_be_let_go(self, other: Self) -> bool {
        match self {
            Self::PutNew => other.is_sweep(),
            Self::PutAgain => matches!(other, Self::DeleteThere | Self::SweepAbandoned),
            _ => false,
        }
    }

    /// For the thread that verifies signatures, or between batches.
    pub(super) const fn waits_more_than_once(self) -> bool {
        matches!(self, Self::Push | Self::Sweep)
    }

    pub(super) const fn is_sweep(self) -> bool {
        matches!(self, Self::Sweep | Self::SweepOld | Self::SweepAbandoned)
    }

    /// Does it for one side of the stage, and tells what came of it.
    pub(super) async fn run(self, stage: &Stage, side: &Side) -> Outcome<Told> {
        let laptop = &stage.laptop;
        match self {
            Self::Push => Self::push(stage, side).await,
            Self::Rotate => Self::rotate(stage, side).await,
            Self::Revoke => Self::revoke(stage, side, laptop, &stage.phone).await,
            Self::RevokeLate => Self::revoke(stage, side, laptop, &stage.late).await,
            Self::RevokeNext => Self::revoke(stage, side, laptop, &stage.next).await,
            Self::RevokeLaptop => Self::revoke(stage, side, &stage.phone, laptop).await,
            Self::Register => Self::register(stage, side).await,
            Self::Grant => Self::grant(stage, side).await,
            Self::PutNew => Self::put(stage, side, NEW, side.mark.as_bytes()[0]).await,
            Self::PutAgain => Self::put(stage, side, THERE, CONTENT).await,
            Self::DeleteThere => Self::delete(stage, side, THERE).await,
            Self::DeleteNew => Self::delete(stage, side, NEW).await,
            Self::DeleteDelivered => {
                side.gate.keep_objects();
                let told = Self::delete(stage, side, DELIVERED).await?;
                Ok(Told {
                    events: Vec::new(),
                    ..told
                })
            }
            Self::Sweep => Self::sweep(stage, side).await,
            Self::SweepOld => Self::sweep_old(stage, side).await,
            Self::SweepAbandoned => Self::sweep_abandoned(stage, side).await,
        }
    }

    async fn push(stage: &Stage, side: &Side) -> Outcome<Told> {
        let (key, by) = (stage.key(), &stage.phone);
        let access = stage.access(&side.relay, by, Bucket::Push).await?;
        let text = format!("the text of {}", side.mark);
        let one = |id: &str| by.record(key, id, 1, text.as_bytes());
        let mut records: Vec<_> = (0..RECORDS).map(|at| one(&format!("new {at}"))).collect();
        for record in &mut records {
            record.expect = Some(0);
        }
        records.push(one("gone"));
        let request = PushRequest {
            records,
            if_head: None,
            atomic: false,
        };
        let told = side.relay.push(&access, request, None).await?;
        let accepted = |result: &&PushResult| matches!(result, PushResult::Accepted { .. });
        let count = told.results.iter().filter(accepted).count() as u64;
        assert_eq!((told.accepted, told.rejected), (count, RECORDS + 1 - count));
        Ok(Told {
            words: format!("{:?}", told.results),
            won: told.results.first().as_ref().is_some_and(accepted),
            events: vec![Event::GraphPush {
                member_id: by.to_ref().member_id,
                storage_key: key.clone(),
                accepted: count,
                rejected: told.rejected,
                bytes: count * text.len() as u64,
            }],
            pokes: vec![stage.poke_all(by); usize::from(count > 0)],
            revoked: None,
        })
    }

    async fn rotate(stage: &Stage, side: &Side) -> Outcome<Told> {
        let by = &stage.laptop;
        let devices = [by, &stage.phone, &stage.late, &stage.tablet];
        let access = stage.access(&side.relay, by, Bucket::Keys).await?;
        let told = side
            .relay
            .rotate(&access, rotation(2, &devices, side.mark))
            .await?;
        Ok(Told {
            words: format!("rotated from {} for {}", told.first_seq, told.devices),
            won: true,
            events: vec![Event::GraphRotate {
                member_id: by.to_ref().member_id,
                storage_key: stage.key().clone(),
                epoch: 2,
                devices: devices.len() as u64,
            }],
            pokes: vec![stage.poke_all(by)],
            revoked: None,
        })
    }

    async fn revoke(
        stage: &Stage,
        side: &Side,
        by: &TestDevice,
        target: &TestDevice,
    ) -> Outcome<Told> {
        let caller = stage
            .caller(&side.relay, by, Bucket::Keys, Admission::Registered)
            .await?;
        let target = target.to_ref();
        let told = side.relay.revoke(&caller, target.device_id.clone()).await?;
        let pokes = vec![stage.poke_all(by); usize::from(told.graphs_flagged > 0)];
        Ok(Told {
            words: format!("revoked, {:?}", told.graphs),
            won: told.graphs_flagged > 0,
            events: vec![Event::DeviceRevoke {
                member_id: target.member_id.clone(),
                device_id: target.device_id.clone(),
                graphs_flagged: told.graphs_flagged,
            }],
            pokes,
            revoked: Some((target, stage.poke_own(by))),
        })
    }

    async fn register(stage: &Stage, side: &Side) -> Outcome<Told> {
        let device = TestDevice::with_keys(stage.next.to_ref(), generation(side.mark));
        let caller = stage
            .caller(&side.relay, &device, Bucket::Keys, Admission::Anyone)
            .await?;
        let request = device.register_request();
        let told = side.relay.register(&caller, request).await?;
        let device_ref = device.to_ref();
        Ok(Told {
            words: format!("registered with the keys of {}", keys_of(&told.device)),
            won: told.fresh,
            events: vec![Event::DeviceRegister {
                member_id: device_ref.member_id,
                device_id: device_ref.device_id,
                fresh: told.fresh,
            }],
            pokes: vec![stage.poke_own(&device)],
            revoked: None,
        })
    }

    async fn grant(stage: &Stage, side: &Side) -> Outcome<Told> {
        let (by, to) = (&stage.laptop, &stage.late);
        let access = stage.access(&side.relay, by, Bucket::Keys).await?;
        let wraps = vec![to.grant_wrap(1, side.mark)];
        let told = side.relay.grant(&access, GrantRequest { wraps }).await?;
        assert_eq!(told.granted, 1 - told.rejected.len() as u64);
        // Of the epoch that is current by then, which the answer does not tell.
        let epoch = side.told_epoch().expect("an event that tells it");
        let poke = Poke {
            members: vec![to.to_ref().member_id],
            ..stage.poke_all(by)
        };
        Ok(Told {
            words: format!("granted {} at {epoch}, {:?}", told.granted, told.rejected),
            won: told.granted > 0,
            events: vec![Event::GraphGrant {
                member_id: by.to_ref().member_id,
                storage_key: stage.key().clone(),
                epoch,
                devices: told.granted,
            }],
            pokes: vec![poke; usize::from(told.granted > 0)],
            revoked: None,
        })
    }

    async fn put(stage: &Stage, side: &Side, id: &str, content: u8) -> Outcome<Told> {
        let access = stage
            .access(&side.relay, &stage.phone, Bucket::Blobs)
            .await?;
        let upload = Upload {
            body: Box::pin(in_pieces(content, &side.gate)),
            ..upload(id, content, BlobPolicy::Keep, None)
        };
        let (blob, is_new) = side.relay.put_blob(&access, upload).await?;
        Ok(Told {
            words: format!(
                "stored {}, {}, new {is_new}",
                blob.size,
                blob.sha256.to_base64url()
            ),
            won: is_new,
            events: vec![Event::BlobPut {
                member_id: stage.phone.to_ref().member_id,
                storage_key: stage.key().clone(),
                size: blob.size,
                policy: BlobPolicy::Keep,
            }],
            ..Told::default()
        })
    }

    async fn delete(stage: &Stage, side: &Side, id: &str) -> Outcome<Told> {
        let access = stage
            .access(&side.relay, &stage.phone, Bucket::Blobs)
            .await?;
        side.relay.forget_blob(&access, blob_id(id)).await?;
        Ok(Told {
            words: "deleted".to_owned(),
            won: true,
            events: vec![stage.forgets(ForgetReason::Requested)],
            ..Told::default()
        })
    }

    async fn sweep(stage: &Stage, side: &Side) -> Outcome<Told> {
        // An upload is taken for abandoned as soon as it is older than this moment.
        stage.clock.advance(Duration::from_millis(1));
        let sweep = side.sweep(1, &stage.directory, &stage.clock);
        Ok(swept(stage, &sweep.pass().await?))
    }

    async fn sweep_old(stage: &Stage, side: &Side) -> Outcome<Told> {
        let later = TestClock::at(stage.clock.now().saturating_add(91 * DAY));
        let sweep = side.sweep(1, &stage.directory, &later);
        Ok(swept(stage, &sweep.pass().await?))
    }

    /// What the sweep is told is not what the relays are: they go on admitting members.
    async fn sweep_abandoned(stage: &Stage, side: &Side) -> Outcome<Told> {
        stage.clock.advance(Duration::from_millis(1));
        let until = stage.clock.now().saturating_sub(DAY);
        let watch = GroupWatch {
            graph: stage.key().clone(),
            group: stage.group(),
            empty: Some(Emptiness {
                since: until.saturating_sub(31 * DAY),
                until,
            }),
        };
        side.ports.store.note_groups(&[watch]).await?;
        let sweep = side.sweep(100, &MemoryDirectory::new(), &stage.clock);
        Ok(swept(stage, &sweep.pass().await?))
    }
}

/// Which of a device's keys are those of a side.
fn generation(mark: &str) -> u64 {
    u64::from(mark.as_bytes()[0])
}

/// Whose keys a device has: a side's, or those from the beginning.
pub(super) fn keys_of(device: &Device) -> &'static str {
    let is_of = |generation| {
        let known = TestDevice::with_keys(device.to_ref(), generation);
        device.signing_key == known.public_signing_key()
            && device.encryption_key == known.public_encryption_key()
    };
    let sides = [FIRST, SECOND].map(|mark| (mark, generation(mark)));
    let all = [("the beginning", 0), sides[0], sides[1]];
    let found = all.into_iter().find(|(_, generation)| is_of(*generation));
    found.expect("keys that somebody has registered").0
}

pub(super) fn rotation(epoch: u64, devices: &[&TestDevice], content: &str) -> RotateRequest {
    let wraps = devices.iter().map(|device| device.rotate_wrap(content));
    RotateRequest {
        epoch,
        wraps: wraps.collect(),
    }
}

/// An upload that comes at once.
pub(super) fn upload(
    id: &str,
    content: u8,
    policy: BlobPolicy,
    ttl_seconds: Option<u64>,
) -> Upload {
    let bytes = Bytes::from(vec![content; PIECES.0 * PIECES.1]);
    Upload {
        id: blob_id(id),
        size: bytes.len() as u64,
        policy,
        ttl_seconds,
        digest: None,
        body: Box::pin(stream::iter([Ok(bytes)])),
    }
}

/// The same bytes a piece at a time, each of which comes through the gate.
fn in_pieces(
    content: u8,
    gate: &Arc<Gate>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static + use<> {
    let gate = Arc::clone(gate);
    stream::iter(0..PIECES.0).then(move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.pass().await;
            Ok(Bytes::from(vec![content; PIECES.1]))
        }
    })
}

/// Whoever removes a row tells of it, so that what two sweeps tell is for both together.
fn swept(stage: &Stage, report: &SweepReport) -> Told {
    let reasons = [
        ForgetReason::Requested,
        ForgetReason::Expired,
        ForgetReason::Delivered,
        ForgetReason::Orphaned,
        ForgetReason::Abandoned,
    ];
    let events = reasons.into_iter().flat_map(|reason| {
        let count = usize::try_from(report.of(reason)).expect("a few");
        std::iter::repeat_n(stage.forgets(reason), count)
    });
    assert_eq!((report.failed, report.doubts), (0, 0), "{report:?}");
    Told {
        words: "swept".to_owned(),
        events: events.collect(),
        ..Told::default()
    }
}
