//! Bytes that the relay cannot read.

use std::fmt;

use base64_simd::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes as the wire carries them: unpadded base64url in JSON (padded is accepted), a byte string
/// in CBOR.
///
/// `Debug` tells the length only: what is sealed has no place in a log either.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, format = Byte))]
pub struct Sealed(pub Vec<u8>);

impl Sealed {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes as unpadded base64url.
    #[must_use]
    pub fn to_base64url(&self) -> String {
        URL_SAFE_NO_PAD.encode_to_string(&self.0)
    }

    /// Reads base64url, padded or not.
    ///
    /// Returns `None` for anything else, the standard alphabet included.
    #[must_use]
    pub fn from_base64url(text: &str) -> Option<Self> {
        let bare = match text.strip_suffix("==").or_else(|| text.strip_suffix('=')) {
            // Padding fills up a group of four, and only that.
            Some(bare) if text.len().is_multiple_of(4) => bare,
            Some(_) => return None,
            None => text,
        };
        URL_SAFE_NO_PAD.decode_to_vec(bare).ok().map(Self)
    }
}

impl From<Vec<u8>> for Sealed {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for Sealed {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl AsRef<[u8]> for Sealed {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

impl Serialize for Sealed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&self.to_base64url())
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

struct FromText;

impl de::Visitor<'_> for FromText {
    type Value = Sealed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base64url")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Sealed, E> {
        Sealed::from_base64url(text).ok_or_else(|| E::custom("not base64url"))
    }
}

struct FromBytes;

impl<'de> de::Visitor<'de> for FromBytes {
    type Value = Sealed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a byte string")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Sealed, E> {
        Ok(Sealed(bytes.to_vec()))
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Sealed, E> {
        Ok(Sealed(bytes))
    }
}

impl<'de> Deserialize<'de> for Sealed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(FromText)
        } else {
            // The owned form: the borrowing one of our CBOR codec stops at 4 KiB.
            deserializer.deserialize_byte_buf(FromBytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn padding_is_accepted_where_it_is_right() {
        for text in ["", "Zg", "Zg==", "Zm8", "Zm8=", "Zm9v"] {
            assert!(Sealed::from_base64url(text).is_some(), "{text}");
        }
        for text in [
            "Zg=", "Zm9v=", "Zm9v====", "=", "==", "Z", "+/+/", "Zg==\n", "Zh",
        ] {
            assert_eq!(Sealed::from_base64url(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_and_back(bytes: Vec<u8>) {
            let sealed = Sealed(bytes);
            prop_assert_eq!(Sealed::from_base64url(&sealed.to_base64url()), Some(sealed));
        }
    }
}
