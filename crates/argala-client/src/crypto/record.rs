//! Records: the payload that is sealed, and the seal.
//!
//! A ciphertext is 24 random bytes of nonce and then XChaCha20-Poly1305 of the payload, with the
//! graph's storage key, the epoch, the record's id and the deleted flag as associated data: the
//! relay cannot serve a record under another id, revive a deleted one, or move one between graphs.
//!
//! The payload: one byte of version; the kind, its length as four bytes in front; the writing
//! device's counter, eight bytes, big-endian; the body. The counter rises with every record that a
//! device ever seals. A reader that has seen a device's record number 7 of an item will not take
//! number 6 for news, so that a relay cannot serve an item's past as its present.

use argala_wire::{RecordId, StorageKey};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload as Message},
};
use zeroize::Zeroizing;

use super::{Bound, GraphKey, OpenError, random};
use crate::access::Kind;

const VERSION: u8 = 1;
const NONCE: usize = 24;
const TAG: usize = 16;

/// How many bytes longer than its body a record of `kind` is once sealed.
#[must_use]
pub fn overhead(kind: &Kind) -> usize {
    NONCE + TAG + 1 + 4 + kind.as_str().len() + 8
}

/// What a sealed record holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    /// What the record is for.
    pub kind: Kind,
    /// The writing device's counter.
    pub counter: u64,
    /// The item itself.
    pub body: Vec<u8>,
}

impl Payload {
    fn encode(kind: &Kind, counter: u64, body: &[u8]) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(overhead(kind) + body.len()));
        let kind = kind.as_str().as_bytes();
        let length = u32::try_from(kind.len()).expect("a kind is at most 64 bytes");
        out.push(VERSION);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(kind);
        out.extend_from_slice(&counter.to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version], rest) = bytes.split_first_chunk::<1>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (kind, rest) = rest.split_at_checked(length)?;
        let (counter, body) = rest.split_first_chunk::<8>()?;
        (version == VERSION).then_some(())?;
        Some(Self {
            kind: Kind::new(std::str::from_utf8(kind).ok()?)?,
            counter: u64::from_be_bytes(*counter),
            body: body.to_vec(),
        })
    }
}

/// Hides the body.
impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({}, {} bytes)", self.kind, self.body.len())
    }
}

/// Seals and opens the records of one epoch of one graph.
pub struct RecordCipher {
    graph: StorageKey,
    epoch: u64,
    cipher: XChaCha20Poly1305,
}

impl RecordCipher {
    /// The cipher for `graph` under its key of `epoch`.
    #[must_use]
    pub fn new(key: &GraphKey, graph: &StorageKey, epoch: u64) -> Self {
        let key = key.for_records(graph, epoch);
        Self {
            graph: graph.clone(),
            epoch,
            cipher: XChaCha20Poly1305::new((&*key).into()),
        }
    }

    fn associated(&self, id: &RecordId, deleted: bool) -> Vec<u8> {
        Bound::to("argala/sealed-record/v1")
            .graph(&self.graph, self.epoch)
            .field(id.as_str())
            .field([u8::from(deleted)])
            .0
    }

    /// Seals one record. `counter` must be one that this device has used for no other.
    #[must_use]
    pub fn seal(
        &self,
        id: &RecordId,
        deleted: bool,
        kind: &Kind,
        counter: u64,
        body: &[u8],
    ) -> Vec<u8> {
        let nonce = random::<NONCE>();
        let payload = Payload::encode(kind, counter, body);
        let message = Message {
            msg: &payload,
            aad: &self.associated(id, deleted),
        };
        let sealed = self
            .cipher
            .encrypt(&XNonce::from(nonce), message)
            .expect("a record is far below what one seal can carry");
        let mut out = Vec::with_capacity(NONCE + sealed.len());
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        out
    }

    /// Opens one record.
    ///
    /// # Errors
    /// [`OpenError`] where the ciphertext was not sealed for this id and flag in this graph and
    /// epoch, or where what it holds is no payload that this build knows.
    pub fn open(
        &self,
        id: &RecordId,
        deleted: bool,
        ciphertext: &[u8],
    ) -> Result<Payload, OpenError> {
        let (nonce, sealed) = ciphertext.split_first_chunk::<NONCE>().ok_or(OpenError)?;
        let message = Message {
            msg: sealed,
            aad: &self.associated(id, deleted),
        };
        let plain = self
            .cipher
            .decrypt(&XNonce::from(*nonce), message)
            .map_err(|_| OpenError)?;
        Payload::decode(&Zeroizing::new(plain)).ok_or(OpenError)
    }
}

/// Seals a device's name for the member's other devices.
#[must_use]
pub fn seal_label(key: &GraphKey, graph: &StorageKey, epoch: u64, name: &str) -> Vec<u8> {
    let cipher = XChaCha20Poly1305::new((&*key.for_labels(graph, epoch)).into());
    let nonce = random::<NONCE>();
    let sealed = cipher
        .encrypt(&XNonce::from(nonce), name.as_bytes())
        .expect("a name is far below what one seal can carry");
    [&[VERSION], &epoch.to_be_bytes()[..], &nonce, &sealed].concat()
}

