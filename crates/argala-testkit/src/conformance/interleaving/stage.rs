//! One pair's members, graph and relays, and what can be seen when both writes have ended.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use argala_core::{
    Access, Caller, Fault, Gate as Admission, Identity, Outcome, Relay,
    ports::{
        BlobStore, Directory, SweepStore,
        store::{Pull, Pulled, WrapsQuery},
    },
    sweep::{Sweep, SweepOptions},
};
use argala_wire::{
    StorageKey,
    limits::{Bucket, Pages, Signatures},
};
use futures_util::TryStreamExt;

use super::{Gate, writes::Write};
use crate::{
    Interposed, MemoryDirectory, TestClock, TestDevice, TestRandom, blob_id,
    conformance::{Fresh, relay::RelayPorts},
    group, member,
};

/// The id of a blob that is live from the beginning.
pub(super) const THERE: &str = "a-blob-that-is-there";
/// The id of a blob that is not there at the beginning.
pub(super) const NEW: &str = "a-blob-that-is-new";
/// The id of a blob whose time has passed.
const EXPIRED: &str = "a-blob-that-is-over";

/// What both were told, and what is there in the end; with names that are the same on each stage.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) first: String,
    pub(super) second: String,
    pub(super) state: String,
}

impl Seen {
    pub(super) fn is_first_unavailable(&self) -> bool {
        self.first == UNAVAILABLE
    }
}

const UNAVAILABLE: &str = "unavailable";

pub(super) struct Stage {
    /// What the names of this stage alone have in them.
    tag: String,
    gate: Arc<Gate>,
    /// The relay that is held up, and the one that is not.
    pub(super) held: Arc<Relay>,
    pub(super) free: Arc<Relay>,
    /// The sweeps of the same ports.
    pub(super) held_sweep: Sweep,
    pub(super) free_sweep: Sweep,
    store: Arc<dyn SweepStore>,
    blobs: Arc<dyn BlobStore>,
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

impl Stage {
    pub(super) fn new(fresh: &Fresh<RelayPorts>, number: u64, gate: Arc<Gate>) -> Self {
        let tag = format!("~{number:06}~");
        let (sam, alex, acme) = (
            format!("sam{tag}"),
            format!("alex{tag}"),
            format!("acme{tag}"),
        );
        let directory: Arc<dyn Directory> = Arc::new(MemoryDirectory::of(
            &[&sam, &alex],
            &[(&acme, &[&sam, &alex])],
        ));
        let clock = TestClock::new();
        let relay = |store: Arc<dyn SweepStore>, blobs, directory, seed| {
            Relay::builder(store, blobs, directory)
                .clock(Arc::new(clock.clone()))
                .random(Arc::new(TestRandom::new(2 * number + seed)))
                .signatures(Signatures::Required)
                .build()
        };
        let (one, other) = (fresh.replica(0), fresh.replica(1));
        let sweep = |store, blobs, directory| {
            let options = SweepOptions {
                grace: Duration::ZERO,
                ..SweepOptions::default()
            };
            Sweep::new(store, blobs, directory, options).clock(Arc::new(clock.clone()))
        };
        let held_store: Arc<dyn SweepStore> = Interposed::new(Arc::clone(&one.store), gate.clone());
        let held_blobs: Arc<dyn BlobStore> = Interposed::new(Arc::clone(&one.blobs), gate.clone());
        let held_directory: Arc<dyn Directory> =
            Interposed::new(Arc::clone(&directory), gate.clone());
        let held_sweep = sweep(
            Arc::clone(&held_store),
            Arc::clone(&held_blobs),
            Arc::clone(&held_directory),
        );
        let free_sweep = sweep(
            Arc::clone(&other.store),
            Arc::clone(&other.blobs),
            Arc::clone(&directory),
        );
        let held = relay(held_store, held_blobs, held_directory, 0);
        let free = relay(
            Arc::clone(&other.store),
            Arc::clone(&other.blobs),
            directory,
            1,
        );
        Self {
            gate,
            held,
            free,
            held_sweep,
            free_sweep,
            store: Arc::clone(&other.store),
            blobs: Arc::clone(&other.blobs),
            clock,
            key: StorageKey::group(&group(&acme)),
            laptop: TestDevice::new(&sam, "laptop"),
            phone: TestDevice::new(&sam, "phone"),
            late: TestDevice::new(&sam, "late"),
            tablet: TestDevice::new(&alex, "tablet"),
            next: TestDevice::new(&alex, "next"),
            tag,
        }
    }

    /// One write, then the other, each whole.
    pub(super) async fn in_turn(self, first: Option<Write>, second: Option<Write>) -> Seen {
        self.set().await;
        let mut told = [String::new(), String::new()];
        for (told, (relay, write)) in told
            .iter_mut()
            .zip([(&self.held, first), (&self.free, second)])
        {
            if let Some(write) = write {
                *told = self.told(write.run(&self, relay).await);
            }
        }
        self.end(told).await
    }

    /// The second write, then the first.
    pub(super) async fn backwards(self, first: Write, second: Write) -> Seen {
        self.set().await;
        let second = self.told(second.run(&self, &self.free).await);
        let first = self.told(first.run(&self, &self.held).await);
        self.end([first, second]).await
    }

