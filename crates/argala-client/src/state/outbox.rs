//! Writes that wait to be pushed, and records that were refused.
//!
//! A write is on disk before it is sent, and leaves the disk when the relay has taken it. Bodies
//! are sealed with a key that lies in the key file. The request that is under way is kept as it
//! was encoded, so that after a crash the very same bytes are sent under the very same key, and
//! the relay tells what became of them.

use std::{fs, io, path::PathBuf};

use argala_wire::{RecordId, Sealed, devices::DeviceRef};
use serde::{Deserialize, Serialize};

use crate::{access::Kind, error::Error, files};

/// One write that waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) number: u64,
    pub(crate) id: RecordId,
    pub(crate) kind: Kind,
    /// Sealed with the key file's secret.
    pub(crate) body: Sealed,
    #[serde(default)]
    pub(crate) deleted: bool,
    #[serde(default)]
    pub(crate) expect: Option<u64>,
}

/// A request under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sending {
    pub(crate) key: String,
    pub(crate) cbor: bool,
    pub(crate) body: Sealed,
    /// The numbers of the held writes that it carries, in the order sent.
    pub(crate) numbers: Vec<u64>,
    /// The counter of the first of them; the others follow.
    pub(crate) counter: u64,
}

/// On which way a record was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// As this device pushed it: what it says is kept here alone.
    Push,
    /// As this device pulled it: the relay still has it.
    Pull,
}

/// A record that was refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rejected {
    /// On which way.
    pub direction: Direction,
    /// The item.
    pub id: RecordId,
    /// Why: the name of a [`Refusal`](crate::Refusal).
    pub reason: String,
    /// The ceiling, epoch or seq that the reason comes with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<u64>,
    /// Pulled: the seq that the relay gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Pulled: the device that the relay names as its pusher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<DeviceRef>,
    /// Pushed: the write, to be sent again or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) write: Option<Held>,
}

/// The writes of one graph that wait, and its records that were refused.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Outbox {
    #[serde(skip)]
    path: Option<PathBuf>,
    next: u64,
    pub(crate) held: Vec<Held>,
    pub(crate) sending: Option<Sending>,
    rejected: Vec<Rejected>,
    /// Pulled records that were refused beyond those that are listed.
    unlisted: u64,
}

/// How many refused pulled records are listed; the relay has all of them.
const LISTED: usize = 1_000;

const WHAT: &str = "the list of writes that wait";

