//! Poke streams (protocol, section 7): what `GET /pokes` sends, and when it ends.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use argala_wire::{MemberId, devices::DeviceRef, pokes::PokeMessage};
use futures_core::Stream;
use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;

use super::{Caller, Relay};
use crate::{
    Outcome, StoreError,
    ports::{PokeSignal, PokeSubscription},
};

/// How often open streams are held against the store, for devices that another replica revoked;
/// their streams must end within 5 s.
const REVOCATION_CHECK_EVERY: Duration = Duration::from_secs(2);
/// Streams of one member that may be open at once, on one relay.
pub(super) const MAX_STREAMS_PER_MEMBER: usize = 1_024;

/// What a poke stream sends. It ends when the device is revoked, the credential expires, or the
/// relay closes (after a [`PokeMessage::Resync`]).
pub type PokeStream = Pin<Box<dyn Stream<Item = PokeMessage> + Send>>;

/// The open streams of this relay.
#[derive(Default)]
pub(super) struct Streams {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    devices: HashMap<DeviceRef, (usize, CancellationToken)>,
    members: HashMap<MemberId, usize>,
    watched: bool,
}

impl Streams {
    /// Ends every stream of a device.
    pub(super) fn end(&self, device: &DeviceRef) {
        if let Some((_, ended)) = self.lock().devices.get(device) {
            ended.cancel();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open stream's place in [`Streams`].
struct Seat {
    relay: Arc<Relay>,
    device: DeviceRef,
    ended: CancellationToken,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.relay.streams.lock();
        if let Some((count, _)) = open.devices.get_mut(&self.device) {
            *count -= 1;
            if *count == 0 {
                open.devices.remove(&self.device);
            }
        }
        if let Some(count) = open.members.get_mut(&self.device.member_id) {
            *count -= 1;
            if *count == 0 {
                open.members.remove(&self.device.member_id);
            }
        }
    }
}

struct State {
    seat: Seat,
    signals: PokeSubscription,
    expires: Option<tokio::time::Instant>,
    greeted: bool,
    over: bool,
}

impl Relay {
    /// `GET /pokes`: a stream of what changes. It listens from the moment this returns, so the
    /// list of graphs that the client asks for at the hello misses nothing.
    ///
    /// # Errors
    /// Unavailable where the source of pokes is, or where the member has too many streams open.
    pub async fn pokes(self: &Arc<Self>, caller: &Caller) -> Outcome<PokeStream> {
        let seat = self.take_seat(caller.device())?;
        let signals = self.poke_source.subscribe(caller.device()).await?;
        // A wall-clock expiry becomes a deadline of the timer: the two need not be compared again.
        let expires = caller
            .expires_at()
            .map(|at| tokio::time::Instant::now() + at.since(self.clock.now()));
        let state = State {
            seat,
            signals,
            expires,
            greeted: false,
            over: false,
        };
        Ok(Box::pin(stream::unfold(state, next)))
    }

    fn take_seat(self: &Arc<Self>, device: &DeviceRef) -> Outcome<Seat> {
        let (ended, watch) = {
            let mut open = self.streams.lock();
            let streams = open.members.entry(device.member_id.clone()).or_default();
            if *streams >= MAX_STREAMS_PER_MEMBER {
                let detail = "the member has too many poke streams open";
                return Err(StoreError::unavailable(detail, detail).into());
            }
            *streams += 1;
            let (count, ended) = open.devices.entry(device.clone()).or_default();
            *count += 1;
            let ended = ended.clone();
            (ended, !std::mem::replace(&mut open.watched, true))
        };
        if watch {
            let relay = Arc::clone(self);
            self.tasks.spawn(async move { relay.watch_streams().await });
        }
        Ok(Seat {
            relay: Arc::clone(self),
            device: device.clone(),
            ended,
        })
    }

    /// Ends the streams of devices that are revoked, until no stream is open. One question to the
    /// store for all of them.
    async fn watch_streams(&self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(REVOCATION_CHECK_EVERY) => {}
                () = self.closing.cancelled() => return,
            }
            let devices: Vec<_> = {
                let mut open = self.streams.lock();
                if open.devices.is_empty() {
                    open.watched = false;
                    return;
                }
                open.devices.keys().cloned().collect()
            };
            match self.store.revoked_among(&devices).await {
                Ok(revoked) => {
                    for device in revoked {
                        self.streams.end(&device);
                        self.revoked.insert(device, ());
                    }
                }
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "open streams were not held against revocations"
                ),
            }
        }
    }
}

async fn next(mut state: State) -> Option<(PokeMessage, State)> {
    if state.over {
        return None;
    }
    if !state.greeted {
        state.greeted = true;
        return Some((PokeMessage::Hello, state));
    }
    let relay = Arc::clone(&state.seat.relay);
    loop {
        let expired = async {
            match state.expires {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = state.seat.ended.cancelled() => return None,
            () = expired => return None,
            () = relay.closing.cancelled() => {
                state.over = true;
                return Some((PokeMessage::Resync, state));
            }
            signal = state.signals.next() => match signal {
                Some(PokeSignal::Changed(key)) => {
                    if let Some(graph_id) = key.graph_id_for(&state.seat.device.member_id) {
                        return Some((PokeMessage::Poke { graph_id }, state));
                    }
                }
                Some(PokeSignal::Resync) => return Some((PokeMessage::Resync, state)),
                None => {
                    state.over = true;
                    return Some((PokeMessage::Resync, state));
                }
            },
        }
    }
}
