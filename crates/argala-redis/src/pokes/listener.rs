//! What the others tell this replica.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use argala_core::{memory::MemoryPokes, ports::PokeSink as _};
use argala_wire::MemberId;
use fred::{
    clients::Client,
    error::{Error, ErrorKind},
    interfaces::{
        ClientLike as _, ClusterInterface as _, EventInterface as _, PubsubInterface as _,
    },
    types::{Value, config::Server},
};
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::message::Message;
use crate::{
    link::{Link, State, ping},
    names::Names,
};

/// Channels in one command.
const CHANNELS: usize = 1_000;
/// Commands for a cluster that are under way at once: there each channel is one of its own.
const AT_ONCE: usize = 64;
/// Changes of interest that are looked at together.
const BATCH: usize = 1_000;
/// How often a cluster is asked, in heartbeats, whether its slots lie where they did.
const LOOK: u64 = 5;

/// Somebody came to a member's channel, or the last one left it.
struct Change {
    member: MemberId,
    /// Told when this replica listens, or cannot.
    heard: Option<oneshot::Sender<()>>,
}

pub(crate) struct Listener {
    link: Arc<Link>,
    names: Names,
    own: String,
    local: Arc<MemoryPokes>,
    /// How many subscriptions there are of each member.
    interest: Mutex<HashMap<MemberId, usize>>,
    changes: mpsc::UnboundedSender<Change>,
    resyncs: AtomicU64,
    /// Whether everything of interest is listened for.
    is_listening: AtomicBool,
}

/// What one connection has been asked for.
#[derive(Default)]
struct Listening {
    client: Option<(Client, u64)>,
    everybody: bool,
    members: HashSet<MemberId>,
}

impl Listener {
    /// A listener, and what its task is woken by.
    pub(crate) fn new(
        link: Arc<Link>,
        names: Names,
        own: String,
        local: Arc<MemoryPokes>,
    ) -> (Self, Changes) {
        let (changes, woken) = mpsc::unbounded_channel();
        let listener = Self {
            link,
            names,
            own,
            local,
            interest: Mutex::default(),
            changes,
            resyncs: AtomicU64::new(0),
            is_listening: AtomicBool::new(false),
        };
        (listener, Changes(woken))
    }

    /// How often all streams of this replica were told to resync.
    pub(crate) fn resyncs(&self) -> u64 {
        self.resyncs.load(Ordering::Relaxed)
    }

