//! What a key file holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use argala_wire::{
    Sealed, StorageKey,
    devices::{DeviceKind, DeviceRef},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{
    access::Position,
    crypto::{DeviceKeys, GraphKey, PublicKeys, random},
    doubt::{self, Doubt},
};

/// 32 secret bytes, as base64url in the file and nowhere else.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct Secret([u8; 32]);

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = Zeroizing::new(Sealed::from(&self.0[..]).to_base64url());
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bytes(deserializer).map(Self)
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let bytes = Zeroizing::new(Sealed::deserialize(deserializer)?.0);
    bytes
        .as_slice()
        .try_into()
        .map_err(|_| de::Error::custom("not 32 bytes"))
}

mod graph_key {
    use super::{Deserializer, GraphKey, Secret, Serialize, Serializer, bytes};

    pub(super) fn serialize<S: Serializer>(key: &GraphKey, to: S) -> Result<S::Ok, S::Error> {
        Secret(*key.as_bytes()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<GraphKey, D::Error> {
        bytes(from).map(GraphKey::from_bytes)
    }
}

mod public_key {
    use super::{Deserializer, Sealed, Serialize, Serializer, bytes};

    pub(super) fn serialize<S: Serializer>(key: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        Sealed::from(&key[..]).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        bytes(from)
    }
}

/// Known devices are a list in the file: a pair of ids is no key of a JSON map.
mod known_list {
    use super::{BTreeMap, Deserialize, Deserializer, DeviceRef, KnownDevice, Serializer};

    type Known = BTreeMap<DeviceRef, KnownDevice>;

    pub(super) fn serialize<S: Serializer>(known: &Known, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(known.values())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Known, D::Error> {
        let list = Vec::<KnownDevice>::deserialize(from)?;
        let entry = |known: KnownDevice| (known.device.clone(), known);
        Ok(list.into_iter().map(entry).collect())
    }
}

/// A graph's key of one epoch.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EpochKey {
    /// The key.
    #[serde(with = "graph_key")]
    pub key: GraphKey,
    /// The first seq that the epoch could carry.
    pub first_seq: u64,
    /// Whether nothing is to be sealed under it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_read: bool,
}

/// A device as it was when it was first seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownDevice {
    /// Which device.
    pub device: DeviceRef,
    /// What stands behind it.
    pub kind: DeviceKind,
    #[serde(with = "public_key")]
    encryption_key: [u8; 32],
    #[serde(with = "public_key")]
    signing_key: [u8; 32],
    /// Whether it has been listed, with its fingerprint, to whoever uses this device; nothing is
    /// sealed for it before.
    pub announced: bool,
    /// Whether somebody has compared its fingerprint and said so.
    pub verified: bool,
}

impl KnownDevice {
    /// Its keys when it was first seen.
    #[must_use]
    pub fn keys(&self) -> PublicKeys {
        PublicKeys {
            encryption: self.encryption_key,
            signing: self.signing_key,
        }
    }
}

/// What the record of known devices says of one that the relay shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It was never seen before; it is on record now.
    New,
    /// It has the keys that it had.
    Same,
    /// It has other keys than it had; the record is left as it was.
    Changed,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Graph {
    epochs: BTreeMap<u64, EpochKey>,
    positions: BTreeMap<String, Position>,
}

/// What a key file holds. Changes are kept by [`KeyFile::save`](super::KeyFile::save) alone.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    format: u32,
    /// The device that this is.
    pub device: DeviceRef,
    /// What stands behind it.
    pub kind: DeviceKind,
    encryption_secret: Secret,
    signing_secret: Secret,
    held_secret: Secret,
    /// The counter of the last record that this device sealed.
    counter: u64,
    /// The device's name, to be sealed and published once its member's own graph has a key.
    #[serde(default)]
    pub label: Option<String>,
    #[serde(default, with = "known_list")]
    known: BTreeMap<DeviceRef, KnownDevice>,
    /// Devices that were revoked, on record or not: this one may have done it unseen.
    #[serde(default)]
    revoked: BTreeSet<DeviceRef>,
    /// Devices that a key was taken from.
    #[serde(default)]
    givers: BTreeSet<DeviceRef>,
    #[serde(default)]
    graphs: BTreeMap<StorageKey, Graph>,
    #[serde(default)]
    doubts: Vec<Doubt>,
}

