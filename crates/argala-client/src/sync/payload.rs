//! What is sealed in the folder's records, and how the records are named.
//!
//! Both bodies are CBOR maps with a version `v`, which grows only where an older client would get
//! it wrong. A reader ignores fields that it does not know.

use std::collections::HashSet;

use argala_wire::{RecordId, Sealed, codec::Format};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::{
    content::{Content, ContentHash, Part},
    path::RelPath,
};
use crate::Kind;

const VERSION: u64 = 1;
/// The record that holds the folder's secret. Everybody may know its name: it says that a graph
/// holds a folder, and nothing about it.
const FOLDER_ID: &str = "argala/sync/folder";
/// Keeps this use of the secret apart from any later one.
const ID_DOMAIN: &[u8] = b"argala/sync/path/v1\0";

/// The kind of the record that holds the folder's secret.
#[must_use]
pub fn folder_kind() -> Kind {
    Kind::new("sync/folder").expect("a legal kind")
}

/// The kind of a file's record.
#[must_use]
pub fn file_kind() -> Kind {
    Kind::new("sync/file").expect("a legal kind")
}

/// The id of the record that holds the folder's secret.
pub(crate) fn folder_id() -> RecordId {
    RecordId::new(FOLDER_ID).expect("a legal id")
}

/// Names the records of one folder.
///
/// The id of a file's record is an HMAC of its path. Two devices that create the same path
/// therefore write the same record, and one of them learns of the other; the relay, which lacks
/// the secret, learns nothing of the name, not even by guessing. The secret is made once, by the
/// first device, and sealed in a record of its own: unlike a key of the graph it stays the same
/// through every rotation, so that a file keeps its id.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderSecret(Sealed);

impl FolderSecret {
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self(bytes.to_vec().into())
    }

    /// The id of the record of the file at `path`.
    pub(crate) fn record_id(&self, path: &RelPath) -> RecordId {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_slice())
            .expect("HMAC takes a key of any size");
        mac.update(ID_DOMAIN);
        mac.update(path.as_str().as_bytes());
        let tag = Sealed::from(mac.finalize().into_bytes().as_slice());
        RecordId::new(tag.to_base64url()).expect("base64url is a legal id")
    }
}

/// Hides the secret.
impl std::fmt::Debug for FolderSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FolderSecret(…)")
    }
}

#[derive(Serialize, Deserialize)]
struct FolderBody {
    v: u64,
    secret: FolderSecret,
}

/// The body of the folder's record.
pub(crate) fn encode_folder(secret: &FolderSecret) -> Vec<u8> {
    Format::Cbor.encode(&FolderBody {
        v: VERSION,
        secret: secret.clone(),
    })
}

/// Reads the body of the folder's record; `None` where it is none, or is of a newer client.
pub(crate) fn decode_folder(body: &[u8]) -> Option<FolderSecret> {
    let body: FolderBody = Format::Cbor.decode_answer(body).ok()?;
    (body.v == VERSION && body.secret.0.len() == 32).then_some(body.secret)
}

/// Where the bytes of a file are.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// In the record.
    Inline(Vec<u8>),
    /// In blobs.
    Parts(Vec<Part>),
}

impl Bytes {
    pub(crate) fn parts(&self) -> &[Part] {
        match self {
            Self::Inline(_) => &[],
            Self::Parts(parts) => parts,
        }
    }
}

/// What a file's record says.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct FileRecord {
    /// The file's path.
    pub(crate) path: RelPath,
    /// Its content; `None` where the record is a tombstone.
    pub(crate) file: Option<(Content, Bytes)>,
}

#[derive(Serialize, Deserialize)]
struct FileBody {
    v: u64,
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<ContentHash>,
    #[serde(default)]
    size: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    executable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inline: Option<Sealed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parts: Option<Vec<Part>>,
}

