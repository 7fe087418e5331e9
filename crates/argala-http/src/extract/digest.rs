//! The header `Content-Digest` (RFC 9530): a dictionary of structured fields (RFC 9651) from an
//! algorithm's name to a byte sequence.

use base64_simd::STANDARD_NO_PAD;
use http::HeaderMap;

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
    let mut digest = None;
    for value in headers.get_all(NAME) {
        let value = value.to_str().map_err(|_| malformed())?;
        // Of a key that is given twice, the last counts (RFC 9651, section 3.2); each is checked.
        for (key, member) in dictionary(value).ok_or_else(malformed)? {
            if key == "sha-256" {
                digest = Some(sha256(member).ok_or_else(malformed)?);
            }
        }
    }
    Ok(digest)
}

/// The 32 bytes of a byte sequence.
fn sha256(member: &str) -> Option<[u8; 32]> {
    let base64 = member.strip_prefix(':')?.strip_suffix(':')?;
    let bare = base64.strip_suffix('=').unwrap_or(base64);
    STANDARD_NO_PAD.decode_to_vec(bare).ok()?.try_into().ok()
}

/// The members of a dictionary: keys, and values as they are written, without parameters.
fn dictionary(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut members = Vec::new();
    let mut rest = text.trim_matches([' ', '\t']);
    while !rest.is_empty() {
        let key_end = rest.find(|c: char| !is_key(c)).unwrap_or(rest.len());
        let (key, tail) = rest.split_at(key_end);
        if !key.starts_with(|c: char| c.is_ascii_lowercase() || c == '*') {
            return None;
        }
        let (value, tail) = match tail.strip_prefix('=') {
            Some(tail) => tail.split_at(item(tail)?),
            None => ("", tail),
        };
        members.push((key, value));
        let tail = parameters(tail)?.trim_start_matches([' ', '\t']);
        rest = match tail.strip_prefix(',') {
            // A comma is followed by another member.
            Some(tail) => Some(tail.trim_start_matches([' ', '\t'])).filter(|t| !t.is_empty())?,
            None if tail.is_empty() => tail,
            None => return None,
        };
    }
    Some(members)
}

const fn is_key(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.' | '*')
}

/// How long the item, or the inner list, at the beginning of `text` is. What it says matters only
/// where it is ours, so that no more than its end is looked for.
fn item(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.first()? != &b'(' {
        return bare_item(text);
    }
    // Of items and no lists: whoever nests them would have the stack for as deep as they like.
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b')' => return Some(at + 1),
            b' ' => at += 1,
            b';' => at = bytes.len() - parameters(text.get(at..)?)?.len(),
            _ => at += bare_item(text.get(at..)?)?,
        }
    }
}

/// The same of an item that is no list.
fn bare_item(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    match bytes.first()? {
        b':' => {
            let end = 1 + bytes[1..].iter().position(|b| !is_base64(*b))?;
            // Whatever else stands there, it may not swallow a member that comes after it.
            (bytes[end] == b':').then_some(end + 1)
        }
        b'%' if bytes.get(1) == Some(&b'"') => {
            let text = bytes[2..].iter().position(|b| *b == b'"')?;
            Some(text + 3)
        }
        b'"' => {
            let mut at = 1;
            loop {
                match bytes.get(at)? {
                    b'"' => return Some(at + 1),
                    b'\\' => at += 2,
                    _ => at += 1,
                }
            }
        }
        _ => {
            let length = bytes.iter().take_while(|b| is_bare(**b)).count();
            (length > 0).then_some(length)
        }
    }
}

/// A character of a byte sequence.
const fn is_base64(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=')
}

/// A character of a token, a number, a boolean or a date.
const fn is_bare(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(
            b,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
                | b':'
                | b'/'
                | b'?'
                | b'@'
        )
}

/// What follows the parameters at the beginning of `text`.
fn parameters(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(tail) = rest.strip_prefix(';') {
        let tail = tail.trim_start_matches(' ');
        let key_end = tail.find(|c: char| !is_key(c)).unwrap_or(tail.len());
        if key_end == 0 {
            return None;
        }
        rest = &tail[key_end..];
        if let Some(value) = rest.strip_prefix('=') {
            rest = value.get(bare_item(value)?..)?;
        }
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let want = STANDARD_NO_PAD
            .decode_to_vec(OF_NOTHING.trim_end_matches('='))
            .expect("base64");
        for values in [
            vec![ours.clone()],
            vec![format!("sha-256=:{}:", OF_NOTHING.trim_end_matches('='))],
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
            &format!("sha-256=:AAAA:, sha-256=:{OF_NOTHING}:"),
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

    proptest! {
        #[test]
        fn garbage_never_panics(text in "[ -~é]{0,40}") {
            let _ = dictionary(&text);
        }

        #[test]
        fn near_garbage_never_panics(text in "[a=:;,(\"\\\\ é]{0,40}") {
            let _ = dictionary(&text);
        }
    }
}