impl Contents {
    pub(super) fn new(format: u32, device: DeviceRef, kind: DeviceKind, keys: &DeviceKeys) -> Self {
        let (encryption, signing) = keys.to_secrets();
        Self {
            format,
            device,
            kind,
            encryption_secret: Secret(*encryption),
            signing_secret: Secret(*signing),
            held_secret: Secret(random()),
            counter: 0,
            label: None,
            known: BTreeMap::new(),
            revoked: BTreeSet::new(),
            givers: BTreeSet::new(),
            graphs: BTreeMap::new(),
            doubts: Vec::new(),
        }
    }

    pub(super) fn device_keys(&self) -> DeviceKeys {
        DeviceKeys::from_secrets(&self.encryption_secret.0, &self.signing_secret.0)
    }

    /// The key that seals held writes on this machine.
    pub(crate) fn held_secret(&self) -> &[u8; 32] {
        &self.held_secret.0
    }

    /// The key of one epoch, where the device has it.
    #[must_use]
    pub fn key(&self, graph: &StorageKey, epoch: u64) -> Option<&GraphKey> {
        let epoch = self.graphs.get(graph)?.epochs.get(&epoch)?;
        Some(&epoch.key)
    }

    /// Every epoch of a graph whose key the device has, ascending.
    pub fn epochs(&self, graph: &StorageKey) -> impl Iterator<Item = (u64, &EpochKey)> {
        let graph = self.graphs.get(graph);
        graph
            .into_iter()
            .flat_map(|graph| graph.epochs.iter().map(|(&epoch, key)| (epoch, key)))
    }

    /// Keeps a key. One that is there already is left: an epoch has one key.
    pub fn add_key(&mut self, graph: &StorageKey, epoch: u64, key: GraphKey, first_seq: u64) {
        let graph = self.graphs.entry(graph.clone()).or_default();
        graph.epochs.entry(epoch).or_insert(EpochKey {
            key,
            first_seq,
            only_read: false,
        });
    }

    /// Seals nothing under an epoch's key from now on: a device that was revoked gave it, and may
    /// have made it after that, for itself and a relay that let it.
    pub fn only_read(&mut self, graph: &StorageKey, epoch: u64) {
        let graph = self.graphs.get_mut(graph);
        if let Some(key) = graph.and_then(|graph| graph.epochs.get_mut(&epoch)) {
            key.only_read = true;
        }
    }

    /// Whether the key of an epoch is here and may be sealed under.
    #[must_use]
    pub fn may_seal(&self, graph: &StorageKey, epoch: u64) -> bool {
        let graph = self.graphs.get(graph);
        let key = graph.and_then(|graph| graph.epochs.get(&epoch));
        key.is_some_and(|key| !key.only_read)
    }

    /// Whether a key may be taken from a device: one that was listed, or that has given one
    /// before. Where no key is here at all, this device has only just come and knows nobody.
    #[must_use]
    pub fn may_give(&self, device: &DeviceRef) -> bool {
        *device == self.device
            || self.givers.contains(device)
            || self
                .known_device(device)
                .is_some_and(|known| known.announced)
            || self.graphs.values().all(|graph| graph.epochs.is_empty())
    }

    /// Remembers that a key was taken from a device.
    pub fn note_giver(&mut self, device: &DeviceRef) {
        self.givers.insert(device.clone());
    }

    /// Every graph that this device has had to do with.
    pub fn graphs(&self) -> impl Iterator<Item = &StorageKey> {
        self.graphs.keys()
    }

    /// Remembers that there is this graph; `false` where it was known.
    pub fn touch(&mut self, graph: &StorageKey) -> bool {
        let fresh = !self.graphs.contains_key(graph);
        self.graphs.entry(graph.clone()).or_default();
        fresh
    }

    /// How far `reader` has come in a graph; the start where it has not begun.
    #[must_use]
    pub fn position(&self, graph: &StorageKey, reader: &str) -> Position {
        let position = self
            .graphs
            .get(graph)
            .and_then(|graph| graph.positions.get(reader));
        position.cloned().unwrap_or_default()
    }

    /// Remembers how far `reader` has come in a graph.
    pub fn set_position(&mut self, graph: &StorageKey, reader: &str, position: Position) {
        let graph = self.graphs.entry(graph.clone()).or_default();
        graph.positions.insert(reader.to_owned(), position);
    }

    /// Takes `count` counters out of use and gives the first. They are to be saved as used before
    /// a record under one of them leaves the machine.
    pub fn take_counters(&mut self, count: u64) -> u64 {
        let first = self.counter + 1;
        self.counter += count;
        first
    }

