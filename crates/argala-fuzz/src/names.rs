//! Ids, addresses of graphs, storage keys (protocol, section 2).

use std::{fmt::Display, str::FromStr};

use argala_wire::{
    BlobId, DeviceId, GraphAddress, GroupId, MemberId, Owners, RecordId, StorageKey, codec::Format,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A body with one field: what stands alone is no body.
#[derive(Serialize, Deserialize)]
struct Body<T> {
    it: T,
}

/// What the protocol says of a name, said once more and not by the code that is tested.
fn is_name(text: &str) -> bool {
    let control = |c: char| c <= '\u{1f}' || ('\u{7f}'..='\u{9f}').contains(&c);
    (1..=128).contains(&text.len())
        && !text.contains(control)
        && !text.starts_with(char::is_whitespace)
        && !text.ends_with(char::is_whitespace)
}

fn is_blob_id(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (16..=128).contains(&text.len()) && text.chars().all(legal)
}

/// Taken exactly where it is legal, and written in every form as it was read.
fn one<T>(text: &str, legal: bool)
where
    T: FromStr + Display + Serialize + DeserializeOwned + PartialEq,
{
    let Ok(id) = text.parse::<T>() else {
        assert!(!legal, "refused, and legal");
        let quoted = Format::Json.encode(&text);
        assert!(serde_json::from_slice::<T>(&quoted).is_err());
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
pub fn ids(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let legal = is_name(text);
    one::<MemberId>(text, legal);
    one::<GroupId>(text, legal);
    one::<RecordId>(text, legal);
    one::<DeviceId>(text, legal && text != "." && text != "..");
    one::<BlobId>(text, is_blob_id(text));
}

/// The address of a graph, and who calls, in two lines.
pub fn graphs(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Some((caller, address)) = text.split_once('\n') else {
        return;
    };
    let legal = match address.split_once(':') {
        Some(("g" | "d", id)) => is_name(id),
        _ => false,
    };
    let parsed: Result<GraphAddress, _> = address.parse();
    assert_eq!(parsed.is_ok(), legal);
    let (Ok(caller), Ok(parsed)) = (MemberId::new(caller), parsed) else {
        return;
    };
    assert_eq!(parsed.to_id().as_str(), address);
    assert_eq!(parsed.to_id().address(), parsed);
    let key = parsed.storage_key(&caller);
    // The key names this graph and no other, and leads back to what the caller calls it.
    assert_eq!(key.graph_id_for(&caller), Some(parsed.to_id()));
    assert_eq!(key.as_str().parse(), Ok(key.clone()));
    match (parsed, key.owners()) {
        (GraphAddress::Group(group), Owners::Group(owner)) => assert_eq!(group, owner),
        (GraphAddress::Member(other), Owners::Pair(low, high)) => {
            assert!(low <= high);
            let from_there = GraphAddress::Member(caller.clone()).storage_key(&other);
            assert_eq!(from_there, key, "both call one graph by one key");
            let mut pair = [&caller, &other];
            pair.sort();
            assert_eq!(pair, [&low, &high]);
        }
        (address, owners) => panic!("{address:?} became {owners:?}"),
    }
}

/// Storage keys: one text for one graph.
pub fn storage_keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(key) = text.parse::<StorageKey>() else {
        return;
    };
    assert_eq!(key.to_string(), text);
    let again = match key.owners() {
        Owners::Group(group) => StorageKey::group(&group),
        Owners::Pair(low, high) => {
            assert_eq!(StorageKey::pair(&high, &low), key);
            StorageKey::pair(&low, &high)
        }
    };
    assert_eq!(again, key, "nothing else is written so");
    for format in [Format::Json, Format::Cbor] {
        let written = format.encode(&Body { it: &key });
        let read: Body<StorageKey> = format.decode(&written).expect("reads what it wrote");
        assert_eq!(read.it, key);
    }
}
