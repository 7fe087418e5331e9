//! A graph in memory that takes and gives what a relay would, in the order in which it would.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use argala_wire::{
    BlobId, Code, DeviceId, MemberId, Problem, RecordId, Timestamp, devices::DeviceRef,
    records::PushReason,
};

use super::fuel::Fuel;
use crate::{
    Error, Item, Outcome, Position, Pulled, Refusal, Refused, Write,
    sync::{ContentHash, Page, Part, Remote, Start, payload},
};

/// The most bytes of a file in its record, and of a part: so small that files have several.
pub(super) const INLINE: usize = 16;
/// How many records a page holds.
const PAGE: usize = 3;

#[derive(Clone, Default)]
pub(super) struct Relay {
    records: BTreeMap<RecordId, Item>,
    head: u64,
    blobs: BTreeMap<BlobId, Vec<u8>>,
    /// Grows when it is restored from a backup: cursors of the time before are void.
    incarnation: u64,
    /// Records with a seq up to this of which the tombstones are swept.
    floor: u64,
    /// Ids handed out, and secrets.
    made: u64,
    pub(super) mood: Mood,
}

/// What the relay does not do just now.
#[derive(Clone, Default)]
pub(super) struct Mood {
    /// It takes no new record.
    pub(super) full: bool,
    /// It takes no blob.
    pub(super) no_room: bool,
    /// The devices lack the current key.
    pub(super) behind: bool,
    /// The devices lack the key of every record with a seq in this range.
    pub(super) withheld: std::ops::Range<u64>,
    /// It says that it has no blob.
    pub(super) denies: bool,
    /// No signature is good of a record with a seq in this range.
    pub(super) forged: std::ops::Range<u64>,
}

impl Relay {
    /// Goes back to `backup`.
    pub(super) fn restore(&mut self, backup: &Self) {
        let made = self.made;
        let incarnation = self.incarnation + 1;
        let mut blobs = std::mem::take(&mut self.blobs);
        blobs.extend(backup.blobs.clone());
        *self = Self {
            made,
            incarnation,
            blobs,
            ..backup.clone()
        };
    }

    /// Loses the bytes of every blob, as no relay should.
    pub(super) fn lose_blobs(&mut self) {
        self.blobs.clear();
    }

    /// The newest seq.
    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// Forgets every tombstone.
    pub(super) fn sweep(&mut self) {
        self.floor = self.head;
        self.records.retain(|_, item| !item.deleted);
    }

    /// Blobs that live records name, and blobs that there are.
    pub(super) fn blobs(&self) -> (BTreeSet<BlobId>, BTreeSet<BlobId>) {
        let mut named = BTreeSet::new();
        let folder = self.records.get(&payload::folder_id());
        if let Some(secret) = folder.and_then(|item| payload::decode_folder(&item.body)) {
            for item in self.records.values() {
                if let Ok(record) =
                    payload::decode_file(&secret, &item.id, item.deleted, &item.body)
                    && let Some((_, bytes)) = record.file
                {
                    named.extend(bytes.parts().iter().map(|part| part.blob.clone()));
                }
            }
        }
        (named, self.blobs.keys().cloned().collect())
    }

    fn pull(&self, position: &Position) -> Page {
        let (incarnation, began, seq) = (position.cursor.as_deref())
            .and_then(|cursor| {
                let mut parts = cursor.split(' ').map(|part| part.parse().unwrap_or(0));
                Some((parts.next()?, parts.next()?, parts.next()?))
            })
            .unwrap_or((self.incarnation, self.head, 0));
        let (start, began, seq) = if incarnation != self.incarnation {
            (Start::Unsure, self.head, 0)
        } else if position.is_start() || self.floor > began.max(seq) {
            (Start::Anew, self.head, 0)
        } else {
            (Start::No, began, seq)
        };
        let mut after: Vec<&Item> = self.records.values().filter(|i| i.seq > seq).collect();
        after.sort_by_key(|item| item.seq);
        let all = after.len();
        after.retain(|item| !self.mood.withheld.contains(&item.seq));
        let filtered = (all - after.len()) as u64;
        let more = after.len() > PAGE;
        after.truncate(PAGE);
        let to = after.last().map_or(self.head.max(seq), |item| item.seq);
        let cursor = Some(format!("{} {began} {to}", self.incarnation));
        let (forged, items): (Vec<Item>, Vec<Item>) =
            (after.into_iter().cloned()).partition(|item| self.mood.forged.contains(&item.seq));
        let refused = (forged.into_iter())
            .map(|item| Refused {
                id: item.id,
                seq: item.seq,
                by: item.by,
                why: Refusal::SignatureInvalid,
            })
            .collect();
        Page {
            pulled: Pulled {
                items,
                refused,
                position: Position {
                    cursor,
                    ..Position::default()
                },
                more,
                from_start: start != Start::No,
                filtered,
                head: self.head,
                behind: self.mood.behind,
            },
            start,
        }
    }

