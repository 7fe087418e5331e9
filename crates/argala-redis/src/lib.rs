//! What replicas share by way of Redis: limits, counters and pokes.
//!
//! - [`Redis`]: the connections, and the ports over them.
//! - [`Options`]: where Redis is, and how long it may take.
//!
//! Redis is never needed: nothing here fails a request or holds one up for longer than
//! [`Options::limiter_timeout`]. While it is away each replica limits to its share of the rates,
//! and streams are told to resync when it is back.
//!
//! What it does not do: no rules of its own (the limiter's script is a translation of
//! [`argala_core::rules::rate`]), nothing that must last, no environment.

mod counters;
mod limiter;
mod link;
mod names;
mod options;
mod pokes;
mod script;

use std::{sync::Arc, time::Duration};

use argala_core::{
    memory::MemoryPokes,
    ports::{Clock, CounterStore, PokeSink, PokeSource, Random, RateLimiter, RateLimiters},
};
use argala_wire::limits::{Bucket, Rate, RateLimits};
use fred::{clients::Client, interfaces::ClientLike as _, types::config::Config};
use futures_util::FutureExt as _;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use counters::RedisCounters;
use limiter::{RedisLimiter, Replicas, Time};
use link::{Link, Words, ping};
use names::Names;
use pokes::{Listener, Publisher, RedisPokes};

pub use options::{Options, OptionsError};

/// After how much silence a replica counts as gone.
const GONE_AFTER: Duration = Duration::from_secs(10);

const LIMITS: Words = Words {
    lost: "Redis is away: this replica limits to its share of the rates",
    back: "Redis answers: limits are shared",
};

/// Redis, used by one replica. Nothing is connected before a port is asked for; what then runs in
/// the background ends with [`close`](Self::close), or when this is dropped.
pub struct Redis {
    options: Options,
    config: Config,
    names: Names,
    /// What this replica calls itself.
    own: String,
    replicas: Arc<Replicas>,
    tasks: TaskTracker,
    closing: CancellationToken,
    links: std::sync::Mutex<Links>,
}

#[derive(Default)]
struct Links {
    limiter: Option<Arc<Link>>,
    pokes: Option<(Arc<Link>, Arc<Link>, Arc<Listener>)>,
}

/// How things stand with Redis. What no port was asked for counts as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Whether every connection is well, and all that is to be listened for is.
    pub up: bool,
    /// Whether this replica limits by itself, to its share of the rates.
    pub limiter_fallback: bool,
    /// How many replicas share the rates, as far as is known.
    pub replicas: u32,
    /// How often all of this replica's streams were told to resync since it started.
    pub resyncs: u64,
}

