//! An event sink that remembers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argala_core::ports::{Event, EventSink};

use crate::eventually;

/// Keeps every event that it is told, in order. Clones share what they keep.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Arc<Mutex<Vec<Event>>>);

impl EventLog {
    /// A log with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is, which is forgotten with that.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events())
    }

    /// What there is.
    #[must_use]
    pub fn all(&self) -> Vec<Event> {
        self.events().clone()
    }

    /// The names of what there is, which is forgotten with that.
    #[must_use]
    pub fn take_names(&self) -> Vec<&'static str> {
        self.take().iter().map(Event::name).collect()
    }

    /// Waits until there is an event called `name`, takes it out and returns it; what came
    /// before it stays.
    ///
    /// # Panics
    /// Where none comes.
    pub async fn wait_for(&self, name: &str) -> Event {
        eventually(&format!("the event {name}"), || async {
            let mut events = self.events();
            let at = events.iter().position(|event| event.name() == name)?;
            Some(events.remove(at))
        })
        .await
    }
}

impl EventSink for EventLog {
    fn emit(&self, event: &Event) {
        self.events().push(event.clone());
    }
}
