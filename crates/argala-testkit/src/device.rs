//! Devices with keys of their own.

use argala_core::ports::store::Register;
use argala_wire::{
    Sealed, StorageKey, Timestamp,
    devices::{Device, DeviceKind, DeviceRef, RegisterRequest, Suite},
    keys::{GrantWrap, RotateWrap},
    limits::Quotas,
    records::PushRecord,
    signing,
};
use ed25519_dalek::{Signer, SigningKey};
use sha2::{Digest, Sha256};

use crate::{device_ref, record_id};

/// A device whose keys follow from its name, so that every run signs the same bytes.
///
/// Its signing key is a real Ed25519 key. Its encryption key only has the length of one: the relay
/// never uses it.
#[derive(Debug, Clone)]
pub struct TestDevice {
    device: DeviceRef,
    kind: DeviceKind,
    signing: SigningKey,
    encryption: [u8; 32],
}

fn derive(what: &str, device: &DeviceRef, generation: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [
        what.as_bytes(),
        device.member_id.as_str().as_bytes(),
        device.device_id.as_str().as_bytes(),
        &generation.to_be_bytes(),
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

impl TestDevice {
    /// The device `device` of the member `member`.
    ///
    /// # Panics
    /// Where a name is no id.
    #[must_use]
    pub fn new(member: &str, device: &str) -> Self {
        Self::with_keys(device_ref(member, device), 0)
    }

    /// A device of this name with the keys of `generation`, which differ from those of any other.
    #[must_use]
    pub fn with_keys(device: DeviceRef, generation: u64) -> Self {
        Self {
            kind: DeviceKind::Device,
            signing: SigningKey::from_bytes(&derive("signing", &device, generation)),
            encryption: derive("encryption", &device, generation),
            device,
        }
    }

    /// The same device, its keys being those of a recovery code.
    #[must_use]
    pub fn recovery(self) -> Self {
        Self {
            kind: DeviceKind::Recovery,
            ..self
        }
    }

    /// Whose device it is, and which.
    #[must_use]
    pub fn to_ref(&self) -> DeviceRef {
        self.device.clone()
    }

    /// The private key it signs with.
    #[must_use]
    pub fn signing_key(&self) -> &SigningKey {
        &self.signing
    }

    /// Its public signing key.
    #[must_use]
    pub fn public_signing_key(&self) -> Sealed {
        Sealed(self.signing.verifying_key().as_bytes().to_vec())
    }

    /// Its public encryption key.
    #[must_use]
    pub fn public_encryption_key(&self) -> Sealed {
        Sealed(self.encryption.to_vec())
    }

    /// Body of `POST /devices`, with a valid proof and no label.
    #[must_use]
    pub fn register_request(&self) -> RegisterRequest {
        let suite = Suite::default();
        let (encryption_key, signing_key) =
            (self.public_encryption_key(), self.public_signing_key());
        let message = signing::device_proof(
            &self.device,
            self.kind,
            suite,
            encryption_key.as_slice(),
            signing_key.as_slice(),
        );
        RegisterRequest {
            suite,
            encryption_key,
            signing_key,
            kind: self.kind,
            label: None,
            proof: Sealed(self.signing.sign(&message).to_bytes().to_vec()),
        }
    }

    /// What a store is asked when the device registers, under the default quota.
    #[must_use]
    pub fn register(&self, now: Timestamp) -> Register {
        Register {
            device: self.to_ref(),
            suite: Suite::default(),
            kind: self.kind,
            encryption_key: self.public_encryption_key(),
            signing_key: self.public_signing_key(),
            label: None,
            now,
            max_devices: Quotas::default().max_devices_per_member,
        }
    }

    /// The device as it stands once it has registered at `at`.
    #[must_use]
    pub fn registered(&self, at: Timestamp) -> Device {
        Device {
            member_id: self.device.member_id.clone(),
            device_id: self.device.device_id.clone(),
            kind: self.kind,
            suite: Suite::default(),
            encryption_key: self.public_encryption_key(),
            signing_key: self.public_signing_key(),
            label: None,
            registered_at: at,
            revoked_at: None,
            last_seen_at: None,
        }
    }

    /// A wrap for this device in a rotate, its content told by `content`.
    #[must_use]
    pub fn rotate_wrap(&self, content: &str) -> RotateWrap {
        RotateWrap {
            member_id: self.device.member_id.clone(),
            device_id: self.device.device_id.clone(),
            wrap: Sealed(content.as_bytes().to_vec()),
        }
    }

    /// A wrap for this device in a grant, its content told by `content`.
    #[must_use]
    pub fn grant_wrap(&self, epoch: u64, content: &str) -> GrantWrap {
        GrantWrap {
            epoch,
            member_id: self.device.member_id.clone(),
            device_id: self.device.device_id.clone(),
            wrap: Sealed(content.as_bytes().to_vec()),
        }
    }

    /// A signed record of `graph`.
    ///
    /// # Panics
    /// Where `id` is no record id.
    #[must_use]
    pub fn record(
        &self,
        graph: &StorageKey,
        id: &str,
        epoch: u64,
        ciphertext: &[u8],
    ) -> PushRecord {
        let mut record = PushRecord {
            id: record_id(id),
            epoch,
            ciphertext: ciphertext.into(),
            sig: None,
            deleted: false,
            expect: None,
        };
        self.sign(graph, &mut record);
        record
    }

    /// A signed tombstone of `graph`, its ciphertext empty.
    ///
    /// # Panics
    /// Where `id` is no record id.
    #[must_use]
    pub fn tombstone(&self, graph: &StorageKey, id: &str, epoch: u64) -> PushRecord {
        let mut record = self.record(graph, id, epoch, b"");
        record.deleted = true;
        self.sign(graph, &mut record);
        record
    }

    /// Puts this device's signature on `record`, in place of what there was.
    pub fn sign(&self, graph: &StorageKey, record: &mut PushRecord) {
        let message = signing::record(
            graph,
            record.epoch,
            &record.id,
            record.deleted,
            record.ciphertext.as_slice(),
        );
        record.sig = Some(Sealed(self.signing.sign(&message).to_bytes().to_vec()));
    }
}
