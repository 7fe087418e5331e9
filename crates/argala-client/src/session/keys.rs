//! Graph keys: fetching one's own, beginning epochs, giving keys to devices that lack them.

use std::collections::HashSet;

use argala_wire::{
    Code, GraphId, StorageKey,
    devices::DeviceRef,
    keys::{GrantReason, GrantRejection, GrantRequest, GrantWrap, RotateRequest, RotateWrap},
};

use super::Session;
use crate::{
    crypto::{
        GraphKey, PublicKeys,
        wrap::{self, WrapContext},
    },
    error::Error,
    events::Event,
};

/// An epoch that was begun.
#[derive(Debug, Clone)]
pub struct Rotated {
    /// The graph.
    pub graph: GraphId,
    /// The epoch.
    pub epoch: u64,
    /// How many devices were given its key.
    pub devices: u64,
    /// How many keys of older epochs were given to devices that had come since the last rotation.
    pub granted: u64,
}

/// What a grant came to.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The graph.
    pub graph: GraphId,
    /// The devices that keys were sealed for.
    pub to: Vec<DeviceRef>,
    /// How many keys they were given, or had been given identically.
    pub granted: u64,
    /// How many they had already.
    pub already: u64,
    /// Those that the relay did not take.
    pub rejected: Vec<GrantRejection>,
    /// Devices that lack the key and were given none, since nobody has been shown them yet.
    pub unlisted: Vec<DeviceRef>,
}

/// A graph with which something went wrong while others were dealt with.
#[derive(Debug)]
pub struct Failed {
    /// The graph.
    pub graph: GraphId,
    /// What went wrong.
    pub error: Error,
}

/// What came of rotating every graph that owed it.
#[derive(Debug, Default)]
pub struct OwedReport {
    /// Graphs that have a new epoch.
    pub rotated: Vec<Rotated>,
    /// Graphs that could not be rotated, or not even asked about.
    pub failed: Vec<Failed>,
    /// Graphs that still owe a rotation.
    pub owed: Vec<GraphId>,
}

impl Session {
    /// Fetches and opens the device's own wraps of epochs whose keys are not here, and answers
    /// with the graph's current epoch.
    pub(super) async fn refresh_keys(&mut self, graph: &GraphId) -> Result<u64, Error> {
        let key = self.storage_key(graph);
        // An epoch in the midst of those that are here may yet be granted, so only the unbroken
        // run from the first on is passed over.
        let mut run = 0;
        for (epoch, _) in self.file.contents().epochs(&key) {
            if epoch != run + 1 {
                break;
            }
            run = epoch;
        }
        let answer = self.api.wraps(graph, run).await?;
        let mut fresh = Vec::new();
        for wrap in answer.wraps {
            if self.file.contents().key(&key, wrap.epoch).is_some() {
                continue;
            }
            let giver = self.keys_of(graph, &wrap.by).await?;
            // Else the relay could make up a device and, in its name, a key to write under.
            let may_give = self.knows_nobody || self.file.contents().may_give(&wrap.by);
            if giver.is_some() && !may_give {
                self.tell(&Event::WrapHeld {
                    graph: graph.clone(),
                    epoch: wrap.epoch,
                    by: wrap.by,
                });
                continue;
            }
            let to = self.file.device();
            let context = WrapContext {
                graph: &key,
                epoch: wrap.epoch,
                to,
                by: &wrap.by,
            };
            let opened = giver.and_then(|giver| {
                wrap::open(&context, wrap.wrap.as_slice(), self.file.keys(), &giver).ok()
            });
            match opened {
                Some(graph_key) => fresh.push((wrap, graph_key)),
                None => self.tell_doubt(&Event::WrapRejected {
                    graph: graph.clone(),
                    epoch: wrap.epoch,
                    by: wrap.by,
                })?,
            }
        }
        if !fresh.is_empty() {
            let contents = self.file.contents_mut();
            for (wrap, graph_key) in fresh {
                contents.add_key(&key, wrap.epoch, graph_key, wrap.first_seq);
                if contents.is_revoked(&wrap.by) && !self.knows_nobody {
                    // There will be no other key of this epoch to read with.
                    contents.only_read(&key, wrap.epoch);
                } else {
                    contents.note_giver(&wrap.by);
                }
            }
            self.file.save()?;
        }
        self.hear_epoch(graph, &key, answer.epoch)
    }

