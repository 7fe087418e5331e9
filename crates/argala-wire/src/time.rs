//! Points in time, as the wire spells them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time: whole milliseconds since 1970-01-01T00:00:00Z.
///
/// On the wire it is RFC 3339 in UTC with exactly three decimals, in CBOR as in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime, example = "2026-11-29T13:00:00.000Z"))]
pub struct Timestamp(i64);

impl Timestamp {
    /// The point in time `millis` milliseconds after 1970, which may be negative.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The point `duration` later, or the latest there is.
    #[must_use]
    pub fn saturating_add(self, duration: std::time::Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// The point `duration` earlier, or the earliest there is.
    #[must_use]
    pub fn saturating_sub(self, duration: std::time::Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(millis))
    }

    /// How long after `earlier` this is; zero where it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> std::time::Duration {
        let millis = self.0.saturating_sub(earlier.0);
        std::time::Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        });
        write!(f, "{time:.3}")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a time in RFC 3339")]
pub struct ParseTimestampError;

impl std::str::FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Self, ParseTimestampError> {
        let time: jiff::Timestamp = text.parse().map_err(|_| ParseTimestampError)?;
        Ok(Self(time.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_decimals_always() {
        assert_eq!(
            Timestamp::from_millis(0).to_string(),
            "1970-01-01T00:00:00.000Z"
        );
        let time: Timestamp = "2026-11-29T13:00:00.000Z".parse().expect("legal");
        assert_eq!(time.to_string(), "2026-11-29T13:00:00.000Z");
        assert_eq!(
            "2026-11-29T14:00:00.5+01:00"
                .parse::<Timestamp>()
                .map(Timestamp::as_millis),
            Ok(time.as_millis() + 500)
        );
    }

    #[test]
    fn no_time_overflows() {
        assert!(Timestamp::from_millis(i64::MAX).to_string().ends_with('Z'));
        assert!(Timestamp::from_millis(i64::MIN).to_string().ends_with('Z'));
    }
}
