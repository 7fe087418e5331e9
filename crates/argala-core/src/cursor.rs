//! Cursors: where a list was left off. Opaque to callers; checked, so that a mangled one is told
//! from one that has outlived its list.

use argala_wire::{Sealed, StorageKey, records::CursorReason};
use sha2::{Digest, Sha256};

use crate::Rejection;

const VERSION: u8 = 1;
const CHECK_BYTES: usize = 6;

/// Which list a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum List {
    Devices = b'd',
    Graphs = b'g',
    GraphDevices = b'r',
    Wraps = b'w',
    Records = b'p',
}

/// Writes a cursor of `list` that holds `parts`.
pub(crate) fn write(list: List, parts: &[&[u8]]) -> String {
    let mut bytes = vec![VERSION, list as u8];
    for part in parts {
        let length = u16::try_from(part.len()).expect("an id has at most 128 bytes");
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(part);
    }
    let check = Sha256::digest(&bytes);
    bytes.extend_from_slice(&check[..CHECK_BYTES]);
    Sealed(bytes).to_base64url()
}

const fn invalid(reason: CursorReason) -> Rejection {
    Rejection::CursorInvalid { reason }
}

/// The `N` parts of a cursor of `list`.
pub(crate) fn read<const N: usize>(list: List, text: &str) -> Result<[Vec<u8>; N], Rejection> {
    let malformed = || invalid(CursorReason::Malformed);
    let bytes = Sealed::from_base64url(text).ok_or_else(malformed)?.0;
    // One spelling for each cursor: padding is for bytes, which this is not to its holder.
    if text.ends_with('=') || bytes.len() < 2 + CHECK_BYTES {
        return Err(malformed());
    }
    let (body, check) = bytes.split_at(bytes.len() - CHECK_BYTES);
    if Sha256::digest(body)[..CHECK_BYTES] != *check || body[0] != VERSION {
        return Err(malformed());
    }
    if body[1] != list as u8 {
        return Err(invalid(CursorReason::Foreign));
    }
    let mut rest = &body[2..];
    let mut parts = Vec::with_capacity(N);
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length));
        let (part, tail) = tail.split_at_checked(length).ok_or_else(malformed)?;
        parts.push(part.to_vec());
        rest = tail;
    }
    if !rest.is_empty() {
        return Err(malformed());
    }
    parts.try_into().map_err(|_| malformed())
}

/// The number that a part of eight bytes holds.
pub(crate) fn number(part: &[u8]) -> Result<u64, Rejection> {
    let bytes = part
        .try_into()
        .map_err(|_| invalid(CursorReason::Malformed))?;
    Ok(u64::from_be_bytes(bytes))
}

/// The text that a part holds, as `T`.
pub(crate) fn text<T: std::str::FromStr>(part: &[u8]) -> Result<T, Rejection> {
    std::str::from_utf8(part)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(invalid(CursorReason::Malformed))
}

/// Holds that a part names `graph`.
pub(crate) fn of_graph(part: &[u8], graph: &StorageKey) -> Result<(), Rejection> {
    if part == short_name(graph) {
        Ok(())
    } else {
        Err(invalid(CursorReason::Foreign))
    }
}

/// Where a walk over a graph's records stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordCursor {
    /// The graph's incarnation; 0 while the graph did not exist.
    pub incarnation: u64,
    /// The last seq that the walk has passed.
    pub seq: u64,
    /// The head at which the walk began without a cursor.
    pub began: u64,
    /// The one epoch walked, or 0 for all.
    pub epoch: u64,
}

/// What stands for a graph in a cursor. Not the key itself: a cursor need not tell what it is of.
pub(crate) fn short_name(graph: &StorageKey) -> [u8; 8] {
    let digest = Sha256::digest(graph.as_str().as_bytes());
    let mut name = [0; 8];
    name.copy_from_slice(&digest[..8]);
    name
}

impl RecordCursor {
    pub(crate) fn write(self, graph: &StorageKey) -> String {
        write(
            List::Records,
            &[
                &short_name(graph),
                &self.incarnation.to_be_bytes(),
                &self.seq.to_be_bytes(),
                &self.began.to_be_bytes(),
                &self.epoch.to_be_bytes(),
            ],
        )
    }

    pub(crate) fn read(text: &str, graph: &StorageKey) -> Result<Self, Rejection> {
        let [name, incarnation, seq, began, epoch] = read(List::Records, text)?;
        of_graph(&name, graph)?;
        Ok(Self {
            incarnation: number(&incarnation)?,
            seq: number(&seq)?,
            began: number(&began)?,
            epoch: number(&epoch)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use argala_wire::GroupId;
    use proptest::prelude::*;

    use super::*;

    fn group(name: &str) -> StorageKey {
        StorageKey::group(&GroupId::new(name).expect("legal"))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(incarnation: u64, seq: u64, began: u64, epoch: u64) {
            let cursor = RecordCursor { incarnation, seq, began, epoch };
            let text = cursor.write(&group("a"));
            prop_assert_eq!(RecordCursor::read(&text, &group("a")), Ok(cursor));
            prop_assert_eq!(
                RecordCursor::read(&text, &group("b")),
                Err(invalid(CursorReason::Foreign))
            );
            prop_assert_eq!(
                read::<1>(List::Wraps, &text),
                Err(invalid(CursorReason::Foreign))
            );
        }

        #[test]
        fn no_single_change_goes_unnoticed(at in 0..80_usize, to in "[A-Za-z0-9_-]", seq: u64) {
            let cursor = RecordCursor { incarnation: 1, seq, began: 2, epoch: 0 };
            let text = cursor.write(&group("a"));
            let at = at % text.len();
            let mangled = format!("{}{to}{}", &text[..at], &text[at + 1..]);
            prop_assume!(mangled != text);
            prop_assert_eq!(
                RecordCursor::read(&mangled, &group("a")),
                Err(invalid(CursorReason::Malformed))
            );
        }

        #[test]
        fn garbage_is_malformed(text in "\\PC{0,60}") {
            prop_assert_eq!(
                RecordCursor::read(&text, &group("a")),
                Err(invalid(CursorReason::Malformed))
            );
        }
    }
}