    /// Takes in what the relay tells of the current epoch, and answers with what to go by: never
    /// an older one than the newest whose key is here, which a relay could tell to have records
    /// sealed under a key that a revoked device holds.
    pub(super) fn hear_epoch(
        &mut self,
        graph: &GraphId,
        key: &StorageKey,
        told: u64,
    ) -> Result<u64, Error> {
        let held = self.newest_held(key);
        if told < held {
            self.tell_doubt(&Event::EpochWentBack {
                graph: graph.clone(),
                told,
                held,
            })?;
        }
        let epoch = told.max(held);
        self.graphs.entry(key.clone()).or_default().epoch = Some(epoch);
        Ok(epoch)
    }

    /// The newest epoch whose key is here; 0 where there is none.
    fn newest_held(&self, key: &StorageKey) -> u64 {
        let epochs = self.file.contents().epochs(key);
        epochs.last().map_or(0, |(epoch, _)| epoch)
    }

    /// Whether the key of the current epoch is here, as far as this session has been told.
    /// `None` where it has not been told the epoch.
    pub(super) fn is_behind(&self, key: &StorageKey) -> Option<bool> {
        let epoch = self.graphs.get(key)?.epoch?;
        Some(epoch > 0 && !self.file.contents().may_seal(key, epoch))
    }

    /// The epoch to seal under, or `None` where the device cannot write: the graph has no key, or
    /// the device has not been given it. Asks the relay where `fresh` or not asked yet.
    pub(super) async fn writable_epoch(
        &mut self,
        graph: &GraphId,
        fresh: bool,
    ) -> Result<Option<u64>, Error> {
        let key = self.storage_key(graph);
        let usable = |session: &Self| {
            let epoch = session.graphs.get(&key)?.epoch.filter(|&epoch| epoch > 0)?;
            let contents = session.file.contents();
            contents.may_seal(&key, epoch).then_some(epoch)
        };
        let mut epoch = usable(self);
        if fresh || epoch.is_none() {
            self.refresh_keys(graph).await?;
            epoch = usable(self);
        }
        if epoch.is_none() {
            self.tell_behind(graph, &key);
        } else {
            self.graphs.entry(key).or_default().behind_told = false;
        }
        Ok(epoch)
    }

    /// Tells, once until the key comes, that writes to a graph are held.
    pub(super) fn tell_behind(&mut self, graph: &GraphId, key: &StorageKey) {
        let view = self.graphs.entry(key.clone()).or_default();
        if !std::mem::replace(&mut view.behind_told, true) {
            self.tell(&Event::KeysBehind {
                graph: graph.clone(),
            });
        }
    }

    fn seal_wrap(
        &self,
        key: &StorageKey,
        epoch: u64,
        graph_key: &GraphKey,
        to: (&DeviceRef, &PublicKeys),
    ) -> Result<argala_wire::Sealed, Error> {
        let context = WrapContext {
            graph: key,
            epoch,
            to: to.0,
            by: self.file.device(),
        };
        wrap::seal(&context, graph_key, self.file.keys(), to.1)
            .map_err(|_| Error::Answer("a device's encryption key is no key".to_owned()))
    }

