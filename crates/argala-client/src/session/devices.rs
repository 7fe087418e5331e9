//! The devices of others: who they are, and whether they are still who they were.
//!
//! The relay tells which keys belong to which device, and could lie. So every device is put on
//! record when it is first seen, its keys are never replaced after, and whoever uses this device
//! is told of each new one with a fingerprint to compare. Nothing is sealed for a device before it
//! has been listed to them, nor for one whose keys changed or that was revoked before.

use std::collections::HashMap;

use argala_wire::{
    GraphId, StorageKey,
    devices::{Device, DeviceRef},
    graphs::{OwedRotation, RotationReason},
};

use super::Session;
use crate::{
    crypto::{Fingerprint, PublicKeys, record},
    error::Error,
    events::Event,
    keyfile::{KnownDevice, Seen},
};

/// A device as the relay tells it, beside what this device remembers of it.
#[derive(Debug, Clone)]
pub struct SeenDevice {
    /// What the relay tells.
    pub device: Device,
    /// What to compare with the device's owner; that of the keys which the relay tells now.
    pub fingerprint: Fingerprint,
    /// Whether it has never been listed to whoever uses this device before.
    pub new: bool,
    /// Whether the relay tells other keys than it did when the device was first seen.
    pub changed: bool,
    /// Whether the relay tells it as active although it was revoked before.
    pub returned: bool,
    /// Whether somebody has compared the fingerprint and said so; never of one that changed.
    pub verified: bool,
    /// Its name, where it is one of the member's own and the key is here.
    pub label: Option<String>,
}

/// What a look at a device showed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    seen: Seen,
    /// Whether it is told as active and was revoked before.
    returned: bool,
}

/// A graph's roster, sorted by what may be sealed.
#[derive(Default)]
pub(super) struct Roster {
    /// Devices that were listed and are who they were.
    pub(super) listed: Vec<(DeviceRef, PublicKeys)>,
    /// Devices that nobody has been shown yet.
    pub(super) unlisted: Vec<DeviceRef>,
}

impl Session {
    /// Puts devices on record, and tells of those that are new, changed or back.
    pub(super) fn look_at(&mut self, devices: &[Device]) -> Result<Vec<Look>, Error> {
        let mut kept = true;
        let mut all = Vec::with_capacity(devices.len());
        let mut events = Vec::new();
        for device in devices {
            let keys = PublicKeys::of(device)
                .ok_or_else(|| Error::Answer("a device's keys are not of its suite".to_owned()))?;
            let name = device.to_ref();
            let mut returned = false;
            let seen = if name == *self.file.device() {
                // Nobody has to tell this device its own keys.
                if keys == self.file.keys().public() {
                    Seen::Same
                } else {
                    Seen::Changed
                }
            } else {
                let contents = self.file.contents_mut();
                if device.is_active() {
                    returned = contents.is_revoked(&name);
                } else {
                    kept &= !contents.note_revoked(&name);
                }
                contents.see(&name, device.kind, &keys)
            };
            match seen {
                Seen::Same => {}
                Seen::New => {
                    kept = false;
                    events.push(Event::DeviceNew {
                        fingerprint: keys.fingerprint(&name),
                        device: name.clone(),
                    });
                }
                Seen::Changed => events.push(Event::DeviceChanged {
                    device: name.clone(),
                }),
            }
            if returned {
                events.push(Event::DeviceReturned { device: name });
            }
            all.push(Look { seen, returned });
        }
        if !kept {
            self.file.save()?;
        }
        for event in &events {
            self.tell_doubt(event)?;
        }
        Ok(all)
    }

    /// The graph's roster, on record; fails where a device on it has other keys than before or
    /// was revoked before, since nothing may be sealed for it and an honest relay lists neither.
    pub(super) async fn trusted_roster(&mut self, graph: &GraphId) -> Result<Roster, Error> {
        let devices = self.api.roster(graph, false).await?;
        let looks = self.look_at(&devices)?;
        let (mut changed, mut returned) = (Vec::new(), Vec::new());
        let mut roster = Roster::default();
        for (device, look) in devices.iter().zip(looks) {
            let name = device.to_ref();
            if !device.is_active() {
                // On a roster it stands as one to be sealed for, whatever is said of it there.
                let device = name.clone();
                self.tell_doubt(&Event::DeviceReturned { device })?;
            }
            match (look.seen, PublicKeys::of(device)) {
                (Seen::Changed, _) | (_, None) => changed.push(name),
                _ if look.returned || !device.is_active() => returned.push(name),
                (_, Some(keys)) if self.is_listed(&name) => roster.listed.push((name, keys)),
                _ => roster.unlisted.push(name),
            }
        }
        match (changed.is_empty(), returned.is_empty()) {
            (true, true) => Ok(roster),
            (true, false) => Err(Error::Returned(returned)),
            (false, _) => Err(Error::KeysChanged(changed)),
        }
    }

    /// Whether a device was listed to whoever uses this one, which itself need not be.
    fn is_listed(&self, device: &DeviceRef) -> bool {
        let known = self.file.contents().known_device(device);
        device == self.file.device() || known.is_some_and(|known| known.announced)
    }

    /// Remembers which devices the relay tells as revoked where it says why a rotation is owed: a
    /// roster alone does not tell, of a device that is gone, whether it may come back.
    pub(super) fn hear_revoked(&mut self, owed: &[OwedRotation]) -> Result<(), Error> {
        let mut fresh = false;
        for owed in owed {
            let device = DeviceRef {
                member_id: owed.member_id.clone(),
                device_id: owed.device_id.clone(),
            };
            if owed.reason == RotationReason::DeviceRevoked && device != *self.file.device() {
                fresh |= self.file.contents_mut().note_revoked(&device);
            }
        }
        if fresh { self.file.save() } else { Ok(()) }
    }

