//! One pair's members, graph and relays.

use std::{sync::Arc, time::Duration};

use argala_core::{
    Access, Caller, Fault, Gate as Admission, IdempotencyKey, Identity, Outcome, Relay,
    StoreErrorKind,
    memory::MemoryLimiter,
    ports::{
        BlobStore, Clock as _, Directory, Event, EventSink as _, ForgetReason, Poke, SweepStore,
    },
    sweep::{Sweep, SweepOptions},
};
use argala_wire::{
    GroupId, StorageKey,
    blobs::BlobPolicy,
    limits::{Bucket, RateLimits, Signatures},
    records::PushRequest,
};
use tokio::{task::JoinHandle, time::Instant};

use super::{
    Replica,
    gate::{Gate, Statements, Step, Stop},
    seen::{Seen, nothing_is_told_amiss},
    writes::{CONTENT, Told, Write, rotation, upload},
};
use crate::{
    Interposed, MemoryDirectory, PATIENCE, TestClock, TestDevice, TestRandom, blob_id,
    conformance::{Fresh, relay::RelayPorts},
    group, member,
};

/// The id of a blob that is live from the beginning.
pub(super) const THERE: &str = "a-blob-that-is-there";
/// The id of a blob that is not there at the beginning.
pub(super) const NEW: &str = "a-blob-that-is-new";
/// The id of a blob whose time has passed.
pub(super) const EXPIRED: &str = "a-blob-that-is-over";
/// The id of a blob that everybody has fetched whom it is for.
pub(super) const DELIVERED: &str = "a-blob-that-is-delivered";

/// What the contents of the first write have in them.
pub(super) const FIRST: &str = "one";
/// What the contents of the second write have in them.
pub(super) const SECOND: &str = "two";

/// What a write is told that is to be tried again.
pub(super) const UNAVAILABLE: &str = "unavailable";

/// How long a write that waits for the other's locks is left to it: long enough that one that is
/// only slow comes on meanwhile.
const STUCK: Duration = Duration::from_millis(100);

/// A relay of a pair, with a gate before each of its ports.
pub(super) struct Side {
    /// What its contents have in them.
    pub(super) mark: &'static str,
    pub(super) relay: Arc<Relay>,
    pub(super) ports: RelayPorts,
    pub(super) gate: Arc<Gate>,
    statements: Statements,
}

impl Side {
    fn new(
        mark: &'static str,
        replica: &Replica,
        gate: Arc<Gate>,
        directory: &MemoryDirectory,
        clock: &TestClock,
        seed: u64,
    ) -> Self {
        let store: Arc<dyn SweepStore> =
            Interposed::new(Arc::clone(&replica.ports.store), gate.clone());
        let blobs: Arc<dyn BlobStore> =
            Interposed::new(Arc::clone(&replica.ports.blobs), gate.clone());
        let inner: Arc<dyn Directory> = Arc::new(directory.clone());
        let directory: Arc<dyn Directory> = Interposed::new(inner, gate.clone());
        let clock: Arc<dyn argala_core::ports::Clock> = Arc::new(clock.clone());
        let limiters = MemoryLimiter::for_each_bucket(&RateLimits::default(), &clock);
        let told = Arc::clone(&gate);
        let relay = Relay::builder(
            Arc::<dyn SweepStore>::clone(&store),
            Arc::clone(&blobs),
            directory,
        )
        .clock(clock)
        .random(Arc::new(TestRandom::new(seed)))
        .signatures(Signatures::Required)
        .limiters(gate.before_limiters(&limiters))
        .events(move |event: &Event| told.emit(event))
        .poke_sink(gate.clone())
        .build();
        Self {
            mark,
            relay,
            ports: RelayPorts { store, blobs },
            gate,
            statements: replica.statements.clone(),
        }
    }

