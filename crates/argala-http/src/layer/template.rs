//! Which route a request took, as a label: the template, never the path.

use std::sync::Arc;

use axum::extract::{MatchedPath, NestedPath};
use http::Extensions;

/// The route of requests that took none.
pub const UNMATCHED: &str = "unmatched";

/// The template of the route that answered (`/graphs/{graphId}/push`), relative to the router;
/// [`UNMATCHED`] where none did.
///
/// It is in the extensions of every answer, for a layer around the router that measures: in a
/// nested router, that layer cannot tell by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteTemplate(Arc<str>);

impl RouteTemplate {
    /// The template as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn of(extensions: &Extensions) -> Self {
        let matched = extensions.get::<MatchedPath>().map(MatchedPath::as_str);
        let prefix = extensions
            .get::<NestedPath>()
            .map_or("", |nested| nested.as_str());
        let template = matched.map(|path| path.strip_prefix(prefix).unwrap_or(path));
        Self(template.unwrap_or(UNMATCHED).into())
    }
}
