//! What is in a file, as far as two versions must be told apart.

use std::fmt;

use argala_wire::BlobId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

/// SHA-256 of a file's bytes. It never leaves the device unsealed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// The hash of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}…")
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        argala_wire::Sealed::from(self.0.as_slice()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = argala_wire::Sealed::deserialize(deserializer)?;
        let bytes = bytes.as_slice().try_into();
        bytes
            .map(Self)
            .map_err(|_| de::Error::custom("a hash has 32 bytes"))
    }
}

/// A [`ContentHash`] in the making.
#[derive(Default)]
pub(crate) struct Hashing {
    sha256: Sha256,
    size: u64,
}

impl Hashing {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.size += bytes.len() as u64;
    }

    /// The hash of everything so far, and how many bytes that was.
    pub(crate) fn finish(self) -> (ContentHash, u64) {
        (ContentHash(self.sha256.finalize().into()), self.size)
    }
}

/// What two versions of a file are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// SHA-256 of the bytes.
    pub hash: ContentHash,
    /// How many bytes there are.
    pub size: u64,
    /// Whether the owner may execute it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

impl Content {
    /// Whether the bytes are the same; the executable bit may differ.
    #[must_use]
    pub fn same_bytes(&self, other: &Self) -> bool {
        (self.hash, self.size) == (other.hash, other.size)
    }

    /// The same bytes with another executable bit.
    #[must_use]
    pub fn with_executable(self, executable: bool) -> Self {
        Self { executable, ..self }
    }
}

/// One blob of a file that is too large for a record: the file is its parts, one after another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// The blob.
    pub blob: BlobId,
    /// Bytes of plaintext in it.
    pub size: u64,
    /// SHA-256 of those bytes.
    pub hash: ContentHash,
}
