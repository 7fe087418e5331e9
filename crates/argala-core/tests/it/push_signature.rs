//! What is signed with a record, and how strictly it is verified (protocol, section 5).

use argala_core::{
    ports::store::SignatureVerdict,
    rules::push::{Verifier, is_signed},
};
use argala_testkit::{TestDevice, group, record_id};
use argala_wire::{
    Sealed, StorageKey,
    limits::Signatures::{Optional, Required},
    records::PushRecord,
};
use proptest::prelude::*;

use crate::given::{caller, key};

fn verdict(record: &PushRecord) -> SignatureVerdict {
    let signing_key = caller().public_signing_key();
    let required = Verifier::new(signing_key.as_slice()).verify(&key(), record, Required);
    if record.sig.is_some() {
        // Where there is one, it is held to the same in either mode.
        let optional = Verifier::new(signing_key.as_slice()).verify(&key(), record, Optional);
        assert_eq!(optional, required);
    }
    required
}

#[test]
fn a_record_without_a_signature_is_missing_one_where_they_are_required() {
    let signing_key = caller().public_signing_key();
    let bare = PushRecord {
        sig: None,
        ..caller().record(&key(), "r", 1, b"x")
    };
    assert_eq!(
        Verifier::new(signing_key.as_slice()).verify(&key(), &bare, Required),
        SignatureVerdict::Missing
    );
    assert_eq!(
        Verifier::new(signing_key.as_slice()).verify(&key(), &bare, Optional),
        SignatureVerdict::Good
    );
}

#[test]
fn every_part_is_signed() {
    let record = caller().record(&key(), "r", 3, b"x");
    assert_eq!(verdict(&record), SignatureVerdict::Good);
    let other = TestDevice::new("sam", "phone");
    let mut by_other = record.clone();
    other.sign(&key(), &mut by_other);
    let mut of_other_graph = record.clone();
    caller().sign(&StorageKey::group(&group("other")), &mut of_other_graph);
    let changed = [
        PushRecord {
            id: record_id("s"),
            ..record.clone()
        },
        PushRecord {
            epoch: 4,
            ..record.clone()
        },
        PushRecord {
            deleted: true,
            ..record.clone()
        },
        PushRecord {
            ciphertext: Sealed(b"y".to_vec()),
            ..record.clone()
        },
        by_other,
        of_other_graph,
    ];
    for (at, record) in changed.iter().enumerate() {
        assert_eq!(verdict(record), SignatureVerdict::Invalid, "change {at}");
    }
    // What may change from push to push is not signed.
    let expecting = PushRecord {
        expect: Some(9),
        ..record
    };
    assert_eq!(verdict(&expecting), SignatureVerdict::Good);
}

proptest! {
    #[test]
    fn no_bit_of_a_signature_is_idle(bit in 0..512_usize) {
        let mut record = caller().record(&key(), "r", 3, b"x");
        let sig = record.sig.as_mut().unwrap();
        sig.0[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(verdict(&record), SignatureVerdict::Invalid);
    }

    #[test]
    fn a_signature_has_64_bytes(length in 0..130_usize) {
        prop_assume!(length != 64);
        let mut record = caller().record(&key(), "r", 3, b"x");
        let sig = record.sig.as_mut().unwrap();
        sig.0.resize(length, 0);
        prop_assert_eq!(verdict(&record), SignatureVerdict::Invalid);
    }
}

/// The group order of Ed25519, little-endian: adding it to the second half of a signature gives
/// another that careless verifiers take for the same message.
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

#[test]
fn a_signature_has_one_form() {
    let mut record = caller().record(&key(), "r", 3, b"x");
    let sig = record.sig.as_mut().unwrap();
    let mut carry = 0;
    for (byte, add) in sig.0[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    assert_eq!(carry, 0, "the sum still has 32 bytes");
    assert_eq!(verdict(&record), SignatureVerdict::Invalid);
}

#[test]
fn a_key_of_small_order_signs_nothing() {
    // The neutral element as key and as commitment, and a zero: it satisfies the bare equation
    // for every message.
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(&neutral);
    assert!(!is_signed(&neutral, b"any message", &signature));
}

#[test]
fn what_is_no_key_verifies_nothing() {
    let record = caller().record(&key(), "r", 3, b"x");
    let good = caller().public_signing_key();
    for bad in [&good.as_slice()[..31], &[], &[0xff; 32]] {
        assert_eq!(
            Verifier::new(bad).verify(&key(), &record, Required),
            SignatureVerdict::Invalid
        );
    }
}
