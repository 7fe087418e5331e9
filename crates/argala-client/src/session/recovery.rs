//! Recovery: a device whose keys come from a code on paper, and that is asked for once all others
//! are lost.
//!
//! Creating one registers it and gives it every key; from then on rotations cover it like any
//! device. Restoring acts as that device for as long as it takes to give every key to a new one.

use argala_wire::{
    GraphId,
    devices::{DeviceKind, DeviceRef},
};

use super::{Failed, Granted, Session};
use crate::{
    api::Client,
    crypto::{PublicKeys, recovery::RecoveryCode},
    error::Error,
    keyfile::KeyFile,
};

/// What a recovery device, or the device that it restored, was given.
#[derive(Debug, Default)]
pub struct RecoveryGrants {
    /// Graphs whose keys were given.
    pub granted: Vec<Granted>,
    /// Graphs whose keys could not be given.
    pub failed: Vec<Failed>,
}

/// What a restore came to.
#[derive(Debug)]
pub struct Recovered {
    /// The recovery device that the code belongs to.
    pub recovery: DeviceRef,
    /// What this device was given.
    pub grants: RecoveryGrants,
    /// Graphs that this device can now read and write.
    pub graphs: Vec<GraphId>,
}

async fn derive(
    code: &RecoveryCode,
    device: &DeviceRef,
) -> Result<crate::crypto::DeviceKeys, Error> {
    let (code, member) = (code.clone(), device.member_id.clone());
    tokio::task::spawn_blocking(move || code.device_keys(&member))
        .await
        .map_err(|why| Error::io("deriving the recovery device's keys")(why.into()))
}

/// Gives `to` the keys of every graph that `giver` can see.
async fn give_all(giver: &mut Session, to: &DeviceRef) -> Result<RecoveryGrants, Error> {
    let mut report = RecoveryGrants::default();
    for summary in giver.api.graphs().await? {
        let graph = summary.graph_id;
        match giver.grant(&graph, Some(std::slice::from_ref(to))).await {
            Ok(granted) => report.granted.push(granted),
            Err(Error::Unkeyed { .. }) => {}
            Err(error) => report.failed.push(Failed { graph, error }),
        }
    }
    Ok(report)
}

impl Session {
    /// Registers `device` with the keys that come from `code` and gives it every key that is here.
    /// `api` is the relay as that device talks to it. Doing it again gives it what came since.
    ///
    /// # Errors
    /// [`Error::Usage`] where `device` is not of this member; [`Error::Relay`].
    pub async fn create_recovery(
        &mut self,
        code: &RecoveryCode,
        device: &DeviceRef,
        api: &Client,
    ) -> Result<RecoveryGrants, Error> {
        if device.member_id != self.file.device().member_id || device == self.file.device() {
            return Err(Error::Usage(
                "a recovery device is another device of the same member".to_owned(),
            ));
        }
        let keys = derive(code, device).await?;
        // On record before the relay is asked, so that no other keys pass for it.
        let was_known = self.file.contents().known_device(device).is_some();
        self.vouch_for(device, DeviceKind::Recovery, &keys.public());
        self.file.save()?;
        let registration = keys.registration(device, DeviceKind::Recovery, None);
        let registered = api.register(&registration).await;
        if matches!(registered, Err(Error::Relay(_))) && !was_known {
            // It is not there, and the next code that takes this name has other keys.
            self.file.contents_mut().forget(device);
            self.file.save()?;
        }
        registered?;
        give_all(self, device).await
    }

    /// The member's active recovery device that `code` belongs to, by its keys.
    ///
    /// # Errors
    /// [`Error::Usage`] where there is none.
    pub async fn find_recovery(&mut self, code: &RecoveryCode) -> Result<DeviceRef, Error> {
        let keys = derive(code, self.file.device()).await?.public();
        // Looked through, and shown to nobody: none of them counts as listed after this.
        let devices = self.api.devices().await?;
        self.look_at(&devices)?;
        let found = devices.into_iter().find(|device| {
            device.is_active()
                && device.kind == DeviceKind::Recovery
                && device.signing_key.as_slice() == keys.signing
                && device.encryption_key.as_slice() == keys.encryption
        });
        let found = found.map(|device| device.to_ref()).ok_or_else(|| {
            Error::Usage("no active recovery device of this member has that code".to_owned())
        })?;
        self.vouch_for(&found, DeviceKind::Recovery, &keys);
        self.file.save()?;
        Ok(found)
    }

    /// Puts a device on record whose keys are known without the relay's word; other keys that
    /// are there already are left, and noticed when they are met.
    fn vouch_for(&mut self, device: &DeviceRef, kind: DeviceKind, keys: &PublicKeys) {
        let contents = self.file.contents_mut();
        contents.see(device, kind, keys);
        if let Some(known) = contents.known_device_mut(device)
            && known.keys() == *keys
        {
            (known.announced, known.verified) = (true, true);
        }
    }

    /// Has the recovery device of `code` give this device, which must be registered, every key
    /// that it holds. `api` is the relay as the recovery device talks to it.
    ///
    /// # Errors
    /// [`Error::Relay`], [`Error::Offline`].
    pub async fn restore(
        &mut self,
        code: &RecoveryCode,
        recovery: &DeviceRef,
        api: &Client,
    ) -> Result<Recovered, Error> {
        let keys = derive(code, recovery).await?;
        let file = KeyFile::in_memory(recovery.clone(), DeviceKind::Recovery, keys);
        let mut giver = Self::over(api.clone(), file)?;
        // This device need not be taken on trust.
        giver.knows_nobody = true;
        let me = self.file.device().clone();
        giver.vouch_for(&me, self.kind(), &self.file.keys().public());
        let grants = give_all(&mut giver, &me).await?;
        let mut graphs = Vec::new();
        for granted in &grants.granted {
            if self.writable_epoch(&granted.graph, true).await?.is_some() {
                graphs.push(granted.graph.clone());
            }
        }
        Ok(Recovered {
            recovery: recovery.clone(),
            grants,
            graphs,
        })
    }
}
