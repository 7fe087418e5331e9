//! What every pair of [`PokeSink`] and [`PokeSource`] does (protocol, section 7).

use std::sync::Arc;

use argala_core::ports::{Poke, PokeSignal, PokeSink, PokeSource, PokeSubscription};
use argala_wire::{MemberId, StorageKey, devices::DeviceRef};
use futures_util::StreamExt;

use super::Fresh;
use crate::{PATIENCE, device_ref, eventually, group, member};

/// Stamps the suite; `$fresh` is an `async fn() -> Fresh<PokePorts>`.
#[macro_export]
macro_rules! poke_conformance {
    ($fresh:path) => {
        $crate::stamp_cases! { $fresh, poke:
            a_poke_reaches_every_device_of_its_members,
            the_device_that_caused_it_is_not_told,
            a_member_is_told_of_their_own_pokes_only,
            each_graph_keeps_its_name,
            a_slow_reader_gets_equal_signals_once,
            a_slow_reader_is_told_to_resync_in_place_of_what_does_not_fit,
            a_slow_reader_holds_up_nobody,
            a_subscription_starts_with_its_beginning,
            two_subscriptions_of_one_device_are_both_told,
            a_dropped_subscription_leaves_nothing_behind,
            a_poke_of_nobody_is_no_fault,
        }
    };
}

/// Both ends of one carrier of pokes.
pub struct PokePorts {
    /// Where pokes go in.
    pub sink: Arc<dyn PokeSink>,
    /// Where signals come out.
    pub source: Arc<dyn PokeSource>,
    /// How many subscriptions there are, where the carrier can tell.
    pub subscriptions: Option<Box<dyn Fn() -> usize + Send + Sync>>,
}

/// More graphs than any subscription remembers.
const FLOOD: usize = 20_000;

fn graph(name: &str) -> StorageKey {
    StorageKey::group(&group(name))
}

fn changed(name: &str) -> PokeSignal {
    PokeSignal::Changed(graph(name))
}

/// A poke of some members about the group's graph `name`.
fn poke(name: &str, members: &[&str], except: Option<DeviceRef>) -> Poke {
    Poke {
        storage_key: graph(name),
        members: members.iter().map(|name| member(name)).collect(),
        except,
    }
}

/// Both ends, used by way of every replica in turn.
struct Line {
    fresh: Fresh<PokePorts>,
    turn: std::sync::atomic::AtomicUsize,
}

