//! How graphs are named: on the wire by an address that depends on who speaks, in the store by a
//! key that does not.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{GroupId, IdError, MemberId};

/// A graph as one member addresses it: `g:<groupId>` or `d:<memberId>`.
///
/// `d:` with another member's id is the graph of that pair; with the caller's own id it is the
/// caller's own graph. All after the first colon is the id (protocol, section 2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GraphAddress {
    /// A group's graph.
    Group(GroupId),
    /// The graph shared with this member, or the caller's own.
    Member(MemberId),
}

impl GraphAddress {
    /// The key under which the relay stores this graph when `caller` is the one who addresses it.
    #[must_use]
    pub fn storage_key(&self, caller: &MemberId) -> StorageKey {
        match self {
            Self::Group(group) => StorageKey::group(group),
            Self::Member(member) => StorageKey::pair(caller, member),
        }
    }

    /// The address as text.
    #[must_use]
    pub fn to_id(&self) -> GraphId {
        GraphId(self.to_string().into())
    }
}

impl fmt::Display for GraphAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "g:{group}"),
            Self::Member(member) => write!(f, "d:{member}"),
        }
    }
}

impl std::str::FromStr for GraphAddress {
    type Err = GraphAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("g", id)) => Ok(Self::Group(GroupId::new(id)?)),
            Some(("d", id)) => Ok(Self::Member(MemberId::new(id)?)),
            _ => Err(GraphAddressError::Kind),
        }
    }
}

/// Why a text addresses no graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GraphAddressError {
    /// The text begins with neither `g:` nor `d:`.
    #[error("a graph id is g:<groupId> or d:<memberId>")]
    Kind,
    /// What follows the colon is no id.
    #[error(transparent)]
    Id(#[from] IdError),
}

/// A [`GraphAddress`] as text, as it stands in bodies and pokes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, example = "g:acme"))]
pub struct GraphId(Box<str>);

impl GraphId {
    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address in parts.
    #[must_use]
    pub fn address(&self) -> GraphAddress {
        self.0.parse().expect("checked when it was made")
    }
}

impl std::str::FromStr for GraphId {
    type Err = GraphAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<GraphAddress>()?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for GraphId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for GraphId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<'de> Deserialize<'de> for GraphId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// The name of a graph in the store: `g:<group>`, or `d:<low>:<high>` with the two member ids in
/// byte order (`d:alex:alex` for an own graph).
///
/// In an id, `%` is written `%25` and `:` is written `%3A`, so no two graphs share a key. Devices
/// sign this key (protocol, section 5), so clients compute it too.
///
/// ```
/// use argala_wire::{MemberId, StorageKey};
/// let (sam, alex) = (MemberId::new("sam").unwrap(), MemberId::new("alex").unwrap());
/// let key = StorageKey::pair(&sam, &alex);
/// assert_eq!(key.as_str(), "d:alex:sam");
/// assert_eq!(key.graph_id_for(&sam).unwrap().as_str(), "d:alex");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String))]
pub struct StorageKey(Box<str>);

/// Whose graph a storage key names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owners {
    /// A group's; the directory says who its members are.
    Group(GroupId),
    /// Two members', in byte order; both the same for an own graph.
    Pair(MemberId, MemberId),
}

fn escape(id: &str, out: &mut String) {
    for c in id.chars() {
        match c {
            '%' => out.push_str("%25"),
            ':' => out.push_str("%3A"),
            c => out.push(c),
        }
    }
}

