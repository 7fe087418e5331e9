//! The checks before a handler, as extractors. A handler lists them in the protocol's order
//! (section 4), and axum runs them in the order of the list:
//!
//! 1. [`Admitted`]: identity (401), a known revocation (403), the rate limit (429), the device's
//!    and the member's state (403); [`InGraph`] goes on to the graph (404);
//! 2. [`InPath`] and [`Query`]: the rest of the address (400);
//! 3. [`Accept`]: the answer's media type (406);
//! 4. [`Payload`] or [`Entity`]: the body's media type (415), size (413) and content (400).

mod body;
mod caller;
mod conditional;
mod digest;
mod idempotency;
mod media;
mod path;
mod percent;
mod query;
mod range;

pub(crate) use body::{Entity, KeysBody, Payload, SmallBody, content_length};
pub(crate) use caller::{Admitted, InGraph};
pub(crate) use conditional::{IfNoneMatch, entity_tag};
pub(crate) use digest::content_digest;
pub(crate) use idempotency::Idempotency;
pub(crate) use media::{Accept, Accepts, require_octets};
pub(crate) use path::{InPath, segment};
pub(crate) use percent::percent_decode;
pub(crate) use query::{Page, Query, QueryParams, Values};
pub(crate) use range::{Wanted, wanted};
