//! Waiting for a condition, never for time to pass.

use std::{future::Future, time::Duration};

/// How long a test waits for what should happen soon before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Asks `condition` until it yields something.
///
/// # Panics
/// Where [`PATIENCE`] runs out first; `what` says what did not happen.
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut condition: impl FnMut() -> F,
) -> T {
    let asked = async {
        loop {
            if let Some(value) = condition().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked)
        .await
        .unwrap_or_else(|_| panic!("waited too long: {what}"))
}
