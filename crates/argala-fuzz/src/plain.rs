//! What the targets' second readings have in common, none of it from the code that is tested.

/// Bytes out of base64, in the alphabet of which `last` are the two last characters, without
/// padding. `None` where it is not that.
///
/// Bits that are left over at the end are told by the second value: whether they are zero, as
/// whoever writes base64 leaves them.
pub(crate) fn base64(text: &str, last: [u8; 2]) -> Option<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let (mut held, mut bits) = (0_u32, 0);
    for c in text.bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            c if c == last[0] => 62,
            c if c == last[1] => 63,
            _ => return None,
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.extend(u8::try_from(held >> bits));
            held &= (1 << bits) - 1;
        }
    }
    // Six bits alone are no byte.
    (bits < 6).then_some((bytes, held == 0))
}

/// The same with padding, where it is right, or without it.
pub(crate) fn padded_base64(text: &str, last: [u8; 2]) -> Option<(Vec<u8>, bool)> {
    let bare = text.trim_end_matches('=');
    let padding = text.len() - bare.len();
    match padding {
        0 => base64(bare, last),
        1 | 2 if text.len().is_multiple_of(4) => base64(bare, last),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_as_it_is_written() {
        for (text, bytes) in [("", ""), ("Zg", "f"), ("Zm8", "fo"), ("Zm9v", "foo")] {
            let read = base64(text, *b"-_").unwrap();
            assert_eq!(read, (bytes.as_bytes().to_vec(), true), "{text}");
        }
        assert_eq!(base64("_-8", *b"-_").unwrap().0, [0xff, 0xef]);
        assert!(!base64("Zh", *b"-_").unwrap().1);
        for text in ["Z", "Zm9vZ", "+/+/", "Zg=", "Zg\n"] {
            assert_eq!(base64(text, *b"-_"), None, "{text}");
        }
        assert!(padded_base64("Zg==", *b"+/").is_some());
        for text in ["Zg=", "Zm9v====", "=", "===="] {
            assert_eq!(padded_base64(text, *b"+/"), None, "{text}");
        }
    }
}