impl Outbox {
    pub(super) fn read(path: Option<PathBuf>) -> Result<Self, Error> {
        let bytes = match path.as_ref().map(fs::read) {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(WHAT)(error));
            }
            _ => b"{}".to_vec(),
        };
        let mut outbox: Self = serde_json::from_slice(&bytes)
            .map_err(|why| Error::io(WHAT)(io::Error::new(io::ErrorKind::InvalidData, why)))?;
        outbox.path = path;
        Ok(outbox)
    }

    pub(crate) fn save(&self) -> Result<(), Error> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let bytes = serde_json::to_vec(self).expect("our own types have a JSON form");
        files::write(path, &bytes).map_err(Error::io(WHAT))
    }

    /// The number of the next write to be held.
    pub(crate) fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// How many writes wait.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The records that were refused and not taken since: every one that was pushed, and the first
    /// thousand of those that were pulled.
    #[must_use]
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// How many records were refused and not taken since.
    #[must_use]
    pub fn rejected_count(&self) -> u64 {
        self.rejected.len() as u64 + self.unlisted
    }

    /// Keeps a refused record in sight, in place of what was refused of the same item before on
    /// the way in.
    pub(crate) fn reject(&mut self, rejected: Rejected) {
        if rejected.direction == Direction::Pull {
            self.pulled_well(&rejected.id);
            if self.pulled() >= LISTED {
                self.unlisted += 1;
                return;
            }
        }
        self.rejected.push(rejected);
    }

    fn pulled(&self) -> usize {
        let pulled = |rejected: &&Rejected| rejected.direction == Direction::Pull;
        self.rejected.iter().filter(pulled).count()
    }

    /// Forgets what was refused on the way in, everything being about to come again; `true` where
    /// there was something to forget.
    pub(crate) fn pull_anew(&mut self) -> bool {
        let before = self.rejected_count();
        self.unlisted = 0;
        self.rejected
            .retain(|rejected| rejected.direction != Direction::Pull);
        self.rejected_count() < before
    }

    /// Forgets what was refused of an item on the way in, a good version of it having come;
    /// `true` where there was something to forget.
    pub(crate) fn pulled_well(&mut self, id: &RecordId) -> bool {
        let before = self.rejected.len();
        self.rejected
            .retain(|rejected| rejected.direction != Direction::Pull || rejected.id != *id);
        self.rejected.len() < before
    }

    /// Puts refused writes back among those that wait, in the order in which they were made.
    pub(crate) fn try_rejected_again(&mut self) -> usize {
        let before = self.held.len();
        let rejected = std::mem::take(&mut self.rejected);
        for mut rejected in rejected {
            match rejected.write.take() {
                Some(write) => self.held.push(write),
                None => self.rejected.push(rejected),
            }
        }
        self.held.sort_by_key(|held| held.number);
        self.held.len() - before
    }

    /// Forgets every refused record; whoever calls this has been told what is lost.
    pub(crate) fn forget_rejected(&mut self) -> u64 {
        let count = self.rejected_count();
        self.rejected.clear();
        self.unlisted = 0;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RecordId {
        RecordId::new(text).expect("legal")
    }

    fn held(number: u64) -> Held {
        Held {
            number,
            id: id("a"),
            kind: Kind::new("note").expect("legal"),
            body: Sealed(vec![1]),
            deleted: false,
            expect: None,
        }
    }

    fn rejected(direction: Direction, name: &str, write: Option<Held>) -> Rejected {
        Rejected {
            direction,
            id: id(name),
            reason: "quota_bytes".to_owned(),
            detail: None,
            seq: None,
            by: None,
            write,
        }
    }

    #[test]
    fn what_waits_is_there_after_a_restart() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("outbox");
        let mut outbox = Outbox::read(Some(path.clone())).expect("new");
        let number = outbox.take_number();
        outbox.held.push(held(number));
        outbox.save().expect("writes");
        let mut outbox = Outbox::read(Some(path.clone())).expect("reads");
        assert_eq!(outbox.held(), 1);
        assert_eq!(outbox.take_number(), number + 1);
        fs::write(&path, b"{").expect("writes");
        assert!(matches!(Outbox::read(Some(path)), Err(Error::Io { .. })));
    }

    #[test]
    fn refused_writes_come_back_in_their_order_and_pulled_ones_stay() {
        let mut outbox = Outbox::default();
        outbox.held.push(held(2));
        outbox.reject(rejected(Direction::Push, "a", Some(held(3))));
        outbox.reject(rejected(Direction::Push, "a", Some(held(1))));
        outbox.reject(rejected(Direction::Pull, "a", None));
        outbox.reject(rejected(Direction::Pull, "a", None));
        assert_eq!(outbox.rejected().len(), 3);
        assert_eq!(outbox.try_rejected_again(), 2);
        let numbers: Vec<u64> = outbox.held.iter().map(|held| held.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(outbox.rejected().len(), 1);
        assert!(outbox.pulled_well(&id("a")));
        assert!(!outbox.pulled_well(&id("a")));
    }

    #[test]
    fn the_list_of_refused_records_is_bounded_and_their_count_is_not() {
        let mut outbox = Outbox::default();
        outbox.reject(rejected(Direction::Push, "a", Some(held(1))));
        for n in 0..2 * LISTED {
            outbox.reject(rejected(Direction::Pull, &n.to_string(), None));
        }
        assert_eq!(outbox.rejected().len(), LISTED + 1);
        assert_eq!(outbox.rejected_count(), 2 * LISTED as u64 + 1);
        assert!(outbox.pull_anew() && !outbox.pull_anew());
        assert_eq!(outbox.rejected_count(), 1);
    }
}
