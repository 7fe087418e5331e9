//! A graph's key of one epoch, and the keys derived from it.

use std::fmt;

use argala_wire::{BlobId, StorageKey};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{Bound, random};

/// The key of one epoch of one graph: 32 random bytes that every device of the roster holds.
///
/// It seals nothing itself. Each use has a key of its own, derived with HKDF-SHA256 and bound to
/// the graph and the epoch, so that bytes sealed for one use never open as another.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct GraphKey([u8; 32]);

impl GraphKey {
    /// A new key.
    #[must_use]
    pub fn generate() -> Self {
        Self(random())
    }

    /// The key of these bytes, as a wrap or the key file holds them.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for a wrap or the key file.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn derive(&self, bound: &Bound) -> Zeroizing<[u8; 32]> {
        let mut out = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(None, &self.0)
            .expand(&bound.0, out.as_mut())
            .expect("HKDF gives 32 bytes");
        out
    }

    /// The key that seals records.
    pub(super) fn for_records(&self, graph: &StorageKey, epoch: u64) -> Zeroizing<[u8; 32]> {
        self.derive(&Bound::to("argala/record-key/v1").graph(graph, epoch))
    }

    /// The key that seals the chunks of one blob.
    pub(super) fn for_blob(
        &self,
        graph: &StorageKey,
        epoch: u64,
        blob: &BlobId,
    ) -> Zeroizing<[u8; 32]> {
        let bound = Bound::to("argala/blob-key/v1").graph(graph, epoch);
        self.derive(&bound.field(blob.as_str()))
    }

    /// The key under which a blob's plaintext is digested for its nonce.
    pub(super) fn for_blob_nonce(
        &self,
        graph: &StorageKey,
        epoch: u64,
        blob: &BlobId,
    ) -> Zeroizing<[u8; 32]> {
        let bound = Bound::to("argala/blob-nonce/v1").graph(graph, epoch);
        self.derive(&bound.field(blob.as_str()))
    }

    /// The key that seals the names of a member's devices, in the member's own graph.
    pub(super) fn for_labels(&self, graph: &StorageKey, epoch: u64) -> Zeroizing<[u8; 32]> {
        self.derive(&Bound::to("argala/label-key/v1").graph(graph, epoch))
    }
}

/// Hides the key.
impl fmt::Debug for GraphKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GraphKey(…)")
    }
}
