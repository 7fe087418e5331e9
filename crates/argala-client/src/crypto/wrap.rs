//! Wraps: a graph key of one epoch, sealed by one device for one other.
//!
//! HPKE (RFC 9180) with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305, in auth
//! mode: only a holder of the giver's private key can make a wrap that opens. In base mode
//! whoever knows a device's public key could, the relay included, and devices would go on to
//! write under a key that the forger knows.
//!
//! `info` binds the graph, the epoch, the target and the giver, so that a wrap served as that of
//! another graph, epoch or device does not open. The bytes: one byte of version, 32 of
//! encapsulated key, 48 of sealed key.

use argala_wire::{Sealed, StorageKey, devices::DeviceRef};
use hpke::{
    Deserializable, OpModeR, OpModeS, Serializable, aead::ChaCha20Poly1305, kdf::HkdfSha256,
    kem::X25519HkdfSha256 as Kem,
};
use zeroize::Zeroizing;

use super::{Bound, DeviceKeys, GraphKey, OpenError, PublicKeys};

const VERSION: u8 = 1;
const ENCAPSULATED: usize = 32;

/// What a wrap is for: one epoch of one graph, from one device to another.
#[derive(Debug, Clone, Copy)]
pub struct WrapContext<'a> {
    /// The graph.
    pub graph: &'a StorageKey,
    /// The key's epoch.
    pub epoch: u64,
    /// The device that it is sealed for.
    pub to: &'a DeviceRef,
    /// The device that seals it.
    pub by: &'a DeviceRef,
}

impl WrapContext<'_> {
    fn info(&self) -> Vec<u8> {
        Bound::to("argala/wrap/v1")
            .graph(self.graph, self.epoch)
            .field(self.to.member_id.as_str())
            .field(self.to.device_id.as_str())
            .field(self.by.member_id.as_str())
            .field(self.by.device_id.as_str())
            .0
    }
}

/// Seals `key` for the device with the public keys `to`, in the name of the giver `by`. Two wraps
/// of the same key differ.
///
/// # Errors
/// [`OpenError`] where the target's public key is none that a secret can be agreed with.
pub fn seal(
    context: &WrapContext<'_>,
    key: &GraphKey,
    by: &DeviceKeys,
    to: &PublicKeys,
) -> Result<Sealed, OpenError> {
    let (private, public) = by.encryption();
    let target =
        <Kem as hpke::Kem>::PublicKey::from_bytes(&to.encryption).map_err(|_| OpenError)?;
    let (encapsulated, sealed) = hpke::single_shot_seal::<ChaCha20Poly1305, HkdfSha256, Kem>(
        &OpModeS::Auth((private.clone(), public.clone())),
        &target,
        &context.info(),
        key.as_bytes(),
        b"",
    )
    .map_err(|_| OpenError)?;
    let mut wrap = vec![VERSION];
    wrap.extend_from_slice(&encapsulated.to_bytes());
    wrap.extend_from_slice(&sealed);
    Ok(Sealed(wrap))
}

