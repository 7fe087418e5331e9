//! Three devices, one graph, and somebody who keeps book of what must not be lost.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use super::{
    disk::{Disk, SimTree},
    fuel::Fuel,
    memory::{Memory, SimStore},
    relay::{Relay, SimRemote},
};
use crate::sync::{Options, RelPath, Report, Silent, SyncError, sync};

type Running = Pin<Box<dyn Future<Output = Result<Report, SyncError>>>>;

pub(super) struct Device {
    pub(super) disk: Rc<RefCell<Disk>>,
    pub(super) memory: Rc<RefCell<Memory>>,
    fuel: Fuel,
    running: Option<Running>,
    /// Whether being cut off is a loss of power, rather than the end of a process.
    power: bool,
    may_fail: bool,
}

pub(super) struct World {
    pub(super) devices: Vec<Device>,
    pub(super) relay: Rc<RefCell<Relay>>,
    /// Whether the next syncs are to push over versions whose parts are not there.
    pub(super) replace_broken: bool,
    backup: Relay,
    /// Every content that somebody wrote.
    written: BTreeSet<Vec<u8>>,
    /// Contents that somebody who saw them replaced or deleted: nobody is owed these.
    dismissed: BTreeSet<Vec<u8>>,
}

/// What is at each path, as a device understands its folder.
pub(super) type Files = BTreeMap<RelPath, Vec<u8>>;

impl World {
    pub(super) fn new(folds: [bool; 3]) -> Self {
        let devices = folds.map(|folds| Device {
            disk: Rc::new(RefCell::new(Disk::new(folds))),
            memory: Rc::default(),
            fuel: Fuel::default(),
            running: None,
            power: false,
            may_fail: false,
        });
        Self {
            devices: devices.into(),
            relay: Rc::default(),
            replace_broken: false,
            backup: Relay::default(),
            written: BTreeSet::new(),
            dismissed: BTreeSet::new(),
        }
    }

    /// Somebody writes a file; long ones do not fit a record.
    pub(super) fn write(&mut self, device: usize, path: &RelPath, long: bool) {
        let number = self.written.len();
        let bytes = if long {
            format!("{number:08} and so on and on and on and on")
        } else {
            format!("{number:08}")
        };
        let bytes = bytes.into_bytes();
        let disk = self.devices[device].disk.clone();
        let before = disk.borrow().bytes(path);
        let written = disk.borrow_mut().write(path, bytes.clone(), false);
        if written.is_some() {
            self.dismissed.extend(before);
            self.written.insert(bytes);
        }
    }

    fn pick(&self, device: usize, nth: usize) -> Option<RelPath> {
        let files = self.devices[device].disk.borrow().files();
        let nth = nth.checked_rem(files.len())?;
        files.into_keys().nth(nth)
    }

    pub(super) fn delete(&mut self, device: usize, nth: usize) {
        if let Some(path) = self.pick(device, nth) {
            let mut disk = self.devices[device].disk.borrow_mut();
            self.dismissed.extend(disk.bytes(&path));
            disk.remove(&path);
        }
    }

    pub(super) fn rename(&mut self, device: usize, nth: usize, to: &RelPath) {
        let Some(from) = self.pick(device, nth) else {
            return;
        };
        let mut disk = self.devices[device].disk.borrow_mut();
        let (moved, replaced) = (disk.bytes(&from), disk.bytes(to));
        if disk.rename(&from, to) && replaced != moved {
            self.dismissed.extend(replaced);
        }
    }

    pub(super) fn flip(&mut self, device: usize, nth: usize) {
        if let Some(path) = self.pick(device, nth) {
            let mut disk = self.devices[device].disk.borrow_mut();
            disk.flip_executable(&path);
        }
    }

    pub(super) fn back_up(&mut self) {
        self.backup = self.relay.borrow().clone();
    }

    pub(super) fn restore(&mut self) {
        let backup = self.backup.clone();
        // While it is restored nobody reaches it.
        for device in &mut self.devices {
            device.running = None;
        }
        self.relay.borrow_mut().restore(&backup);
    }

    /// Begins a sync, unless one is under way. With `fuel` it is cut off after so many steps.
    pub(super) fn start(&mut self, index: usize, fuel: Option<u32>, power: bool) {
        let device = &mut self.devices[index];
        if device.running.is_some() {
            return;
        }
        device.fuel.refill(fuel);
        device.may_fail = fuel.is_some();
        device.power = power;
        let fuel = device.fuel.clone();
        let mut tree = SimTree {
            disk: device.disk.clone(),
            fuel: fuel.clone(),
        };
        let mut remote = SimRemote::new(self.relay.clone(), fuel.clone(), index);
        let mut store = SimStore {
            memory: device.memory.clone(),
            fuel,
        };
        let options = Options {
            graph: "g:acme".parse().expect("legal"),
            dry_run: false,
            replace_broken: self.replace_broken,
        };
        device.running = Some(Box::pin(async move {
            sync(&mut tree, &mut remote, &mut store, &mut Silent, &options).await
        }));
    }

