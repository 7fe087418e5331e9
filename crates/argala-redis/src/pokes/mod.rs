//! Pokes from replica to replica, by way of channels that Redis remembers nothing of.
//!
//! What this replica's own streams are told never passes Redis: they are told at once, and while
//! Redis is away, too. What others' streams are told is published on a channel for each member;
//! a replica listens on those of the members that are connected to it.

mod listener;
mod message;
mod publisher;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use argala_core::{
    StoreResult,
    memory::MemoryPokes,
    ports::{Poke, PokeSignal, PokeSink, PokeSource, PokeSubscription},
};
use argala_wire::{MemberId, devices::DeviceRef};
use async_trait::async_trait;
use futures_util::Stream;

pub(crate) use listener::{Listener, probe};
pub(crate) use publisher::Publisher;

/// Carries pokes to the streams of every replica.
///
/// A publication that fails is made up for: the members it was for are told to resync as soon as
/// Redis is back. So is whoever may have missed one because a subscription was interrupted.
pub(crate) struct RedisPokes {
    pub(crate) local: Arc<MemoryPokes>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) listener: Arc<Listener>,
}

#[async_trait]
impl PokeSink for RedisPokes {
    async fn poke(&self, poke: &Poke) -> StoreResult<()> {
        self.local.poke(poke).await?;
        self.publisher.publish(poke).await;
        Ok(())
    }
}

#[async_trait]
impl PokeSource for RedisPokes {
    async fn subscribe(&self, device: &DeviceRef) -> StoreResult<PokeSubscription> {
        let signals = self.local.subscribe(device).await?;
        let seat = Seat::take(Arc::clone(&self.listener), device.member_id.clone()).await;
        Ok(Box::pin(Seated {
            signals,
            _seat: seat,
        }))
    }
}

/// One subscription's part in this replica's interest in a member.
struct Seat {
    listener: Arc<Listener>,
    member: MemberId,
}

impl Seat {
    async fn take(listener: Arc<Listener>, member: MemberId) -> Self {
        let heard = listener.enter(&member);
        // Made before anything is waited for: a caller who hangs up meanwhile leaves nothing.
        let seat = Self { listener, member };
        if let Some(heard) = heard {
            // An answer or an end: either way what can be done has been done.
            let _ = heard.await;
        }
        seat
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.listener.leave(&self.member);
    }
}

struct Seated {
    signals: PokeSubscription,
    _seat: Seat,
}

impl Stream for Seated {
    type Item = PokeSignal;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<PokeSignal>> {
        self.signals.as_mut().poll_next(context)
    }
}