    pub(super) fn push(&mut self, by: &DeviceRef, write: &Write) -> Outcome {
        let seq = self.records.get(&write.id).map_or(0, |item| item.seq);
        if self.mood.behind {
            return Outcome::KeysBehind;
        }
        if write.expect.is_some_and(|expect| expect != seq) {
            return Outcome::Refused(Refusal::Relay(PushReason::Conflict { seq }));
        }
        if self.mood.full && seq == 0 {
            let limit = self.records.len() as u64;
            return Outcome::Refused(Refusal::Relay(PushReason::QuotaRecords { limit }));
        }
        self.head += 1;
        let item = Item {
            id: write.id.clone(),
            seq: self.head,
            epoch: 1,
            by: by.clone(),
            at: Timestamp::from_millis(0),
            kind: write.kind.clone(),
            body: write.body.clone(),
            deleted: write.deleted,
        };
        self.records.insert(write.id.clone(), item);
        Outcome::Accepted { seq: self.head }
    }
}

/// One device's way to it.
pub(super) struct SimRemote {
    pub(super) relay: Rc<RefCell<Relay>>,
    pub(super) fuel: Fuel,
    device: DeviceRef,
}

impl SimRemote {
    pub(super) fn new(relay: Rc<RefCell<Relay>>, fuel: Fuel, device: usize) -> Self {
        Self {
            relay,
            fuel,
            device: DeviceRef {
                member_id: MemberId::new("sam").expect("legal"),
                device_id: DeviceId::new(format!("d{device}")).expect("legal"),
            },
        }
    }

    async fn step(&self) -> Result<(), Error> {
        let cut = |_| Error::Offline("cut".to_owned());
        self.fuel.step().await.map_err(cut)
    }

    fn made(&self) -> u64 {
        let mut relay = self.relay.borrow_mut();
        relay.made += 1;
        relay.made
    }
}

fn problem(code: Code) -> Error {
    Error::Relay(Box::new(Problem::new(code, "simulated")))
}

impl Remote for SimRemote {
    fn device(&self) -> &str {
        self.device.device_id.as_str()
    }

    fn is_own(&self, by: &DeviceRef) -> bool {
        *by == self.device
    }

    fn inline_bytes(&self) -> usize {
        INLINE
    }

    fn part_bytes(&self) -> usize {
        INLINE
    }

    async fn pull(&mut self, position: &Position) -> Result<Page, Error> {
        self.step().await?;
        let page = self.relay.borrow().pull(position);
        Ok(page)
    }

    async fn push(&mut self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        self.step().await?;
        let outcomes = {
            let mut relay = self.relay.borrow_mut();
            let by = &self.device;
            writes.iter().map(|write| relay.push(by, write)).collect()
        };
        // Cut off here, it was taken, and nobody heard.
        self.step().await?;
        Ok(outcomes)
    }

    async fn put_part(&mut self, blob: &BlobId, bytes: &[u8]) -> Result<(), Error> {
        self.step().await?;
        {
            let mut relay = self.relay.borrow_mut();
            if relay.mood.no_room {
                return Err(problem(Code::QuotaExceeded));
            }
            match relay.blobs.get(blob) {
                Some(there) if there != bytes => return Err(problem(Code::BlobExists)),
                Some(_) => {}
                None => {
                    relay.blobs.insert(blob.clone(), bytes.to_vec());
                }
            }
        }
        self.step().await
    }

    async fn get_part(&mut self, part: &Part) -> Result<Vec<u8>, Error> {
        self.step().await?;
        let relay = self.relay.borrow();
        let bytes = relay.blobs.get(&part.blob).cloned();
        let bytes = bytes.filter(|_| !relay.mood.denies);
        let bytes = bytes.ok_or_else(|| problem(Code::BlobNotFound))?;
        if ContentHash::of(&bytes) == part.hash {
            Ok(bytes)
        } else {
            Err(Error::Unreadable("the part"))
        }
    }

    async fn forget_blob(&mut self, blob: &BlobId) -> Result<(), Error> {
        self.step().await?;
        self.relay.borrow_mut().blobs.remove(blob);
        self.step().await
    }

    fn new_blob_id(&mut self) -> BlobId {
        BlobId::new(format!("blob-{:016}", self.made())).expect("legal")
    }

    fn new_secret(&mut self) -> [u8; 32] {
        [u8::try_from(self.made() % 256).expect("a byte"); 32]
    }
}
