//! When devices were last seen: kept apart, and written in batches, since a write for every
//! request would cost more than the answer is worth.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use argala_wire::{Timestamp, devices::DeviceRef};

use super::Relay;

/// How long a sighting waits for others; the protocol allows two minutes.
const BATCH_EVERY: Duration = Duration::from_secs(30);

/// Sightings that have not been written.
#[derive(Default)]
pub(super) struct Presence {
    seen: Mutex<HashMap<DeviceRef, Timestamp>>,
}

impl Presence {
    pub(super) fn of(&self, device: &DeviceRef) -> Option<Timestamp> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(device)
            .copied()
    }

    fn take(&self) -> Vec<(DeviceRef, Timestamp)> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
            .into_iter()
            .collect()
    }
}

impl Relay {
    pub(super) fn note_presence(self: &Arc<Self>, device: &DeviceRef) {
        let now = self.clock.now();
        let first = {
            let mut seen = self
                .presence
                .seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = seen.get_mut(device) {
                *at = now;
                return;
            }
            seen.insert(device.clone(), now);
            seen.len() == 1
        };
        if first {
            let relay = Arc::clone(self);
            self.tasks.spawn(async move {
                tokio::select! {
                    () = tokio::time::sleep(BATCH_EVERY) => {}
                    () = relay.closing.cancelled() => {}
                }
                relay.flush_presence().await;
            });
        }
    }

    pub(super) async fn flush_presence(&self) {
        let seen = self.presence.take();
        if seen.is_empty() {
            return;
        }
        if let Err(error) = self.store.record_seen(&seen).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                devices = seen.len(),
                "when devices were last seen was not written"
            );
        }
    }
}
