//! A device at work: the rules by which keys, records and blobs are handled.
//!
//! A [`Session`] owns the open key file and a [`Client`], and does what takes more than one call:
//! it fetches keys where some are missing, holds writes while they are, verifies what it is told,
//! and remembers every device it has met. One file of this folder for each thing it does.

mod blobs;
mod devices;
mod keys;
mod outbox;
mod pull;
mod push;
mod recovery;
mod status;

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    time::Duration,
};

use argala_wire::{
    BlobId, DeviceId, GraphId, Sealed, StorageKey,
    devices::{DeviceKind, DeviceRef, RevokeResponse},
    limits::{LimitsResponse, Quotas},
    records::CursorReason,
};

pub use blobs::{BlobOptions, BlobSource};
pub use devices::SeenDevice;
pub use keys::{Failed, Granted, OwedReport, Rotated};
pub use outbox::Flushed;
pub use push::PushOptions;
pub use recovery::{Recovered, RecoveryGrants};
pub use status::{GraphStatus, Status};

use crate::{
    access::{GraphAccess, Kind, Outcome, Position, Pulled, StoredBlob, Write},
    api::Client,
    crypto::{Fingerprint, record},
    doubt::Doubt,
    error::{Error, Refusal},
    events::{Event, ObserverFn, ProgressFn},
    keyfile::KeyFile,
    state::{Outbox, SeenLog, StateFolder},
};

/// What is said wherever keys are made.
pub const LOSS_WARNING: &str = "Only this member's devices hold the keys. Whoever loses every \
    device and has no recovery code has lost the data for good: nobody, the relay's operator \
    included, can bring it back.";

/// A device at work. It holds the key file's lock for as long as it lives.
pub struct Session {
    api: Client,
    file: KeyFile,
    state: StateFolder,
    kinds: BTreeSet<Kind>,
    observer: Option<ObserverFn>,
    progress: Option<ProgressFn>,
    limits: Option<Limits>,
    graphs: HashMap<StorageKey, Graph>,
    /// Whether it takes keys from whoever gives them, since nobody was ever there to be shown
    /// devices: that of a recovery code.
    knows_nobody: bool,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    quotas: Quotas,
    max_wraps: u64,
}

/// What is known of a graph in this session.
#[derive(Default)]
struct Graph {
    /// The current epoch, once the relay has told it.
    epoch: Option<u64>,
    /// Loaded when it is first asked for: it may be large.
    seen: Option<SeenLog>,
    /// Whether an event has said that the keys are behind.
    behind_told: bool,
    /// Why the last pull had to start over, where the relay said so.
    started_over: Option<CursorReason>,
}

/// What registering came to.
#[derive(Debug, Clone)]
pub struct Registered {
    /// The device.
    pub device: DeviceRef,
    /// Whether it was new to the relay.
    pub fresh: bool,
    /// What its owner compares with what others are shown.
    pub fingerprint: Fingerprint,
    /// Whether the device's name went with it; `false` also where there is none, or where the
    /// member's own graph, under whose key names are sealed, has no key here yet.
    pub labelled: bool,
}

impl Session {
    /// Makes a key file for `device` and a session over it. Nothing is registered yet.
    ///
    /// # Errors
    /// As [`KeyFile::create`].
    pub async fn create(
        api: Client,
        path: &Path,
        device: DeviceRef,
        patience: Duration,
    ) -> Result<Self, Error> {
        Self::over(api, KeyFile::create(path, device, patience).await?)
    }

    /// A session over the key file at `path`; waits for its lock as long as `patience`.
    ///
    /// # Errors
    /// As [`KeyFile::open`].
    pub async fn open(api: Client, path: &Path, patience: Duration) -> Result<Self, Error> {
        Self::over(api, KeyFile::open(path, patience).await?)
    }

    /// A session over keys that are open already.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder beside the key file cannot be used.
    pub fn over(api: Client, file: KeyFile) -> Result<Self, Error> {
        Ok(Self {
            api,
            state: StateFolder::open(file.state_folder()?)?,
            file,
            kinds: BTreeSet::new(),
            observer: None,
            progress: None,
            limits: None,
            graphs: HashMap::new(),
            knows_nobody: false,
        })
    }

    /// Declares the kinds of records that this application reads. Pulled records of any other are
    /// refused.
    #[must_use]
    pub fn declare(mut self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        self.kinds.extend(kinds);
        self
    }

    /// Has every [`Event`] told to `observer`.
    #[must_use]
    pub fn observe(mut self, observer: ObserverFn) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Has the progress of blobs told to `progress`.
    #[must_use]
    pub fn report_progress(mut self, progress: ProgressFn) -> Self {
        self.progress = Some(progress);
        self
    }

    /// The relay as this session talks to it.
    #[must_use]
    pub fn api(&self) -> &Client {
        &self.api
    }

    /// The key file.
    #[must_use]
    pub fn key_file(&self) -> &KeyFile {
        &self.file
    }

