//! `X-Request-Id`: how a caller and a log speak of the same request.

use std::fmt::Write as _;

use argala_core::ports::Random;
use http::{HeaderMap, HeaderValue};

/// The most characters that a caller's id may have.
const MAX_LENGTH: usize = 128;

/// The id of a request: the caller's where it is sane, a random one otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestId(String);

impl RequestId {
    /// The id that `headers` ask for, or a new one.
    pub(super) fn of(headers: &HeaderMap, random: &dyn Random) -> Self {
        let mut values = headers.get_all("x-request-id").iter();
        match (
            values.next().and_then(|value| value.to_str().ok()),
            values.next(),
        ) {
            (Some(text), None) if is_sane(text) => Self(text.to_owned()),
            _ => Self::random(random),
        }
    }

    fn random(random: &dyn Random) -> Self {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        let mut id = String::with_capacity(32);
        for byte in bytes {
            write!(id, "{byte:02x}").expect("a string takes what is written");
        }
        Self(id)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn header(&self) -> HeaderValue {
        HeaderValue::try_from(&self.0).expect("only characters that a header may hold")
    }
}

/// Whether an id can go into a log line and a header as it is: nothing that a log's reader, or a
/// terminal, would take for anything else.
fn is_sane(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"._:-/+=".contains(&b);
    (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use argala_core::ports::SystemRandom;

    use super::*;

    fn of(values: &[&str]) -> RequestId {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x-request-id", value.parse().expect("a header's value"));
        }
        RequestId::of(&headers, &SystemRandom)
    }

    #[test]
    fn a_sane_one_is_kept_and_any_other_replaced() {
        for text in ["a", "Root=1-67891233-abcdef", "3f2b:1/+.", &"x".repeat(128)] {
            assert_eq!(of(&[text]).as_str(), text);
        }
        for values in [
            &[][..],
            &[""],
            &["a b"],
            &["{}"],
            &["a", "b"],
            &[&"x".repeat(129)],
        ] {
            let made = of(values);
            assert_eq!(made.as_str().len(), 32, "{values:?}");
            assert_ne!(made, of(values), "random");
        }
    }
}
