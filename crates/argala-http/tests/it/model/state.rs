//! What the model remembers, and the questions that all of its rules ask.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::call::{Call, Device};

/// Ceilings, and what else a relay is set up with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) max_records: u64,
    pub(super) max_ciphertext: u64,
    pub(super) max_blob: u64,
    pub(super) max_blobs: u64,
    pub(super) max_devices: u64,
    pub(super) max_push: u64,
    pub(super) max_record: u64,
    pub(super) max_batch: u64,
    pub(super) signatures_required: bool,
    pub(super) lists_groups: bool,
    pub(super) rates: Rates,
}

/// Requests a minute and at once, another pair for each bucket. Each rate divides a minute's
/// nanoseconds, so that nothing is rounded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    pub(super) push: (u32, u32),
    pub(super) pull: (u32, u32),
    pub(super) blobs: (u32, u32),
    pub(super) keys: (u32, u32),
}

impl Rates {
    pub(super) fn of(&self, bucket: &str) -> (u32, u32) {
        match bucket {
            "push" => self.push,
            "pull" => self.pull,
            "blobs" => self.blobs,
            _ => self.keys,
        }
    }
}

impl Settings {
    pub(super) fn quotas(&self) -> Value {
        json!({
            "maxRecordsPerGraph": self.max_records,
            "maxCiphertextBytesPerGraph": self.max_ciphertext,
            "maxBlobBytes": self.max_blob,
            "maxBlobBytesPerGraph": self.max_blobs,
            "maxDevicesPerMember": self.max_devices,
            "maxPushBytes": self.max_push,
            "maxRecordBytes": self.max_record,
            "maxRecordsPerPush": self.max_batch,
        })
    }
}

/// What the host's directory says.
#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    pub(super) members: BTreeMap<String, bool>,
    pub(super) groups: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug, Clone)]
pub(super) struct DeviceRow {
    /// Its body of `POST /devices`, `proof` and `label` left out.
    pub(super) keys: Value,
    /// Which of its keys it registered with, for whoever signs in its name.
    pub(super) generation: u64,
    pub(super) label: Option<Value>,
    pub(super) registered_at: i64,
    pub(super) revoked_at: Option<i64>,
    /// Its member was erased, and an epoch in force still names it.
    pub(super) is_left: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) seq: u64,
    pub(super) epoch: u64,
    pub(super) by: Device,
    pub(super) at: i64,
    pub(super) ciphertext: Vec<u8>,
    pub(super) sig: Option<Value>,
    pub(super) deleted: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Wrap {
    pub(super) wrap: Value,
    pub(super) by: Device,
    pub(super) at: i64,
    pub(super) blanked: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Epoch {
    pub(super) first_seq: u64,
    pub(super) by: Device,
    pub(super) wraps: BTreeMap<Device, Value>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Graph {
    /// Epoch 1 first.
    pub(super) epochs: Vec<Epoch>,
    pub(super) head: u64,
    pub(super) records: BTreeMap<String, Record>,
    pub(super) wraps: BTreeMap<(u64, Device), Wrap>,
    /// Which of all the lives that graphs have had: a new one begins with the first rotate, and
    /// where records went with their member. Cursors are of one.
    pub(super) life: u64,
    /// The greatest seq of a tombstone that is kept no longer.
    pub(super) floor: u64,
    /// When the sweep asks about the group next.
    pub(super) ask_at: i64,
    /// When the group was first and last found empty, without a break.
    pub(super) empty: Option<(i64, i64)>,
    /// Whether the directory has a holder of the current epoch off the roster: since when which.
    pub(super) directory_owes: Vec<(i64, bool)>,
}

impl Graph {
    pub(super) fn epoch(&self) -> u64 {
        self.epochs.len() as u64
    }

    pub(super) fn live(&self) -> u64 {
        self.records
            .values()
            .filter(|record| !record.deleted)
            .count() as u64
    }

    pub(super) fn ciphertext_bytes(&self) -> u64 {
        let lengths = self.records.values().map(|record| record.ciphertext.len());
        lengths.sum::<usize>() as u64
    }

    /// The epochs of which a device has a wrap.
    pub(super) fn held(&self, device: &Device) -> BTreeSet<u64> {
        let wraps = self.wraps.iter();
        wraps
            .filter(|((_, of), wrap)| of == device && !wrap.blanked)
            .map(|((epoch, _), _)| *epoch)
            .collect()
    }

    /// The devices that were given a wrap of the current epoch, blanked or not.
    pub(super) fn holders(&self) -> BTreeSet<&Device> {
        let now = self.epoch();
        let wraps = self.wraps.keys();
        wraps
            .filter(|(epoch, _)| *epoch == now)
            .map(|(_, of)| of)
            .collect()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Blob {
    pub(super) key: String,
    pub(super) id: String,
    pub(super) bytes: Vec<u8>,
    pub(super) policy: String,
    pub(super) expires_at: Option<i64>,
    pub(super) by: Device,
    /// Who has fetched it whole.
    pub(super) fetched: BTreeSet<Device>,
    /// When the sweep looks whether everybody has, once somebody has.
    pub(super) look_at: Option<i64>,
}

/// A blob whose graph is not there any more.
#[derive(Debug, Clone)]
pub(super) struct Going {
    pub(super) key: String,
    pub(super) reason: &'static str,
    pub(super) expires_at: Option<i64>,
}

/// A push that was answered under an idempotency key.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) raw: Vec<u8>,
    pub(super) at: i64,
    pub(super) answer: super::answer::Answer,
}

/// Which list a cursor is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Devices,
    Graphs,
    GraphDevices,
    Wraps,
    Records,
}

/// Where a list was left off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// The last item's (registration, id); none before the first.
    Device(Option<(i64, String)>),
    /// The last item's key, and those behind it that could not be read then: the page may have
    /// passed any number of them.
    Graph(Option<String>, Vec<String>),
    /// The last item.
    GraphDevice(Option<Device>),
    Epoch(u64),
    /// The last seq passed; `None` where the graph had no key.
    Seq(Option<u64>),
}

/// A cursor that a caller was given.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    pub(super) text: String,
    pub(super) list: List,
    pub(super) key: Option<String>,
    /// The one epoch of a pull.
    pub(super) only: Option<u64>,
    pub(super) place: Place,
    pub(super) by: Device,
    /// Of a walk over records: the graph's life, and the head when the walk began.
    pub(super) walk: (u64, u64),
}