    /// What to compare with what others are shown of this device.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.file.keys().public().fingerprint(self.file.device())
    }

    /// Publishes the device's keys, and `label` as its name, sealed for the member's other
    /// devices. Doing it again does no harm, and replaces the name.
    ///
    /// # Errors
    /// [`Error::Relay`] with `device_key_mismatch` where the id is taken by other keys.
    pub async fn register(&mut self, label: Option<&str>) -> Result<Registered, Error> {
        if let Some(label) = label {
            self.file.contents_mut().label = Some(label.to_owned());
            self.file.save()?;
        }
        let own = StorageKey::own(&self.file.device().member_id);
        let contents = self.file.contents();
        let newest = contents.epochs(&own).last();
        let label = contents
            .label
            .as_deref()
            .zip(newest)
            .map(|(label, (epoch, key))| Sealed(record::seal_label(&key.key, &own, epoch, label)));
        let labelled = label.is_some();
        let device = self.file.device().clone();
        let body = self.file.keys().registration(&device, contents.kind, label);
        let answer = self.api.register(&body).await?;
        let told = &answer.device;
        let keys = (&told.encryption_key, &told.signing_key);
        if told.to_ref() != device || keys != (&body.encryption_key, &body.signing_key) {
            return Err(Error::Answer(
                "the relay registered another device; is the credential this key file's?"
                    .to_owned(),
            ));
        }
        Ok(Registered {
            device,
            fresh: answer.fresh,
            fingerprint: self.fingerprint(),
            labelled,
        })
    }

    /// Revokes one of the member's own devices, for good. The graphs that it could read owe a
    /// rotation after this, and nothing is ever sealed for it again, whatever the relay tells.
    ///
    /// # Errors
    /// [`Error::Relay`] with `device_not_found`.
    pub async fn revoke(&mut self, device: &DeviceId) -> Result<RevokeResponse, Error> {
        let answer = self.api.revoke(device).await?;
        let device = DeviceRef {
            member_id: self.file.device().member_id.clone(),
            device_id: device.clone(),
        };
        if device != *self.file.device() && self.file.contents_mut().note_revoked(&device) {
            self.file.save()?;
        }
        Ok(answer)
    }

    /// What stands behind this device.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.file.contents().kind
    }

    fn storage_key(&self, graph: &GraphId) -> StorageKey {
        graph.address().storage_key(&self.file.device().member_id)
    }

    fn tell(&self, event: &Event) {
        if let Some(observer) = &self.observer {
            observer(event);
        }
    }

    /// Tells of something that no honest relay gives cause to, and keeps it in sight.
    fn tell_doubt(&mut self, event: &Event) -> Result<(), Error> {
        self.tell(event);
        let doubt = Doubt::of(event, |graph| self.storage_key(graph));
        if doubt.is_some_and(|doubt| self.file.contents_mut().add_doubt(doubt)) {
            self.file.save()?;
        }
        Ok(())
    }

    /// Forgets what the relay was doubted for, once somebody has looked at it; tells how much
    /// there was.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn forget_doubts(&mut self) -> Result<usize, Error> {
        let count = self.file.contents_mut().forget_doubts();
        self.file.save()?;
        Ok(count)
    }

    fn tell_rejected(&self, graph: &GraphId, why: Refusal) {
        self.tell(&Event::RecordRejected {
            graph: graph.clone(),
            why,
        });
    }

    /// The ceilings in force, asked for once.
    async fn limits(&mut self) -> Result<Limits, Error> {
        if let Some(limits) = self.limits {
            return Ok(limits);
        }
        let LimitsResponse {
            quotas, max_wraps, ..
        } = self.api.limits().await?;
        let limits = Limits { quotas, max_wraps };
        self.limits = Some(limits);
        Ok(limits)
    }

    /// The most bytes that a file may have to be put as a blob.
    ///
    /// # Errors
    /// [`Error::Relay`].
    pub async fn largest_blob(&mut self) -> Result<u64, Error> {
        let limits = self.limits().await?;
        Ok(crate::crypto::blob::largest_plain(
            limits.quotas.max_blob_bytes,
        ))
    }

    /// The most bytes that the body of a record of `kind` may have.
    ///
    /// # Errors
    /// [`Error::Relay`].
    pub async fn largest_body(&mut self, kind: &Kind) -> Result<u64, Error> {
        let limits = self.limits().await?;
        let overhead = record::overhead(kind) as u64;
        Ok(limits.quotas.max_record_bytes.saturating_sub(overhead))
    }

    fn outbox(&self, graph: &StorageKey) -> Result<Outbox, Error> {
        self.state.outbox(graph)
    }

    fn seen(&mut self, graph: &StorageKey) -> Result<&mut SeenLog, Error> {
        let view = self.graphs.entry(graph.clone()).or_default();
        if view.seen.is_none() {
            view.seen = Some(self.state.seen(graph)?);
        }
        Ok(view.seen.as_mut().expect("loaded above"))
    }
}

impl GraphAccess for Session {
    fn device(&self) -> &DeviceRef {
        self.file.device()
    }

    async fn pull(&mut self, graph: &GraphId, position: &Position) -> Result<Pulled, Error> {
        self.pull_page(graph, position).await
    }

    async fn push(&mut self, graph: &GraphId, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        self.push_with(graph, writes, PushOptions::default()).await
    }

    async fn put_blob(
        &mut self,
        graph: &GraphId,
        id: &BlobId,
        from: &Path,
    ) -> Result<StoredBlob, Error> {
        let from = BlobSource::File(from.to_owned());
        let put = self.put_blob_with(graph, id, &from, BlobOptions::default());
        put.await.map(|(stored, _)| stored)
    }

    async fn get_blob(
        &mut self,
        graph: &GraphId,
        id: &BlobId,
        to: &Path,
        sha256: Option<&[u8; 32]>,
    ) -> Result<u64, Error> {
        self.get_blob_to(graph, id, to, sha256).await
    }
}