    /// Waits for what goes on when the answer is there: it comes to the gate too.
    async fn settle(&self, told: &Told) {
        if told.revoked.is_some() {
            // The answer does not say whether there is anything to tell.
            self.relay.close().await;
            return;
        }
        let poked = async {
            while !self.gate.has_poked(told.pokes.len()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Where they do not come, this is told when all is over.
        drop(tokio::time::timeout(PATIENCE, poked).await);
    }

    /// The epoch of which its event of a grant tells.
    pub(super) fn told_epoch(&self) -> Option<u64> {
        self.gate.story().into_iter().find_map(|step| match step {
            Step::Event(Event::GraphGrant { epoch, .. }) => Some(epoch),
            _ => None,
        })
    }

    /// A sweep of the same ports, that takes `batch` rows at a time and asks `directory`.
    pub(super) fn sweep(
        &self,
        batch: usize,
        directory: &MemoryDirectory,
        clock: &TestClock,
    ) -> Sweep {
        let inner: Arc<dyn Directory> = Arc::new(directory.clone());
        let options = SweepOptions {
            grace: Duration::ZERO,
            batch,
            ..SweepOptions::default()
        };
        Sweep::new(
            Arc::clone(&self.ports.store),
            Arc::clone(&self.ports.blobs),
            Interposed::new(inner, self.gate.clone()),
            options,
        )
        .clock(Arc::new(clock.clone()))
        .events(self.gate.clone())
    }
}

pub(super) struct Stage {
    /// What the names of this stage alone have in them.
    tag: String,
    pub(super) first: Side,
    pub(super) second: Side,
    /// Sets the stage, and looks at what is there: without a gate.
    hand: Arc<Relay>,
    pub(super) store: Arc<dyn SweepStore>,
    pub(super) blobs: Arc<dyn BlobStore>,
    pub(super) directory: MemoryDirectory,
    pub(super) clock: TestClock,
    key: StorageKey,
    pub(super) laptop: TestDevice,
    pub(super) phone: TestDevice,
    /// Registered after the rotation: without a key.
    pub(super) late: TestDevice,
    pub(super) tablet: TestDevice,
    /// Not registered.
    pub(super) next: TestDevice,
}

/// The relays of a stage that is over come to their ends, which takes as long as equal pokes are
/// one; then all that they were to tell has been told.
pub(super) type Rest = JoinHandle<()>;

/// How the first write was held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldUp {
    /// It ended before it came so far.
    Not,
    /// Until the other had ended.
    Whole,
    /// Until the other waited for it.
    Awaited,
}

impl Stage {
    pub(super) fn new(fresh: &Fresh<Replica>, number: u64, stop: Stop) -> Self {
        let tag = format!("~{number:06}~");
        let (sam, alex) = (format!("sam{tag}"), format!("alex{tag}"));
        let acme = format!("acme{tag}");
        let directory = MemoryDirectory::of(&[&sam, &alex], &[(&acme, &[&sam, &alex])]);
        let clock = TestClock::new();
        let side = |mark, turn: usize, stop| {
            let (replica, seed) = (fresh.replica(turn), 3 * number + turn as u64);
            Side::new(mark, replica, Gate::at(stop), &directory, &clock, seed)
        };
        let (first, second) = (side(FIRST, 0, stop), side(SECOND, 1, Stop::Never));
        // By way of the replica of the first, which remembers what it did there.
        let ports = &fresh.replica(0).ports;
        let hand = Relay::builder(
            Arc::<dyn SweepStore>::clone(&ports.store),
            Arc::clone(&ports.blobs),
            Arc::new(directory.clone()),
        )
        .clock(Arc::new(clock.clone()))
        .random(Arc::new(TestRandom::new(3 * number + 2)))
        .signatures(Signatures::Required)
        .build();
        Self {
            first,
            second,
            hand,
            store: Arc::clone(&ports.store),
            blobs: Arc::clone(&ports.blobs),
            directory,
            clock,
            key: StorageKey::group(&group(&acme)),
            laptop: TestDevice::new(&sam, "laptop"),
            phone: TestDevice::new(&sam, "phone"),
            late: TestDevice::new(&sam, "late"),
            tablet: TestDevice::new(&alex, "tablet"),
            next: TestDevice::new(&sam, "next"),
            tag,
        }
    }

    /// One write, then the other, each whole.
    pub(super) async fn in_turn(self, first: Option<Write>, second: Option<Write>) -> (Seen, Rest) {
        self.set().await;
        let first = match first {
            Some(write) => self.told(write.run(&self, &self.first).await),
            None => Told::default(),
        };
        let second = match second {
            Some(write) => self.told(write.run(&self, &self.second).await),
            None => Told::default(),
        };
        self.end(first, second).await
    }

    /// The second write, then the first.
    pub(super) async fn backwards(self, first: Write, second: Write) -> (Seen, Rest) {
        self.set().await;
        let second = self.told(second.run(&self, &self.second).await);
        let first = self.told(first.run(&self, &self.first).await);
        self.end(first, second).await
    }

