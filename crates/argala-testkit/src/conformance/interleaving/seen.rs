//! What can be seen when both writes have ended, and what must hold of it whatever met.

use std::{collections::BTreeSet, fmt::Write as _};

use argala_core::ports::{
    Event, ForgetReason, Poke,
    store::{Pull, Pulled, WrapsQuery},
};
use argala_wire::limits::Pages;
use futures_util::TryStreamExt;
use sha2::{Digest, Sha256};

use super::{
    gate::{Gate, Step},
    stage::{DELIVERED, EXPIRED, NEW, Side, Stage, THERE, UNAVAILABLE},
    writes::{Told, keys_of},
};

/// What both were told, and what is there in the end; with names that are the same on each stage.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) first: String,
    pub(super) second: String,
    /// Which of the two had what a rival would be after.
    pub(super) won: [bool; 2],
    pub(super) state: String,
    /// Why blobs were forgotten, by whichever of the two; uploads that were let go left out.
    pub(super) forgotten: String,
}

impl Seen {
    /// Looks at a stage on which both have ended.
    pub(super) async fn on(stage: &Stage, sides: [(&Side, &Told); 2]) -> Self {
        let [(_, first), (_, second)] = sides;
        let forgotten = forgets_are_of(sides);
        let state = state(stage).await;
        Self {
            first: stage.plain(&first.words),
            second: stage.plain(&second.words),
            won: [first.won, second.won],
            state: stage.plain(&state),
            forgotten: stage.plain(&forgotten),
        }
    }

    /// Whether the first changed nothing and was told to try again, and all else is as it is in
    /// `alone`, where there is the second only.
    pub(super) fn lets_first_go(&self, alone: &Self) -> bool {
        self.first == UNAVAILABLE && (&self.second, &self.state) == (&alone.second, &alone.state)
    }

    /// The same the other way round.
    pub(super) fn lets_second_go(&self, alone: &Self) -> bool {
        self.second == UNAVAILABLE && (&self.first, &self.state) == (&alone.first, &alone.state)
    }
}

/// Holds what was told when everything is over: what the answers call for, once, and not before it
/// was so.
///
/// # Panics
/// Where it is anything else.
pub(super) fn nothing_is_told_amiss(sides: [(&Side, &Told); 2]) {
    for (side, told) in sides {
        comes_after_its_cause(&side.gate);
        events_are_of(side, told);
    }
    forgets_are_of(sides);
    pokes_are_of(sides);
}

/// What may have been answered before an event is told: what it tells must have been committed.
fn causes(event: &Event) -> &'static [&'static str] {
    match event {
        Event::DeviceRegister { .. } => &["register"],
        Event::DeviceRevoke { .. } => &["revoke"],
        Event::GraphPush { .. } => &["push"],
        Event::GraphRotate { .. } => &["rotate"],
        Event::GraphGrant { .. } => &["grant"],
        // An upload of what is there is compared with it.
        Event::BlobPut { .. } => &["commit_blob", "blob"],
        Event::BlobForget { .. } => &["drop_blob"],
        // Told by whatever found the caller out.
        _ => &[
            "device",
            "register",
            "revoke",
            "push",
            "rotate",
            "grant",
            "reserve_blob",
            "commit_blob",
            "forget_blob",
        ],
    }
}

/// The same of pokes.
const CAUSES_OF_POKES: [&str; 5] = ["register", "revoke", "push", "rotate", "grant"];

/// Nothing was told before it was so.
fn comes_after_its_cause(gate: &Gate) {
    let story = gate.story();
    for (at, step) in story.iter().enumerate() {
        let causes = match step {
            Step::Answered(_) => continue,
            Step::Event(event) => causes(event),
            Step::Poke(_) => &CAUSES_OF_POKES,
        };
        let is_cause =
            |step: &Step| matches!(step, Step::Answered(operation) if causes.contains(operation));
        assert!(
            story[..at].iter().any(is_cause),
            "{step:?} was told before its cause: {story:#?}"
        );
    }
}

fn events(side: &Side) -> Vec<Event> {
    let story = side.gate.story().into_iter();
    let events = story.filter_map(|step| match step {
        Step::Event(event) => Some(event),
        _ => None,
    });
    events.collect()
}

fn is_forget(event: &Event) -> bool {
    matches!(event, Event::BlobForget { .. })
}

/// Each side told what its answer calls for, once, in that order.
fn events_are_of(side: &Side, told: &Told) {
    let of = |events: Vec<Event>| -> Vec<Event> {
        events.into_iter().filter(|it| !is_forget(it)).collect()
    };
    assert_eq!(
        of(events(side)),
        of(told.events.clone()),
        "the events of {:?}",
        told.words
    );
}

