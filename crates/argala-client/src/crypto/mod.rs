//! The reference end-to-end encryption: what the relay carries and cannot read.
//!
//! | what | how |
//! | --- | --- |
//! | a device | an X25519 and an Ed25519 key pair ([`DeviceKeys`]) |
//! | a graph's key of one epoch | 32 random bytes ([`GraphKey`]), from which HKDF-SHA256 derives all others |
//! | a wrap | the graph key in HPKE's auth mode, from the giver's device to one device ([`wrap`]) |
//! | a record | XChaCha20-Poly1305, bound to its graph, epoch, id and deleted flag ([`record`]) |
//! | a blob | XChaCha20-Poly1305 in chunks after the STREAM construction ([`blob`]) |
//! | a recovery code | 136 random bits and a checksum, stretched by Argon2id ([`recovery`]) |
//!
//! What the layers above must do: look up the giver's and the signer's public keys on the roster,
//! and remember them. Nothing here asks who a key belongs to.

pub mod blob;
mod device;
mod graph_key;
pub(crate) mod local;
pub mod record;
pub mod recovery;
pub mod wrap;

pub use device::{DeviceKeys, Fingerprint, PublicKeys, Verdict};
pub use graph_key::GraphKey;

use argala_wire::StorageKey;

/// Sealed bytes that do not open: forged, damaged, or sealed for something else. Nothing more is
/// told, since more would help only whoever forged them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sealed bytes do not open")]
pub struct OpenError;

/// Random bytes of the operating system.
///
/// # Panics
/// Where the system has none to give; there is no key, nonce or id to go on with then.
#[must_use]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// Bytes that a key derivation or a seal is bound to: a domain, raw, and fields, each with its
/// length in front, so that no two lists of fields give the same bytes.
struct Bound(Vec<u8>);

impl Bound {
    fn to(domain: &str) -> Self {
        Self(domain.as_bytes().to_vec())
    }

    fn field(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        let length = u32::try_from(bytes.len()).expect("a field is far below 4 GiB");
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    fn graph(self, graph: &StorageKey, epoch: u64) -> Self {
        self.field(graph.as_str()).field(epoch.to_be_bytes())
    }
}