/// What an `ETag` of a pull stands for (protocol, route 11).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Print {
    pub(super) key: String,
    pub(super) media_type: &'static str,
    pub(super) query: (Option<String>, u64, Option<u64>),
    /// Of two lives, or before and after tombstones went, the same head is not the same page.
    pub(super) life: u64,
    pub(super) floor: u64,
    pub(super) head: u64,
    pub(super) epoch: u64,
    pub(super) owed: bool,
    pub(super) held: BTreeSet<u64>,
}

/// What a caller learns from an answer: its cursor and its tag are opaque, and only what they
/// stand for is known before.
#[derive(Debug, Clone)]
pub(super) struct Learn {
    pub(super) cursor: Option<Cursor>,
    pub(super) print: Option<Print>,
}

/// The whole protocol in memory.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) settings: Settings,
    /// Milliseconds since 1970.
    pub(super) now: i64,
    pub(super) directory: Directory,
    pub(super) devices: BTreeMap<Device, DeviceRow>,
    pub(super) graphs: BTreeMap<String, Graph>,
    pub(super) lives: u64,
    /// Devices of which the relay itself has seen that they are revoked. It may remember that.
    pub(super) known_revoked: BTreeSet<Device>,
    /// Blobs of graphs whose erasure was cut off.
    pub(super) going: Vec<Going>,
    /// Live ones, the expired included until a sweep has been.
    pub(super) blobs: Vec<Blob>,
    /// Blobs that expired and were replaced: a sweep tells of them, at the latest an hour after.
    pub(super) doomed: Vec<(String, i64)>,
    pub(super) replies: BTreeMap<(Device, String, String), Reply>,
    /// By member and bucket: what is left, in 60,000ths of a request, and when that was.
    pub(super) allowances: BTreeMap<(String, &'static str), (u64, i64)>,
    /// When requests of a device were seen, and whether it was served.
    pub(super) seen: BTreeMap<Device, Vec<(i64, bool)>>,
    /// The earliest and the latest moment at which the directory may have been looked at last for
    /// a graph's rotation flag.
    pub(super) looks: BTreeMap<String, (i64, i64)>,
    pub(super) cursors: Vec<Cursor>,
    pub(super) tags: BTreeMap<String, Print>,
}

/// A long time ago.
pub(super) const NEVER: i64 = i64::MIN / 4;

/// An id within a storage key.
fn escaped(id: &str) -> String {
    id.replace('%', "%25").replace(':', "%3A")
}

/// The id that is written so within a storage key.
fn raw(id: &str) -> String {
    id.replace("%3A", ":").replace("%25", "%")
}

