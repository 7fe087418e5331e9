//! The header `Content-Digest` (RFC 9530): a dictionary of structured fields (RFC 9651) from an
//! algorithm's name to a byte sequence.

use http::HeaderMap;
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::error::ApiError;

/// The header's name, as problems tell it.
const NAME: &str = "Content-Digest";

/// The SHA-256 that the caller announces, where they do. Other algorithms are looked over.
///
/// # Errors
/// A malformed request where the header cannot be read, or its `sha-256` is no SHA-256: whoever
/// sends one wants it checked.
pub(crate) fn content_digest(headers: &HeaderMap) -> Result<Option<[u8; 32]>, ApiError> {
    let malformed = || {
        ApiError::invalid(
            NAME,
            "the header is a dictionary such as sha-256=:…:, in base64",
        )
    };
    let mut digests = Dictionary::new();
    for value in headers.get_all(NAME) {
        // Lines go on where the one before ended; of a key that is given twice the last counts.
        digests = Parser::new(value.as_bytes())
            .parse_dictionary_with_visitor(digests)
            .map_err(|_| malformed())?;
    }
    match digests.get("sha-256") {
        None => Ok(None),
        Some(entry) => sha256(entry).map(Some).ok_or_else(malformed),
    }
}

/// The 32 bytes of a byte sequence.
fn sha256(entry: &ListEntry) -> Option<[u8; 32]> {
    match entry {
        ListEntry::Item(item) => match &item.bare_item {
            BareItem::ByteSequence(bytes) => bytes.as_slice().try_into().ok(),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use base64_simd::STANDARD;

    use super::*;

    const OF_NOTHING: &str = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

    fn digest(values: &[&str]) -> Result<Option<[u8; 32]>, ()> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(NAME, value.parse().expect("a header's value"));
        }
        content_digest(&headers).map_err(|_| ())
    }

    #[test]
    fn ours_is_found_among_others() {
        let ours = format!("sha-256=:{OF_NOTHING}:");
        let want = STANDARD.decode_to_vec(OF_NOTHING).expect("base64");
        for values in [
            vec![ours.clone()],
            vec![format!("sha-256=:{}:", OF_NOTHING.trim_end_matches('='))],
            // Bits that say nothing.
            vec![format!("sha-256=:{}:", OF_NOTHING.replace("U=", "V="))],
            vec!["sha-256=:AAAA:".to_owned(), ours.clone()],
            vec![ours.clone(), "md5=:AAAA:".to_owned()],
            vec![format!("sha-512=:AAAA:, {ours};q=1")],
            vec![format!("{ours},a=\"x, \\\" y\";b=?1,c=(1 :aa: \"d\");e, f")],
            vec![format!("a=%\"f%c3%bc, r\", b=(%\"x\"), {ours}")],
            vec!["md5=:AAAA:".to_owned(), ours.clone()],
        ] {
            let values: Vec<_> = values.iter().map(String::as_str).collect();
            let found = digest(&values).expect("well formed").expect("there");
            assert_eq!(found.as_slice(), want, "{values:?}");
        }
        assert_eq!(digest(&[]), Ok(None));
        assert_eq!(digest(&["sha-512=:AAAA:"]), Ok(None));
    }

    #[test]
    fn what_cannot_be_checked_is_refused() {
        for value in [
            "sha-256",
            "sha-256=abc",
            "sha-256=:AAAA:",
            "sha-256=:!!!!:",
            &format!("sha-256=:{OF_NOTHING}:, sha-256=:AAAA:"),
            &format!("sha-256=(:{OF_NOTHING}:)"),
            &format!("sha-256=:{OF_NOTHING}=:"),
            &format!("sha-256={OF_NOTHING}"),
            &format!("sha-256=:{OF_NOTHING}"),
            &format!("sha-256=\"{OF_NOTHING}\""),
            &format!("sha-256=:{OF_NOTHING}: x"),
            &format!("sha-256=:{OF_NOTHING}:,"),
            &format!("SHA-256=:{OF_NOTHING}:"),
            "=",
            "a=(",
            "a=((b))",
            "a=b;c=(d)",
            // A value that goes on until the next one would hide that there is ours to check.
            "md5=:AAAA, sha-256=:",
            &format!("md5=:AAAA, sha-256=:,x=:{OF_NOTHING}:"),
        ] {
            assert_eq!(digest(&[value]), Err(()), "{value}");
        }
    }
}