impl Line {
    fn new(fresh: Fresh<PokePorts>) -> Self {
        Self {
            fresh,
            turn: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    fn ports(&self) -> &PokePorts {
        let turn = self.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.fresh.replica(turn)
    }

    async fn poke(&self, poke: &Poke) {
        self.ports().sink.poke(poke).await.expect("poked");
    }

    async fn subscribe(&self, member: &str, device: &str) -> PokeSubscription {
        let device = device_ref(member, device);
        let subscription = self.ports().source.subscribe(&device).await;
        subscription.expect("subscribed")
    }
}

async fn next(subscription: &mut PokeSubscription) -> PokeSignal {
    let signal = tokio::time::timeout(PATIENCE, subscription.next()).await;
    signal.expect("a signal comes").expect("the source is open")
}

/// What comes up to and without the signal about the graph `last`.
async fn until(subscription: &mut PokeSubscription, last: &str) -> Vec<PokeSignal> {
    let mut signals = Vec::new();
    loop {
        let signal = next(subscription).await;
        if signal == changed(last) {
            return signals;
        }
        signals.push(signal);
    }
}

/// Every device of every member that is named, on every replica.
pub async fn a_poke_reaches_every_device_of_its_members(fresh: Fresh<PokePorts>) {
    let line = Line::new(fresh);
    let mut all = Vec::new();
    for (member, device) in [("sam", "laptop"), ("sam", "phone"), ("alex", "phone")] {
        all.push(line.subscribe(member, device).await);
    }
    line.poke(&poke("acme", &["sam", "alex", "nobody"], None))
        .await;
    for subscription in &mut all {
        assert_eq!(next(subscription).await, changed("acme"));
    }
}

/// `except` leaves out one device: not its member's others, not another member's of its name.
pub async fn the_device_that_caused_it_is_not_told(fresh: Fresh<PokePorts>) {
    let line = Line::new(fresh);
    let mut laptop = line.subscribe("sam", "laptop").await;
    let mut phone = line.subscribe("sam", "phone").await;
    let mut namesake = line.subscribe("alex", "laptop").await;
    let except = Some(device_ref("sam", "laptop"));
    line.poke(&poke("acme", &["sam", "alex"], except)).await;
    line.poke(&poke("last", &["sam", "alex"], None)).await;
    assert_eq!(until(&mut laptop, "last").await, []);
    assert_eq!(until(&mut phone, "last").await, [changed("acme")]);
    assert_eq!(until(&mut namesake, "last").await, [changed("acme")]);
}

/// Members are told apart byte for byte.
pub async fn a_member_is_told_of_their_own_pokes_only(fresh: Fresh<PokePorts>) {
    let line = Line::new(fresh);
    let names = [
        "sam",
        "Sam",
        "sam:laptop",
        "*",
        "s?m",
        "auth0|42",
        "é",
        "e\u{301}",
        "50%",
    ];
    let mut subscriptions = Vec::new();
    for name in names {
        subscriptions.push(line.subscribe(name, "laptop").await);
    }
    for (at, name) in names.iter().enumerate() {
        line.poke(&poke(&format!("graph {at}"), &[name], None))
            .await;
    }
    line.poke(&poke("last", &names, None)).await;
    for (at, subscription) in subscriptions.iter_mut().enumerate() {
        let got = until(subscription, "last").await;
        assert_eq!(got, [changed(&format!("graph {at}"))], "{}", names[at]);
    }
}

/// The storage key comes out as it went in, pairs and odd names included.
pub async fn each_graph_keeps_its_name(fresh: Fresh<PokePorts>) {
    let line = Line::new(fresh);
    let mut sam = line.subscribe("sam", "laptop").await;
    let (one, other): (MemberId, MemberId) = (member("sam"), member("a:b%🦀"));
    for key in [
        StorageKey::own(&one),
        StorageKey::pair(&one, &other),
        StorageKey::group(&group("g:50% of\u{a0}it / \"all\"")),
        StorageKey::group(&group(&"é".repeat(64))),
    ] {
        let poke = Poke {
            storage_key: key.clone(),
            members: vec![one.clone()],
            except: None,
        };
        line.poke(&poke).await;
        assert_eq!(next(&mut sam).await, PokeSignal::Changed(key));
    }
}

/// Nothing piles up for a reader that does not read: equal signals are one.
pub async fn a_slow_reader_gets_equal_signals_once(fresh: Fresh<PokePorts>) {
    let line = Line::new(fresh);
    let mut slow = line.subscribe("sam", "laptop").await;
    // Another device of the member tells when all of it has arrived.
    let mut quick = line.subscribe("sam", "phone").await;
    for _ in 0..300 {
        line.poke(&poke("acme", &["sam"], None)).await;
        line.poke(&poke("beta", &["sam"], None)).await;
    }
    line.poke(&poke("last", &["sam"], None)).await;
    until(&mut quick, "last").await;
    let mut signals = until(&mut slow, "last").await;
    // The carrier may give the order up where it keeps a set.
    if signals.len() < 2 {
        signals.push(next(&mut slow).await);
    }
    signals.sort_by_key(|signal| format!("{signal:?}"));
    assert_eq!(signals, [changed("acme"), changed("beta")]);
}

/// What does not fit becomes one signal to ask for everything; then it goes on as before.
pub async fn a_slow_reader_is_told_to_resync_in_place_of_what_does_not_fit(
    fresh: Fresh<PokePorts>,
) {
    let line = Line::new(fresh);
    let mut slow = line.subscribe("sam", "laptop").await;
    for at in 0..FLOOD {
        line.poke(&poke(&format!("graph {at}"), &["sam"], None))
            .await;
    }
    let mut before = 0;
    while next(&mut slow).await != PokeSignal::Resync {
        before += 1;
        assert!(before < FLOOD, "all of it was kept");
    }
    // Whatever came after the overflow may still follow; it is bounded, too.
    line.poke(&poke("last", &["sam"], None)).await;
    let after = until(&mut slow, "last").await;
    assert!(before + after.len() < FLOOD, "all of it was kept");
}

/// A reader that does not read costs the others nothing.
pub async fn a_slow_reader_holds_up_nobody(fresh: Fresh<PokePorts>) {
    let line = Line::new(fresh);
    let slow = line.subscribe("sam", "laptop").await;
    let mut quick = line.subscribe("sam", "phone").await;
    let mut other = line.subscribe("alex", "phone").await;
    for round in 0..200 {
        for at in 0..20 {
            line.poke(&poke(&format!("{round}/{at}"), &["sam"], None))
                .await;
        }
        let last = format!("last of {round}");
        line.poke(&poke(&last, &["sam", "alex"], None)).await;
        let signals = until(&mut quick, &last).await;
        assert!(!signals.contains(&PokeSignal::Resync), "round {round}");
        assert_eq!(until(&mut other, &last).await, []);
    }
    drop(slow);
}

/// Pokes of before are not told: who connects asks for everything anyway.
pub async fn a_subscription_starts_with_its_beginning(fresh: Fresh<PokePorts>) {
    let line = Line::new(fresh);
    let mut witness = line.subscribe("sam", "phone").await;
    line.poke(&poke("early", &["sam"], None)).await;
    assert_eq!(next(&mut witness).await, changed("early"));
    let mut late = line.subscribe("sam", "laptop").await;
    line.poke(&poke("last", &["sam"], None)).await;
    assert_eq!(until(&mut late, "last").await, []);
}

/// A device with two connections (an old one that is not known to be dead yet, say) is told on
/// both.
pub async fn two_subscriptions_of_one_device_are_both_told(fresh: Fresh<PokePorts>) {
    let line = Line::new(fresh);
    let mut one = line.subscribe("sam", "laptop").await;
    let mut other = line.subscribe("sam", "laptop").await;
    line.poke(&poke("acme", &["sam"], None)).await;
    assert_eq!(next(&mut one).await, changed("acme"));
    assert_eq!(next(&mut other).await, changed("acme"));
    drop(one);
    line.poke(&poke("beta", &["sam"], None)).await;
    assert_eq!(next(&mut other).await, changed("beta"));
}

/// Many come and go: nothing of them stays, and nobody else notices.
pub async fn a_dropped_subscription_leaves_nothing_behind(fresh: Fresh<PokePorts>) {
    let line = Line::new(fresh);
    let mut staying = line.subscribe("sam", "phone").await;
    for round in 0..500 {
        let mut going = line.subscribe("sam", &format!("d{round}")).await;
        if round % 100 == 0 {
            line.poke(&poke("hello", &["sam"], None)).await;
            assert_eq!(next(&mut going).await, changed("hello"));
            assert_eq!(next(&mut staying).await, changed("hello"));
        }
        drop(going);
    }
    let counted = || async {
        let mut open = 0;
        for turn in 0..64 {
            open = open.max(line.fresh.replica(turn).subscriptions.as_ref()?());
        }
        Some(open)
    };
    if counted().await.is_some() {
        eventually("the dropped subscriptions are gone", || async {
            (counted().await == Some(1)).then_some(())
        })
        .await;
    }
    line.poke(&poke("last", &["sam"], None)).await;
    assert_eq!(until(&mut staying, "last").await, []);
}

/// Neither nobody nor an unknown member is worth an error.
pub async fn a_poke_of_nobody_is_no_fault(fresh: Fresh<PokePorts>) {
    let line = Line::new(fresh);
    line.poke(&poke("acme", &[], None)).await;
    line.poke(&poke("acme", &["nobody"], Some(device_ref("nobody", "x"))))
        .await;
    let many: Vec<String> = (0..5_000).map(|at| format!("member {at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut last = line.subscribe("member 4999", "x").await;
    line.poke(&poke("acme", &many, None)).await;
    assert_eq!(next(&mut last).await, changed("acme"));
}