impl Redis {
    /// A replica's use of Redis.
    ///
    /// # Errors
    /// [`OptionsError`] where they cannot be used; never because Redis is away.
    pub fn new(options: Options, random: &dyn Random) -> Result<Self, OptionsError> {
        options.check_prefix()?;
        let config = options.config()?;
        let own = random
            .bytes::<8>()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Self {
            names: Names::new(&options.prefix),
            options,
            config,
            own,
            replicas: Arc::new(Replicas::new()),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            links: std::sync::Mutex::default(),
        })
    }

    /// A limiter for each bucket. `clock` is for the buckets that this replica keeps itself.
    ///
    /// Must be called within a runtime of tokio, and once.
    #[must_use]
    pub fn limiters(&self, rates: &RateLimits, clock: &Arc<dyn Clock>) -> RateLimiters {
        let link = Arc::new(self.link(self.options.limiter_timeout, LIMITS));
        let since = Instant::now();
        let limiter = |bucket, rate| {
            let time = Time::Redis { since };
            self.limiter(&link, bucket, rate, time, clock)
        };
        let limiters = [
            limiter(Bucket::Push, rates.push),
            limiter(Bucket::Pull, rates.pull),
            limiter(Bucket::Blobs, rates.blobs),
            limiter(Bucket::Keys, rates.keys),
        ];
        self.watch_limits(&link, limiters.to_vec());
        self.links().limiter = Some(link);
        let [push, pull, blobs, keys] = limiters.map(|limiter| limiter as Arc<dyn RateLimiter>);
        RateLimiters {
            push,
            pull,
            blobs,
            keys,
        }
    }

    /// One limiter that goes by `clock` and never by Redis's: for tests, which move time.
    ///
    /// Must be called within a runtime of tokio, and once.
    #[must_use]
    pub fn limiter_on(&self, clock: &Arc<dyn Clock>, rate: Rate) -> Arc<dyn RateLimiter> {
        let link = Arc::new(self.link(self.options.limiter_timeout, LIMITS));
        let time = Time::Given(Arc::clone(clock));
        let limiter = self.limiter(&link, Bucket::Push, rate, time, clock);
        self.watch_limits(&link, vec![Arc::clone(&limiter)]);
        self.links().limiter = Some(link);
        limiter
    }

    fn limiter(
        &self,
        link: &Arc<Link>,
        bucket: Bucket,
        rate: Rate,
        time: Time,
        clock: &Arc<dyn Clock>,
    ) -> Arc<RedisLimiter> {
        let (link, names) = (Arc::clone(link), self.names.clone());
        Arc::new(RedisLimiter::new(
            link,
            names,
            bucket,
            rate,
            time,
            Arc::clone(clock),
        ))
    }

    /// Keeps the limiters' connection, and this replica among those that are counted.
    fn watch_limits(&self, link: &Arc<Link>, limiters: Vec<Arc<RedisLimiter>>) {
        let key = self.names.key(&["replicas"]);
        let (own, replicas) = (self.own.clone(), Arc::clone(&self.replicas));
        let limiters = Arc::new(limiters);
        let probe = move |client: Client| {
            let (key, own) = (key.clone(), own.clone());
            let (replicas, limiters) = (Arc::clone(&replicas), Arc::clone(&limiters));
            async move {
                ping(&client).await?;
                // A write, too: a server that takes none is of no use here.
                let silence = GONE_AFTER.as_millis().to_string();
                let plain = client.with_options(&fred::types::config::Options::default());
                let count = script::BEAT.run(&plain, &key, vec![own, silence]).await?;
                let count = u32::try_from(count).unwrap_or(1).max(1);
                if replicas.set(count) {
                    for limiter in limiters.iter() {
                        limiter.share_with(count);
                    }
                }
                Ok(())
            }
            .boxed()
        };
        let supervised = Arc::clone(link).supervise(Box::new(probe), self.closing.clone());
        self.tasks.spawn(supervised);
    }

    /// Both ends of what carries pokes from replica to replica.
    ///
    /// Must be called within a runtime of tokio, and once.
    #[must_use]
    pub fn pokes(&self) -> (Arc<dyn PokeSink>, Arc<dyn PokeSource>) {
        let local = Arc::new(MemoryPokes::new());
        let out = Arc::new(self.link(
            self.options.timeout,
            Words {
                lost: "Redis is away: streams of other replicas are not told of changes here",
                back: "Redis answers: streams of other replicas are told of changes here",
            },
        ));
        let publisher = Publisher::new(Arc::clone(&out), self.names.clone(), self.own.clone());
        let publisher = Arc::new(publisher);
        let into = Arc::new(self.link(
            self.options.timeout,
            Words {
                lost: "Redis is away: streams here are not told of changes at other replicas",
                back: "Redis answers: streams here are told of changes at other replicas",
            },
        ));
        let (listener, changes) = Listener::new(
            Arc::clone(&into),
            self.names.clone(),
            self.own.clone(),
            Arc::clone(&local),
        );
        let listener = Arc::new(listener);
        let closing = &self.closing;
        let pings = Box::new(|client: Client| async move { ping(&client).await }.boxed());
        self.tasks
            .spawn(Arc::clone(&out).supervise(pings, closing.clone()));
        self.tasks
            .spawn(Arc::clone(&publisher).make_up(closing.clone()));
        self.tasks
            .spawn(Arc::clone(&into).supervise(pokes::probe(), closing.clone()));
        self.tasks
            .spawn(Arc::clone(&listener).listen(changes, closing.clone()));
        self.links().pokes = Some((out, into, Arc::clone(&listener)));
        let pokes = Arc::new(RedisPokes {
            local,
            publisher,
            listener,
        });
        (Arc::<RedisPokes>::clone(&pokes), pokes)
    }

    /// Counters, for whoever wants to count something else.
    ///
    /// Must be called within a runtime of tokio.
    #[must_use]
    pub fn counters(&self) -> Arc<dyn CounterStore> {
        let link = Arc::new(self.link(
            self.options.timeout,
            Words {
                lost: "Redis is away: there are no shared counters",
                back: "Redis answers: there are shared counters",
            },
        ));
        let pings = Box::new(|client: Client| async move { ping(&client).await }.boxed());
        self.tasks
            .spawn(Arc::clone(&link).supervise(pings, self.closing.clone()));
        Arc::new(RedisCounters {
            link,
            names: self.names.clone(),
        })
    }

    /// How things stand.
    #[must_use]
    pub fn status(&self) -> Status {
        let links = self.links();
        let limiter_up = links.limiter.as_ref().is_none_or(|link| link.is_up());
        let pokes = links.pokes.as_ref();
        let pokes_up = pokes.is_none_or(|(out, into, listener)| {
            out.is_up() && into.is_up() && listener.is_listening()
        });
        Status {
            up: limiter_up && pokes_up,
            limiter_fallback: !limiter_up,
            replicas: self.replicas.count(),
            resyncs: pokes.map_or(0, |(_, _, listener)| listener.resyncs()),
        }
    }

    /// Ends what runs in the background, and gives up this replica's part in the rates.
    pub async fn close(&self) {
        let client = self
            .links()
            .limiter
            .as_ref()
            .and_then(|link| Some((Arc::clone(link), link.client()?)));
        if let Some((link, client)) = client {
            let key = self.names.key(&["replicas"]);
            let _ = link
                .ask(script::LEAVE.run(&client, &key, vec![self.own.clone()]))
                .await;
        }
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn link(&self, patience: Duration, words: Words) -> Link {
        Link::new(&self.options, self.config.clone(), patience, words)
    }

    fn links(&self) -> std::sync::MutexGuard<'_, Links> {
        self.links
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}
