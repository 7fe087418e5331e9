//! A device's own keys, and what others know of them.

use std::fmt;

use argala_wire::{
    RecordId, Sealed, StorageKey,
    devices::{Device, DeviceKind, DeviceRef, RegisterRequest, Suite},
    signing,
};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use hpke::{Deserializable, Kem as _, Serializable, kem::X25519HkdfSha256 as Kem};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{Bound, random};

type EncryptionKey = <Kem as hpke::Kem>::PrivateKey;
type EncryptionPublicKey = <Kem as hpke::Kem>::PublicKey;

/// The two key pairs of one device. They leave the machine by no way but a recovery code.
pub struct DeviceKeys {
    encryption: EncryptionKey,
    encryption_public: EncryptionPublicKey,
    signing: SigningKey,
}

impl DeviceKeys {
    /// New keys.
    #[must_use]
    pub fn generate() -> Self {
        Self::from_secrets(
            &Zeroizing::new(random::<32>()),
            &Zeroizing::new(random::<32>()),
        )
    }

    /// The keys that belong to these secrets: an X25519 scalar (clamped here) and an Ed25519 seed.
    #[must_use]
    pub fn from_secrets(encryption: &[u8; 32], signing: &[u8; 32]) -> Self {
        let encryption =
            EncryptionKey::from_bytes(encryption).expect("any 32 bytes are an X25519 key");
        Self {
            encryption_public: Kem::sk_to_pk(&encryption),
            encryption,
            signing: SigningKey::from_bytes(signing),
        }
    }

    /// The secrets, for the key file and for nothing else: the X25519 scalar, the Ed25519 seed.
    #[must_use]
    pub fn to_secrets(&self) -> (Zeroizing<[u8; 32]>, Zeroizing<[u8; 32]>) {
        let mut encryption = Zeroizing::new([0; 32]);
        self.encryption.write_exact(encryption.as_mut());
        (encryption, Zeroizing::new(self.signing.to_bytes()))
    }

    /// The public halves.
    #[must_use]
    pub fn public(&self) -> PublicKeys {
        PublicKeys {
            encryption: self.encryption_public.to_bytes().into(),
            signing: self.signing.verifying_key().to_bytes(),
        }
    }

    pub(super) fn encryption(&self) -> (&EncryptionKey, &EncryptionPublicKey) {
        (&self.encryption, &self.encryption_public)
    }

    /// The body with which `device` registers these keys, its proof included (protocol, route 1).
    #[must_use]
    pub fn registration(
        &self,
        device: &DeviceRef,
        kind: DeviceKind,
        label: Option<Sealed>,
    ) -> RegisterRequest {
        let suite = Suite::X25519Ed25519;
        let public = self.public();
        let proof = signing::device_proof(device, kind, suite, &public.encryption, &public.signing);
        RegisterRequest {
            suite,
            encryption_key: Sealed(public.encryption.to_vec()),
            signing_key: Sealed(public.signing.to_vec()),
            kind,
            label,
            proof: Sealed(self.signing.sign(&proof).to_bytes().to_vec()),
        }
    }

    /// The signature that a record is pushed with (protocol, section 5).
    #[must_use]
    pub fn sign_record(
        &self,
        graph: &StorageKey,
        epoch: u64,
        id: &RecordId,
        deleted: bool,
        ciphertext: &[u8],
    ) -> Sealed {
        let message = signing::record(graph, epoch, id, deleted, ciphertext);
        Sealed(self.signing.sign(&message).to_bytes().to_vec())
    }
}

/// Says whose keys they are not, and nothing of the keys.
impl fmt::Debug for DeviceKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceKeys(…)")
    }
}

/// The public keys of a device, as its member published them and the relay tells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKeys {
    /// X25519; wraps are sealed for it.
    pub encryption: [u8; 32],
    /// Ed25519; records are verified with it.
    pub signing: [u8; 32],
}

/// What became of verifying a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The key's owner signed these bytes.
    Good,
    /// Anything else.
    Bad,
}

impl PublicKeys {
    /// The keys that the relay tells of `device`; `None` where they are not of this build's suite.
    #[must_use]
    pub fn of(device: &Device) -> Option<Self> {
        Some(Self {
            encryption: device.encryption_key.as_slice().try_into().ok()?,
            signing: device.signing_key.as_slice().try_into().ok()?,
        })
    }