/// Why a record says nothing that could be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PayloadFault {
    /// It is no body of a file, or contradicts itself.
    Malformed,
    /// A newer client wrote it.
    Newer,
    /// It names a path outside of the folder, or one of the client's own files.
    Path,
    /// The record's id is not that of the path it names.
    Id,
}

impl PayloadFault {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Newer => "newer_client",
            Self::Path => "path_not_allowed",
            Self::Id => "id_mismatch",
        }
    }
}

/// The body of a file's record.
pub(crate) fn encode_file(path: &RelPath, content: &Content, bytes: Bytes) -> Vec<u8> {
    let (inline, parts) = match bytes {
        Bytes::Inline(bytes) => (Some(bytes.into()), None),
        Bytes::Parts(parts) => (None, Some(parts)),
    };
    Format::Cbor.encode(&FileBody {
        v: VERSION,
        path: path.to_string(),
        sha256: Some(content.hash),
        size: content.size,
        executable: content.executable,
        inline,
        parts,
    })
}

/// The body of a file's tombstone: it tells the path, which the id alone does not.
pub(crate) fn encode_tombstone(path: &RelPath) -> Vec<u8> {
    Format::Cbor.encode(&FileBody {
        v: VERSION,
        path: path.to_string(),
        sha256: None,
        size: 0,
        executable: false,
        inline: None,
        parts: None,
    })
}

/// Reads the body of the record `id`.
pub(crate) fn decode_file(
    secret: &FolderSecret,
    id: &RecordId,
    deleted: bool,
    body: &[u8],
) -> Result<FileRecord, PayloadFault> {
    #[derive(Deserialize)]
    struct Version {
        v: u64,
    }
    // The version first: a newer body need not have any other field that is known here.
    let Version { v } = Format::Cbor
        .decode_answer(body)
        .map_err(|_| PayloadFault::Malformed)?;
    if v != VERSION {
        return Err(PayloadFault::Newer);
    }
    let body: FileBody = Format::Cbor
        .decode_answer(body)
        .map_err(|_| PayloadFault::Malformed)?;
    let path = RelPath::parse(&body.path).map_err(|_| PayloadFault::Path)?;
    // Otherwise two records could fight over one file, each newer than the other in turn.
    if secret.record_id(&path) != *id {
        return Err(PayloadFault::Id);
    }
    if deleted {
        return Ok(FileRecord { path, file: None });
    }
    let hash = body.sha256.ok_or(PayloadFault::Malformed)?;
    let (size, bytes) = match (body.inline, body.parts) {
        (Some(Sealed(bytes)), None) if ContentHash::of(&bytes) == hash => {
            (Some(bytes.len() as u64), Bytes::Inline(bytes))
        }
        // Each blob once: a record that names one a thousand times over would have a small blob fill
        // everybody's disk. Parts that are equal are blobs of their own.
        (None, Some(parts)) if all_different(&parts) => {
            let size = parts
                .iter()
                .try_fold(0u64, |sum, part| sum.checked_add(part.size));
            (size, Bytes::Parts(parts))
        }
        _ => return Err(PayloadFault::Malformed),
    };
    if size != Some(body.size) {
        return Err(PayloadFault::Malformed);
    }
    let content = Content {
        hash,
        size: body.size,
        executable: body.executable,
    };
    Ok(FileRecord {
        path,
        file: Some((content, bytes)),
    })
}

fn all_different(parts: &[Part]) -> bool {
    let blobs: HashSet<_> = parts.iter().map(|part| part.blob.as_str()).collect();
    blobs.len() == parts.len()
}

#[cfg(test)]
mod tests {
    use argala_wire::BlobId;

    use super::*;

