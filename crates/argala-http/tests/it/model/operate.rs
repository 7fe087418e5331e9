//! Steps that are no request: the directory changes, time passes, the sweep comes round, and an
//! operator erases.

use std::{sync::Arc, time::Duration};

use argala_core::{
    erase::Eraser,
    ports::{
        BlobStore, ForgetReason,
        store::{Revoke, UpkeepStore},
    },
};
use argala_testkit::device_ref;
use argala_wire::{MemberId, StorageKey};
use serde_json::Value;

use super::{
    answer::{matches, unordered_matches},
    call::{Call, Route},
    drive::{Case, index, told},
    erase::{Erasal, forgotten, is_theirs},
    names::{ADDRESSES, GROUPS, MEMBERS, pick},
    ops::{Change, Gone},
    state::storage_key,
};

/// Rows that an erasure takes at a time: a few, so that most have several steps.
const AT_A_TIME: usize = 2;
/// Steps within which an erasure has ended.
const STEPS: u32 = 1_000;
/// Milliseconds that are added to whole times, so that no moment is met exactly: at the very end of
/// a time the protocol lets a relay decide either way.
const ODD: u64 = 37;

fn member(n: u8) -> &'static str {
    MEMBERS[usize::from(n) % MEMBERS.len()]
}

fn group(n: u8) -> &'static str {
    GROUPS[usize::from(n) % GROUPS.len()]
}

fn keys(found: &[StorageKey]) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("the store: {error}")
}

impl Case {
    pub(super) fn change(&mut self, change: Change) {
        let (theirs, ours) = (&self.directory, &mut self.model.directory);
        match change {
            Change::Member {
                n,
                to: Some(active),
            } => {
                theirs.set_member(member(n), active);
                ours.members.insert(member(n).to_owned(), active);
            }
            Change::Member { n, to: None } => {
                theirs.forget_member(member(n));
                ours.members.remove(member(n));
            }
            Change::Join { group: g, n } => {
                theirs.join(group(g), member(n));
                let group = ours.groups.entry(group(g).to_owned()).or_default();
                group.insert(member(n).to_owned());
            }
            Change::Leave { group: g, n } => {
                theirs.leave(group(g), member(n));
                let group = ours.groups.entry(group(g).to_owned()).or_default();
                group.remove(member(n));
            }
        }
        self.model.note_owed();
    }

    pub(super) fn wait(&mut self, wait: Duration) {
        self.model.now = self.clock.advance(wait).as_millis();
    }

    /// A group loses everybody and a month goes by, with a sweep on each day.
    pub(super) async fn month(&mut self, g: u8) -> Result<(), String> {
        for n in (0_u8..).take(MEMBERS.len()) {
            self.change(Change::Leave { group: g, n });
        }
        for _ in 0..32 {
            self.wait(Duration::from_millis(24 * 60 * 60 * 1_000 + ODD));
            self.sweep().await?;
        }
        Ok(())
    }

    /// Every device of the roster fetches a blob, one that is to be delivered if there is one; then
    /// the sweep comes.
    pub(super) async fn fetch(&mut self, n: u8) -> Result<(), String> {
        let blobs = self.model.blobs.iter();
        let blobs: Vec<_> = blobs.filter(|blob| blob.policy == "deliver").collect();
        let Some(blob) = pick(&blobs, n) else {
            return Ok(());
        };
        let (key, id) = (blob.key.clone(), blob.id.clone());
        for by in self.model.roster(&key) {
            if let Some(address) = self.model.address_for(&key, &by.member) {
                let call = Call::new(&by, Route::GetBlob(address, id.clone()));
                self.ask(call).await?;
            }
        }
        self.sweep().await
    }