    /// Verifies `signature` over `message` strictly, as the relay does.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Verdict {
        let verify = || {
            let key = VerifyingKey::from_bytes(&self.signing).ok()?;
            let signature = Signature::from_slice(signature).ok()?;
            key.verify_strict(message, &signature).ok()
        };
        match verify() {
            Some(()) => Verdict::Good,
            None => Verdict::Bad,
        }
    }

    /// What two people compare to know that the relay shows them the same device.
    #[must_use]
    pub fn fingerprint(&self, device: &DeviceRef) -> Fingerprint {
        let bound = Bound::to("argala/fingerprint/v1")
            .field(device.member_id.as_str())
            .field(device.device_id.as_str())
            .field(self.encryption)
            .field(self.signing);
        let digest = Sha256::digest(bound.0);
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        Fingerprint(short)
    }
}

/// 128 bits that stand for a device's name and keys: eight groups of four hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 16]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pair) in self.0.chunks(2).enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{:02x}{:02x}", pair[0], pair[1])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use argala_wire::{DeviceId, MemberId};
    use proptest::prelude::*;

    use super::*;

    fn device(member: &str, device: &str) -> DeviceRef {
        DeviceRef {
            member_id: MemberId::new(member).expect("legal"),
            device_id: DeviceId::new(device).expect("legal"),
        }
    }

    #[test]
    fn secrets_give_the_same_keys_back() {
        let keys = DeviceKeys::generate();
        let (encryption, signing) = keys.to_secrets();
        assert_eq!(
            DeviceKeys::from_secrets(&encryption, &signing).public(),
            keys.public()
        );
        assert_ne!(DeviceKeys::generate().public(), keys.public());
        assert_eq!(format!("{keys:?}"), "DeviceKeys(…)");
    }

    #[test]
    fn the_proof_is_over_what_is_registered() {
        let keys = DeviceKeys::generate();
        let sam = device("sam", "laptop");
        let body = keys.registration(&sam, DeviceKind::Device, None);
        let message = |device: &DeviceRef, kind| {
            signing::device_proof(
                device,
                kind,
                body.suite,
                body.encryption_key.as_slice(),
                body.signing_key.as_slice(),
            )
        };
        let verify = |message: &[u8]| keys.public().verify(message, body.proof.as_slice());
        assert_eq!(verify(&message(&sam, DeviceKind::Device)), Verdict::Good);
        assert_eq!(verify(&message(&sam, DeviceKind::Recovery)), Verdict::Bad);
        assert_eq!(
            verify(&message(&device("alex", "laptop"), DeviceKind::Device)),
            Verdict::Bad
        );
    }

    #[test]
    fn a_fingerprint_stands_for_name_and_keys() {
        let (one, two) = (
            DeviceKeys::generate().public(),
            DeviceKeys::generate().public(),
        );
        let sam = device("sam", "laptop");
        let print = one.fingerprint(&sam);
        assert_ne!(print, two.fingerprint(&sam));
        assert_ne!(print, one.fingerprint(&device("sam", "phone")));
        let text = print.to_string();
        assert_eq!(text.split(' ').count(), 8);
        assert!(text.split(' ').all(|group| group.len() == 4));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_of_a_signature_or_message_is_noticed(
            ciphertext in prop::collection::vec(any::<u8>(), 0..64),
            bit in 0_usize..512,
        ) {
            let keys = DeviceKeys::generate();
            let graph: StorageKey = "g:acme".parse().expect("legal");
            let id = RecordId::new("note").expect("legal");
            let sig = keys.sign_record(&graph, 3, &id, false, &ciphertext);
            let message = signing::record(&graph, 3, &id, false, &ciphertext);
            let public = keys.public();
            prop_assert_eq!(public.verify(&message, sig.as_slice()), Verdict::Good);
            let mut bent = sig.0.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(public.verify(&message, &bent), Verdict::Bad);
            for other in [
                signing::record(&graph, 4, &id, false, &ciphertext),
                signing::record(&graph, 3, &id, true, &ciphertext),
                signing::record(&"g:acm".parse().expect("legal"), 3, &id, false, &ciphertext),
            ] {
                prop_assert_eq!(public.verify(&other, sig.as_slice()), Verdict::Bad);
            }
        }
    }
}
