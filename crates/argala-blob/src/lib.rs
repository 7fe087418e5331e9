//! Where the bytes of blobs lie, outside the database: [`BlobStore`] on the file system and on S3.
//!
//! A store here knows objects by the names that the relay gives them ([`ObjectKey`]) and nothing
//! else: no graph, no member, no quota, no policy. No client's id becomes part of a path.
//!
//! What it does not do: it keeps no rows, and decides nothing about when a blob goes. Begin with
//! [`FilesystemBlobs::open`] or [`S3Blobs::open`].
//!
//! [`BlobStore`]: argala_core::ports::BlobStore
//! [`ObjectKey`]: argala_core::ports::ObjectKey

mod filesystem;
mod s3;

pub use filesystem::FilesystemBlobs;
pub use s3::{S3Blobs, S3Keys, S3Options};