    /// The first write up to the stop, the second whole, the rest of the first. Where the second
    /// waits for a lock of the first, the first goes on when that is seen.
    pub(super) async fn held_up(self, first: Write, second: Write) -> ((Seen, Rest), HeldUp) {
        self.set().await;
        let (stage, writes) = (Arc::new(self), [first, second]);
        for side in [&stage.first, &stage.second] {
            side.statements.belong_to(Some(&side.gate));
        }
        let mut one = tokio::spawn({
            let stage = Arc::clone(&stage);
            async move {
                let side = &stage.first;
                let told = side.gate.around(first.run(&stage, side)).await;
                let told = stage.told(told);
                side.settle(&told).await;
                told
            }
        });
        let mut ended = None;
        tokio::select! {
            biased;
            () = stage.first.gate.reached() => {}
            told = &mut one => ended = Some(told.expect("it does not panic")),
        }
        let mut two = tokio::spawn({
            let stage = Arc::clone(&stage);
            async move { stage.told(second.run(&stage, &stage.second).await) }
        });
        let mut held_up = HeldUp::Not;
        let mut second = None;
        if ended.is_none() {
            held_up = HeldUp::Whole;
            tokio::select! {
                biased;
                told = &mut two => second = Some(told.expect("it does not panic")),
                () = stage.is_stuck() => held_up = HeldUp::Awaited,
            }
        }
        stage.first.gate.let_go();
        let first = match ended {
            Some(told) => told,
            None => one.await.expect("it does not panic"),
        };
        let second = match second {
            Some(told) => told,
            None => two.await.expect("it does not panic"),
        };
        let mut told = [
            (writes[0], &stage.first, first),
            (writes[1], &stage.second, second),
        ];
        for (write, side, told) in &mut told {
            // A sweep passes over what another has locked, and finds it the next time.
            if held_up == HeldUp::Awaited && write.is_sweep() {
                let again = stage.told(write.run(&stage, side).await);
                told.events.extend(again.events);
            }
        }
        let [first, second] = told.map(|(_, _, told)| told);
        for side in [&stage.first, &stage.second] {
            side.statements.belong_to(None);
        }
        let stage = Arc::into_inner(stage).expect("nobody else is on the stage");
        (stage.end(first, second).await, held_up)
    }

    /// Ends where the second write gets no further though the first is within the store, where it
    /// may hold locks. Anywhere else it holds none, and the second must come to its end.
    async fn is_stuck(&self) {
        let gate = &self.second.gate;
        let began = Instant::now();
        let mut moved = (gate.progress(), began);
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let progress = gate.progress();
            if progress != moved.0 {
                moved = (progress, Instant::now());
            } else if self.first.gate.is_within_the_store() && moved.1.elapsed() > STUCK {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "one write waits for another that holds no lock"
            );
        }
    }

    /// Three devices with a key and one without, a record and a tombstone, a blob that is there,
    /// one whose time is over and one that everybody has.
    async fn set(&self) {
        let hand = &self.hand;
        let holders = [&self.laptop, &self.phone, &self.tablet];
        for device in holders {
            self.register(device).await;
        }
        let access = self.access(hand, &self.laptop, Bucket::Keys).await;
        let begun = hand
            .rotate(&access.expect("a member"), rotation(1, &holders, "a key"))
            .await;
        begun.expect("rotates");
        self.register(&self.late).await;
        let access = self.access(hand, &self.phone, Bucket::Push).await;
        let access = access.expect("a member");
        let request = PushRequest {
            records: vec![
                self.phone.record(&self.key, "old", 1, b"the first text"),
                self.phone.tombstone(&self.key, "gone", 1),
            ],
            if_head: None,
            atomic: false,
        };
        let key = IdempotencyKey {
            key: "once".to_owned(),
            body_sha256: [1; 32],
        };
        hand.push(&access, request, Some(key))
            .await
            .expect("pushes");
        self.put(upload(THERE, CONTENT, BlobPolicy::Keep, None))
            .await;
        self.put(upload(EXPIRED, CONTENT, BlobPolicy::Expire, Some(60)))
            .await;
        self.clock.advance(Duration::from_secs(61));
        self.put(upload(DELIVERED, CONTENT, BlobPolicy::Deliver, None))
            .await;
        let delivered = self.live(DELIVERED).await.expect("there");
        for device in [&self.laptop, &self.late, &self.tablet] {
            self.store
                .note_fetched(&self.key, &delivered.object, &device.to_ref())
                .await
                .expect("noted");
        }
    }

