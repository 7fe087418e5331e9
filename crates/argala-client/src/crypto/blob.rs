//! Blobs: files sealed chunk by chunk, so that none is ever held whole.
//!
//! The bytes: one byte of version, the epoch as eight bytes, 19 bytes of nonce prefix; then the
//! chunks, each 64 KiB of plaintext (the last one less, an empty file's empty) and 16 bytes of
//! tag. A chunk's nonce is the prefix, its number as four bytes and one byte that is 1 for the
//! last chunk and 0 for the others (the STREAM construction of Hoang, Reyhanitabar, Rogaway and
//! Vizár): chunks can neither be dropped, repeated, reordered nor cut off. The header is every
//! chunk's associated data, and the key is derived for this one blob of this graph and epoch.
//!
//! The nonce prefix is a keyed digest of the plaintext: the same file under the same id and epoch
//! is sealed to the same bytes, so that an upload repeated after a crash meets its own earlier
//! self and not a conflict. Different files differ in their prefix, and so in every nonce.

use argala_wire::{BlobId, StorageKey};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use hkdf::hmac::{Hmac, Mac};
use sha2::Sha256;

use super::{GraphKey, OpenError};

/// Bytes of plaintext in every chunk but the last.
pub const CHUNK: usize = 64 * 1024;
/// Bytes before the first chunk.
pub const HEADER: usize = 1 + 8 + PREFIX;
const PREFIX: usize = 19;
const TAG: usize = 16;
const SEALED_CHUNK: usize = CHUNK + TAG;
const VERSION: u8 = 1;

/// How many bytes a file of `plain` bytes has once sealed.
#[must_use]
pub const fn sealed_size(plain: u64) -> u64 {
    let chunk = CHUNK as u64;
    let chunks = if plain == 0 { 1 } else { plain.div_ceil(chunk) };
    HEADER as u64 + plain + chunks * TAG as u64
}

/// The most bytes a file may have so that it has no more than `sealed` once sealed; 0 also where
/// not even an empty one would fit.
#[must_use]
pub const fn largest_plain(sealed: u64) -> u64 {
    let room = sealed.saturating_sub(HEADER as u64);
    let chunks = room.div_ceil(SEALED_CHUNK as u64);
    room.saturating_sub(chunks * TAG as u64)
}

/// Which blob it is: what its keys are derived for.
#[derive(Debug, Clone, Copy)]
pub struct BlobContext<'a> {
    /// The graph.
    pub graph: &'a StorageKey,
    /// The epoch whose key seals it.
    pub epoch: u64,
    /// The blob.
    pub blob: &'a BlobId,
}

/// A file's keyed digest, from which its nonces come: the first of the two times it is read.
pub struct NonceDigest(Hmac<Sha256>);

impl NonceDigest {
    /// Begins the digest for one blob.
    #[must_use]
    pub fn new(key: &GraphKey, context: &BlobContext<'_>) -> Self {
        let key = key.for_blob_nonce(context.graph, context.epoch, context.blob);
        Self(Hmac::new_from_slice(&*key).expect("HMAC takes a key of any length"))
    }

    /// Takes the next bytes of the file.
    pub fn update(&mut self, plain: &[u8]) {
        self.0.update(plain);
    }

    /// The nonce prefix of a file with these bytes.
    #[must_use]
    pub fn finish(self) -> NoncePrefix {
        let digest = self.0.finalize().into_bytes();
        let mut prefix = [0; PREFIX];
        prefix.copy_from_slice(&digest[..PREFIX]);
        NoncePrefix(prefix)
    }
}

/// What every nonce of one sealed file begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoncePrefix([u8; PREFIX]);

struct Chunks {
    cipher: XChaCha20Poly1305,
    header: [u8; HEADER],
    next: u32,
}

impl Chunks {
    fn new(key: &GraphKey, context: &BlobContext<'_>, prefix: NoncePrefix) -> Self {
        let mut header = [0; HEADER];
        header[0] = VERSION;
        header[1..9].copy_from_slice(&context.epoch.to_be_bytes());
        header[9..].copy_from_slice(&prefix.0);
        let key = key.for_blob(context.graph, context.epoch, context.blob);
        Self {
            cipher: XChaCha20Poly1305::new((&*key).into()),
            header,
            next: 0,
        }
    }

    /// The nonce of the next chunk; `None` past 2³² of them, which is 256 TiB.
    fn nonce(&mut self, last: bool) -> Option<XNonce> {
        let mut nonce = [0; 24];
        nonce[..PREFIX].copy_from_slice(&self.header[9..]);
        nonce[PREFIX..23].copy_from_slice(&self.next.to_be_bytes());
        nonce[23] = u8::from(last);
        self.next = self.next.checked_add(1)?;
        Some(XNonce::from(nonce))
    }
}