    fn secret() -> FolderSecret {
        FolderSecret::new([7; 32])
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).expect("legal")
    }

    fn content(bytes: &[u8]) -> Content {
        Content {
            hash: ContentHash::of(bytes),
            size: bytes.len() as u64,
            executable: true,
        }
    }

    #[test]
    fn there_and_back() {
        let path = path("a/é.md");
        let id = secret().record_id(&path);
        let body = encode_file(&path, &content(b"hello"), Bytes::Inline(b"hello".to_vec()));
        let record = decode_file(&secret(), &id, false, &body).expect("ours");
        assert_eq!(record.path, path);
        assert!(record.file.expect("a file").0 == content(b"hello"));

        let parts = vec![Part {
            blob: BlobId::new("abcdefghijklmnop").expect("legal"),
            size: 5,
            hash: ContentHash::of(b"hello"),
        }];
        let body = encode_file(&path, &content(b"hello"), Bytes::Parts(parts.clone()));
        let record = decode_file(&secret(), &id, false, &body).expect("ours");
        assert_eq!(record.file.expect("a file").1.parts(), parts);

        let record = decode_file(&secret(), &id, true, &encode_tombstone(&path));
        assert!(record.expect("ours").file.is_none());
        assert_eq!(decode_folder(&encode_folder(&secret())), Some(secret()));
    }

    #[test]
    fn the_id_hides_the_path_and_hangs_on_the_secret() {
        let id = secret().record_id(&path("taxes.ods"));
        assert!(!id.as_str().contains("taxes"));
        assert_eq!(id.as_str().len(), 43);
        assert_ne!(id, FolderSecret::new([8; 32]).record_id(&path("taxes.ods")));
        assert_ne!(id, secret().record_id(&path("Taxes.ods")));
    }

    #[test]
    fn a_hostile_body_is_refused() {
        let fault = |p: &str, change: fn(&mut FileBody)| {
            let mut body = FileBody {
                v: 1,
                path: p.to_owned(),
                sha256: Some(ContentHash::of(b"x")),
                size: 1,
                executable: false,
                inline: Some(b"x".to_vec().into()),
                parts: None,
            };
            change(&mut body);
            let id = secret().record_id(&path("a"));
            decode_file(&secret(), &id, false, &Format::Cbor.encode(&body)).err()
        };
        assert_eq!(fault("a", |_| ()), None);
        assert_eq!(fault("../a", |_| ()), Some(PayloadFault::Path));
        assert_eq!(fault("/etc/passwd", |_| ()), Some(PayloadFault::Path));
        assert_eq!(fault(".argala-sync/lock", |_| ()), Some(PayloadFault::Path));
        assert_eq!(fault("b", |_| ()), Some(PayloadFault::Id));
        assert_eq!(fault("a", |b| b.v = 2), Some(PayloadFault::Newer));
        assert_eq!(fault("a", |b| b.size = 2), Some(PayloadFault::Malformed));
        assert_eq!(
            fault("a", |b| b.inline = None),
            Some(PayloadFault::Malformed)
        );
        assert_eq!(
            fault("a", |b| b.sha256 = None),
            Some(PayloadFault::Malformed)
        );
        assert_eq!(
            fault("a", |b| b.sha256 = Some(ContentHash::of(b"y"))),
            Some(PayloadFault::Malformed)
        );
        assert_eq!(
            fault("a", |b| {
                b.inline = None;
                let part = |size| Part {
                    blob: BlobId::new("abcdefghijklmnop").expect("legal"),
                    size,
                    hash: ContentHash::of(b""),
                };
                b.parts = Some(vec![part(u64::MAX), part(2)]);
            }),
            Some(PayloadFault::Malformed)
        );
        assert_eq!(
            fault("a", |b| {
                b.inline = None;
                b.size = 2;
                let part = Part {
                    blob: BlobId::new("abcdefghijklmnop").expect("legal"),
                    size: 1,
                    hash: ContentHash::of(b"x"),
                };
                b.parts = Some(vec![part.clone(), part]);
            }),
            Some(PayloadFault::Malformed)
        );
        let id = secret().record_id(&path("a"));
        let garbage = decode_file(&secret(), &id, false, b"garbage").err();
        assert_eq!(garbage, Some(PayloadFault::Malformed));
    }
}