/// The rows that went are told of once, by whoever removed them. Tells their reasons.
fn forgets_are_of(sides: [(&Side, &Told); 2]) -> String {
    let reasons = |events: Vec<Event>| {
        let mut reasons: Vec<_> = events
            .into_iter()
            .filter_map(|event| match event {
                Event::BlobForget { reason, .. } => Some(reason.as_str()),
                _ => None,
            })
            .collect();
        reasons.sort_unstable();
        reasons
    };
    let mut told = reasons(sides.iter().flat_map(|(side, _)| events(side)).collect());
    if told.contains(&ForgetReason::Abandoned.as_str()) {
        // A graph that goes takes what others have let go with it, under whichever name.
        return format!("{} blobs", told.len());
    }
    let due = reasons(
        sides
            .iter()
            .flat_map(|(_, told)| told.events.clone())
            .collect(),
    );
    assert_eq!(told, due, "what is told of blobs that went");
    told.retain(|reason| *reason != ForgetReason::Orphaned.as_str());
    told.join(", ")
}

/// Each side sent the pokes that its answer calls for, once.
fn pokes_are_of(sides: [(&Side, &Told); 2]) {
    let mut revoked = BTreeSet::new();
    let mut told_of_revoked = 0;
    for (side, told) in sides {
        let mut sent: Vec<Poke> = Vec::new();
        for step in side.gate.story() {
            match (&told.revoked, step) {
                (Some((_, own)), Step::Poke(poke)) if poke == *own => told_of_revoked += 1,
                (_, Step::Poke(poke)) => sent.push(poke),
                _ => {}
            }
        }
        revoked.extend(told.revoked.as_ref().map(|(device, _)| device));
        assert_eq!(sent, told.pokes, "the pokes after {:?}", told.words);
    }
    assert_eq!(
        told_of_revoked,
        revoked.len(),
        "a member's own graph is poked once for each device that is revoked"
    );
}

/// All that is stored of this stage, but for times and random keys.
///
/// # Panics
/// Where a graph's counters are not the sums over its rows, or a live blob's bytes are not its own.
async fn state(stage: &Stage) -> String {
    let (store, key) = (&stage.store, stage.key());
    let mut state = String::new();
    let mut say = |line: String| writeln!(state, "{line}").expect("a string takes all");
    let members = [&stage.laptop, &stage.tablet].map(|of| of.to_ref().member_id);
    for member in &members {
        let devices = store.devices_of_member(member, None, 100).await;
        for device in devices.expect("answered") {
            let (id, revoked) = (&device.device_id, device.revoked_at.is_some());
            let keys = keys_of(&device);
            say(format!("device {id}, keys of {keys}, revoked {revoked}"));
        }
    }
    let Some(standing) = store.standing(key, &members).await.expect("answered") else {
        say("no graph".to_owned());
        return state;
    };
    let recount = store.recount(key).await.expect("answered").expect("there");
    assert_eq!(recount.stored, recount.counted, "the counters are the sums");
    let graph = standing.graph;
    say(format!(
        "epoch {}, head {}, {:?}, floor {}, owed {} {}",
        graph.epoch,
        graph.head,
        graph.counters,
        graph.floor,
        graph.revocation_owed,
        graph.directory_owed
    ));
    say(format!("holders {:?}", standing.holders));
    say(format!("roster {:?}", standing.roster));
    for device in [
        &stage.laptop,
        &stage.phone,
        &stage.late,
        &stage.tablet,
        &stage.next,
    ] {
        let query = WrapsQuery {
            key: key.clone(),
            device: device.to_ref(),
            after: 0,
            limit: 100,
        };
        for wrap in store.wraps(&query).await.expect("answered").wraps {
            let text = String::from_utf8_lossy(wrap.wrap.as_slice()).into_owned();
            say(format!(
                "{:?} has {text:?} of epoch {} from {} by {:?}",
                device.to_ref(),
                wrap.epoch,
                wrap.first_seq,
                wrap.by
            ));
        }
    }
    let pull = Pull {
        key: key.clone(),
        device: stage.tablet.to_ref(),
        cursor: None,
        limit: 100,
        epoch: None,
        variant: "json",
        known: Vec::new(),
        pages: Pages::default(),
    };
    match store.pull(pull).await.expect("answered") {
        Pulled::Page(page) => page.page.records.iter().for_each(|record| {
            let text = String::from_utf8_lossy(record.ciphertext.as_slice()).into_owned();
            say(format!(
                "record {} at {} by {:?} in epoch {}: {text:?}, deleted {}",
                record.id, record.seq, record.by, record.epoch, record.deleted
            ));
        }),
        Pulled::Unchanged { .. } => panic!("nothing was known"),
    }
    for id in [THERE, NEW, EXPIRED, DELIVERED] {
        let Some(blob) = stage.live(id).await else {
            say(format!("no blob {id}"));
            continue;
        };
        let bytes = stage.blobs.get(&blob.object, None).await.expect("answered");
        let bytes = bytes.expect("a live row has its object");
        let bytes: Vec<_> = bytes.try_collect().await.expect("no fault within");
        let bytes = bytes.concat();
        assert_eq!(bytes.len() as u64, blob.size);
        assert_eq!(<[u8; 32]>::from(Sha256::digest(&bytes)), blob.sha256);
        say(format!(
            "blob {id} of {} bytes {}, {:?} by {:?}",
            blob.size, bytes[0], blob.policy, blob.by
        ));
    }
    state
}
