//! What is compared.

pub(crate) mod bare;
pub(crate) mod relay;

use anyhow::Result;
use async_trait::async_trait;

use crate::measure::Load;

/// Bytes of a ciphertext.
pub(crate) const CIPHERTEXT: usize = 512;
/// Graphs that pushes are spread over.
pub(crate) const GRAPHS: usize = 1_000;
/// Records in the graph that is pulled.
pub(crate) const FULL: usize = 20_000;

/// One of the things that are compared.
#[async_trait]
pub(crate) trait Arm: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// One of many who work at the same time, ready to.
    async fn caller(&self, number: usize, load: Load) -> Result<Box<dyn Caller>>;

    /// Records that the database holds in all graphs, but for the one that is pulled; where the
    /// arm's own counters say otherwise, an error.
    async fn stored(&self) -> Result<u64>;
}

/// Somebody who makes one request after another.
#[async_trait]
pub(crate) trait Caller: Send {
    /// Makes one, and tells how many records were acknowledged or returned.
    async fn request(&mut self) -> Result<u64>;
}

/// The graphs of one caller.
pub(crate) fn share(number: usize, callers: usize) -> Vec<usize> {
    (number..GRAPHS).step_by(callers).collect()
}

/// A ciphertext that does not compress.
pub(crate) fn ciphertext() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..CIPHERTEXT)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}