    /// Notes that this device has sealed a record under `counter` before, which a key file that
    /// was brought back from a backup may have forgotten; `true` where it had.
    pub fn saw_own_counter(&mut self, counter: u64) -> bool {
        let behind = counter > self.counter;
        self.counter = self.counter.max(counter);
        behind
    }

    /// Every device ever seen.
    pub fn known(&self) -> impl Iterator<Item = &KnownDevice> {
        self.known.values()
    }

    /// What is on record of one device.
    #[must_use]
    pub fn known_device(&self, device: &DeviceRef) -> Option<&KnownDevice> {
        self.known.get(device)
    }

    /// What is on record of one device, to mark it as announced or verified.
    pub fn known_device_mut(&mut self, device: &DeviceRef) -> Option<&mut KnownDevice> {
        self.known.get_mut(device)
    }

    /// Compares a device with the record, and puts it there where it is new.
    pub fn see(&mut self, device: &DeviceRef, kind: DeviceKind, keys: &PublicKeys) -> Seen {
        if let Some(known) = self.known_device(device) {
            return if known.keys() == *keys {
                Seen::Same
            } else {
                Seen::Changed
            };
        }
        let known = KnownDevice {
            device: device.clone(),
            kind,
            encryption_key: keys.encryption,
            signing_key: keys.signing,
            announced: false,
            verified: false,
        };
        self.known.insert(device.clone(), known);
        Seen::New
    }

    /// Devices whose keys nobody has been shown yet, and that might still be given one.
    pub fn unlisted(&self) -> impl Iterator<Item = &KnownDevice> {
        let unlisted = |known: &&KnownDevice| !known.announced && !self.is_revoked(&known.device);
        self.known.values().filter(unlisted)
    }

    /// Whether a device was revoked, as the relay once told or as this device did.
    #[must_use]
    pub fn is_revoked(&self, device: &DeviceRef) -> bool {
        self.revoked.contains(device)
    }

    /// Remembers that a device was revoked, which is for good; `false` where it is known.
    pub fn note_revoked(&mut self, device: &DeviceRef) -> bool {
        self.revoked.insert(device.clone())
    }

    /// Forgets a device, so that the next look at it is the first; with it go the doubts that
    /// its keys had changed or that it had come back.
    pub fn forget(&mut self, device: &DeviceRef) {
        self.known.remove(device);
        self.revoked.remove(device);
        self.givers.remove(device);
        self.doubts.retain(|doubt| doubt.device() != Some(device));
    }

    /// What the relay told and was not believed, oldest first.
    #[must_use]
    pub fn doubts(&self) -> &[Doubt] {
        &self.doubts
    }

    /// Keeps a doubt; `false` where it is kept already, or where there are too many.
    pub fn add_doubt(&mut self, doubt: Doubt) -> bool {
        let fresh = self.doubts.len() < doubt::MOST && !self.doubts.contains(&doubt);
        if fresh {
            self.doubts.push(doubt);
        }
        fresh
    }

    /// Forgets every doubt, and tells how many there were.
    pub fn forget_doubts(&mut self) -> usize {
        std::mem::take(&mut self.doubts).len()
    }
}