/// The two of a pair's key, or the one of an own graph's.
pub(super) fn sides(key: &str) -> BTreeSet<String> {
    let (_, rest) = key.split_once(':').expect("a storage key");
    rest.split(':').map(raw).collect()
}

/// The storage key of what `member` addresses as `address`; `None` for what is no address.
pub(super) fn storage_key(address: &str, member: &str) -> Option<String> {
    let (kind, id) = address.split_once(':')?;
    if id.is_empty() || id.trim() != id {
        return None;
    }
    match kind {
        "g" => Some(format!("g:{}", escaped(id))),
        "d" => {
            let (low, high) = if member <= id {
                (member, id)
            } else {
                (id, member)
            };
            Some(format!("d:{}:{}", escaped(low), escaped(high)))
        }
        _ => None,
    }
}

/// Milliseconds since 1970 as RFC 3339 in UTC with three decimals.
pub(super) fn rfc3339(at: i64) -> Value {
    let (days, millis) = (at.div_euclid(86_400_000), at.rem_euclid(86_400_000));
    // Years that begin in March have their leap day last.
    let z = days + 719_468;
    let (era, of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (millis / 3_600_000, millis / 60_000 % 60);
    let (second, milli) = (millis / 1_000 % 60, millis % 1_000);
    json!(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"
    ))
}

impl Model {
    pub(super) fn new(settings: Settings, now: i64, directory: Directory) -> Self {
        Self {
            settings,
            now,
            directory,
            devices: BTreeMap::new(),
            graphs: BTreeMap::new(),
            lives: 0,
            known_revoked: BTreeSet::new(),
            going: Vec::new(),
            blobs: Vec::new(),
            doomed: Vec::new(),
            replies: BTreeMap::new(),
            allowances: BTreeMap::new(),
            seen: BTreeMap::new(),
            looks: BTreeMap::new(),
            cursors: Vec::new(),
            tags: BTreeMap::new(),
        }
    }

    pub(super) fn is_active_member(&self, member: &str) -> bool {
        self.directory.members.get(member) == Some(&true)
    }

    pub(super) fn is_active_device(&self, device: &Device) -> bool {
        let row = self.devices.get(device);
        row.is_some_and(|row| row.revoked_at.is_none())
    }

    /// Whether `member` may use the graph that they address so (protocol, route 4 and 404).
    pub(super) fn may(&self, member: &str, address: &str) -> bool {
        let Some((kind, id)) = address.split_once(':') else {
            return false;
        };
        if kind == "g" {
            let group = self.directory.groups.get(id);
            group.is_some_and(|group| group.contains(member))
        } else {
            id == member || self.is_active_member(id)
        }
    }

    /// Everybody of a graph, active or not: the key's own two, or the group's.
    pub(super) fn members_of(&self, key: &str) -> BTreeSet<String> {
        match key.strip_prefix("g:") {
            Some(group) => {
                let group = self.directory.groups.get(&raw(group));
                group.cloned().unwrap_or_default()
            }
            None => sides(key),
        }
    }

    pub(super) fn active_members_of(&self, key: &str) -> BTreeSet<String> {
        let mut members = self.members_of(key);
        members.retain(|member| self.is_active_member(member));
        members
    }

    /// Every active device of every active member (protocol, route 6).
    pub(super) fn roster(&self, key: &str) -> BTreeSet<Device> {
        let members = self.active_members_of(key);
        let devices = self.devices.keys();
        devices
            .filter(|device| members.contains(&device.member) && self.is_active_device(device))
            .cloned()
            .collect()
    }

    /// What `member` calls the graph of this key; `None` for somebody whom it cannot concern.
    pub(super) fn address_for(&self, key: &str, member: &str) -> Option<String> {
        let (kind, rest) = key.split_once(':').expect("a storage key");
        if kind == "g" {
            return Some(format!("g:{}", raw(rest)));
        }
        let (low, high) = rest.split_once(':').expect("a pair's key");
        let (low, high) = (raw(low), raw(high));
        if low == member {
            Some(format!("d:{high}"))
        } else {
            (high == member).then(|| format!("d:{low}"))
        }
    }