    /// Begins the graph's next epoch under a new key, sealed for exactly the roster; the first one
    /// makes the graph. Where another device was faster, or the roster has changed, tries once
    /// more on the new truth. Devices that had come since the last rotation are given the older
    /// keys too.
    ///
    /// # Errors
    /// [`Error::KeysChanged`], [`Error::Returned`] where a device on the roster is not who it was;
    /// [`Error::Unlisted`] where one was never listed, as by
    /// [`graph_devices`](Self::graph_devices); [`Error::EpochWentBack`]; [`Error::Relay`].
    pub async fn rotate(&mut self, graph: &GraphId) -> Result<Rotated, Error> {
        match self.rotate_once(graph).await {
            Err(error) if is_new_truth(&error) => self.rotate_once(graph).await,
            done => done,
        }
    }

    async fn rotate_once(&mut self, graph: &GraphId) -> Result<Rotated, Error> {
        let key = self.storage_key(graph);
        let info = self.api.graph(graph).await?;
        if info.epoch < self.newest_held(&key) {
            self.hear_epoch(graph, &key, info.epoch)?;
            return Err(Error::EpochWentBack {
                graph: graph.clone(),
            });
        }
        self.hear_revoked(&info.rotation_reasons)?;
        let roster = self.trusted_roster(graph).await?;
        if !roster.unlisted.is_empty() {
            return Err(Error::Unlisted(roster.unlisted));
        }
        let roster = roster.listed;
        if info.epoch > 0 {
            self.refresh_keys(graph).await?;
        }
        let epoch = info.epoch + 1;
        let graph_key = GraphKey::generate();
        let mut wraps = Vec::with_capacity(roster.len());
        for (device, keys) in &roster {
            wraps.push(RotateWrap {
                member_id: device.member_id.clone(),
                device_id: device.device_id.clone(),
                wrap: self.seal_wrap(&key, epoch, &graph_key, (device, keys))?,
            });
        }
        let answer = self
            .api
            .rotate(graph, &RotateRequest { epoch, wraps })
            .await?;
        // Should the file not be written, the wrap is still there to be fetched.
        let contents = self.file.contents_mut();
        contents.add_key(&key, answer.epoch, graph_key, answer.first_seq);
        self.file.save()?;
        let view = self.graphs.entry(key.clone()).or_default();
        view.epoch = Some(answer.epoch);
        let owed: HashSet<_> = info.grants_owed.iter().collect();
        let newcomers: Vec<_> = roster
            .into_iter()
            .filter(|(device, _)| owed.contains(device))
            .collect();
        let granted = self.give(graph, &newcomers, info.epoch).await?.granted;
        Ok(Rotated {
            graph: graph.clone(),
            epoch: answer.epoch,
            devices: answer.devices,
            granted,
        })
    }

    /// Gives the key of every epoch that is here to devices on the roster that lack the current
    /// one, or to the devices `only`. Of the former, those that were never listed, as by
    /// [`graph_devices`](Self::graph_devices), are given nothing and told of.
    ///
    /// # Errors
    /// [`Error::Unkeyed`], [`Error::KeysBehind`] where there is nothing to give;
    /// [`Error::KeysChanged`], [`Error::Returned`]; [`Error::Unlisted`] where a device of `only`
    /// was never listed; [`Error::Usage`] where one is not on the roster.
    pub async fn grant(
        &mut self,
        graph: &GraphId,
        only: Option<&[DeviceRef]>,
    ) -> Result<Granted, Error> {
        let info = self.api.graph(graph).await?;
        if info.epoch == 0 {
            return Err(Error::Unkeyed {
                graph: graph.clone(),
            });
        }
        self.hear_revoked(&info.rotation_reasons)?;
        let mut roster = self.trusted_roster(graph).await?;
        let wanted: HashSet<_> = only.unwrap_or(&info.grants_owed).iter().collect();
        roster.listed.retain(|(device, _)| wanted.contains(device));
        roster.unlisted.retain(|device| wanted.contains(device));
        let (targets, unlisted) = (roster.listed, roster.unlisted);
        if only.is_some() && targets.len() + unlisted.len() < wanted.len() {
            return Err(Error::Usage(format!(
                "not every one of these devices is on the roster of {graph}"
            )));
        }
        if only.is_some() && !unlisted.is_empty() {
            return Err(Error::Unlisted(unlisted));
        }
        let current = self.refresh_keys(graph).await?;
        if !targets.is_empty() && self.writable_epoch(graph, false).await?.is_none() {
            return Err(Error::KeysBehind {
                graph: graph.clone(),
            });
        }
        let granted = self.give(graph, &targets, current).await?;
        Ok(Granted {
            unlisted,
            ..granted
        })
    }

