//! What an operator does to a relay's data, beside the running relay or without one.
//!
//! Each answer has a form for programs: it is what `--output json` prints.

mod upkeep;

use std::{path::PathBuf, sync::Arc, time::Duration};

use argala_core::{
    Fault, Rejection, StoreError,
    ports::store::{Counters, DeviceMark, Revoke},
};
use argala_http::MintError;
use argala_wire::{
    DeviceId, GroupId, MemberId, StorageKey, Timestamp,
    devices::{Device, DeviceRef},
    limits::Quotas,
};
use serde::Serialize;

use crate::{
    config::{Config, StoreKind},
    identity,
    ports::{OpenError, Ports},
};

pub use upkeep::{Erasal, Miscounted, Progress, Recounted, Restored};

/// How many rows are asked for at a time.
const PAGE: usize = 1_000;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The data cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no data yet: nothing was ever served from there.
    #[error("there is no database at {}", .0.display())]
    NoDatabase(PathBuf),
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    /// The rules refuse it.
    #[error(transparent)]
    Refused(#[from] Rejection),
    /// A member or group that is not there.
    #[error("there is no such member, or no such group")]
    NoMemberOrGroup,
    /// A device that is not there.
    #[error("the member has no such device")]
    NoDevice,
    /// A graph that is not there.
    #[error("there is no such graph: nobody has rotated it to its first epoch")]
    NoGraph,
    /// A member who is to be erased and may still use the relay.
    #[error("the directory still has this member as active: remove them there first")]
    StillActive,
    /// A token that cannot be made.
    #[error("{0} (auth.jwt)")]
    Mint(#[from] MintError),
}

impl From<Fault> for OperatorError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Rejected(rejection) => rejection.into(),
            Fault::Store(error) => error.into(),
        }
    }
}

/// Whether something changed, or was so already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Whether it changed.
    pub changed: bool,
}

/// A member of the table directory.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRow {
    /// The member.
    pub member_id: MemberId,
    /// Whether the relay serves them.
    pub active: bool,
}

/// A group of the table directory.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupRow {
    /// The group.
    pub group_id: GroupId,
    /// Its members, removed ones too, by id.
    pub members: Vec<MemberId>,
}

/// A token, and until when it is good.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// What stands after `Bearer`.
    pub token: String,
    /// When it expires, the leeway left out.
    pub expires_at: Timestamp,
}

/// What became of revoking a device.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevokedDevice {
    /// Whether it was active before.
    pub changed: bool,
    /// Graphs that now owe a rotation, by storage key.
    pub graphs_flagged: Vec<StorageKey>,
}

/// A graph, as its row tells it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphRow {
    /// The graph.
    pub storage_key: StorageKey,
    /// Its current epoch.
    pub epoch: u64,
    /// Its newest seq.
    pub head: u64,
    /// Whether a holder of the current epoch is known to be off the roster.
    pub rotation_owed: bool,
    /// Live records.
    pub records: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Bytes of ciphertext.
    pub ciphertext_bytes: u64,
    /// Bytes of blobs, uploads in progress included.
    pub blob_bytes: u64,
}

/// How much of a ceiling is used.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Use {
    /// What the ceiling is on.
    pub what: &'static str,
    /// How much there is.
    pub used: u64,
    /// How much there may be.
    pub limit: u64,
}

/// A relay's data in the hands of an operator.
pub struct Operator {
    ports: Arc<Ports>,
    config: Config,
}

impl Operator {
    /// Opens the data that `config` names. Creates none: a mistyped path should say so.
    ///
    /// # Errors
    /// Where there is none, or it cannot be opened.
    pub async fn open(config: Config) -> Result<Self, OperatorError> {
        if config.store.kind == StoreKind::Sqlite && !config.store.path.exists() {
            return Err(OperatorError::NoDatabase(config.store.path));
        }
        Self::open_or_create(config).await
    }