    pub(super) async fn sweep(&mut self) -> Result<(), String> {
        let want = self.model.sweep();
        let swept = self.sweep.pass().await;
        let swept = swept.map_err(|error| format!("the sweep: {error}"))?;
        self.settle().await?;
        let mut left = self.events.take().iter().map(told).collect::<Vec<_>>();
        for want in &want.events {
            let at = left
                .iter()
                .position(|got| matches(want, got, "").is_ok())
                .ok_or_else(|| format!("the sweep tells no {want}"))?;
            self.count_forgotten("Sweep", &left.swap_remove(at));
        }
        if let Some(other) = left.iter().find(|got| !want.maybe.contains(got)) {
            return Err(format!("the sweep tells {other}"));
        }
        let done = (swept.tombstones, swept.abandoned, swept.failed);
        if done != (want.tombstones, want.abandoned, 0) || swept.cut_short {
            return Err(format!("the sweep came to {swept:?}, and not to {want:?}"));
        }
        if swept.tombstones > 0 {
            self.count("Sweep tombstones".to_owned());
        }
        if swept.abandoned > 0 {
            self.count("Sweep a graph".to_owned());
        }
        for event in &left {
            self.count_forgotten("Sweep", event);
        }
        self.model.swept(&left);
        Ok(())
    }

    fn count_forgotten(&mut self, by: &str, event: &Value) {
        let reason = event["reason"].as_str().unwrap_or_default();
        self.count(format!("{by} {reason}"));
    }

    fn eraser(&self) -> Eraser {
        let store: Arc<dyn UpkeepStore> = self.upkeep();
        let blobs: Arc<dyn BlobStore> = Arc::clone(&self.ports.replica(0).blobs);
        let events = Arc::new(self.events.clone());
        Eraser::new(store, blobs, events, Duration::from_secs(10))
    }

    fn upkeep(&self) -> Arc<dyn UpkeepStore> {
        Arc::clone(&self.ports.replica(0).store) as _
    }

    pub(super) async fn erase(&mut self, gone: Gone) -> Result<(), String> {
        match gone {
            Gone::Member { n, leaves } => {
                // Who left blobs and had no key first: there are few of them.
                let mut members = MEMBERS;
                members.sort_by_key(|member| !self.model.has_blobs_alone(member));
                let name = pick(&members, n).ok_or("there are no members")?;
                self.erase_member(name, leaves).await
            }
            Gone::Graph { n, steps } => {
                // Those with blobs first: theirs is the longer way.
                let mut there: Vec<_> = self.model.graphs.keys().rev().cloned().collect();
                there.sort_by_key(|key| self.model.blobs.iter().all(|blob| blob.key != *key));
                let any = || storage_key(pick(&ADDRESSES[..6], n)?, MEMBERS[0]);
                let key = pick(&there, n).cloned().or_else(any);
                let key = key.ok_or("there are no addresses")?;
                self.erase_graph(&key, steps.map(u32::from)).await
            }
        }
    }

    /// The graph is gone at once, and what it held goes by a few steps; where they are not all of
    /// them, the rest is the sweep's.
    async fn erase_graph(&mut self, key: &str, steps: Option<u32>) -> Result<(), String> {
        let storage_key: StorageKey = key.parse().expect("a storage key");
        let want = self.model.begin_erasure(key, "requested");
        let (store, now) = (self.upkeep(), self.relay.clock().now());
        let reason = ForgetReason::Requested;
        let begun = store.begin_erasure(&storage_key, reason, now).await;
        let begun = begun.map_err(failed)?;
        if begun != want {
            return Err(format!("an erasure of {key} begins: {begun}"));
        }
        self.steps(&storage_key, steps.unwrap_or(STEPS)).await?;
        let got = self.events.take();
        if steps.is_none() {
            self.count(format!("Erase graph {want}"));
            let want = self.model.end_erasures(key);
            return self.hold_forgotten(&want, &got.iter().map(told).collect::<Vec<_>>());
        }
        self.count("Erase cut off".to_owned());
        for event in got.iter().map(told) {
            let going = &mut self.model.going;
            let at = going
                .iter()
                .position(|it| forgotten(&it.key, it.reason) == event)
                .ok_or_else(|| format!("an erasure of {key} tells {event}"))?;
            going.remove(at);
        }
        Ok(())
    }

    async fn steps(&self, key: &StorageKey, mut steps: u32) -> Result<(), String> {
        let (store, eraser) = (self.upkeep(), self.eraser());
        let now = self.relay.clock().now();
        let mut erasures = store.erasures(usize::MAX).await.map_err(failed)?;
        erasures.retain(|erasure| erasure.graph == *key);
        for erasure in erasures {
            loop {
                if steps == 0 {
                    return Ok(());
                }
                steps -= 1;
                let step = eraser.step(&erasure, now, AT_A_TIME).await;
                let (erased, removed) = step.map_err(failed)?;
                if removed.failed > 0 {
                    return Err(format!("objects of {key} are not removed"));
                }
                if !erased.more {
                    break;
                }
            }
        }
        Ok(())
    }

