//! Watching: being told which graphs to pull, without ever missing one.
//!
//! A poke may be lost, a change may not (protocol, section 7). So whenever the stream opens, and
//! whenever it says that pokes may have been lost, the list of graphs is compared with the one
//! seen last, and what has moved in between counts as poked.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use argala_wire::{GraphId, graphs::GraphSummary, pokes::PokeMessage};
use futures_util::{FutureExt, future::BoxFuture};

use crate::{
    api::{Client, PokeStream},
    crypto::random,
    error::Error,
};

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The stream is open: whatever happens from here on is told.
    Ready,
    /// The stream was cut, and is being opened anew.
    Lost,
    /// Pull this graph.
    Poked(GraphId),
}

/// A watch over all graphs of a member.
pub struct Watch {
    api: Client,
    stream: Option<PokeStream>,
    /// The stream that is being opened. Kept here so that a dropped wait does not begin it anew.
    opening: Option<BoxFuture<'static, Result<PokeStream, Error>>>,
    /// The list of graphs that is being fetched.
    listing: Option<Listing>,
    /// How each graph stood when the list was last asked for; `None` before the first time.
    seen: Option<HashMap<GraphId, Standing>>,
    ready: VecDeque<Change>,
    failures: u32,
}

struct Listing {
    /// Whether a hello asked for it.
    hello: bool,
    graphs: BoxFuture<'static, Result<Vec<GraphSummary>, Error>>,
}

/// Epoch, head and whether the device's keys are behind: what news of a graph changes.
type Standing = (u64, u64, bool);

const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl Watch {
    /// A watch that opens its stream when it is first asked for a change.
    #[must_use]
    pub fn new(api: Client) -> Self {
        Self {
            api,
            stream: None,
            opening: None,
            listing: None,
            seen: None,
            ready: VecDeque::new(),
            failures: 0,
        }
    }

    /// The next change. Waits as long as it takes; a lost stream is opened anew, after growing
    /// waits. If the future is dropped, nothing that it would have told is lost.
    ///
    /// # Errors
    /// [`Error::Relay`] where the relay refuses: a revoked device, an expired credential.
    pub async fn next(&mut self) -> Result<Change, Error> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(change);
            }
            if let Err(error) = self.step().await {
                let lasting = matches!(error, Error::Relay(_) | Error::Usage(_));
                let passing = error.problem().is_some_and(|problem| problem.status >= 429);
                if lasting && !passing {
                    return Err(error);
                }
                self.lose();
            }
        }
    }

    async fn step(&mut self) -> Result<(), Error> {
        if let Some(Listing { hello, graphs }) = &mut self.listing {
            let (hello, listed) = (*hello, graphs.await);
            self.listing = None;
            self.compare(&listed?);
            if hello {
                self.failures = 0;
                self.ready.push_front(Change::Ready);
            }
            return Ok(());
        }
        let Some(stream) = &mut self.stream else {
            let (api, failures) = (self.api.clone(), self.failures);
            let open = || async move {
                wait(failures).await;
                api.pokes().await
            };
            let opened = self.opening.get_or_insert_with(|| open().boxed()).await;
            self.opening = None;
            self.stream = Some(opened?);
            return Ok(());
        };
        match stream.next().await? {
            None => self.lose(),
            Some(PokeMessage::Poke { graph_id }) => self.poke(graph_id),
            Some(message @ (PokeMessage::Hello | PokeMessage::Resync)) => {
                let api = self.api.clone();
                self.listing = Some(Listing {
                    hello: message == PokeMessage::Hello,
                    graphs: async move { api.graphs().await }.boxed(),
                });
            }
        }
        Ok(())
    }

    fn lose(&mut self) {
        self.failures = self.failures.saturating_add(1);
        if self.stream.take().is_some() {
            self.ready.push_back(Change::Lost);
        }
    }

    fn poke(&mut self, graph: GraphId) {
        let change = Change::Poked(graph);
        if !self.ready.contains(&change) {
            self.ready.push_back(change);
        }
    }

    fn compare(&mut self, graphs: &[GraphSummary]) {
        let standing = |graph: &GraphSummary| (graph.epoch, graph.head, graph.behind);
        if let Some(seen) = self.seen.take() {
            for graph in graphs {
                if seen.get(&graph.graph_id) != Some(&standing(graph)) {
                    self.poke(graph.graph_id.clone());
                }
            }
        }
        let now = graphs
            .iter()
            .map(|graph| (graph.graph_id.clone(), standing(graph)));
        self.seen = Some(now.collect());
    }
}

/// Waits before a stream is opened anew, longer each time, never twice the same.
async fn wait(failures: u32) {
    if failures == 0 {
        return;
    }
    let whole = Duration::from_millis(100) * 2_u32.saturating_pow(failures.min(16));
    let part = f64::from(random::<1>()[0]) / 255.0;
    tokio::time::sleep(whole.min(LONGEST_WAIT).mul_f64(0.5 + part / 2.0)).await;
}
