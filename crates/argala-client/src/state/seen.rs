//! Which versions of which items have been seen: what a relay's replay of an older one is held
//! against.
//!
//! Every record carries its writer's counter, sealed and signed, which no device uses twice. A
//! version is news where its writer's counter is above all that were seen of that writer for the
//! item. It is a replay where it is below one, or equal to one that another version has replaced
//! since. Several writers may well overwrite each other in any order: no order between *their*
//! counters is asked for.
//!
//! The file is a list of lines that only grows, one for each version seen, and is written anew
//! when most of it has been replaced. A last line without an end, cut off by a crash, is passed
//! over; its record comes again with the page that it was on.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
};

use argala_wire::{RecordId, devices::DeviceRef};
use serde::{Deserialize, Serialize};

use crate::{error::Error, files};

/// What a version of an item is to one who has seen those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// Not seen before.
    New,
    /// The version that was seen last.
    Same,
    /// One that was seen and replaced, or one older than that.
    Replayed,
}

#[derive(Serialize, Deserialize)]
struct Line {
    i: RecordId,
    d: DeviceRef,
    n: u64,
}

#[derive(Default)]
struct Versions {
    /// Writer and counter of the version seen last.
    last: (u32, u64),
    /// Other writers' highest counters.
    others: Vec<(u32, u64)>,
}

impl Versions {
    fn highest(&self, writer: u32) -> Option<u64> {
        if self.last.0 == writer {
            return Some(self.last.1);
        }
        let other = self.others.iter().find(|other| other.0 == writer);
        other.map(|other| other.1)
    }

    fn note(&mut self, writer: u32, counter: u64) {
        if self.last.0 != writer {
            self.others.retain(|other| other.0 != writer);
            self.others.push(self.last);
        }
        self.last = (writer, counter);
    }
}

/// The versions seen of one graph.
#[derive(Default)]
pub(crate) struct SeenLog {
    path: Option<PathBuf>,
    writers: Vec<DeviceRef>,
    numbers: HashMap<DeviceRef, u32>,
    items: HashMap<RecordId, Versions>,
    /// Lines to be written with the next [`commit`](Self::commit).
    pending: Vec<u8>,
    lines: usize,
}

const WHAT: &str = "the list of versions seen";
/// Below so many lines the file is not worth writing anew.
const FEW: usize = 1_000;