fn unescape(part: &str) -> Option<String> {
    let mut out = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find(['%', ':']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(tail) = rest.strip_prefix("%25") {
            out.push('%');
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix("%3A") {
            out.push(':');
            rest = tail;
        } else {
            return None;
        }
    }
    out.push_str(rest);
    Some(out)
}

impl StorageKey {
    /// The key of a group's graph.
    #[must_use]
    pub fn group(group: &GroupId) -> Self {
        let mut key = String::with_capacity(group.as_str().len() + 2);
        key.push_str("g:");
        escape(group.as_str(), &mut key);
        Self(key.into())
    }

    /// The key of the graph of two members, in whichever order they are given; of an own graph
    /// where both are the same.
    #[must_use]
    pub fn pair(one: &MemberId, other: &MemberId) -> Self {
        let (low, high) = if one <= other {
            (one, other)
        } else {
            (other, one)
        };
        let mut key = String::with_capacity(low.as_str().len() + high.as_str().len() + 3);
        key.push_str("d:");
        escape(low.as_str(), &mut key);
        key.push(':');
        escape(high.as_str(), &mut key);
        Self(key.into())
    }

    /// The key of a member's own graph.
    #[must_use]
    pub fn own(member: &MemberId) -> Self {
        Self::pair(member, member)
    }

    /// The key as the store holds it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whose graph this is.
    #[must_use]
    pub fn owners(&self) -> Owners {
        Self::parse(&self.0).expect("checked when it was made")
    }

    fn parse(text: &str) -> Option<Owners> {
        if let Some(group) = text.strip_prefix("g:") {
            return Some(Owners::Group(GroupId::new(unescape(group)?).ok()?));
        }
        let (low, high) = text.strip_prefix("d:")?.split_once(':')?;
        let low = MemberId::new(unescape(low)?).ok()?;
        let high = MemberId::new(unescape(high)?).ok()?;
        (low <= high).then_some(Owners::Pair(low, high))
    }

    /// What `member` calls this graph, or `None` where it is the graph of a pair that the member
    /// is not of. Whether the member belongs to a group is not asked here.
    #[must_use]
    pub fn graph_id_for(&self, member: &MemberId) -> Option<GraphId> {
        let address = match self.owners() {
            Owners::Group(group) => GraphAddress::Group(group),
            Owners::Pair(low, high) if low == *member => GraphAddress::Member(high),
            Owners::Pair(low, high) if high == *member => GraphAddress::Member(low),
            Owners::Pair(..) => return None,
        };
        Some(address.to_id())
    }
}

/// A text that is no storage key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a storage key")]
pub struct StorageKeyError;

impl std::str::FromStr for StorageKey {
    type Err = StorageKeyError;

    fn from_str(text: &str) -> Result<Self, StorageKeyError> {
        Self::parse(text).ok_or(StorageKeyError)?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for StorageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StorageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for StorageKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for StorageKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(text: &str) -> MemberId {
        MemberId::new(text).expect("legal")
    }

    #[test]
    fn the_address_ends_at_the_first_colon() {
        let address: GraphAddress = "g:a:b/c".parse().expect("legal");
        assert_eq!(
            address,
            GraphAddress::Group(GroupId::new("a:b/c").expect("legal"))
        );
        for text in ["", "g", "g:", "x:a", "acme", "G:acme", "d: a"] {
            assert!(text.parse::<GraphAddress>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn colons_and_percents_do_not_collide() {
        let one = StorageKey::pair(&member("a:b"), &member("c"));
        let two = StorageKey::pair(&member("a"), &member("b:c"));
        assert_ne!(one, two);
        assert_eq!(one.as_str(), "d:a%3Ab:c");
        assert_eq!(StorageKey::own(&member("50%")).as_str(), "d:50%25:50%25");
    }

    #[test]
    fn keys_that_we_did_not_write_are_refused() {
        for text in [
            "d:b:a", "d:a", "g:", "d:a:b:c", "g:a%3a", "g:50%", "h:a", "g:a:b",
        ] {
            assert_eq!(text.parse::<StorageKey>(), Err(StorageKeyError), "{text:?}");
        }
    }

    fn ids() -> impl Strategy<Value = MemberId> {
        "[a-c:%é]{1,4}".prop_map(|text| member(&text))
    }

    proptest! {
        #[test]
        fn each_of_a_pair_is_told_the_other(one in ids(), other in ids()) {
            let key = StorageKey::pair(&one, &other);
            prop_assert_eq!(&key, &StorageKey::pair(&other, &one));
            let told = key.graph_id_for(&one).expect("of the pair");
            prop_assert_eq!(told.address(), GraphAddress::Member(other.clone()));
            prop_assert_eq!(told.address().storage_key(&one), key.clone());
            prop_assert_eq!(key.as_str().parse::<StorageKey>().expect("our own"), key);
        }

        #[test]
        fn two_pairs_share_no_key(a in ids(), b in ids(), c in ids(), d in ids()) {
            let same = (&a, &b) == (&c, &d) || (&a, &b) == (&d, &c);
            prop_assert_eq!(StorageKey::pair(&a, &b) == StorageKey::pair(&c, &d), same);
        }
    }
}
