//! How things stand: with the keys, with writes that wait, with records that were refused.

use argala_wire::{GraphId, StorageKey, devices::DeviceRef};

use super::Session;
use crate::{crypto::Fingerprint, doubt::Doubt, error::Error, keyfile::KnownDevice};

/// How one graph stands.
#[derive(Debug, Clone)]
pub struct GraphStatus {
    /// The graph.
    pub graph: GraphId,
    /// Its current epoch; `None` where the relay was not asked or does not list it.
    pub epoch: Option<u64>,
    /// Its newest seq; `None` as for the epoch.
    pub head: Option<u64>,
    /// Whether a rotation is owed, as the relay's list says.
    pub rotation_owed: bool,
    /// Whether this device lacks the key of the current epoch, so that writes are held.
    pub behind: bool,
    /// Epochs whose keys are here, ascending.
    pub epochs: Vec<u64>,
    /// Writes that wait.
    pub held: usize,
    /// Records that were refused and are kept in sight.
    pub rejected: u64,
}

/// How a device stands.
#[derive(Debug)]
pub struct Status {
    /// The device.
    pub device: DeviceRef,
    /// What to compare with what others are shown of it.
    pub fingerprint: Fingerprint,
    /// Why the relay could not be asked, where it could not: then all is as of before.
    pub offline: Option<Error>,
    /// Every graph that the relay lists or this device has had to do with.
    pub graphs: Vec<GraphStatus>,
    /// What the relay told and was not believed, until it is forgotten on purpose.
    pub doubts: Vec<Doubt>,
    /// Devices that were met and never listed since: nothing is sealed for them until they are.
    pub unlisted: Vec<KnownDevice>,
}

impl Status {
    /// Graphs to which writes are held for want of a key (`keys.behind`).
    pub fn behind(&self) -> impl Iterator<Item = &GraphId> {
        let behind = self.graphs.iter().filter(|graph| graph.behind);
        behind.map(|graph| &graph.graph)
    }

    /// Writes that wait, in all graphs.
    #[must_use]
    pub fn held(&self) -> usize {
        self.graphs.iter().map(|graph| graph.held).sum()
    }

    /// Records that were refused, in all graphs (`status.rejected`).
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.graphs.iter().map(|graph| graph.rejected).sum()
    }
}

impl Session {
    fn graph_status(&self, graph: GraphId, key: &StorageKey) -> Result<GraphStatus, Error> {
        let outbox = self.outbox(key)?;
        let epochs = self.file.contents().epochs(key);
        Ok(GraphStatus {
            graph,
            epoch: None,
            head: None,
            rotation_owed: false,
            behind: self.is_behind(key) == Some(true),
            epochs: epochs.map(|(epoch, _)| epoch).collect(),
            held: outbox.held(),
            rejected: outbox.rejected_count(),
        })
    }

    /// How this device stands. Answers without the relay too.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Relay`] where the relay answers and refuses.
    pub async fn status(&mut self) -> Result<Status, Error> {
        let (listed, offline) = match self.api.graphs().await {
            Ok(listed) => (listed, None),
            Err(error @ Error::Offline(_)) => (Vec::new(), Some(error)),
            Err(error) => return Err(error),
        };
        let mut graphs = Vec::new();
        for summary in listed {
            let key = self.storage_key(&summary.graph_id);
            self.hear_epoch(&summary.graph_id, &key, summary.epoch)?;
            // A wrap that has come is no key here yet.
            let lacks = |session: &Self| {
                summary.epoch > 0 && !session.file.contents().may_seal(&key, summary.epoch)
            };
            if lacks(self) && !summary.behind {
                self.refresh_keys(&summary.graph_id).await?;
            }
            let behind = lacks(self);
            let mut status = self.graph_status(summary.graph_id, &key)?;
            status.epoch = Some(summary.epoch);
            status.head = Some(summary.head);
            status.rotation_owed = summary.rotation_owed;
            status.behind = behind;
            graphs.push(status);
        }
        let known: Vec<StorageKey> = self.file.contents().graphs().cloned().collect();
        for key in known {
            let Some(graph) = key.graph_id_for(&self.file.device().member_id) else {
                continue;
            };
            if !graphs.iter().any(|status| status.graph == graph) {
                graphs.push(self.graph_status(graph, &key)?);
            }
        }
        Ok(Status {
            device: self.file.device().clone(),
            fingerprint: self.fingerprint(),
            offline,
            graphs,
            doubts: self.file.contents().doubts().to_vec(),
            unlisted: self.file.contents().unlisted().cloned().collect(),
        })
    }
}
