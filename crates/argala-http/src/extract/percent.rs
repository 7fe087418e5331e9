//! Percent-decoding without leniency: two spellings of one id that differ in meaning elsewhere
//! must not be guessed at here.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The text that `encoded` stands for; `None` where a percent sign begins no escape, or the bytes
/// are no UTF-8.
pub(crate) fn percent_decode(encoded: &str) -> Option<String> {
    let bytes = encoded.as_bytes();
    let begins_escape = |at: usize| matches!(bytes.get(at + 1..at + 3), Some(hex) if hex.iter().all(u8::is_ascii_hexdigit));
    if bytes
        .iter()
        .enumerate()
        .any(|(at, byte)| *byte == b'%' && !begins_escape(at))
    {
        return None;
    }
    percent_decode_str(encoded)
        .decode_utf8()
        .ok()
        .map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_whole_and_utf_8() {
        assert_eq!(
            percent_decode("d%3aalex%2Fa b").as_deref(),
            Some("d:alex/a b")
        );
        for text in ["%", "a%2", "%zz", "%+1", "%ff", "%c3"] {
            assert_eq!(percent_decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text: String) {
            let encoded = percent_encoding::utf8_percent_encode(
                &text,
                percent_encoding::NON_ALPHANUMERIC,
            );
            prop_assert_eq!(percent_decode(&encoded.to_string()), Some(text));
        }
    }
}