    fn hold_forgotten(&mut self, want: &[Value], got: &[Value]) -> Result<(), String> {
        unordered_matches(want, got)
            .ok_or_else(|| format!("the erasure tells {got:?}, and not {want:?}"))?;
        for event in got {
            self.count_forgotten("Erase", event);
        }
        Ok(())
    }

    /// As `relay admin erase member` does: out of the directory first, then every device, then
    /// every graph, then the member.
    async fn erase_member(&mut self, name: &str, leaves: bool) -> Result<(), String> {
        let n = index(name);
        self.change(Change::Member { n, to: None });
        if leaves {
            for group in (0_u8..).take(GROUPS.len()) {
                self.change(Change::Leave { group, n });
            }
        }
        if self.model.has_blobs_alone(name) {
            self.count("Erase member without a key".to_owned());
        }
        let want = self.model.erase_member(name);
        self.model.note_owed();
        let (store, now) = (self.upkeep(), self.relay.clock().now());
        let member = MemberId::new(name).expect("a member's id");
        let devices = store.devices_of_member(&member, None, 100).await;
        let devices = devices.map_err(failed)?;
        for device in devices.iter().filter(|device| device.is_active()) {
            let revoke = Revoke {
                by: device_ref(name, device.device_id.as_str()),
                device_id: device.device_id.clone(),
                now,
            };
            let revoked = store.revoke(revoke).await;
            revoked.map_err(|fault| format!("{name} keeps a device: {fault:?}"))?;
        }
        let mut with: Vec<StorageKey> = Vec::new();
        loop {
            let page = store.graphs_with(&member, with.last(), AT_A_TIME).await;
            let page = page.map_err(failed)?;
            let is_last = page.len() < AT_A_TIME;
            with.extend(page);
            if is_last {
                break;
            }
        }
        let under_way = store.erasures(usize::MAX).await.map_err(failed)?;
        for key in &with {
            if is_theirs(key.as_str(), name) {
                let reason = ForgetReason::Requested;
                let begun = store.begin_erasure(key, reason, now).await;
                begun.map_err(failed)?;
                self.steps(key, STEPS).await?;
            } else {
                self.erase_part(key, &member).await?;
            }
        }
        for erasure in under_way {
            if is_theirs(erasure.graph.as_str(), name) {
                self.steps(&erasure.graph, STEPS).await?;
            }
        }
        let erased = store.erase_member(&member).await.map_err(failed)?;
        let got = Erasal {
            graphs: keys(&with),
            devices: erased.0,
            named: keys(&erased.1),
            events: self.events.take().iter().map(told).collect(),
        };
        self.hold_forgotten(&want.events, &got.events)?;
        let want = Erasal {
            events: got.events.clone(),
            ..want
        };
        if got != want {
            return Err(format!("{name} is erased as {got:?}, and not as {want:?}"));
        }
        let kind = if got.named.is_empty() {
            "whole"
        } else {
            "but for a name"
        };
        self.count(format!("Erase member {kind}"));
        let all = store.graph_keys(None, 100).await.map_err(failed)?;
        let left: Vec<_> = self.model.graphs.keys().cloned().collect();
        if keys(&all) != left {
            return Err(format!("{all:?} are left, and not {left:?}"));
        }
        Ok(())
    }

    async fn erase_part(&self, key: &StorageKey, member: &MemberId) -> Result<(), String> {
        let (store, eraser) = (self.upkeep(), self.eraser());
        for _ in 0..STEPS {
            let now = self.relay.clock().now();
            let life = self.relay.random().positive();
            let erased = store.erase_from(key, member, life, now, AT_A_TIME).await;
            let erased = erased.map_err(failed)?;
            let removed = eraser.remove(&erased.doomed, now).await.map_err(failed)?;
            if removed.failed > 0 {
                return Err(format!("objects of {key} are not removed"));
            }
            if !erased.more {
                return Ok(());
            }
        }
        Err(format!("a part of {key} is never erased"))
    }
}