/// Opens a wrap that was sealed for `to` by the device with the public keys `by`.
///
/// # Errors
/// [`OpenError`] where it was not.
pub fn open(
    context: &WrapContext<'_>,
    wrap: &[u8],
    to: &DeviceKeys,
    by: &PublicKeys,
) -> Result<GraphKey, OpenError> {
    let (&version, rest) = wrap.split_first().ok_or(OpenError)?;
    let (encapsulated, sealed) = rest.split_at_checked(ENCAPSULATED).ok_or(OpenError)?;
    if version != VERSION {
        return Err(OpenError);
    }
    let giver = <Kem as hpke::Kem>::PublicKey::from_bytes(&by.encryption).map_err(|_| OpenError)?;
    let encapsulated =
        <Kem as hpke::Kem>::EncappedKey::from_bytes(encapsulated).map_err(|_| OpenError)?;
    let key = hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, Kem>(
        &OpModeR::Auth(giver),
        to.encryption().0,
        &encapsulated,
        &context.info(),
        sealed,
        b"",
    )
    .map_err(|_| OpenError)?;
    let key = Zeroizing::new(key);
    let bytes: [u8; 32] = key.as_slice().try_into().map_err(|_| OpenError)?;
    Ok(GraphKey::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use argala_wire::{DeviceId, MemberId, keys::MAX_WRAP_BYTES};
    use proptest::prelude::*;

    use super::*;

    struct Party {
        device: DeviceRef,
        keys: DeviceKeys,
    }

    fn party(member: &str, device: &str) -> Party {
        Party {
            device: DeviceRef {
                member_id: MemberId::new(member).expect("legal"),
                device_id: DeviceId::new(device).expect("legal"),
            },
            keys: DeviceKeys::generate(),
        }
    }

    fn graph(key: &str) -> StorageKey {
        key.parse().expect("legal")
    }

    fn context<'a>(
        graph: &'a StorageKey,
        epoch: u64,
        by: &'a Party,
        to: &'a Party,
    ) -> WrapContext<'a> {
        WrapContext {
            graph,
            epoch,
            to: &to.device,
            by: &by.device,
        }
    }

    #[test]
    fn the_one_device_reads_it_and_no_other() {
        let (sam, alex, eve) = (party("sam", "a"), party("alex", "b"), party("eve", "c"));
        let graph = graph("g:acme");
        let key = GraphKey::generate();
        let to_alex = context(&graph, 7, &sam, &alex);
        let wrap = seal(&to_alex, &key, &sam.keys, &alex.keys.public()).expect("seals");
        assert!(wrap.len() <= MAX_WRAP_BYTES);
        let opened = open(&to_alex, wrap.as_slice(), &alex.keys, &sam.keys.public());
        assert_eq!(opened, Ok(key));
        assert_eq!(
            open(&to_alex, wrap.as_slice(), &eve.keys, &sam.keys.public()),
            Err(OpenError)
        );
    }

    #[test]
    fn whoever_lacks_the_givers_key_cannot_forge_one() {
        let (sam, alex, eve) = (party("sam", "a"), party("alex", "b"), party("eve", "c"));
        let graph = graph("g:acme");
        let said_by_sam = context(&graph, 1, &sam, &alex);
        let key = GraphKey::generate();
        let forged = seal(&said_by_sam, &key, &eve.keys, &alex.keys.public()).expect("seals");
        assert_eq!(
            open(
                &said_by_sam,
                forged.as_slice(),
                &alex.keys,
                &sam.keys.public()
            ),
            Err(OpenError)
        );
    }

    #[test]
    fn a_wrap_for_one_thing_is_no_wrap_for_another() {
        let (sam, alex) = (party("sam", "a"), party("alex", "b"));
        let (acme, other) = (graph("g:acme"), graph("g:acm"));
        let key = GraphKey::generate();
        let meant = context(&acme, 2, &sam, &alex);
        let wrap = seal(&meant, &key, &sam.keys, &alex.keys.public()).expect("seals");
        let twin = Party {
            device: sam.device.clone(),
            keys: DeviceKeys::generate(),
        };
        for context in [
            context(&other, 2, &sam, &alex),
            context(&acme, 3, &sam, &alex),
            context(&acme, 2, &alex, &alex),
            context(&acme, 2, &sam, &twin),
        ] {
            let opened = open(&context, wrap.as_slice(), &alex.keys, &sam.keys.public());
            assert_eq!(opened, Err(OpenError), "{context:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn every_bit_matters(bit in 0_usize..81 * 8, cut in 0_usize..81) {
            let (sam, alex) = (party("sam", "a"), party("alex", "b"));
            let graph = graph("d:alex:sam");
            let context = context(&graph, 1, &sam, &alex);
            let wrap = seal(&context, &GraphKey::generate(), &sam.keys, &alex.keys.public()).expect("seals");
            prop_assert_eq!(wrap.len(), 81);
            let open = |bytes: &[u8]| open(&context, bytes, &alex.keys, &sam.keys.public());
            let mut bent = wrap.0.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(open(&bent), Err(OpenError));
            // X25519 masks the topmost bit of a public key off before use (RFC 7748); HPKE hashes
            // the key as it came, so flipping that bit is noticed too.
            bent.clone_from(&wrap.0);
            bent[32] ^= 128;
            prop_assert_eq!(open(&bent), Err(OpenError));
            prop_assert_eq!(open(&wrap.0[..cut]), Err(OpenError));
        }
    }
}
