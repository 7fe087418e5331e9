//! The state file: a snapshot, and a journal of what has changed since.
//!
//! A sync of a quarter of a million files remembers something new a quarter of a million times;
//! writing everything each time would take longer than the sync. So each change is one line of the
//! journal, and when the journal has grown long, the next run begins by writing a new snapshot.
//! Both lie in `.argala-sync`, readable by their owner alone.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::PathBuf,
    rc::Rc,
};

use rustix::{
    fs::{self, AtFlags, Mode, OFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    disk::Own,
    error::SyncError,
    state::{State, StateOp, StateStore},
};

const VERSION: u64 = 1;
const SNAPSHOT: &str = "state.json";
const UNFINISHED: &str = "state.json.new";
/// The length at which a journal is folded into a snapshot, if the snapshot is not far longer.
const LONG: u64 = 256 * 1024;

#[derive(Serialize, Deserialize)]
struct Snapshot {
    v: u64,
    /// Which journal goes on from here. A journal of another generation is part of the snapshot
    /// already.
    generation: u64,
    state: State,
}

/// The version alone: of a newer snapshot nothing else need be readable.
#[derive(Deserialize)]
struct Version {
    v: u64,
}

/// The state of one folder, on disk.
pub struct Journal {
    own: Option<Rc<Own>>,
    /// For messages.
    path: PathBuf,
    dry_run: bool,
    generation: u64,
    file: Option<File>,
}

fn disk(what: &'static str) -> impl FnOnce(Errno) -> SyncError {
    move |errno| SyncError::disk(what)(errno.into())
}

impl Journal {
    pub(super) fn new(own: Option<Rc<Own>>, path: PathBuf, dry_run: bool) -> Self {
        Self {
            own,
            path,
            dry_run,
            generation: 0,
            file: None,
        }
    }

    fn damaged(&self) -> SyncError {
        SyncError::Damaged(self.path.display().to_string())
    }

    fn read(own: &Own, name: &str) -> Result<Option<Vec<u8>>, SyncError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(&own.folder, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(disk("reading the sync state")(errno)),
            Ok(file) => {
                let mut bytes = Vec::new();
                File::from(file)
                    .read_to_end(&mut bytes)
                    .map_err(SyncError::disk("reading the sync state"))?;
                Ok(Some(bytes))
            }
        }
    }

    fn write_snapshot(&mut self, own: &Own, state: &State) -> Result<(), SyncError> {
        let snapshot = Snapshot {
            v: VERSION,
            generation: self.generation + 1,
            state: state.clone(),
        };
        let writing = || SyncError::disk("writing the sync state");
        let bytes = serde_json::to_vec(&snapshot).map_err(|e| writing()(io::Error::other(e)))?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&own.folder, UNFINISHED, flags, Mode::from_raw_mode(0o600));
        let mut file = File::from(file.map_err(disk("writing the sync state"))?);
        file.write_all(&bytes).map_err(writing())?;
        file.sync_all().map_err(writing())?;
        fs::renameat(&own.folder, UNFINISHED, &own.folder, SNAPSHOT)
            .and_then(|()| fs::fsync(&own.folder))
            .map_err(disk("writing the sync state"))?;
        // What the snapshot holds already is of no use; left behind, it is not read.
        let _ = fs::unlinkat(&own.folder, &*name(self.generation), AtFlags::empty());
        self.generation += 1;
        Ok(())
    }

    /// Opens the journal to append to it, cut where its last whole line ends.
    fn open_journal(&self, own: &Own, whole: u64) -> Result<File, SyncError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opening = "opening the sync journal";
        let mode = Mode::from_raw_mode(0o600);
        let file = fs::openat(&own.folder, &*name(self.generation), flags, mode);
        let file = File::from(file.map_err(disk(opening))?);
        file.set_len(whole).map_err(SyncError::disk(opening))?;
        fs::fsync(&own.folder).map_err(disk(opening))?;
        Ok(file)
    }
}

fn name(generation: u64) -> String {
    format!("journal.{generation}")
}

/// Applies the lines of a journal. Answers with the bytes that are whole.
///
/// It ends at the first line that is not whole: a crash tears the last one, and a loss of power
/// may tear some before it that were never promised to survive.
fn replay(state: &mut State, journal: &[u8]) -> u64 {
    let mut whole = 0;
    for line in journal.split_inclusive(|b| *b == b'\n') {
        let op = line
            .strip_suffix(b"\n")
            .and_then(|line| serde_json::from_slice::<StateOp>(line).ok());
        let Some(op) = op else {
            break;
        };
        state.apply(op);
        whole += line.len() as u64;
    }
    whole
}

impl StateStore for Journal {
    fn load(&mut self) -> Result<State, SyncError> {
        let Some(own) = self.own.clone() else {
            return Ok(State::default());
        };
        let mut state = State::default();
        let mut snapshot_bytes = 0;
        self.generation = 0;
        if let Some(bytes) = Self::read(&own, SNAPSHOT)? {
            let version: Version = serde_json::from_slice(&bytes).map_err(|_| self.damaged())?;
            if version.v != VERSION {
                return Err(SyncError::Newer);
            }
            let snapshot: Snapshot = serde_json::from_slice(&bytes).map_err(|_| self.damaged())?;
            self.generation = snapshot.generation;
            state = snapshot.state;
            snapshot_bytes = bytes.len() as u64;
        }
        let journal = Self::read(&own, &name(self.generation))?.unwrap_or_default();
        let mut whole = replay(&mut state, &journal);
        if self.dry_run {
            return Ok(state);
        }
        if whole > LONG.max(snapshot_bytes / 2) {
            self.write_snapshot(&own, &state)?;
            whole = 0;
        }
        self.file = Some(self.open_journal(&own, whole)?);
        Ok(state)
    }

    fn append(&mut self, ops: &[StateOp], durable: bool) -> Result<(), SyncError> {
        let writing = || SyncError::disk("writing the sync journal");
        let Some(file) = &mut self.file else {
            return Err(writing()(io::Error::other("it was not loaded")));
        };
        let mut lines = Vec::new();
        for op in ops {
            serde_json::to_writer(&mut lines, op).map_err(|e| writing()(io::Error::other(e)))?;
            lines.push(b'\n');
        }
        file.write_all(&lines).map_err(writing())?;
        if durable {
            file.sync_data().map_err(writing())?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
