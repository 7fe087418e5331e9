//! Ids, addresses of graphs, storage keys (protocol, section 2).

use std::{fmt::Display, str::FromStr};

use argala_wire::{
    BlobId, DeviceId, GraphAddress, GraphId, GroupId, MemberId, Owners, RecordId, StorageKey,
    codec::Format,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Verdict;

/// A body with one field: what stands alone is no body.
#[derive(Serialize, Deserialize)]
struct Body<T> {
    it: T,
}

/// What the protocol says of a name, said once more and not by the code that is tested.
pub(crate) fn is_name(text: &str) -> bool {
    let control = |c: char| c <= '\u{1f}' || ('\u{7f}'..='\u{9f}').contains(&c);
    (1..=128).contains(&text.len())
        && !text.contains(control)
        && !text.starts_with(char::is_whitespace)
        && !text.ends_with(char::is_whitespace)
}

pub(crate) fn is_blob_id(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (16..=128).contains(&text.len()) && text.chars().all(legal)
}

/// What the protocol says of a graph's address.
pub(crate) fn is_address(text: &str) -> bool {
    match text.split_once(':') {
        Some(("g" | "d", id)) => is_name(id),
        _ => false,
    }
}

/// Taken exactly where it is legal, and written in every form as it was read.
fn one<T>(text: &str, legal: bool)
where
    T: FromStr + Display + Serialize + DeserializeOwned + PartialEq,
{
    let Ok(id) = text.parse::<T>() else {
        assert!(!legal, "refused, and legal");
        for format in [Format::Json, Format::Cbor] {
            let written = format.encode(&Body { it: text });
            let read = format.decode::<Body<T>>(&written);
            assert!(read.is_err(), "refused alone, and taken in a body");
        }
        return;
    };
    assert!(legal, "taken, and not legal");
    assert_eq!(id.to_string(), text);
    for format in [Format::Json, Format::Cbor] {
        let written = format.encode(&Body { it: &id });
        let alike = format.encode(&Body { it: text });
        assert_eq!(written, alike, "an id is its text");
        let read: Body<T> = format.decode(&written).expect("reads what it wrote");
        assert!(read.it == id);
    }
}

/// Ids of every kind.
pub fn ids(bytes: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Verdict::Refused;
    };
    let legal = is_name(text);
    one::<MemberId>(text, legal);
    one::<GroupId>(text, legal);
    one::<RecordId>(text, legal);
    one::<DeviceId>(text, legal && text != "." && text != "..");
    one::<BlobId>(text, is_blob_id(text));
    // Every blob's id is an id.
    Verdict::of(legal)
}

/// How an id stands in a storage key.
fn escaped(id: &str) -> String {
    id.replace('%', "%25").replace(':', "%3A")
}

/// The address of a graph, and who calls, in two lines.
pub fn graphs(bytes: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Verdict::Refused;
    };
    let Some((caller, address)) = text.split_once('\n') else {
        return Verdict::Refused;
    };
    let legal = is_address(address);
    one::<GraphId>(address, legal);
    let parsed: Result<GraphAddress, _> = address.parse();
    assert_eq!(parsed.is_ok(), legal);
    let (Ok(caller), Ok(parsed)) = (MemberId::new(caller), parsed) else {
        return Verdict::Refused;
    };
    assert_eq!(parsed.to_id().as_str(), address);
    assert_eq!(parsed.to_id().address(), parsed);
    let key = parsed.storage_key(&caller);
    // The key names this graph and no other, and leads back to what the caller calls it.
    assert_eq!(key.graph_id_for(&caller), Some(parsed.to_id()));
    assert_eq!(key.as_str().parse(), Ok(key.clone()));
    let told = match (parsed, key.owners()) {
        (GraphAddress::Group(group), Owners::Group(owner)) => {
            assert_eq!(group, owner);
            format!("g:{}", escaped(group.as_str()))
        }
        (GraphAddress::Member(other), Owners::Pair(low, high)) => {
            assert!(low <= high);
            let from_there = GraphAddress::Member(caller.clone()).storage_key(&other);
            assert_eq!(from_there, key, "both call one graph by one key");
            let mut pair = [caller.as_str(), other.as_str()];
            pair.sort_unstable();
            assert_eq!(pair, [low.as_str(), high.as_str()]);
            format!("d:{}:{}", escaped(pair[0]), escaped(pair[1]))
        }
        (address, owners) => panic!("{address:?} became {owners:?}"),
    };
    assert_eq!(key.as_str(), told);
    Verdict::Taken
}

/// The id that stands so in a storage key; `None` where none does.
fn unescaped(part: &str) -> Option<String> {
    let mut pieces = part.split('%');
    let mut id = pieces.next()?.to_owned();
    for piece in pieces {
        // Of all escapes there are two, and each in one spelling.
        let (c, tail) = match piece.split_at_checked(2)? {
            ("25", tail) => ('%', tail),
            ("3A", tail) => (':', tail),
            _ => return None,
        };
        id.push(c);
        id.push_str(tail);
    }
    is_name(&id).then_some(id)
}

/// Whose graph the key names: one group, or two members in the order of their bytes.
fn owners(key: &str) -> Option<Vec<String>> {
    let parts: Vec<&str> = key.split(':').collect();
    match parts[..] {
        ["g", group] => Some(vec![unescaped(group)?]),
        ["d", low, high] => {
            let pair = vec![unescaped(low)?, unescaped(high)?];
            pair.is_sorted().then_some(pair)
        }
        _ => None,
    }
}

/// Storage keys: one text for one graph.
pub fn storage_keys(bytes: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Verdict::Refused;
    };
    let owners = owners(text);
    one::<StorageKey>(text, owners.is_some());
    let (Some(owners), Ok(key)) = (owners, text.parse::<StorageKey>()) else {
        return Verdict::Refused;
    };
    let (again, named) = match key.owners() {
        Owners::Group(group) => (StorageKey::group(&group), vec![group.to_string()]),
        Owners::Pair(low, high) => {
            assert_eq!(StorageKey::pair(&high, &low), key);
            let named = vec![low.to_string(), high.to_string()];
            (StorageKey::pair(&low, &high), named)
        }
    };
    assert_eq!(again, key, "nothing else is written so");
    assert_eq!(named, owners);
    Verdict::Taken
}