    /// The keys on record of a device; the graph's roster, its former holders included, is asked
    /// where there is none. `None` where the relay knows none either.
    pub(super) async fn keys_of(
        &mut self,
        graph: &GraphId,
        device: &DeviceRef,
    ) -> Result<Option<PublicKeys>, Error> {
        self.meet(graph, [device]).await?;
        if device == self.file.device() {
            return Ok(Some(self.file.keys().public()));
        }
        let known = self.file.contents().known_device(device);
        Ok(known.map(KnownDevice::keys))
    }

    /// Puts devices on record that are not there yet, by one look at the graph's roster, its
    /// former holders included.
    pub(super) async fn meet(
        &mut self,
        graph: &GraphId,
        devices: impl IntoIterator<Item = &DeviceRef>,
    ) -> Result<(), Error> {
        let contents = self.file.contents();
        let stranger = |device: &DeviceRef| {
            *device != contents.device && contents.known_device(device).is_none()
        };
        if devices.into_iter().any(stranger) {
            let devices = self.api.roster(graph, true).await?;
            self.look_at(&devices)?;
        }
        Ok(())
    }

    /// Every device on record that might have signed something, this one included.
    pub(super) fn every_known(&self) -> HashMap<DeviceRef, PublicKeys> {
        let known = self.file.contents().known();
        let mut all: HashMap<_, _> = known
            .map(|known| (known.device.clone(), known.keys()))
            .collect();
        all.insert(self.file.device().clone(), self.file.keys().public());
        all
    }

    fn describe(&mut self, devices: Vec<Device>) -> Result<Vec<SeenDevice>, Error> {
        let looks = self.look_at(&devices)?;
        let mut out = Vec::with_capacity(devices.len());
        for (device, look) in devices.into_iter().zip(looks) {
            let name = device.to_ref();
            let keys = PublicKeys::of(&device).expect("looked at above");
            let label = self.open_label(&device);
            let own = name == *self.file.device();
            let changed = look.seen == Seen::Changed;
            let known = self.file.contents().known_device(&name);
            let (new, verified) = match known {
                Some(known) => (!known.announced, known.verified && !changed),
                None => (false, own && !changed),
            };
            out.push(SeenDevice {
                fingerprint: keys.fingerprint(&name),
                new,
                changed,
                returned: look.returned,
                verified,
                label,
                device,
            });
        }
        Ok(out)
    }

    /// Remembers that devices were shown, with their fingerprints, to whoever uses this one: from
    /// then on keys are sealed for them, and taken from them. Of one that was shown with other keys
    /// than those on record nothing is remembered.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn note_listed(&mut self, shown: &[SeenDevice]) -> Result<(), Error> {
        let mut fresh = false;
        for seen in shown {
            let known = self.file.contents_mut();
            if let Some(known) = known.known_device_mut(&seen.device.to_ref())
                && PublicKeys::of(&seen.device) == Some(known.keys())
            {
                fresh |= !known.announced;
                known.announced = true;
            }
        }
        if fresh { self.file.save() } else { Ok(()) }
    }

    fn open_label(&self, device: &Device) -> Option<String> {
        let member = &self.file.device().member_id;
        let label = device
            .label
            .as_ref()
            .filter(|_| device.member_id == *member)?;
        let own = StorageKey::own(member);
        let epoch = record::label_epoch(label.as_slice())?;
        let key = self.file.contents().key(&own, epoch)?;
        record::open_label(key, &own, label.as_slice()).ok()
    }

    /// The member's own devices, revoked ones too, to be shown to whoever uses this device; they
    /// count as listed once [`note_listed`](Self::note_listed) was told so.
    ///
    /// # Errors
    /// [`Error::Relay`].
    pub async fn own_devices(&mut self) -> Result<Vec<SeenDevice>, Error> {
        let devices = self.api.devices().await?;
        self.describe(devices)
    }

    /// The devices of a graph, its roster and with `former` every device that ever held a key, to
    /// be shown to whoever uses this device; they count as listed once
    /// [`note_listed`](Self::note_listed) was told so.
    ///
    /// # Errors
    /// [`Error::Relay`].
    pub async fn graph_devices(
        &mut self,
        graph: &GraphId,
        former: bool,
    ) -> Result<Vec<SeenDevice>, Error> {
        let devices = self.api.roster(graph, former).await?;
        self.describe(devices)
    }

    /// Remembers that somebody has compared a device's fingerprint with its owner.
    ///
    /// # Errors
    /// [`Error::Usage`] where the device was never seen or has another fingerprint.
    pub fn verify(&mut self, device: &DeviceRef, fingerprint: &str) -> Result<(), Error> {
        let bare = |text: &str| -> String {
            let digits = text.chars().filter(|c| !c.is_whitespace());
            digits.collect::<String>().to_lowercase()
        };
        let known = self.file.contents_mut().known_device_mut(device);
        let known = known.ok_or_else(|| Error::Usage("that device was never seen".to_owned()))?;
        let expected = known.keys().fingerprint(device).to_string();
        if bare(&expected) != bare(fingerprint) {
            return Err(Error::Usage(
                "the device has another fingerprint; it is not the one you were told of".to_owned(),
            ));
        }
        known.verified = true;
        known.announced = true;
        self.file.save()
    }

    /// Forgets what is on record of a device, so that the keys which the relay tells next are
    /// taken for its own. For when its owner says that the change is theirs.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn forget_device(&mut self, device: &DeviceRef) -> Result<(), Error> {
        self.file.contents_mut().forget(device);
        self.file.save()
    }
}
