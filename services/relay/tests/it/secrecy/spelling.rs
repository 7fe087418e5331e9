//! How bytes can be written down, and how what is written down can be read.
//!
//! Encodings of bytes as a whole (hexadecimal, base64, lists of numbers) are looked for as they
//! are. What changes some characters only, as quoting and percent encoding do, is undone in what is
//! searched, as often as it may have been done: a log in JSON quotes what Rust has quoted already.

use argala_wire::Sealed;

/// A string in Rust's form, in another one, in JSON, in more of it.
const QUOTED: usize = 4;

/// What bytes look like in a text that nobody has quoted: as they are, in hexadecimal, in both
/// base64 at each of the three places in a group, as a list of numbers.
///
/// A list is without the white space that Rust puts into it: see [`readings`].
pub(super) fn spellings(bytes: &[u8]) -> Vec<Vec<u8>> {
    let listed = |number: &dyn Fn(&u8) -> String, between: &str| {
        let numbers: Vec<String> = bytes.iter().map(number).collect();
        numbers.join(between).into_bytes()
    };
    let mut all = vec![
        bytes.to_vec(),
        listed(&|byte| byte.to_string(), ","),
        listed(&|byte| format!("{byte:#x}"), ","),
        listed(&|byte| format!("{byte:#04x}"), ","),
    ];
    for between in ["", ",", ":", "-"] {
        all.push(listed(&|byte| format!("{byte:02x}"), between));
        all.push(listed(&|byte| format!("{byte:02X}"), between));
    }
    for before in 0..3 {
        let mut shifted = vec![0; before];
        shifted.extend_from_slice(bytes);
        let text = Sealed(shifted.clone()).to_base64url();
        // Without the characters that a neighbour has a part in.
        let first = (before * 8).div_ceil(6);
        let url = text[first..shifted.len() * 8 / 6].to_owned();
        all.push(url.replace('-', "+").replace('_', "/").into_bytes());
        all.push(url.into_bytes());
    }
    all.sort();
    all.dedup();
    all
}

/// What is searched, in each of the ways in which it can be read: as it is; unquoted, once and
/// again; then without white space, and percent decoded.
pub(super) fn readings(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![bytes.to_vec()];
    for _ in 0..QUOTED {
        let last = &all[all.len() - 1];
        let next = unquoted(last);
        if next == *last {
            break;
        }
        all.push(next);
    }
    let plainest = all[all.len() - 1].clone();
    let dense = plainest.iter().filter(|byte| !byte.is_ascii_whitespace());
    all.push(dense.copied().collect());
    if plainest.contains(&b'%') {
        all.push(percent_decoded(&plainest));
        // As in a form, where a plus is a space.
        let spaced = plainest
            .iter()
            .map(|&byte| if byte == b'+' { b' ' } else { byte });
        all.push(percent_decoded(&spaced.collect::<Vec<u8>>()));
    }
    all
}

/// With every escape of Rust and of JSON replaced by what it stands for.
fn unquoted(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        let escape = if first == b'\\' { escape(after) } else { None };
        match escape {
            Some((meant, length)) => {
                plain.extend(meant);
                rest = &after[length..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

/// What stands after a backslash: what is meant by it, and how long it is.
fn escape(after: &[u8]) -> Option<(Vec<u8>, usize)> {
    let character = |digits: &[u8], length| {
        let code = char::from_u32(hexadecimal(digits)?)?;
        Some((code.to_string().into_bytes(), length))
    };
    match after.first()? {
        b'0' => Some((vec![0], 1)),
        b'n' => Some((vec![b'\n'], 1)),
        b'r' => Some((vec![b'\r'], 1)),
        b't' => Some((vec![b'\t'], 1)),
        b'b' => Some((vec![8], 1)),
        b'f' => Some((vec![12], 1)),
        &plain @ (b'\\' | b'/' | b'"' | b'\'') => Some((vec![plain], 1)),
        b'x' => Some((vec![hexadecimal(after.get(1..3)?)?.try_into().ok()?], 3)),
        b'u' if after.get(1) == Some(&b'{') => {
            let end = after.iter().take(9).position(|&byte| byte == b'}')?;
            character(&after[2..end], end + 1)
        }
        b'u' => character(after.get(1..5)?, 5),
        _ => None,
    }
}

fn percent_decoded(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        let byte = after.get(..2).filter(|_| first == b'%');
        match byte
            .and_then(hexadecimal)
            .and_then(|byte| u8::try_from(byte).ok())
        {
            Some(byte) => {
                plain.push(byte);
                rest = &after[2..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[test]
fn what_is_no_escape_stays_as_it_is() {
    for text in [
        &b"\\"[..],
        b"\\x",
        b"\\xg0",
        b"\\u12",
        b"\\u{110000}",
        b"\\u{12",
        b"\\q",
        b"%",
        b"%4",
        b"%+4",
    ] {
        assert_eq!(unquoted(text), text);
        assert_eq!(percent_decoded(text), text);
    }
    assert_eq!(
        unquoted(b"a\\x00\\0\\u{e9}\\u00e9\\n\\\\x41"),
        "a\0\0éé\n\\x41".as_bytes()
    );
    assert_eq!(percent_decoded(b"%41%zz%4a+"), b"A%zzJ+");
}
