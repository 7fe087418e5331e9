//! Problem documents (RFC 9457): how every error is told (protocol, section 3).

use serde::{Deserialize, Serialize};

use crate::{devices::DeviceRef, limits::Bucket, records::CursorReason, records::PushResult};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $title:literal;)*) => {
        /// What went wrong, as a program reads it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[non_exhaustive]
        pub enum Code {$(
            $(#[$doc])*
            #[serde(rename = $text)]
            $name,
        )*}

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The status that it comes with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// What went wrong, in a few words for people; the same for every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    /// Malformed body, bad id, unknown field, bad proof, a duplicate in one body.
    InvalidRequest = "invalid_request", 400, "The request is malformed";
    /// A blob's bytes differ from their digest or length.
    DigestMismatch = "digest_mismatch", 400, "The bytes are not the ones announced";
    /// No identity.
    Unauthenticated = "unauthenticated", 401, "A valid credential is needed";
    /// The device has not been registered.
    DeviceUnregistered = "device_unregistered", 403, "The device has not been registered";
    /// The device was revoked.
    DeviceRevoked = "device_revoked", 403, "The device was revoked";
    /// The directory does not count the member as active.
    MemberInactive = "member_inactive", 403, "The member is not active";
    /// A ceiling other than a body's size.
    QuotaExceeded = "quota_exceeded", 403, "A quota is used up";
    /// No such graph, or none for the caller.
    GraphNotFound = "graph_not_found", 404, "There is no such graph";
    /// No such blob.
    BlobNotFound = "blob_not_found", 404, "There is no such blob";
    /// The caller has no such device.
    DeviceNotFound = "device_not_found", 404, "There is no such device";
    /// No such route.
    NotFound = "not_found", 404, "There is nothing here";
    /// The route has no such method.
    MethodNotAllowed = "method_not_allowed", 405, "The route has no such method";
    /// None of the media types that the caller accepts is to be had.
    NotAcceptable = "not_acceptable", 406, "No acceptable media type";
    /// The device id is registered with other keys.
    DeviceKeyMismatch = "device_key_mismatch", 409, "The device has other keys";
    /// A rotate to any epoch but the next.
    EpochConflict = "epoch_conflict", 409, "The epoch is not the next one";
    /// The graph has no key yet.
    GraphUnkeyed = "graph_unkeyed", 409, "The graph has no key yet";
    /// A record of an atomic push is not acceptable.
    PushRejected = "push_rejected", 409, "Not every record is acceptable";
    /// The blob id holds other bytes.
    BlobExists = "blob_exists", 409, "The blob id holds other bytes";
    /// The idempotency key was used with another body.
    IdempotencyConflict = "idempotency_conflict", 409, "The key was used with another body";
    /// A list must be started over without a cursor.
    CursorInvalid = "cursor_invalid", 410, "The cursor is no longer good";
    /// A blob without `Content-Length`.
    LengthRequired = "length_required", 411, "Content-Length is needed";
    /// The head is not the one that the push asks for.
    HeadMoved = "head_moved", 412, "The head has moved";
    /// The body is larger than the route takes.
    BodyTooLarge = "body_too_large", 413, "The body is too large";
    /// The blob is larger than a blob may be.
    BlobTooLarge = "blob_too_large", 413, "The blob is too large";
    /// The body is of a media type that the route does not take.
    UnsupportedMediaType = "unsupported_media_type", 415, "The media type is not supported";
    /// The range lies outside the blob.
    RangeNotSatisfiable = "range_not_satisfiable", 416, "The range lies outside the blob";
    /// The wraps are not exactly the roster.
    RotationIncomplete = "rotation_incomplete", 422, "The wraps are not exactly the roster";
    /// The member has used up an allowance.
    RateLimited = "rate_limited", 429, "Too many requests";
    /// The relay's fault; nothing was half done.
    Internal = "internal", 500, "The relay failed";
    /// A store is down or slow.
    Unavailable = "unavailable", 503, "The relay cannot answer now";
}

/// A problem document. Which of the optional members there are depends on the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `urn:argala:problem:<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What went wrong, in a few words; the same for every occurrence of a code.
    pub title: String,
    /// The answer's status.
    pub status: u16,
    /// What went wrong, as a program reads it.
    pub code: Code,
    /// What went wrong this time. Names what is at fault by its path, never its content.
    pub detail: String,
    /// `invalid_request`: the path of the field, parameter or header at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// `quota_exceeded`: which ceiling (`devices`, `blobBytesPerGraph`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// `quota_exceeded`, `body_too_large`, `blob_too_large`: the ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// `quota_exceeded`: how much of it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// `epoch_conflict`: the epoch in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// `push_rejected`: what is wrong with each record; acceptable ones appear as their id alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<PushResult>>,
    /// `cursor_invalid`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<CursorReason>,
    /// `head_moved`: the graph's head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<u64>,
    /// `rotation_incomplete`: devices on the roster without a wrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<DeviceRef>>,
    /// `rotation_incomplete`: devices with a wrap that are not on the roster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Vec<DeviceRef>>,
    /// `rate_limited`: which allowance is used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// `rate_limited`: how long to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Problem {
    /// A problem of `code` without members of its own.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:argala:problem:{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: detail.into(),
            field: None,
            what: None,
            limit: None,
            used: None,
            epoch: None,
            results: None,
            reason: None,
            head: None,
            missing: None,
            extra: None,
            bucket: None,
            retry_after_ms: None,
        }
    }
}