/// Says whose it is, and nothing that it holds.
impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use argala_wire::{DeviceId, MemberId};

    use super::*;

    fn contents() -> Contents {
        let device = DeviceRef {
            member_id: MemberId::new("sam").expect("legal"),
            device_id: DeviceId::new("laptop").expect("legal"),
        };
        Contents::new(1, device, DeviceKind::Device, &DeviceKeys::generate())
    }

    #[test]
    fn a_changed_key_is_noticed_and_the_first_is_kept() {
        let mut contents = contents();
        let device = contents.device.clone();
        let (one, two) = (
            DeviceKeys::generate().public(),
            DeviceKeys::generate().public(),
        );
        assert_eq!(contents.see(&device, DeviceKind::Device, &one), Seen::New);
        assert_eq!(contents.see(&device, DeviceKind::Device, &one), Seen::Same);
        assert_eq!(
            contents.see(&device, DeviceKind::Device, &two),
            Seen::Changed
        );
        let known = contents.known_device(&device).expect("on record");
        assert_eq!(known.keys(), one);
        contents.forget(&device);
        assert_eq!(contents.see(&device, DeviceKind::Device, &two), Seen::New);
    }

    #[test]
    fn one_key_of_two_is_a_change_as_well() {
        let mut contents = contents();
        let device = contents.device.clone();
        let (one, two) = (
            DeviceKeys::generate().public(),
            DeviceKeys::generate().public(),
        );
        contents.see(&device, DeviceKind::Device, &one);
        let (mut sealing, mut signing) = (one, one);
        sealing.encryption = two.encryption;
        signing.signing = two.signing;
        for keys in [sealing, signing] {
            let seen = contents.see(&device, DeviceKind::Device, &keys);
            assert_eq!(seen, Seen::Changed);
        }
    }

    #[test]
    fn the_revoked_are_remembered_until_they_are_forgotten() {
        let mut contents = contents();
        let device = contents.device.clone();
        let keys = DeviceKeys::generate().public();
        contents.see(&device, DeviceKind::Device, &keys);
        assert_eq!(contents.unlisted().count(), 1);
        assert!(contents.note_revoked(&device) && !contents.note_revoked(&device));
        assert_eq!(contents.unlisted().count(), 0, "it will be given nothing");
        let file = serde_json::to_string(&contents).expect("writes");
        let mut read: Contents = serde_json::from_str(&file).expect("reads");
        assert!(read.is_revoked(&device));
        read.add_doubt(Doubt::DeviceReturned {
            device: device.clone(),
        });
        read.forget(&device);
        assert!(!read.is_revoked(&device) && read.doubts().is_empty());
    }

    #[test]
    fn keys_are_taken_from_those_who_were_listed_or_gave_before() {
        let mut contents = contents();
        let other = DeviceRef {
            device_id: DeviceId::new("phone").expect("legal"),
            ..contents.device.clone()
        };
        let keys = DeviceKeys::generate().public();
        contents.see(&other, DeviceKind::Device, &keys);
        assert!(
            contents.may_give(&other),
            "whoever has just come knows nobody"
        );
        let graph = "g:acme".parse().expect("legal");
        contents.add_key(&graph, 1, GraphKey::generate(), 1);
        assert!(!contents.may_give(&other));
        contents.note_giver(&other);
        assert!(contents.may_give(&other));
        contents.forget(&other);
        contents.see(&other, DeviceKind::Device, &keys);
        assert!(!contents.may_give(&other), "it is a new one now");
        contents
            .known_device_mut(&other)
            .expect("on record")
            .announced = true;
        assert!(contents.may_give(&other));
    }

    #[test]
    fn no_counter_is_given_out_twice() {
        let mut contents = contents();
        assert_eq!(contents.take_counters(3), 1);
        assert_eq!(contents.take_counters(1), 4);
        assert!(!contents.saw_own_counter(4));
        assert!(contents.saw_own_counter(9));
        assert_eq!(contents.take_counters(1), 10);
    }

    #[test]
    fn an_epochs_key_is_kept_as_it_first_came() {
        let mut contents = contents();
        let graph = "g:acme".parse().expect("legal");
        let (one, two) = (GraphKey::generate(), GraphKey::generate());
        contents.add_key(&graph, 1, one.clone(), 1);
        contents.add_key(&graph, 1, two, 9);
        assert_eq!(contents.key(&graph, 1), Some(&one));
        assert!(!contents.touch(&graph));
    }

    #[test]
    fn doubts_are_kept_once_each_and_not_without_end() {
        let mut contents = contents();
        let device = contents.device.clone();
        let changed = Doubt::DeviceChanged {
            device: device.clone(),
        };
        assert!(contents.add_doubt(changed.clone()));
        assert!(!contents.add_doubt(changed));
        for epoch in 0..500 {
            contents.add_doubt(Doubt::WrapRejected {
                storage_key: "g:acme".parse().expect("legal"),
                epoch,
                by: device.clone(),
            });
        }
        assert_eq!(contents.doubts().len(), doubt::MOST);
        let file = serde_json::to_string(&contents).expect("writes");
        let read: Contents = serde_json::from_str(&file).expect("reads");
        assert_eq!(read.doubts(), contents.doubts());
        // The owner of the device says that the change is theirs.
        contents.forget(&device);
        assert_eq!(contents.forget_doubts(), doubt::MOST - 1);
        assert!(contents.doubts().is_empty());
    }

    #[test]
    fn secrets_are_not_printed() {
        let contents = contents();
        let file = serde_json::to_string(&contents).expect("writes");
        let secret = Sealed::from(&contents.signing_secret.0[..]).to_base64url();
        assert!(file.contains(&secret));
        assert!(!format!("{contents:?}").contains(&secret));
    }
}
