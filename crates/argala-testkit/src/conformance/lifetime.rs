//! A blob's life in every order: put, put again, fetched, deleted and swept, by relays and sweeps
//! that die at any call of a port, over a store of objects that fails, answers late, and does what
//! it is told twice.
//!
//! What must hold in the end: a live row has its object; an object has a row, once the grace is
//! over; a graph is charged what its live blobs have; each blob's row goes once, and is told of
//! once by whoever removed it.

use std::{
    collections::BTreeMap,
    future::pending,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use argala_core::{
    Access, Gate, Identity, Relay, StoreError, StoreResult, Upload,
    ports::{BlobStore, ByteStream, Directory, ListedObject, ObjectKey, SweepStore},
    sweep::{Sweep, SweepOptions},
};
use argala_wire::{
    StorageKey,
    blobs::BlobPolicy,
    limits::{Bucket, Rate, RateLimits, Signatures},
};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use tokio::task::JoinHandle;

use super::{Fresh, relay::RelayPorts};
use crate::{
    EventLog, Interpose, Interposed, MemoryDirectory, TestClock, TestDevice, TestRandom, blob_id,
    eventually,
};

/// Stamps the suite; `$fresh` is the name of an `async fn() -> Fresh<RelayPorts>`.
#[macro_export]
macro_rules! lifetime_conformance {
    ($fresh:ident) => {
        $crate::stamp_cases! { $fresh, lifetime:
            a_life_in_every_order_1,
            a_life_in_every_order_2,
            a_life_in_every_order_3,
        }
    };
}

const GROUP: &str = "acme";
const IDS: [&str; 3] = [
    "a-blob-of-sixteen-1",
    "a-blob-of-sixteen-2",
    "a-blob-of-sixteen-3",
];
const LIVES: u64 = 12;
const STEPS: u64 = 60;
const PATIENCE: Duration = Duration::from_secs(120);

/// Numbers that look random, the same for the same seed.
struct Dice(AtomicU64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    fn roll(&self, sides: u64) -> u64 {
        let mut number = self.0.load(Ordering::Relaxed);
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        self.0.store(number, Ordering::Relaxed);
        (number >> 11) % sides
    }

    fn once_in(&self, times: u64) -> bool {
        self.roll(times) == 0
    }
}

/// What has become of blobs, whoever did it.
#[derive(Default)]
struct Book {
    lived: Mutex<BTreeMap<ObjectKey, u64>>,
    /// How often a row was removed, and whether that was to be told.
    dropped: Mutex<BTreeMap<ObjectKey, u64>>,
    to_tell: AtomicU64,
    /// Calls that a port is carrying out.
    inside: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process in whose way things are put.
struct Process {
    dice: Arc<Dice>,
    book: Arc<Book>,
    is_sweep: bool,
    troubled: AtomicBool,
    dead: AtomicBool,
}

#[async_trait]
impl Interpose for Process {
    async fn before(&self, operation: &'static str) -> StoreResult<()> {
        self.hold_up().await;
        if self.troubled.load(Ordering::SeqCst) && self.dice.once_in(12) {
            return Err(StoreError::unavailable(operation, "told to fail before"));
        }
        self.book.inside.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn lived(&self, object: &ObjectKey) {
        *locked(&self.book.lived).entry(object.clone()).or_default() += 1;
    }

    fn dropped(&self, object: &ObjectKey) {
        *locked(&self.book.dropped)
            .entry(object.clone())
            .or_default() += 1;
        // An upload that never lived is let go without a word by the relay that had it.
        if self.is_sweep || locked(&self.book.lived).contains_key(object) {
            self.book.to_tell.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn after(&self, operation: &'static str) -> StoreResult<()> {
        self.book.inside.fetch_sub(1, Ordering::SeqCst);
        // Who removes a row and dies before telling tells nothing, and nobody else does: the one
        // thing that is left to chance, so it is left out here.
        if operation == "drop_blob" {
            return Ok(());
        }
        self.hold_up().await;
        if self.troubled.load(Ordering::SeqCst) && self.dice.once_in(12) {
            return Err(StoreError::unavailable(operation, "the answer was lost"));
        }
        Ok(())
    }
}

impl Process {
    /// Lets others go first, and lets nobody by who is dead.
    async fn hold_up(&self) {
        for _ in 0..self.dice.roll(3) {
            tokio::task::yield_now().await;
        }
        if self.dead.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
    }
}

/// A store of objects that carries puts out after it has said that they failed, and deletes twice.
struct Late {
    inner: Arc<dyn BlobStore>,
    dice: Arc<Dice>,
    calm: AtomicBool,
    under_way: Mutex<Vec<JoinHandle<()>>>,
}

#[async_trait]
impl BlobStore for Late {
    async fn put(&self, key: &ObjectKey, size: u64, body: ByteStream) -> StoreResult<()> {
        if self.calm.load(Ordering::SeqCst) || !self.dice.once_in(5) {
            return self.inner.put(key, size, body).await;
        }
        let pieces: Vec<Bytes> = body
            .try_collect()
            .await
            .map_err(|error| StoreError::unavailable("take a body", error))?;
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        let wait = Duration::from_millis(self.dice.roll(20));
        locked(&self.under_way).push(tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let body = Box::pin(stream::iter(pieces.into_iter().map(Ok)));
            // Where the key is taken it came through before.
            let _ = inner.put(&key, size, body).await;
        }));
        Err(StoreError::unavailable(
            "store an object",
            "it takes its time",
        ))
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> StoreResult<Option<ByteStream>> {
        self.inner.get(key, range).await
    }

    async fn delete(&self, key: &ObjectKey) -> StoreResult<()> {
        if self.dice.once_in(6) {
            self.inner.delete(key).await?;
        }
        self.inner.delete(key).await
    }

    async fn list(
        &self,
        instance: &str,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> StoreResult<Vec<ListedObject>> {
        self.inner.list(instance, after, limit).await
    }
}

/// A relay and a sweep that live and die together, as in one process.
struct Pair {
    relay: Arc<Relay>,
    sweep: Arc<Sweep>,
    accesses: [Access; 2],
    of_relay: Arc<Process>,
    of_sweep: Arc<Process>,
}

struct Life {
    store: Arc<dyn SweepStore>,
    blobs: Arc<Late>,
    directory: Arc<dyn Directory>,
    clock: TestClock,
    events: EventLog,
    dice: Arc<Dice>,
    book: Arc<Book>,
    devices: [TestDevice; 2],
    seeds: AtomicU64,
}

fn key() -> StorageKey {
    StorageKey::group(&crate::group(GROUP))
}

impl Life {
    async fn begin(ports: &RelayPorts, seed: u64) -> Self {
        let clock = TestClock::new();
        // The store of objects has the world's clock; all that it lists is to be old here.
        clock.advance(Duration::from_secs(3_650 * 24 * 60 * 60));
        let dice = Arc::new(Dice::new(seed));
        let life = Self {
            store: Arc::clone(&ports.store),
            blobs: Arc::new(Late {
                inner: Arc::clone(&ports.blobs),
                dice: Arc::clone(&dice),
                calm: AtomicBool::new(false),
                under_way: Mutex::default(),
            }),
            directory: Arc::new(MemoryDirectory::of(
                &["sam", "alex"],
                &[(GROUP, &["sam", "alex"])],
            )),
            clock,
            events: EventLog::new(),
            dice,
            book: Arc::default(),
            devices: [TestDevice::new("sam", "a"), TestDevice::new("alex", "b")],
            seeds: AtomicU64::new(seed << 20),
        };
        let first = life.bare();
        for device in &life.devices {
            let caller = first
                .admit(identity(device), Bucket::Keys, Gate::Anyone)
                .await;
            let request = device.register_request();
            let registering = caller.expect("a member");
            first
                .register(&registering, request)
                .await
                .expect("registers");
        }
        let access = open(&first, &life.devices[0]).await;
        let request = argala_wire::keys::RotateRequest {
            epoch: 1,
            wraps: life
                .devices
                .iter()
                .map(|it| it.rotate_wrap("key"))
                .collect(),
        };
        // Another life in the same store has begun it.
        let _ = first.rotate(&access, request).await;
        life
    }

    fn bare(&self) -> Arc<Relay> {
        let blobs: Arc<dyn BlobStore> = Arc::<Late>::clone(&self.blobs);
        let store: Arc<dyn SweepStore> = Arc::clone(&self.store);
        self.relay(store, blobs)
    }

    fn relay(&self, store: Arc<dyn SweepStore>, blobs: Arc<dyn BlobStore>) -> Arc<Relay> {
        let plenty = Rate {
            per_minute: 1_000_000,
            burst: 1_000_000,
        };
        Relay::builder(store, blobs, Arc::clone(&self.directory))
            .clock(Arc::new(self.clock.clone()))
            .random(Arc::new(TestRandom::new(
                self.seeds.fetch_add(1, Ordering::Relaxed),
            )))
            .rate_limits(RateLimits {
                push: plenty,
                pull: plenty,
                blobs: plenty,
                keys: plenty,
            })
            .signatures(Signatures::Required)
            .events(self.events.clone())
            .build()
    }

    fn process(&self, is_sweep: bool) -> Arc<Process> {
        Arc::new(Process {
            dice: Arc::clone(&self.dice),
            book: Arc::clone(&self.book),
            is_sweep,
            troubled: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        })
    }

    async fn pair(&self, troubled: bool) -> Pair {
        let (of_relay, of_sweep) = (self.process(false), self.process(true));
        let ports = |process: &Arc<Process>| {
            let between = || Arc::clone(process) as Arc<dyn Interpose>;
            let store: Arc<dyn SweepStore> = Interposed::new(Arc::clone(&self.store), between());
            let blobs: Arc<dyn BlobStore> = Arc::<Late>::clone(&self.blobs);
            let blobs: Arc<dyn BlobStore> = Interposed::new(blobs, between());
            (store, blobs)
        };
        let (store, blobs) = ports(&of_relay);
        let relay = self.relay(store, blobs);
        let (store, blobs) = ports(&of_sweep);
        let options = SweepOptions {
            batch: 2,
            ..SweepOptions::default()
        };
        let sweep = Sweep::new(store, blobs, Arc::clone(&self.directory), options)
            .clock(Arc::new(self.clock.clone()))
            .events(Arc::new(self.events.clone()));
        let accesses = [
            open(&relay, &self.devices[0]).await,
            open(&relay, &self.devices[1]).await,
        ];
        for process in [&of_relay, &of_sweep] {
            process.troubled.store(troubled, Ordering::SeqCst);
        }
        Pair {
            relay,
            sweep: Arc::new(sweep),
            accesses,
            of_relay,
            of_sweep,
        }
    }

    fn act(&self, pair: &Pair) -> JoinHandle<()> {
        let (relay, sweep) = (Arc::clone(&pair.relay), Arc::clone(&pair.sweep));
        let access = pair.accesses[self.dice.roll(2) as usize].clone();
        let id = blob_id(IDS[self.dice.roll(3) as usize]);
        let content = [b'a' + self.dice.roll(2) as u8; 20];
        let (policy, ttl_seconds) = match self.dice.roll(3) {
            0 => (BlobPolicy::Keep, None),
            1 => (BlobPolicy::Expire, Some(60)),
            _ => (BlobPolicy::Deliver, None),
        };
        let what = self.dice.roll(10);
        tokio::spawn(async move {
            match what {
                0..=3 => {
                    let body = [Ok(Bytes::copy_from_slice(&content))];
                    let upload = Upload {
                        id,
                        size: 20,
                        policy,
                        ttl_seconds,
                        digest: None,
                        body: Box::pin(stream::iter(body)),
                    };
                    let _ = relay.put_blob(&access, upload).await;
                }
                4 | 5 => {
                    if let Ok(blob) = relay.blob(&access, &id).await
                        && let Ok(bytes) = relay.read_blob(&access, &blob, None).await
                    {
                        let _ = bytes.try_collect::<Vec<_>>().await;
                    }
                }
                6 => drop(relay.forget_blob(&access, id).await),
                _ => drop(sweep.pass().await),
            }
        })
    }

    async fn lead(&self) {
        let mut pairs = [self.pair(true).await, self.pair(true).await];
        for _ in 0..STEPS {
            let at = self.dice.roll(2) as usize;
            match self.dice.roll(12) {
                0 => {
                    for process in [&pairs[at].of_relay, &pairs[at].of_sweep] {
                        process.dead.store(true, Ordering::SeqCst);
                    }
                    pairs[at] = self.pair(true).await;
                }
                1 => {
                    let waits = [1, 61, 1_900];
                    let wait = waits[self.dice.roll(3) as usize];
                    self.clock.advance(Duration::from_secs(wait));
                }
                2 | 3 => tokio::time::sleep(Duration::from_millis(2)).await,
                _ => drop(self.act(&pairs[at])),
            }
        }
        for pair in &pairs {
            for process in [&pair.of_relay, &pair.of_sweep] {
                process.dead.store(true, Ordering::SeqCst);
            }
        }
        // What is in the middle of a call ends it, and is held up at the next for good.
        let inside = || self.book.inside.load(Ordering::SeqCst);
        eventually("no call is carried out", || async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            (inside() == 0).then_some(())
        })
        .await;
        let under_way = std::mem::take(&mut *locked(&self.blobs.under_way));
        for put in under_way {
            put.await.expect("it does not panic");
        }
        self.blobs.calm.store(true, Ordering::SeqCst);
    }

    async fn end(&self) {
        let last = self.pair(false).await;
        // Uploads are past their grace, objects old, and removals nobody else's any more.
        for _ in 0..3 {
            self.clock.advance(Duration::from_secs(2 * 60 * 60));
            let mut report = last.sweep.pass().await.expect("nothing fails now");
            while report.cut_short {
                report = last.sweep.pass().await.expect("nothing fails now");
            }
            assert_eq!((report.failed, report.doubts), (0, 0), "{report:?}");
        }
        let now = argala_core::ports::Clock::now(&self.clock);
        let mut live = BTreeMap::new();
        for id in IDS {
            if let Some(blob) = self
                .store
                .blob(&key(), &blob_id(id), now)
                .await
                .expect("answered")
            {
                let bytes = self.blobs.get(&blob.object, None).await.expect("answered");
                let bytes = bytes.expect("a live row has its object");
                let bytes: Vec<Bytes> = bytes.try_collect().await.expect("whole");
                assert_eq!(bytes.concat().len() as u64, blob.size);
                live.insert(blob.object.clone(), blob.size);
            }
        }
        let listed = self.blobs.list(self.store.instance(), None, 1_000).await;
        let listed: Vec<_> = listed
            .expect("listed")
            .into_iter()
            .map(|object| object.key)
            .collect();
        let rows: Vec<_> = live.keys().cloned().collect();
        assert_eq!(
            listed, rows,
            "every object has a live row, and every row an object"
        );
        let recount = self.store.recount(&key()).await.expect("answered");
        let recount = recount.expect("there");
        assert_eq!(recount.stored, recount.counted);
        assert_eq!(recount.stored.blob_bytes, live.values().sum::<u64>());
        let dropped = locked(&self.book.dropped).clone();
        assert!(dropped.values().all(|times| *times == 1), "{dropped:?}");
        assert!(live.keys().all(|object| !dropped.contains_key(object)));
        let lived = locked(&self.book.lived).clone();
        for object in lived.keys() {
            assert!(live.contains_key(object) || dropped.contains_key(object));
        }
        let told = self.events.take_names();
        let told = told.iter().filter(|name| **name == "blob.forget").count();
        assert_eq!(told as u64, self.book.to_tell.load(Ordering::SeqCst));
        // The next life begins with nothing.
        for id in IDS {
            let _ = last.relay.forget_blob(&last.accesses[0], blob_id(id)).await;
        }
    }
}

fn identity(device: &TestDevice) -> Identity {
    Identity {
        device: device.to_ref(),
        expires_at: None,
    }
}

async fn open(relay: &Arc<Relay>, device: &TestDevice) -> Access {
    let caller = relay
        .admit(identity(device), Bucket::Blobs, Gate::Registered)
        .await;
    let caller = caller.expect("a member");
    let graph = format!("g:{GROUP}").parse().expect("a graph");
    relay
        .open_graph(caller, &graph)
        .await
        .expect("of the group")
}

async fn lives(fresh: Fresh<RelayPorts>, seed: u64) {
    for round in 0..LIVES {
        let life = Life::begin(fresh.replica(0), seed * 1_000 + round).await;
        let led = tokio::time::timeout(PATIENCE, async {
            life.lead().await;
            life.end().await;
        });
        assert!(led.await.is_ok(), "round {round} hangs");
    }
}

/// Told as the module has it.
pub async fn a_life_in_every_order_1(fresh: Fresh<RelayPorts>) {
    lives(fresh, 1).await;
}

/// Told as the module has it.
pub async fn a_life_in_every_order_2(fresh: Fresh<RelayPorts>) {
    lives(fresh, 2).await;
}

/// Told as the module has it.
pub async fn a_life_in_every_order_3(fresh: Fresh<RelayPorts>) {
    lives(fresh, 3).await;
}