    /// Gives the keys of every epoch up to `newest` that are here to `targets`.
    async fn give(
        &mut self,
        graph: &GraphId,
        targets: &[(DeviceRef, PublicKeys)],
        newest: u64,
    ) -> Result<Granted, Error> {
        let key = self.storage_key(graph);
        let mut report = Granted {
            graph: graph.clone(),
            to: targets.iter().map(|(device, _)| device.clone()).collect(),
            granted: 0,
            already: 0,
            rejected: Vec::new(),
            unlisted: Vec::new(),
        };
        let mut wraps = Vec::new();
        for (epoch, epoch_key) in self.file.contents().epochs(&key) {
            for (device, keys) in targets.iter().filter(|_| epoch <= newest) {
                wraps.push(GrantWrap {
                    epoch,
                    member_id: device.member_id.clone(),
                    device_id: device.device_id.clone(),
                    wrap: self.seal_wrap(&key, epoch, &epoch_key.key, (device, keys))?,
                });
            }
        }
        if wraps.is_empty() {
            return Ok(report);
        }
        let most = usize::try_from(self.limits().await?.max_wraps).unwrap_or(usize::MAX);
        for wraps in wraps.chunks(most.max(1)) {
            let wraps = wraps.to_vec();
            let answer = self.api.grant(graph, &GrantRequest { wraps }).await?;
            report.granted += answer.granted;
            for rejection in answer.rejected {
                if rejection.reason == GrantReason::WrapExists {
                    report.already += 1;
                } else {
                    report.rejected.push(rejection);
                }
            }
        }
        Ok(report)
    }

    /// Rotates every graph that owes it. One that fails does not stop the others, except where
    /// the next would surely fail the same way.
    ///
    /// # Errors
    /// [`Error::Relay`], [`Error::Offline`] where not even the list of graphs could be had.
    pub async fn rotate_owed(&mut self) -> Result<OwedReport, Error> {
        let mut report = OwedReport::default();
        let mut graphs = self.api.graphs().await?.into_iter();
        for summary in graphs.by_ref() {
            let graph = summary.graph_id;
            // The list's flag may be a minute old; the graph's own answer is not.
            let owes = match self.api.graph(&graph).await {
                Ok(info) if !info.rotation_owed => continue,
                Ok(_) => self.rotate(&graph).await,
                Err(error) => Err(error),
            };
            match owes {
                Ok(rotated) => report.rotated.push(rotated),
                Err(error) => {
                    let hopeless = is_hopeless(&error);
                    report.owed.push(graph.clone());
                    report.failed.push(Failed { graph, error });
                    if hopeless {
                        break;
                    }
                }
            }
        }
        let left = graphs.filter(|left| left.rotation_owed);
        report.owed.extend(left.map(|left| left.graph_id));
        Ok(report)
    }
}

fn is_new_truth(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(Code::EpochConflict | Code::RotationIncomplete)
    )
}

/// Whether the next request would fail the same way, whatever it is about.
fn is_hopeless(error: &Error) -> bool {
    matches!(error, Error::Offline(_))
        || matches!(
            error.code(),
            Some(
                Code::Unauthenticated
                    | Code::DeviceRevoked
                    | Code::DeviceUnregistered
                    | Code::MemberInactive
                    | Code::RateLimited
                    | Code::Unavailable
            )
        )
}
