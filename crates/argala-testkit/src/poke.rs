//! A poke sink that remembers.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use argala_core::{
    StoreError, StoreResult,
    ports::{Poke, PokeSink},
};
use async_trait::async_trait;

use crate::eventually;

/// Keeps every poke that it is given, in order. Clones share what they keep.
#[derive(Debug, Clone, Default)]
pub struct PokeLog {
    pokes: Arc<Mutex<Vec<Poke>>>,
    failing: Arc<AtomicBool>,
}

impl PokeLog {
    /// A log with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether every poke from now on is noted and then answered with an error.
    pub fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::SeqCst);
    }

    fn pokes(&self) -> MutexGuard<'_, Vec<Poke>> {
        self.pokes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is, which is forgotten with that.
    #[must_use]
    pub fn take(&self) -> Vec<Poke> {
        std::mem::take(&mut self.pokes())
    }

    /// Waits until there are at least `count` pokes and takes them all.
    ///
    /// # Panics
    /// Where they do not come.
    pub async fn wait_for(&self, count: usize) -> Vec<Poke> {
        eventually(&format!("{count} pokes"), || async {
            let mut pokes = self.pokes();
            (pokes.len() >= count).then(|| std::mem::take(&mut *pokes))
        })
        .await
    }
}

#[async_trait]
impl PokeSink for PokeLog {
    async fn poke(&self, poke: &Poke) -> StoreResult<()> {
        self.pokes().push(poke.clone());
        if self.failing.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("poking", "told to fail"));
        }
        Ok(())
    }
}