/// Seals a file chunk by chunk.
pub struct Sealer(Chunks);

impl Sealer {
    /// A sealer for the file that `prefix` is the digest of. Sealing any other file with it would
    /// use its nonces twice: digest the file again while it is sealed, and send nothing where the
    /// digests differ.
    #[must_use]
    pub fn new(key: &GraphKey, context: &BlobContext<'_>, prefix: NoncePrefix) -> Self {
        Self(Chunks::new(key, context, prefix))
    }

    /// The bytes before the first chunk.
    #[must_use]
    pub fn header(&self) -> &[u8; HEADER] {
        &self.0.header
    }

    /// Seals the next chunk: [`CHUNK`] bytes, or what is left for the `last`.
    ///
    /// # Panics
    /// Where a chunk that is not the last is of another length, which no reader would open.
    #[must_use]
    pub fn chunk(&mut self, plain: &[u8], last: bool) -> Vec<u8> {
        assert!(plain.len() == CHUNK || (last && plain.len() < CHUNK));
        let nonce = self.0.nonce(last).expect("a blob is far below 256 TiB");
        let message = Payload {
            msg: plain,
            aad: &self.0.header,
        };
        self.0
            .cipher
            .encrypt(&nonce, message)
            .expect("a chunk is far below what one seal can carry")
    }
}

/// The epoch that a blob says it was sealed under, from its first bytes; a wrong one opens
/// nothing. `None` where this build did not seal it.
#[must_use]
pub fn epoch_of(header: &[u8; HEADER]) -> Option<u64> {
    let (&[version], rest) = header.split_first_chunk::<1>()?;
    (version == VERSION).then_some(())?;
    Some(u64::from_be_bytes(*rest.first_chunk::<8>()?))
}

/// Opens a blob's chunks from bytes that arrive in pieces of any size, after its header.
///
/// What it gives out is what was sealed, but not yet known to be all of it: only
/// [`finish`](Self::finish) knows.
pub struct Opener {
    chunks: Chunks,
    pending: Vec<u8>,
}

impl Opener {
    /// An opener for the blob that begins with `header`.
    #[must_use]
    pub fn new(key: &GraphKey, context: &BlobContext<'_>, header: &[u8; HEADER]) -> Self {
        let mut prefix = [0; PREFIX];
        prefix.copy_from_slice(&header[9..]);
        let mut chunks = Chunks::new(key, context, NoncePrefix(prefix));
        chunks.header = *header;
        Self {
            chunks,
            pending: Vec::with_capacity(SEALED_CHUNK),
        }
    }

    fn open(&mut self, last: bool) -> Result<Vec<u8>, OpenError> {
        let nonce = self.chunks.nonce(last).ok_or(OpenError)?;
        let message = Payload {
            msg: &self.pending,
            aad: &self.chunks.header,
        };
        let plain = self
            .chunks
            .cipher
            .decrypt(&nonce, message)
            .map_err(|_| OpenError)?;
        self.pending.clear();
        Ok(plain)
    }

    /// Takes the next bytes, and hands each chunk that they complete to `out`. A chunk is complete
    /// once a byte after it has come: it might have been the last.
    ///
    /// # Errors
    /// [`OpenError`] where a chunk is not what was sealed.
    pub fn update(
        &mut self,
        mut sealed: &[u8],
        mut out: impl FnMut(&[u8]),
    ) -> Result<(), OpenError> {
        while !sealed.is_empty() {
            if self.pending.len() == SEALED_CHUNK {
                out(&self.open(false)?);
            }
            let room = SEALED_CHUNK - self.pending.len();
            let (now, later) = sealed.split_at(room.min(sealed.len()));
            self.pending.extend_from_slice(now);
            sealed = later;
        }
        Ok(())
    }

    /// Opens the last chunk; the blob is whole if this succeeds.
    ///
    /// # Errors
    /// [`OpenError`] where bytes are missing or are not what was sealed.
    pub fn finish(mut self) -> Result<Vec<u8>, OpenError> {
        self.open(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Fixture {
        key: GraphKey,
        graph: StorageKey,
        blob: BlobId,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                key: GraphKey::generate(),
                graph: "g:acme".parse().expect("legal"),
                blob: BlobId::new("0123456789abcdef").expect("legal"),
            }
        }

        fn context(&self) -> BlobContext<'_> {
            BlobContext {
                graph: &self.graph,
                epoch: 3,
                blob: &self.blob,
            }
        }

