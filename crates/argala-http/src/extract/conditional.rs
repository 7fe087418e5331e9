//! Entity tags, and what a caller has already (RFC 9110, sections 8.8.3 and 13.1).

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::{HeaderMap, HeaderValue, header, request::Parts};

use crate::Api;

/// What `If-None-Match` names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IfNoneMatch {
    /// It is `*`: whatever there is, the caller has it.
    pub(crate) any: bool,
    /// The tags, without quotes; weak and strong alike, as this header compares them.
    pub(crate) tags: Vec<String>,
}

impl IfNoneMatch {
    /// What the headers say. A list that cannot be read is as good as none: the answer is then
    /// whole, which is never wrong.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut known = Self::default();
        for value in headers.get_all(header::IF_NONE_MATCH) {
            let value = value.as_bytes().trim_ascii();
            if value == b"*" {
                known.any = true;
                continue;
            }
            match entity_tags(value) {
                Some(tags) => known.tags.extend(tags),
                None => return Self::default(),
            }
        }
        known
    }

    /// Whether the caller has what `tag` stands for.
    pub(crate) fn has(&self, tag: &str) -> bool {
        self.any || self.tags.iter().any(|known| known == tag)
    }
}

impl FromRequestParts<Api> for IfNoneMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

/// The tags of a list, without quotes; `None` where it is no list of tags.
fn entity_tags(list: &[u8]) -> Option<Vec<String>> {
    let mut tags = Vec::new();
    let mut rest = list;
    loop {
        rest = rest.trim_ascii_start();
        if let Some(tail) = rest.strip_prefix(b",") {
            rest = tail;
            continue;
        }
        if rest.is_empty() {
            return Some(tags);
        }
        let quoted = rest
            .strip_prefix(b"W/")
            .unwrap_or(rest)
            .strip_prefix(b"\"")?;
        let end = quoted.iter().position(|byte| *byte == b'"')?;
        // A tag that is no ASCII is none of ours, but a legal tag.
        tags.push(String::from_utf8_lossy(&quoted[..end]).into_owned());
        rest = quoted[end + 1..].trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b",") {
            return None;
        }
    }
}

/// `tag` in quotes, as `ETag` tells it.
pub(crate) fn entity_tag(tag: &str) -> HeaderValue {
    HeaderValue::try_from(format!("\"{tag}\"")).expect("our tags are base64url")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[&str]) -> IfNoneMatch {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                header::IF_NONE_MATCH,
                value.parse().expect("a header's value"),
            );
        }
        IfNoneMatch::of(&headers)
    }

    #[test]
    fn lists_weak_tags_and_stars() {
        for (values, has) in [
            (&["\"a\""][..], true),
            (&["W/\"a\""][..], true),
            (&["\"b\", W/\"a\""][..], true),
            (&["\"b\"", "\"a\""][..], true),
            (&[", \"b\" ,, \"a\","][..], true),
            (&["*"][..], true),
            (&[][..], false),
            (&["\"b\""][..], false),
            (&["\"b,a\""][..], false),
            (&["a"][..], false),
            (&["\"a"][..], false),
            (&["\"a\" x"][..], false),
            (&["w/\"a\""][..], false),
        ] {
            assert_eq!(of(values).has("a"), has, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(value: Vec<u8>) {
            let _ = entity_tags(&value);
        }
    }
}