    /// Whether everything of interest is listened for.
    pub(crate) fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed)
    }

    /// One more subscription of a member. What is given is told when this replica listens, or
    /// cannot now.
    pub(crate) fn enter(&self, member: &MemberId) -> Option<oneshot::Receiver<()>> {
        *self.interest().entry(member.clone()).or_default() += 1;
        let (heard, hears) = oneshot::channel();
        let change = Change {
            member: member.clone(),
            heard: Some(heard),
        };
        // Even where there are others already: they may not be listened for yet.
        self.changes.send(change).ok().map(|()| hears)
    }

    /// One less.
    pub(crate) fn leave(&self, member: &MemberId) {
        {
            let mut interest = self.interest();
            let Entry::Occupied(mut count) = interest.entry(member.clone()) else {
                return;
            };
            *count.get_mut() -= 1;
            if *count.get() > 0 {
                return;
            }
            count.remove();
        }
        let member = member.clone();
        // A listener that has ended has nothing to leave.
        let _ = self.changes.send(Change {
            member,
            heard: None,
        });
    }

    fn interest(&self) -> std::sync::MutexGuard<'_, HashMap<MemberId, usize>> {
        lock(&self.interest)
    }

    /// Listens until `closing`.
    pub(crate) async fn listen(self: Arc<Self>, changes: Changes, closing: CancellationToken) {
        tokio::select! {
            () = self.run(changes.0) => {}
            () = closing.cancelled() => {}
        }
    }

    async fn run(&self, mut changes: mpsc::UnboundedReceiver<Change>) {
        let mut state = self.link.watch();
        let mut listening = Listening::default();
        let mut messages = None;
        let mut batch = Vec::new();
        // Who is connected before there was a connection has been told nothing yet.
        self.follow(&mut state, &mut listening, &mut messages).await;
        loop {
            tokio::select! {
                changed = state.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.follow(&mut state, &mut listening, &mut messages).await;
                }
                count = changes.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    self.look(mem::take(&mut batch), &mut listening).await;
                }
                message = next(&mut messages) => match message {
                    Ok(message) => self.hear(message).await,
                    Err(broadcast::error::RecvError::Lagged(lost)) => {
                        tracing::warn!(lost, "pokes were lost; streams are told to resync");
                        self.resync();
                    }
                    // The connection's end, of which the link tells.
                    Err(broadcast::error::RecvError::Closed) => {
                        messages = None;
                    }
                },
            }
        }
    }

    /// Takes note of the link's state; on a new connection listens for everything anew.
    async fn follow(
        &self,
        state: &mut watch::Receiver<State>,
        listening: &mut Listening,
        messages: &mut Option<broadcast::Receiver<fred::types::Message>>,
    ) {
        let State::Up { client, number } = state.borrow_and_update().clone() else {
            self.is_listening.store(false, Ordering::Relaxed);
            return;
        };
        let done = if listening.client.as_ref().map(|(_, number)| *number) == Some(number) {
            // The same one was in doubt. What came in between was kept; what was to be listened
            // for was not.
            let missing = self.missing(listening);
            let done = self.subscribe(&missing, listening).await;
            if done {
                for member in &missing {
                    self.local.resync_member(member);
                }
            }
            done
        } else {
            // Before anything can come.
            *messages = Some(client.message_rx());
            *listening = Listening {
                client: Some((client, number)),
                ..Listening::default()
            };
            let done = self.subscribe(&self.missing(listening), listening).await;
            if done {
                self.resync();
            }
            done
        };
        self.is_listening.store(done, Ordering::Relaxed);
    }

    /// Who is of interest and is not listened for.
    fn missing(&self, listening: &Listening) -> Vec<MemberId> {
        let interest = self.interest();
        let missing = interest.keys();
        missing
            .filter(|member| !listening.members.contains(*member))
            .cloned()
            .collect()
    }

    async fn look(&self, batch: Vec<Change>, listening: &mut Listening) {
        let (mut come, mut gone) = (Vec::new(), Vec::new());
        {
            let interest = self.interest();
            let mut seen = HashSet::new();
            for change in &batch {
                if !seen.insert(&change.member) {
                    continue;
                }
                let wanted = interest.contains_key(&change.member);
                let there = listening.members.contains(&change.member);
                if wanted && !there {
                    come.push(change.member.clone());
                } else if there && !wanted {
                    gone.push(change.member.clone());
                }
            }
        }
        if !come.is_empty() {
            self.subscribe(&come, listening).await;
        }
        for heard in batch.into_iter().filter_map(|change| change.heard) {
            // Whoever asked may have gone.
            let _ = heard.send(());
        }
        if !gone.is_empty() {
            self.unsubscribe(gone, listening).await;
        }
    }

    /// Listens for these, too; whether that could be done.
    async fn subscribe(&self, members: &[MemberId], listening: &mut Listening) -> bool {
        let Some((client, _)) = listening.client.clone().filter(|_| self.link.is_up()) else {
            return false;
        };
        let mut channels: Vec<_> = members
            .iter()
            .map(|member| self.names.channel(member))
            .collect();
        if !listening.everybody {
            channels.push(self.names.everybody());
        }
        for some in channels.chunks(CHANNELS) {
            let asked = if self.link.is_clustered() {
                self.link.ask(subscribe_sharded(&client, some)).await
            } else {
                self.link.ask(subscribe(&client, some)).await
            };
            if asked.is_none() {
                return false;
            }
        }
        listening.everybody = true;
        listening.members.extend(members.iter().cloned());
        true
    }

    async fn unsubscribe(&self, members: Vec<MemberId>, listening: &mut Listening) {
        let Some((client, _)) = listening.client.clone() else {
            return;
        };
        for member in members {
            listening.members.remove(&member);
            let channel = self.names.channel(&member);
            // Nobody waits for it, and what still comes finds nobody.
            let asked = if self.link.is_clustered() {
                self.link.ask(client.sunsubscribe(channel)).await
            } else {
                self.link.ask(client.unsubscribe(channel)).await
            };
            if asked.is_none() {
                return;
            }
        }
    }

    async fn hear(&self, message: fred::types::Message) {
        let text = message.value.as_string().unwrap_or_default();
        let read: Option<Message> = serde_json::from_str(&text).ok();
        if read
            .as_ref()
            .is_some_and(|message| message.from == self.own)
        {
            return;
        }
        let channel: &str = &message.channel;
        if channel == self.names.everybody() {
            return self.resync();
        }
        let Some(member) = self.names.member(channel) else {
            return;
        };
        match read.and_then(|message| message.into_poke(member.clone())) {
            Some(poke) => {
                // In memory: it neither waits nor fails.
                let _ = self.local.poke(&poke).await;
            }
            None => self.local.resync_member(&member),
        }
    }

    fn resync(&self) {
        self.resyncs.fetch_add(1, Ordering::Relaxed);
        self.local.resync();
    }
}

