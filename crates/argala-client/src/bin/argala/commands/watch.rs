//! `watch`.

use argala_client::{Change, Watch};
use serde_json::json;

use crate::{
    args,
    context::Context,
    exit::{Exit, Failure},
};

/// Waits for the next change, or until the timeout.
async fn next(
    watch: &mut Watch,
    until: Option<tokio::time::Instant>,
) -> Result<Option<Change>, Failure> {
    let next = watch.next();
    match until {
        None => Ok(Some(next.await?)),
        Some(until) => match tokio::time::timeout_at(until, next).await {
            Ok(change) => Ok(Some(change?)),
            Err(_) => Ok(None),
        },
    }
}

/// Needs no key and takes no lock, so that a `pull` may run beside it.
pub(crate) async fn watch(context: &Context, args: &args::WatchArgs) -> Result<Exit, Failure> {
    let client = context.client(&context.credential()?)?;
    let mut watch = Watch::new(client);
    let until = args
        .timeout
        .map(|timeout| tokio::time::Instant::now() + timeout);
    let mut news = false;
    loop {
        let Some(change) = next(&mut watch, until).await? else {
            return Ok(if news { Exit::Done } else { Exit::TimedOut });
        };
        context.output.result(
            || match &change {
                Change::Ready => json!({ "type": "ready" }),
                Change::Lost => json!({ "type": "lost" }),
                Change::Poked(graph) => json!({ "type": "poked", "graphId": graph }),
            },
            |out| match &change {
                Change::Ready => writeln!(out, "watching"),
                Change::Lost => writeln!(out, "the relay is gone; trying again"),
                Change::Poked(graph) => writeln!(out, "{graph}"),
            },
        )?;
        if let Change::Poked(_) = change {
            news = true;
            if args.once {
                return Ok(Exit::Done);
            }
        }
    }
}