    /// Why a holder is off the roster, if it is (protocol, route 5).
    pub(super) fn off_roster(&self, key: &str, device: &Device) -> Option<&'static str> {
        if !self.is_active_device(device) {
            Some("device_revoked")
        } else if !self.members_of(key).contains(&device.member) {
            Some("member_removed")
        } else if !self.is_active_member(&device.member) {
            Some("member_inactive")
        } else {
            None
        }
    }

    /// Whether a device of the current epoch was revoked: the flag is exact about that.
    pub(super) fn revocation_owes(&self, key: &str) -> bool {
        let holders = self.graphs[key].holders();
        holders
            .into_iter()
            .any(|device| !self.is_active_device(device))
    }

    fn directory_owes(&self, key: &str) -> bool {
        let why = |device| self.off_roster(key, device);
        let holders = self.graphs[key].holders();
        holders
            .into_iter()
            .any(|device| why(device).is_some_and(|reason| reason != "device_revoked"))
    }

    /// Notes for each graph what the directory makes it owe, after whatever may have changed it.
    pub(super) fn note_owed(&mut self) {
        let keys: Vec<_> = self.graphs.keys().cloned().collect();
        for key in keys {
            let owes = self.directory_owes(&key);
            let now = self.now;
            let graph = self.graphs.get_mut(&key).expect("just listed");
            if graph
                .directory_owes
                .last()
                .is_none_or(|(_, was)| *was != owes)
            {
                graph.directory_owes.push((now, owes));
            }
        }
    }

    /// The rotation flags that routes 4 and 11 may tell: exact for revocations, and for the
    /// directory what was so at any moment since the earliest one at which it may have been
    /// looked at last.
    pub(super) fn told_flags(&self, key: &str, since: i64) -> Vec<bool> {
        if self.revocation_owes(key) {
            return vec![true];
        }
        let history = &self.graphs[key].directory_owes;
        let before = history.iter().rposition(|(at, _)| *at < since).unwrap_or(0);
        let flags: BTreeSet<_> = history[before..].iter().map(|(_, owes)| *owes).collect();
        flags.into_iter().collect()
    }

    /// The directory is looked at: now for certain where the last look is a minute old.
    pub(super) fn look(&mut self, key: &str) {
        let (earliest, latest) = self.looks.get(key).copied().unwrap_or((NEVER, NEVER));
        if self.now - latest >= 60_000 {
            self.look_now(key);
        } else {
            let earliest = earliest.max(self.now - 60_000);
            self.looks.insert(key.to_owned(), (earliest, self.now));
        }
    }

    /// A pull that is refused for what it asks may have come as far as the directory.
    pub(super) fn may_have_looked(&mut self, key: &str) {
        let (earliest, _) = self.looks.get(key).copied().unwrap_or((NEVER, NEVER));
        self.looks.insert(key.to_owned(), (earliest, self.now));
    }

    pub(super) fn look_now(&mut self, key: &str) {
        self.looks.insert(key.to_owned(), (self.now, self.now));
        if let Some(graph) = self.graphs.get_mut(key) {
            let last = graph
                .directory_owes
                .pop()
                .expect("noted at its first rotate");
            graph.directory_owes = vec![(self.now, last.1)];
        }
    }

    /// The earliest moment of the last look, as route 4 knows it.
    pub(super) fn looked_since(&self, key: &str) -> i64 {
        self.looks.get(key).map_or(NEVER, |(earliest, _)| *earliest)
    }

    pub(super) fn blob_bytes(&self, key: &str) -> u64 {
        let blobs = self.blobs.iter().filter(|blob| blob.key == key);
        blobs.map(|blob| blob.bytes.len() as u64).sum()
    }

    /// Takes note of what the caller has in hand now.
    ///
    /// # Errors
    /// Where a tag does not tell apart what it must, or tells apart what is the same.
    pub(super) fn take_in(
        &mut self,
        learn: Learn,
        body: &Value,
        tag: Option<&str>,
    ) -> Result<(), String> {
        if let Some(mut cursor) = learn.cursor {
            cursor.text = body["cursor"].as_str().unwrap_or_default().to_owned();
            self.cursors.push(cursor);
        }
        let (Some(print), Some(tag)) = (learn.print, tag) else {
            return Ok(());
        };
        let same = |(known, of): (&String, &Print)| (known == tag) == (*of == print);
        if !self.tags.iter().all(same) {
            return Err(format!("the tag {tag} is not that of {print:?} alone"));
        }
        self.tags.insert(tag.to_owned(), print);
        Ok(())
    }

    /// The cursor that a call brings, as far as it is one of this list.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn cursor(
        &self,
        call: &Call,
        list: List,
        key: Option<&str>,
        only: Option<u64>,
    ) -> Result<Option<&Cursor>, &'static str> {
        let Some(text) = call.param("cursor") else {
            return Ok(None);
        };
        let Some(cursor) = self.cursors.iter().rev().find(|cursor| cursor.text == text) else {
            return Err("malformed");
        };
        if cursor.list == list && cursor.key.as_deref() == key && cursor.only == only {
            Ok(Some(cursor))
        } else {
            Err("foreign")
        }
    }
}