        fn seal(&self, plain: &[u8]) -> Vec<u8> {
            let mut digest = NonceDigest::new(&self.key, &self.context());
            digest.update(plain);
            let mut sealer = Sealer::new(&self.key, &self.context(), digest.finish());
            let mut out = sealer.header().to_vec();
            let mut chunks = plain.chunks(CHUNK).peekable();
            if chunks.peek().is_none() {
                out.extend(sealer.chunk(b"", true));
            }
            while let Some(chunk) = chunks.next() {
                out.extend(sealer.chunk(chunk, chunks.peek().is_none()));
            }
            out
        }

        fn open(&self, sealed: &[u8], step: usize) -> Result<Vec<u8>, OpenError> {
            let (header, rest) = sealed.split_first_chunk::<HEADER>().ok_or(OpenError)?;
            let mut context = self.context();
            context.epoch = epoch_of(header).ok_or(OpenError)?;
            let mut opener = Opener::new(&self.key, &context, header);
            let mut plain = Vec::new();
            for piece in rest.chunks(step) {
                opener.update(piece, |chunk| plain.extend_from_slice(chunk))?;
            }
            plain.extend(opener.finish()?);
            Ok(plain)
        }
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn sizes_at_the_edges_of_chunks() {
        let fixture = Fixture::new();
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 5] {
            let plain = bytes(len);
            let sealed = fixture.seal(&plain);
            assert_eq!(sealed.len() as u64, sealed_size(len as u64), "{len}");
            assert_eq!(largest_plain(sealed.len() as u64), len as u64, "{len}");
            for step in [1_000, SEALED_CHUNK, sealed.len().max(1)] {
                assert_eq!(fixture.open(&sealed, step).as_ref(), Ok(&plain), "{len}");
            }
        }
        assert_eq!(largest_plain(0), 0);
        assert!(sealed_size(largest_plain(25 << 20)) <= 25 << 20);
        assert!(sealed_size(largest_plain(25 << 20) + 1) > 25 << 20);
    }

    #[test]
    fn the_same_file_is_the_same_blob_and_another_shares_no_nonce() {
        let fixture = Fixture::new();
        let (one, two) = (fixture.seal(b"one"), fixture.seal(b"two"));
        assert_eq!(one, fixture.seal(b"one"));
        assert_ne!(one[..HEADER], two[..HEADER]);
    }

    #[test]
    fn chunks_cannot_be_dropped_repeated_swapped_or_cut_off() {
        let fixture = Fixture::new();
        let sealed = fixture.seal(&bytes(3 * CHUNK));
        let (header, rest) = sealed.split_at(HEADER);
        let chunks: Vec<&[u8]> = rest.chunks(SEALED_CHUNK).collect();
        let bent = |order: &[usize]| {
            let body: Vec<&[u8]> = order.iter().map(|&at| chunks[at]).collect();
            fixture.open(&[header, &body.concat()].concat(), 10_000)
        };
        assert!(bent(&[0, 1, 2]).is_ok());
        for order in [
            &[0, 1][..],
            &[0],
            &[],
            &[1, 2],
            &[0, 2],
            &[1, 0, 2],
            &[0, 1, 2, 2],
            &[0, 0, 1, 2],
        ] {
            assert_eq!(bent(order), Err(OpenError), "{order:?}");
        }
    }

    #[test]
    fn a_blob_opens_as_itself_alone() {
        let fixture = Fixture::new();
        let sealed = fixture.seal(b"file");
        let mut other = Fixture::new();
        assert_eq!(other.open(&sealed, 99), Err(OpenError));
        other.key = fixture.key.clone();
        assert!(other.open(&sealed, 99).is_ok());
        other.blob = BlobId::new("0123456789abcdeg").expect("legal");
        assert_eq!(other.open(&sealed, 99), Err(OpenError));
        other.blob = fixture.blob.clone();
        other.graph = "g:acm".parse().expect("legal");
        assert_eq!(other.open(&sealed, 99), Err(OpenError));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_bit_matters(len in 0_usize..3_000, bit: prop::sample::Index, cut: prop::sample::Index) {
            let fixture = Fixture::new();
            let sealed = fixture.seal(&bytes(len));
            let bit = bit.index(sealed.len() * 8);
            let mut bent = sealed.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(fixture.open(&bent, 700), Err(OpenError));
            prop_assert_eq!(fixture.open(&sealed[..cut.index(sealed.len())], 700), Err(OpenError));
        }
    }
}