    /// Lets a device's sync go on for `turns`. Its report, if it ended by itself.
    pub(super) fn turn(&mut self, index: usize, turns: u32) -> Option<Report> {
        let device = &mut self.devices[index];
        for _ in 0..turns {
            let running = device.running.as_mut()?;
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(result) = running.as_mut().poll(&mut context) {
                device.running = None;
                match result {
                    Ok(report) => return Some(report),
                    Err(error) if !device.may_fail => panic!("d{index}: {error}"),
                    Err(_) if device.power => device.memory.borrow_mut().lose_power(),
                    Err(_) => {}
                }
                return None;
            }
        }
        None
    }

    /// A sync that is cut off after `fuel` steps, or less if it ends before.
    pub(super) fn sync_until(&mut self, index: usize, fuel: u32, power: bool) -> Option<Report> {
        self.turn(index, u32::MAX);
        self.start(index, Some(fuel), power);
        self.turn(index, u32::MAX)
    }

    /// A whole sync that nobody disturbs.
    pub(super) fn sync(&mut self, index: usize) -> Report {
        self.turn(index, u32::MAX);
        self.start(index, None, false);
        self.turn(index, u32::MAX).expect("nothing cuts it off")
    }

    /// Lets everybody sync until nothing changes any longer.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        for index in 0..self.devices.len() {
            self.turn(index, u32::MAX);
        }
        let mut quiet = 0;
        for _ in 0..30 {
            let reports: Vec<Report> = (0..self.devices.len()).map(|i| self.sync(i)).collect();
            let changed = reports.iter().any(Report::changed_anything);
            let in_step = reports.iter().all(|report| report.in_step);
            quiet = if changed || !in_step { 0 } else { quiet + 1 };
            // Two more, for blobs whose use is doubted once before they go.
            if quiet == 3 || (quiet == 1 && self.is_tidy()) {
                return Ok(());
            }
            if let Some(report) = reports.iter().find(|report| !report.left.is_empty()) {
                return Err(format!("left behind: {:?}", report.left));
            }
        }
        Err("does not settle".to_owned())
    }

    fn is_tidy(&self) -> bool {
        (self.devices.iter()).all(|device| {
            let state = device.memory.borrow().state();
            state.uploads.is_empty() && state.garbage.is_empty()
        })
    }

    /// What is at each path, as the device understands its folder.
    pub(super) fn files(&self, index: usize) -> Result<Files, String> {
        let device = &self.devices[index];
        let (state, disk) = (device.memory.borrow().state(), device.disk.borrow().files());
        let mut files = Files::new();
        for (path, base) in &state.base {
            let bytes = disk.get(base.name(path)).cloned();
            let bytes = bytes.ok_or_else(|| {
                format!("d{index} lacks {path:?} of {:?} in {disk:?}", state.base)
            })?;
            files.insert(path.clone(), bytes);
        }
        if files.len() != disk.len() {
            return Err(format!("d{index} knows {:?}, and has {disk:?}", state.base));
        }
        Ok(files)
    }

    /// What must hold once nothing changes any longer.
    pub(super) fn check(&self) -> Result<(), String> {
        let first = self.files(0)?;
        for (index, device) in self.devices.iter().enumerate() {
            let files = self.files(index)?;
            if files != first {
                return Err(format!("d{index} has {files:?}, d0 has {first:?}"));
            }
            let disk = device.disk.borrow();
            let plain = disk.files();
            let folds = plain != files;
            if folds && !self.folds(index) {
                return Err(format!("d{index} names files otherwise: {plain:?}"));
            }
            if disk.staged != 0 {
                return Err(format!("d{index} left temporary files"));
            }
        }
        let there: BTreeSet<&Vec<u8>> = first.values().collect();
        let lost: Vec<String> = (self.written.difference(&self.dismissed))
            .filter(|bytes| !there.contains(bytes))
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect();
        if lost.is_empty() {
            Ok(())
        } else {
            Err(format!("lost: {lost:?}, left: {first:?}"))
        }
    }

    fn folds(&self, index: usize) -> bool {
        use crate::sync::FileTree;
        let device = &self.devices[index];
        let tree = SimTree {
            disk: device.disk.clone(),
            fuel: Fuel::default(),
        };
        tree.folds()
    }

    /// The relay has exactly the blobs that records name.
    pub(super) fn check_blobs(&self) -> Result<(), String> {
        let (named, there) = self.relay.borrow().blobs();
        let missing = named.difference(&there).count();
        let garbage = there.difference(&named).count();
        if missing + garbage == 0 {
            Ok(())
        } else {
            Err(format!("{missing} blobs missing, {garbage} left over"))
        }
    }
}
