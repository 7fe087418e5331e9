//! Pokes: "pull this graph", and nothing else (protocol, section 7).

use std::pin::Pin;

use argala_wire::{GraphId, MemberId, StorageKey, devices::DeviceRef};
use async_trait::async_trait;
use futures_core::Stream;

use crate::StoreResult;

/// A graph changed, and these members should pull it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poke {
    /// The graph. Not for members' eyes: they are told [`graph_id_for`](Self::graph_id_for).
    pub storage_key: StorageKey,
    /// Whom to poke.
    pub members: Vec<MemberId>,
    /// The device that made the change and need not be told, where it was one alone.
    pub except: Option<DeviceRef>,
}

impl Poke {
    /// What `member` calls the graph; `None` for somebody whose graph it cannot be.
    #[must_use]
    pub fn graph_id_for(&self, member: &MemberId) -> Option<GraphId> {
        self.storage_key.graph_id_for(member)
    }
}

/// Carries pokes away: to the streams of `GET /pokes`, and to whatever else a host wants to wake
/// (a push notification service, say).
///
/// Called after the change is durable and after its answer is on its way; a poke that fails is
/// lost, the change is not.
#[async_trait]
pub trait PokeSink: Send + Sync + 'static {
    /// Pokes each of `poke`'s members.
    async fn poke(&self, poke: &Poke) -> StoreResult<()>;
}

/// What a subscription yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PokeSignal {
    /// This graph changed.
    Changed(StorageKey),
    /// Signals may have been lost.
    Resync,
}

/// A device's signals, until it is dropped. Ends when the source shuts down.
pub type PokeSubscription = Pin<Box<dyn Stream<Item = PokeSignal> + Send>>;

/// Where the streams of `GET /pokes` get their signals from.
///
/// A subscription's memory is bounded: a slow reader gets equal signals once, and a
/// [`Resync`](PokeSignal::Resync) in place of more than fit.
#[async_trait]
pub trait PokeSource: Send + Sync + 'static {
    /// Listens for what concerns `device`: pokes of its member that it did not cause itself.
    async fn subscribe(&self, device: &DeviceRef) -> StoreResult<PokeSubscription>;
}
