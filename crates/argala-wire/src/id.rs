//! Identifiers: what a host or a client may call a member, group, device, record or blob.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The most bytes a member, group, device or record id may have.
const MAX_ID_BYTES: usize = 128;
const BLOB_ID_BYTES: std::ops::RangeInclusive<usize> = 16..=128;

/// Why a text is no identifier.
///
/// Its `Display` never repeats the text: ids of records must not reach a log or a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing was given.
    #[error("an id has at least one byte")]
    Empty,
    /// More bytes than the identifier may have.
    #[error("an id has at most 128 bytes of UTF-8")]
    TooLong,
    /// Fewer bytes than a blob id must have.
    #[error("a blob id has at least 16 characters")]
    TooShort,
    /// A character from U+0000 to U+001F or U+007F to U+009F.
    #[error("an id holds no control characters")]
    Control,
    /// White space at one end.
    #[error("an id neither begins nor ends with white space")]
    OuterSpace,
    /// A device called `.` or `..`, which an intermediary would fold out of a path.
    #[error("a device id is not `.` or `..`")]
    Dots,
    /// A character outside `A–Z a–z 0–9 _ -` in a blob id.
    #[error("a blob id holds only A–Z, a–z, 0–9, _ and -")]
    Alphabet,
}

fn check_text(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::Control);
    }
    if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
        return Err(IdError::OuterSpace);
    }
    Ok(())
}

fn check_device(text: &str) -> Result<(), IdError> {
    check_text(text)?;
    if text == "." || text == ".." {
        Err(IdError::Dots)
    } else {
        Ok(())
    }
}

fn check_blob(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() < *BLOB_ID_BYTES.start() {
        return Err(IdError::TooShort);
    }
    if text.len() > *BLOB_ID_BYTES.end() {
        return Err(IdError::TooLong);
    }
    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if text.bytes().all(legal) {
        Ok(())
    } else {
        Err(IdError::Alphabet)
    }
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        pub struct $name(Box<str>);

        impl $name {
            /// Takes `text` as an identifier.
            ///
            /// # Errors
            /// [`IdError`] where the text breaks a rule of protocol, section 2.
            pub fn new(text: impl Into<Box<str>>) -> Result<Self, IdError> {
                let text = text.into();
                $check(&text)?;
                Ok(Self(text))
            }

            /// The identifier as it was given, byte for byte.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::new(text).map_err(de::Error::custom)
            }
        }
    };
}

identifier!(
    /// A user of the host application, as the host's directory knows them.
    MemberId,
    check_text
);
identifier!(
    /// A group of members, as the host's directory knows it.
    GroupId,
    check_text
);
identifier!(
    /// One installation of a member; unique within that member only.
    DeviceId,
    check_device
);
identifier!(
    /// One item of a graph. Stands in bodies and in the store, never in a URL, a log line, a
    /// metric, a trace or an event.
    RecordId,
    check_text
);
identifier!(
    /// Sealed bytes kept beside a graph's records; chosen by the client at random.
    BlobId,
    check_blob
);

macro_rules! readable {
    ($($name:ident)*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    )*};
}

readable!(MemberId GroupId DeviceId BlobId);

/// Hides the id: whatever is printed while debugging ends up in a log one day.
impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordId(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ids_are_legal_as_they_are() {
        for text in [
            "auth0|42",
            "user:7",
            "a/b",
            "sam@example.org",
            "🦀",
            "a b",
            &"x".repeat(128),
        ] {
            assert!(MemberId::new(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn each_rule_refuses() {
        let cases = [
            ("", IdError::Empty),
            (&"x".repeat(129), IdError::TooLong),
            (&"é".repeat(65), IdError::TooLong),
            ("a\u{0}b", IdError::Control),
            ("a\u{7f}", IdError::Control),
            ("\u{85}a", IdError::Control),
            (" a", IdError::OuterSpace),
            ("a\u{3000}", IdError::OuterSpace),
        ];
        for (text, want) in cases {
            assert_eq!(RecordId::new(text), Err(want), "{text:?}");
        }
        assert_eq!(DeviceId::new(".."), Err(IdError::Dots));
        assert!(MemberId::new("..").is_ok());
    }

    #[test]
    fn blob_ids_have_their_own_alphabet_and_length() {
        assert!(BlobId::new("abcdefghijklmno_").is_ok());
        assert_eq!(BlobId::new("short"), Err(IdError::TooShort));
        assert_eq!(BlobId::new("x".repeat(129)), Err(IdError::TooLong));
        assert_eq!(BlobId::new("abcdefghijklmnop/"), Err(IdError::Alphabet));
        assert_eq!(BlobId::new("abcdefghijklmnopé"), Err(IdError::Alphabet));
    }

    #[test]
    fn ids_are_compared_byte_for_byte() {
        let composed = MemberId::new("é").expect("legal");
        let decomposed = MemberId::new("e\u{301}").expect("legal");
        assert_ne!(composed, decomposed);
        assert_ne!(
            MemberId::new("Sam").expect("legal"),
            MemberId::new("sam").expect("legal")
        );
    }

    #[test]
    fn a_record_id_is_not_printed() {
        assert!(!format!("{:?}", RecordId::new("secret").expect("legal")).contains("secret"));
    }
}