impl SeenLog {
    pub(super) fn read(path: Option<PathBuf>) -> Result<Self, Error> {
        let mut log = Self::default();
        let bytes = match path.as_ref().map(fs::read) {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(WHAT)(error));
            }
            _ => Vec::new(),
        };
        let whole = bytes
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |end| end + 1);
        for line in bytes[..whole].split(|&b| b == b'\n') {
            // A line that is none can only be the cut-off one of a crash before the last.
            if let Ok(Line { i, d, n }) = serde_json::from_slice(line) {
                log.remember(i, &d, n);
                log.lines += 1;
            }
        }
        log.path = path;
        let versions: usize = log.items.values().map(|item| 1 + item.others.len()).sum();
        if whole < bytes.len() || log.lines > FEW + 2 * versions {
            log.rewrite()?;
        }
        Ok(log)
    }

    fn number(&mut self, writer: &DeviceRef) -> u32 {
        if let Some(&number) = self.numbers.get(writer) {
            return number;
        }
        let number = u32::try_from(self.writers.len()).expect("few devices write to a graph");
        self.writers.push(writer.clone());
        self.numbers.insert(writer.clone(), number);
        number
    }

    fn remember(&mut self, id: RecordId, by: &DeviceRef, counter: u64) {
        let writer = self.number(by);
        let last = (writer, counter);
        self.items
            .entry(id)
            .and_modify(|item| item.note(writer, counter))
            .or_insert_with(|| Versions {
                last,
                others: Vec::new(),
            });
    }

    /// What the version of an item that `by` sealed under `counter` is.
    pub(crate) fn look(&self, id: &RecordId, by: &DeviceRef, counter: u64) -> News {
        let (Some(item), Some(&writer)) = (self.items.get(id), self.numbers.get(by)) else {
            return News::New;
        };
        match item.highest(writer) {
            Some(highest) if counter < highest => News::Replayed,
            Some(highest) if counter > highest => News::New,
            Some(_) if item.last == (writer, counter) => News::Same,
            Some(_) => News::Replayed,
            None => News::New,
        }
    }

    /// Remembers a version that is news; kept by [`commit`](Self::commit).
    pub(crate) fn note(&mut self, id: &RecordId, by: &DeviceRef, counter: u64) {
        let line = Line {
            i: id.clone(),
            d: by.clone(),
            n: counter,
        };
        self.pending
            .extend(serde_json::to_vec(&line).expect("our own types have a JSON form"));
        self.pending.push(b'\n');
        self.lines += 1;
        self.remember(line.i, by, counter);
    }

    /// Writes what was noted; durable once this returns.
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        if let Some(path) = self.path.as_ref().filter(|_| !self.pending.is_empty()) {
            let write = |mut file: File| {
                file.write_all(&self.pending)?;
                file.sync_data()
            };
            files::append(path)
                .and_then(write)
                .map_err(Error::io(WHAT))?;
        }
        self.pending.clear();
        Ok(())
    }

    fn rewrite(&mut self) -> Result<(), Error> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let mut out = Vec::new();
        let mut lines = 0;
        for (id, item) in &self.items {
            // The last one last, so that reading it back makes it the last again.
            for (writer, counter) in item.others.iter().chain([&item.last]) {
                let line = Line {
                    i: id.clone(),
                    d: self.writers[*writer as usize].clone(),
                    n: *counter,
                };
                serde_json::to_writer(&mut out, &line).expect("our own types have a JSON form");
                out.push(b'\n');
                lines += 1;
            }
        }
        files::write(path, &out).map_err(Error::io(WHAT))?;
        self.lines = lines;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use argala_wire::{DeviceId, MemberId};
    use proptest::prelude::*;

    use super::*;

    fn device(name: &str) -> DeviceRef {
        DeviceRef {
            member_id: MemberId::new("sam").expect("legal"),
            device_id: DeviceId::new(name).expect("legal"),
        }
    }

    fn id(text: &str) -> RecordId {
        RecordId::new(text).expect("legal")
    }

    #[test]
    fn an_older_version_is_no_news() {
        let mut log = SeenLog::default();
        let (one, two) = (device("one"), device("two"));
        assert_eq!(log.look(&id("a"), &one, 5), News::New);
        log.note(&id("a"), &one, 5);
        assert_eq!(log.look(&id("a"), &one, 5), News::Same);
        assert_eq!(log.look(&id("a"), &one, 4), News::Replayed);
        assert_eq!(log.look(&id("b"), &one, 4), News::New);
        // Another writer's counter says nothing about this one's.
        assert_eq!(log.look(&id("a"), &two, 1), News::New);
        log.note(&id("a"), &two, 1);
        assert_eq!(log.look(&id("a"), &one, 5), News::Replayed);
        assert_eq!(log.look(&id("a"), &one, 6), News::New);
        assert_eq!(log.look(&id("a"), &two, 1), News::Same);
    }

    #[test]
    fn a_line_cut_off_by_a_crash_is_passed_over() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("seen");
        let mut log = SeenLog::read(Some(path.clone())).expect("new");
        log.note(&id("a"), &device("one"), 1);
        log.note(&id("b"), &device("one"), 2);
        log.commit().expect("writes");
        let bytes = fs::read(&path).expect("there");
        fs::write(&path, &bytes[..bytes.len() - 3]).expect("writes");
        let mut log = SeenLog::read(Some(path.clone())).expect("reads");
        assert_eq!(log.look(&id("a"), &device("one"), 1), News::Same);
        assert_eq!(log.look(&id("b"), &device("one"), 2), News::New);
        log.note(&id("b"), &device("one"), 2);
        log.commit().expect("writes");
        let log = SeenLog::read(Some(path)).expect("reads");
        assert_eq!(log.look(&id("b"), &device("one"), 2), News::Same);
    }

    #[test]
    fn a_file_of_replaced_versions_is_written_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("seen");
        let mut log = SeenLog::read(Some(path.clone())).expect("new");
        for n in 1..=3_000 {
            log.note(&id("a"), &device("one"), n);
        }
        log.commit().expect("writes");
        let log = SeenLog::read(Some(path.clone())).expect("reads");
        assert_eq!(log.lines, 1);
        assert_eq!(
            fs::read(&path)
                .expect("there")
                .split(|&b| b == b'\n')
                .count(),
            2
        );
        assert_eq!(log.look(&id("a"), &device("one"), 2_999), News::Replayed);
        assert_eq!(log.look(&id("a"), &device("one"), 3_000), News::Same);
    }

    proptest! {
        /// Whatever devices write, in whatever order they meet: what they wrote is news once and
        /// never after it was replaced, and the file says the same as the memory.
        #[test]
        fn honest_writers_are_believed_and_replays_are_not(
            writes in prop::collection::vec((0_usize..3, 0_usize..2), 1..40),
        ) {
            let dir = tempfile::tempdir().expect("a folder");
            let path = dir.path().join("seen");
            let mut log = SeenLog::read(Some(path.clone())).expect("new");
            let writers = ["one", "two", "three"].map(device);
            let ids = ["a", "b"].map(id);
            let mut counters = [0_u64; 3];
            let mut past: Vec<(usize, usize, u64)> = Vec::new();
            for (writer, item) in writes {
                counters[writer] += 1;
                let now = (writer, item, counters[writer]);
                prop_assert_eq!(log.look(&ids[item], &writers[writer], now.2), News::New);
                log.note(&ids[item], &writers[writer], now.2);
                for &(w, i, n) in &past {
                    if i == item {
                        prop_assert_eq!(log.look(&ids[i], &writers[w], n), News::Replayed);
                    }
                }
                past.push(now);
            }
            log.commit().expect("writes");
            let read = SeenLog::read(Some(path)).expect("reads");
            for &(w, i, n) in &past {
                let (id, by) = (&ids[i], &writers[w]);
                prop_assert_eq!(read.look(id, by, n), log.look(id, by, n));
            }
        }
    }
}