    /// The first write up to the gate, the second whole, the rest of the first; and whether the
    /// first ever came to the gate.
    pub(super) async fn held_up(self, first: Write, second: Write) -> (Seen, bool) {
        self.set().await;
        let stage = Arc::new(self);
        let one = tokio::spawn({
            let stage = Arc::clone(&stage);
            async move { stage.told(first.run(&stage, &stage.held).await) }
        });
        // What goes on in the background when the answer is there comes to the gate too.
        let ended = async {
            while !one.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let held_up = tokio::select! {
            biased;
            reached = stage.gate.reached.acquire() => {
                drop(reached.expect("never closed"));
                true
            }
            () = ended => false,
        };
        let second = stage.told(second.run(&stage, &stage.free).await);
        stage.gate.go.add_permits(1);
        let first = one.await.expect("it does not panic");
        let stage = Arc::into_inner(stage).expect("nobody else is on the stage");
        (stage.end([first, second]).await, held_up)
    }

    /// Three devices with a key and one without, a record, a blob that is there and one whose
    /// time is over.
    async fn set(&self) {
        for device in [&self.laptop, &self.phone, &self.tablet] {
            Write::register(self, &self.free, device)
                .await
                .expect("registers");
        }
        let holders = [&self.laptop, &self.phone, &self.tablet];
        Write::rotate(self, &self.free, 1, &holders)
            .await
            .expect("rotates");
        Write::register(self, &self.free, &self.late)
            .await
            .expect("registers");
        Write::push(self, &self.free, "old").await.expect("pushes");
        Write::put(self, &self.free, THERE, None)
            .await
            .expect("stores");
        Write::put(self, &self.free, EXPIRED, Some(60))
            .await
            .expect("stores");
        self.clock.advance(Duration::from_secs(61));
    }

    pub(super) fn key(&self) -> &StorageKey {
        &self.key
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

    /// An answer in words that are the same on each stage.
    fn told(&self, outcome: Outcome<String>) -> String {
        let told = match outcome {
            Ok(told) => told,
            Err(Fault::Rejected(rejection)) => format!("{rejection:?}"),
            Err(Fault::Store(error)) if error.kind == argala_core::StoreErrorKind::Unavailable => {
                UNAVAILABLE.to_owned()
            }
            Err(Fault::Store(error)) => panic!("the store failed: {error}: {:?}", error.source),
        };
        told.replace(&self.tag, "")
    }

    async fn end(self, [first, second]: [String; 2]) -> Seen {
        for relay in [&self.held, &self.free] {
            relay.close().await;
        }
        let state = self.state().await.replace(&self.tag, "");
        Seen {
            first,
            second,
            state,
        }
    }

    /// All that is stored of this stage, but for times and random keys.
    async fn state(&self) -> String {
        let (store, key) = (&self.store, &self.key);
        let mut state = String::new();
        let mut say = |line: String| writeln!(state, "{line}").expect("a string takes all");
        let recount = store.recount(key).await.expect("answered").expect("there");
        assert_eq!(recount.stored, recount.counted, "the counters are the sums");
        let graph = store.graph(key).await.expect("answered").expect("there");
        say(format!(
            "epoch {}, head {}, {:?}, owed {} {}",
            graph.epoch, graph.head, graph.counters, graph.revocation_owed, graph.directory_owed
        ));
        for of in [&self.laptop, &self.tablet] {
            let member = member(of.to_ref().member_id.as_str());
            let devices = store.devices_of_member(&member, None, 100).await;
            for device in devices.expect("answered") {
                let revoked = device.revoked_at.is_some();
                say(format!("device {}, revoked {revoked}", device.device_id));
            }
        }
        for device in [
            &self.laptop,
            &self.phone,
            &self.late,
            &self.tablet,
            &self.next,
        ] {
            let query = WrapsQuery {
                key: key.clone(),
                device: device.to_ref(),
                after: 0,
                limit: 100,
            };
            let page = store.wraps(&query).await.expect("answered");
            let epochs: Vec<_> = page.wraps.iter().map(|wrap| wrap.epoch).collect();
            say(format!("{:?} holds {epochs:?}", device.to_ref()));
        }
        let pull = Pull {
            key: key.clone(),
            device: self.tablet.to_ref(),
            cursor: None,
            limit: 100,
            epoch: None,
            variant: "json",
            known: Vec::new(),
            pages: Pages::default(),
        };
        match store.pull(pull).await.expect("answered") {
            Pulled::Page(page) => page.page.records.iter().for_each(|record| {
                say(format!(
                    "record {} at {} by {:?} in epoch {}",
                    record.id, record.seq, record.by, record.epoch
                ));
            }),
            Pulled::Unchanged { .. } => panic!("nothing was known"),
        }
        for id in [THERE, NEW, EXPIRED] {
            let blob = store.blob(key, &blob_id(id), crate::EPOCH).await;
            let Some(blob) = blob.expect("answered") else {
                say(format!("no blob {id}"));
                continue;
            };
            let bytes = self.blobs.get(&blob.object, None).await.expect("answered");
            let bytes = bytes.expect("a live row has its object");
            let bytes: Vec<_> = bytes.try_collect().await.expect("no fault within");
            assert_eq!(bytes.concat().len() as u64, blob.size);
            say(format!("blob {id} of {} bytes by {:?}", blob.size, blob.by));
        }
        state
    }
}