/// The next message; none ever where there is no connection.
async fn next(
    messages: &mut Option<broadcast::Receiver<fred::types::Message>>,
) -> Result<fred::types::Message, broadcast::error::RecvError> {
    match messages {
        Some(messages) => messages.recv().await,
        None => std::future::pending().await,
    }
}

/// What wakes a listener's task.
pub(crate) struct Changes(mpsc::UnboundedReceiver<Change>);

/// The library does not wait for what Redis says to a SUBSCRIBE; a ping behind it on the same
/// connection is answered after it.
async fn subscribe(client: &Client, channels: &[String]) -> Result<(), Error> {
    client.subscribe(channels.to_vec()).await?;
    let _: String = client.ping(None).await?;
    Ok(())
}

async fn subscribe_sharded(client: &Client, channels: &[String]) -> Result<(), Error> {
    stream::iter(channels.to_vec())
        .map(|channel| client.ssubscribe(channel))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// What a probe knows of one client.
struct Known {
    slots: String,
    /// Tells of connections that the library has made anew by itself.
    renewed: broadcast::Receiver<Server>,
}

/// Whether a listener's connection is well. A cluster that has moved slots has dropped the
/// subscriptions in them, and so has the library where it made a connection to a node anew: neither
/// says so to whoever listens, so it is looked for. Then the connection is not well.
pub(crate) fn probe() -> crate::link::Probe {
    let turn = Arc::new(AtomicU64::new(0));
    let known: Arc<Mutex<HashMap<String, Known>>> = Arc::default();
    Box::new(
        move |client: Client| -> BoxFuture<'static, Result<(), Error>> {
            let turn = turn.fetch_add(1, Ordering::Relaxed);
            let known = Arc::clone(&known);
            async move {
                ping(&client).await?;
                if !client.is_clustered() {
                    return Ok(());
                }
                let is_known = lock(&known).contains_key(client.id());
                let slots = if is_known && !turn.is_multiple_of(LOOK) {
                    None
                } else {
                    Some(map(&client.cluster_slots::<Value>().await?))
                };
                let mut known = lock(&known);
                let Some(before) = known.get_mut(client.id()) else {
                    // Others are of connections that have gone.
                    known.clear();
                    let renewed = client.reconnect_rx();
                    let slots = slots.unwrap_or_default();
                    known.insert(client.id().to_owned(), Known { slots, renewed });
                    return Ok(());
                };
                let is_renewed = !matches!(
                    before.renewed.try_recv(),
                    Err(broadcast::error::TryRecvError::Empty)
                );
                if is_renewed || slots.is_some_and(|slots| slots != before.slots) {
                    return Err(Error::new(ErrorKind::Cluster, "subscriptions are gone"));
                }
                Ok(())
            }
            .boxed()
        },
    )
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which node has which slots, of an answer to CLUSTER SLOTS: lists of a first slot, a last one,
/// and nodes, the one that has them first, each with its name in the third place.
fn map(answer: &Value) -> String {
    let Value::Array(ranges) = answer else {
        return String::new();
    };
    let mut map: Vec<_> = ranges
        .iter()
        .map(|range| match range {
            Value::Array(parts) => match parts.get(..3) {
                Some([first, last, Value::Array(node)]) => {
                    format!("{first:?}-{last:?} {:?}", node.get(2))
                }
                _ => String::new(),
            },
            _ => String::new(),
        })
        .collect();
    map.sort();
    map.join(" ")
}