/// The epoch under which a label was sealed; `None` where this build did not seal it.
#[must_use]
pub fn label_epoch(label: &[u8]) -> Option<u64> {
    let (&[VERSION], rest) = label.split_first_chunk::<1>()? else {
        return None;
    };
    Some(u64::from_be_bytes(*rest.first_chunk::<8>()?))
}

/// Opens a device's name.
///
/// # Errors
/// [`OpenError`] where it was not sealed under this key.
pub fn open_label(key: &GraphKey, graph: &StorageKey, label: &[u8]) -> Result<String, OpenError> {
    let epoch = label_epoch(label).ok_or(OpenError)?;
    let (nonce, sealed) = label[9..].split_first_chunk::<NONCE>().ok_or(OpenError)?;
    let cipher = XChaCha20Poly1305::new((&*key.for_labels(graph, epoch)).into());
    let plain = cipher
        .decrypt(&XNonce::from(*nonce), sealed)
        .map_err(|_| OpenError)?;
    String::from_utf8(plain).map_err(|_| OpenError)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn graph(key: &str) -> StorageKey {
        key.parse().expect("legal")
    }

    fn id(text: &str) -> RecordId {
        RecordId::new(text).expect("legal")
    }

    fn kind() -> Kind {
        Kind::new("note").expect("legal")
    }

    #[test]
    fn each_part_of_the_associated_data_counts() {
        let key = GraphKey::generate();
        let cipher = RecordCipher::new(&key, &graph("g:acme"), 2);
        let sealed = cipher.seal(&id("a"), false, &kind(), 1, b"body");
        assert!(cipher.open(&id("a"), false, &sealed).is_ok());
        assert_eq!(cipher.open(&id("b"), false, &sealed), Err(OpenError));
        assert_eq!(cipher.open(&id("a"), true, &sealed), Err(OpenError));
        for other in [
            RecordCipher::new(&key, &graph("g:acm"), 2),
            RecordCipher::new(&key, &graph("g:acme"), 3),
            RecordCipher::new(&GraphKey::generate(), &graph("g:acme"), 2),
        ] {
            assert_eq!(other.open(&id("a"), false, &sealed), Err(OpenError));
        }
    }

    #[test]
    fn the_associated_data_alone_would_notice_a_swap() {
        // The same derived key, so that nothing but the associated data differs.
        let key = GraphKey::generate();
        let good = RecordCipher::new(&key, &graph("g:acme"), 2);
        let sealed = good.seal(&id("a"), false, &kind(), 1, b"body");
        let mut other_graph = RecordCipher::new(&key, &graph("g:acme"), 2);
        other_graph.graph = graph("g:acm");
        let mut other_epoch = RecordCipher::new(&key, &graph("g:acme"), 2);
        other_epoch.epoch = 3;
        assert_eq!(other_graph.open(&id("a"), false, &sealed), Err(OpenError));
        assert_eq!(other_epoch.open(&id("a"), false, &sealed), Err(OpenError));
    }

    #[test]
    fn a_payload_of_another_version_is_refused() {
        let mut bytes = Payload::encode(&kind(), 1, b"x").to_vec();
        assert!(Payload::decode(&bytes).is_some());
        bytes[0] = 2;
        assert_eq!(Payload::decode(&bytes), None);
        assert_eq!(Payload::decode(&[1, 255, 255, 255, 255]), None);
        assert_eq!(Payload::decode(&[]), None);
    }

    #[test]
    fn labels_open_under_their_key_alone() {
        let (key, own) = (GraphKey::generate(), graph("d:sam:sam"));
        let label = seal_label(&key, &own, 4, "Sam’s laptop");
        assert_eq!(label_epoch(&label), Some(4));
        assert_eq!(
            open_label(&key, &own, &label).as_deref(),
            Ok("Sam’s laptop")
        );
        assert_eq!(
            open_label(&GraphKey::generate(), &own, &label),
            Err(OpenError)
        );
        assert_eq!(open_label(&key, &own, &label[..12]), Err(OpenError));
        assert_eq!(label_epoch(b""), None);
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_every_bit_matters(
            body in prop::collection::vec(any::<u8>(), 0..200),
            name in "[a-zé:/|]{1,40}",
            counter: u64,
            deleted: bool,
            bit: prop::sample::Index,
            cut: prop::sample::Index,
        ) {
            let cipher = RecordCipher::new(&GraphKey::generate(), &graph("d:alex:sam"), 9);
            let id = id(&name);
            let sealed = cipher.seal(&id, deleted, &kind(), counter, &body);
            prop_assert_eq!(sealed.len(), body.len() + overhead(&kind()));
            let opened = cipher.open(&id, deleted, &sealed).expect("our own");
            prop_assert_eq!(opened, Payload { kind: kind(), counter, body: body.clone() });
            prop_assert_ne!(&cipher.seal(&id, deleted, &kind(), counter, &body), &sealed);
            let bit = bit.index(sealed.len() * 8);
            let mut bent = sealed.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(cipher.open(&id, deleted, &bent), Err(OpenError));
            let cut = cut.index(sealed.len());
            prop_assert_eq!(cipher.open(&id, deleted, &sealed[..cut]), Err(OpenError));
        }
    }
}