    async fn register(&self, device: &TestDevice) {
        let caller = self
            .caller(&self.hand, device, Bucket::Keys, Admission::Anyone)
            .await
            .expect("a member");
        let registered = self.hand.register(&caller, device.register_request());
        registered.await.expect("registers");
    }

    async fn put(&self, upload: argala_core::Upload) {
        let access = self.access(&self.hand, &self.phone, Bucket::Blobs).await;
        let access = access.expect("a member");
        self.hand.put_blob(&access, upload).await.expect("stores");
    }

    /// A live blob that has not expired when the stage is set.
    pub(super) async fn live(&self, id: &str) -> Option<argala_core::ports::store::Blob> {
        let blob = self.store.blob(&self.key, &blob_id(id), crate::EPOCH).await;
        blob.expect("answered")
    }

    pub(super) const fn key(&self) -> &StorageKey {
        &self.key
    }

    pub(super) fn group(&self) -> GroupId {
        group(&format!("acme{}", self.tag))
    }

    /// What all members of the graph are poked with but the device that changed it.
    pub(super) fn poke_all(&self, by: &TestDevice) -> Poke {
        Poke {
            storage_key: self.key.clone(),
            members: ["alex", "sam"]
                .map(|name| member(&format!("{name}{}", self.tag)))
                .to_vec(),
            except: Some(by.to_ref()),
        }
    }

    /// What a member's own devices are poked with.
    pub(super) fn poke_own(&self, by: &TestDevice) -> Poke {
        let by = by.to_ref();
        Poke {
            storage_key: StorageKey::own(&by.member_id),
            members: vec![by.member_id.clone()],
            except: Some(by),
        }
    }

    pub(super) fn forgets(&self, reason: ForgetReason) -> Event {
        Event::BlobForget {
            storage_key: self.key.clone(),
            reason,
        }
    }

    pub(super) async fn caller(
        &self,
        relay: &Arc<Relay>,
        device: &TestDevice,
        bucket: Bucket,
        gate: Admission,
    ) -> Outcome<Caller> {
        let identity = Identity {
            device: device.to_ref(),
            expires_at: None,
        };
        relay.admit(identity, bucket, gate).await
    }

    pub(super) async fn access(
        &self,
        relay: &Arc<Relay>,
        device: &TestDevice,
        bucket: Bucket,
    ) -> Outcome<Access> {
        let caller = self
            .caller(relay, device, bucket, Admission::Registered)
            .await?;
        let graph = format!("g:acme{}", self.tag);
        relay
            .open_graph(caller, &graph.parse().expect("an address"))
            .await
    }

    /// An answer, with what must have been told of it.
    fn told(&self, outcome: Outcome<Told>) -> Told {
        match outcome {
            Ok(told) => told,
            Err(Fault::Rejected(rejection)) => Told::refused(&rejection),
            Err(Fault::Store(error)) if error.kind == StoreErrorKind::Unavailable => Told {
                words: UNAVAILABLE.to_owned(),
                ..Told::default()
            },
            Err(Fault::Store(error)) => panic!("the store failed: {error}: {:?}", error.source),
        }
    }

    /// In words that are the same on each stage.
    pub(super) fn plain(&self, words: &str) -> String {
        words.replace(&self.tag, "")
    }

    async fn end(self, first: Told, second: Told) -> (Seen, Rest) {
        let told = [(&self.first, &first), (&self.second, &second)];
        for (side, told) in told {
            side.settle(told).await;
        }
        let seen = Seen::on(&self, told).await;
        self.clear().await;
        let rest = tokio::spawn(async move {
            tokio::join!(
                self.first.relay.close(),
                self.second.relay.close(),
                self.hand.close()
            );
            nothing_is_told_amiss([(&self.first, &first), (&self.second, &second)]);
        });
        (seen, rest)
    }

    /// Leaves nothing to the sweeps of other stages.
    async fn clear(&self) {
        self.clock.advance(Duration::from_secs(600));
        let now = self.clock.now();
        let begun = self
            .store
            .begin_erasure(&self.key, ForgetReason::Abandoned, now);
        begun.await.expect("answered");
        let sweep = Sweep::new(
            Arc::clone(&self.store),
            Arc::clone(&self.blobs),
            Arc::new(self.directory.clone()),
            SweepOptions {
                grace: Duration::ZERO,
                ..SweepOptions::default()
            },
        );
        let swept = sweep.clock(Arc::new(self.clock.clone())).pass().await;
        swept.expect("answered");
    }
}