    /// Opens the data that `config` names, and creates a file where there is none: a directory may
    /// be filled before the relay first runs.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub async fn open_or_create(config: Config) -> Result<Self, OperatorError> {
        let ports = Ports::open_for_upkeep(&config).await?;
        Ok(Self {
            ports: Arc::new(ports),
            config,
        })
    }

    /// Adds a member, or makes a removed one active again.
    ///
    /// # Errors
    /// Where the store fails; so of every method below.
    pub async fn add_member(&self, member: &MemberId) -> Result<Changed, OperatorError> {
        let changed = self.ports.directory.add_member(member).await?;
        Ok(Changed { changed })
    }

    /// Makes a member inactive.
    ///
    /// # Errors
    /// See [`add_member`](Self::add_member).
    pub async fn remove_member(&self, member: &MemberId) -> Result<Changed, OperatorError> {
        let changed = self.ports.directory.remove_member(member).await?;
        Ok(Changed { changed })
    }

    /// Every member, by id.
    ///
    /// # Errors
    /// See [`add_member`](Self::add_member).
    pub async fn members(&self) -> Result<Vec<MemberRow>, OperatorError> {
        let mut all: Vec<MemberRow> = Vec::new();
        loop {
            let after = all.last().map(|row| row.member_id.clone());
            let page = self
                .ports
                .directory
                .list_members(after.as_ref(), PAGE)
                .await?;
            let last = page.len() < PAGE;
            all.extend(
                page.into_iter()
                    .map(|(member_id, active)| MemberRow { member_id, active }),
            );
            if last {
                return Ok(all);
            }
        }
    }

    /// Creates a group without members.
    ///
    /// # Errors
    /// See [`add_member`](Self::add_member).
    pub async fn create_group(&self, group: &GroupId) -> Result<Changed, OperatorError> {
        let changed = self.ports.directory.create_group(group).await?;
        Ok(Changed { changed })
    }

    /// Puts a member into a group.
    ///
    /// # Errors
    /// Where there is no such member or group too.
    pub async fn join_group(
        &self,
        group: &GroupId,
        member: &MemberId,
    ) -> Result<Changed, OperatorError> {
        let joined = self.ports.directory.join_group(group, member).await?;
        let changed = joined.ok_or(OperatorError::NoMemberOrGroup)?;
        Ok(Changed { changed })
    }

    /// Takes a member out of a group.
    ///
    /// # Errors
    /// See [`add_member`](Self::add_member).
    pub async fn leave_group(
        &self,
        group: &GroupId,
        member: &MemberId,
    ) -> Result<Changed, OperatorError> {
        let changed = self.ports.directory.leave_group(group, member).await?;
        Ok(Changed { changed })
    }

    /// Every group with its members, by id.
    ///
    /// # Errors
    /// See [`add_member`](Self::add_member).
    pub async fn groups(&self) -> Result<Vec<GroupRow>, OperatorError> {
        let mut all: Vec<GroupRow> = Vec::new();
        loop {
            let after = all.last().map(|row| row.group_id.clone());
            let page = self
                .ports
                .directory
                .list_groups(after.as_ref(), PAGE)
                .await?;
            let last = page.len() < PAGE;
            for group_id in page {
                let members = self.ports.directory.members_of_group(&group_id).await?;
                all.push(GroupRow { group_id, members });
            }
            if last {
                return Ok(all);
            }
        }
    }

    /// Every device of a member, revoked ones too, oldest first.
    ///
    /// # Errors
    /// See [`add_member`](Self::add_member).
    pub async fn devices(&self, member: &MemberId) -> Result<Vec<Device>, OperatorError> {
        let mut all: Vec<Device> = Vec::new();
        loop {
            let after = all.last().map(|device| DeviceMark {
                registered_at: device.registered_at,
                device_id: device.device_id.clone(),
            });
            let page = self
                .ports
                .store
                .devices_of_member(member, after.as_ref(), PAGE)
                .await?;
            let last = page.len() < PAGE;
            all.extend(page);
            if last {
                return Ok(all);
            }
        }
    }

    /// Revokes a device in its own name. A running relay refuses it from its next request on, and
    /// ends its open streams within seconds; other devices learn of it by asking, not by a poke.
    ///
    /// # Errors
    /// Where the member has no such device too.
    pub async fn revoke(
        &self,
        member: &MemberId,
        device: &DeviceId,
    ) -> Result<RevokedDevice, OperatorError> {
        let by = DeviceRef {
            member_id: member.clone(),
            device_id: device.clone(),
        };
        let found = self.ports.store.device(&by).await?;
        if !found.ok_or(OperatorError::NoDevice)?.is_active() {
            return Ok(RevokedDevice {
                changed: false,
                graphs_flagged: Vec::new(),
            });
        }
        let revoked = self
            .ports
            .store
            .revoke(Revoke {
                by,
                device_id: device.clone(),
                now: self.ports.clock.now(),
            })
            .await?;
        Ok(RevokedDevice {
            changed: revoked.fresh,
            graphs_flagged: revoked.flagged,
        })
    }

    /// A graph's row.
    ///
    /// # Errors
    /// Where there is no such graph too.
    pub async fn graph(&self, key: &StorageKey) -> Result<GraphRow, OperatorError> {
        let graph = self.ports.store.graph(key).await?;
        let graph = graph.ok_or(OperatorError::NoGraph)?;
        let Counters {
            records,
            tombstones,
            ciphertext_bytes,
            blob_bytes,
        } = graph.counters;
        Ok(GraphRow {
            rotation_owed: graph.rotation_owed(),
            storage_key: graph.key,
            epoch: graph.epoch,
            head: graph.head,
            records,
            tombstones,
            ciphertext_bytes,
            blob_bytes,
        })
    }

    /// How much of each ceiling a graph uses.
    ///
    /// # Errors
    /// Where there is no such graph too.
    pub async fn usage(&self, key: &StorageKey) -> Result<Vec<Use>, OperatorError> {
        let graph = self.graph(key).await?;
        let quotas: Quotas = self.config.quotas.quotas();
        let row = |what, used, limit| Use { what, used, limit };
        Ok(vec![
            row("records", graph.records, quotas.max_records_per_graph),
            row(
                "ciphertextBytes",
                graph.ciphertext_bytes,
                quotas.max_ciphertext_bytes_per_graph,
            ),
            row(
                "blobBytesPerGraph",
                graph.blob_bytes,
                quotas.max_blob_bytes_per_graph,
            ),
        ])
    }
}

/// Makes a token that a relay of this configuration believes. Touches no data.
///
/// # Errors
/// Where the configuration has no shared secret.
pub fn mint(
    config: &Config,
    member: &MemberId,
    device: &DeviceId,
    now: Timestamp,
    ttl: Duration,
) -> Result<Token, OperatorError> {
    let device = DeviceRef {
        member_id: member.clone(),
        device_id: device.clone(),
    };
    let token = argala_http::mint(&identity::jwt_config(&config.auth.jwt), &device, now, ttl)?;
    Ok(Token {
        token,
        expires_at: now.saturating_add(ttl),
    })
}
