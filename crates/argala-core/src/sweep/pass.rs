//! One pass.

use std::{collections::BTreeMap, future::Future, time::Duration};

use argala_wire::{MemberId, Owners, StorageKey, Timestamp, devices::DeviceRef};
use tokio::time::Instant;

use super::{Sweep, SweepReport};
use crate::{
    StoreResult,
    erase::{Removed, slow},
    ports::{
        ForgetReason, ListedObject, ObjectKey,
        store::{Delivery, Doomed, GroupWatch},
    },
    relay::IDEMPOTENCY_WINDOW,
    rules,
};

/// How long a blob that is being forgotten is left to whoever began it.
pub(super) const LEFT_TO_ITS_CALLER: Duration = Duration::from_secs(60);
/// When a `deliver` blob is looked at again that not everybody has fetched, and that nobody fetches
/// meanwhile: who is on the roster changes without our being told.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(10 * 60);
/// Objects listed at a time.
const PAGE: usize = 1_000;
/// How old an object without a row must be to be taken for leaked.
pub(super) const LEAKED_AFTER: Duration = Duration::from_secs(60 * 60);
/// The longest pause between two batches.
const LONGEST_REST: Duration = Duration::from_secs(1);

pub(super) struct Pass<'a> {
    sweep: &'a Sweep,
    now: Timestamp,
    report: SweepReport,
    /// When the stage that runs must end.
    ends: Instant,
    /// Whether the directory has failed to answer: it is not asked over and over within a pass.
    in_doubt: bool,
}

impl<'a> Pass<'a> {
    pub(super) fn new(sweep: &'a Sweep) -> Self {
        Self {
            sweep,
            now: sweep.clock.now(),
            report: SweepReport::default(),
            ends: Instant::now(),
            in_doubt: false,
        }
    }

    pub(super) async fn run(mut self) -> StoreResult<SweepReport> {
        // Each stage has its own time, so that none waits for another's backlog for ever.
        self.begin();
        self.blobs().await?;
        self.begin();
        self.deliveries().await?;
        self.begin();
        self.groups().await?;
        self.begin();
        self.erasures().await?;
        self.begin();
        self.tombstones().await?;
        self.begin();
        self.idempotency().await?;
        self.begin();
        self.objects().await?;
        Ok(self.report)
    }

    fn begin(&mut self) {
        self.ends = Instant::now() + self.sweep.options.stage_time;
    }

    /// After a batch that took from `began` until now: whether there is time for another, after a
    /// pause as long as the batch was. So the sweep has at most half of what one connection can do,
    /// and the less the more others are at work.
    async fn goes_on(&mut self, began: Instant) -> bool {
        let now = Instant::now();
        if now >= self.ends {
            self.report.cut_short = true;
            return false;
        }
        tokio::time::sleep((now - began).min(LONGEST_REST)).await;
        true
    }

    fn note(&mut self, removed: Removed) {
        for reason in removed.forgotten {
            *self.report.forgotten.entry(reason.as_str()).or_default() += 1;
        }
        self.report.failed += removed.failed;
    }

    /// Removes objects and rows; whether all of them went.
    async fn forget(&mut self, doomed: &[Doomed]) -> StoreResult<bool> {
        let removed = self.sweep.eraser.remove(doomed, self.now).await?;
        let all_went = removed.failed == 0;
        self.note(removed);
        Ok(all_went)
    }

    async fn blobs(&mut self) -> StoreResult<()> {
        let options = self.sweep.options;
        loop {
            let began = Instant::now();
            let doomed = self
                .sweep
                .store
                .doom_blobs(
                    self.now,
                    self.now.saturating_sub(options.grace),
                    self.now.saturating_sub(LEFT_TO_ITS_CALLER),
                    options.batch,
                )
                .await?;
            let all_went = self.forget(&doomed).await?;
            // A store of objects that fails is not asked over and over within one pass.
            if doomed.len() < options.batch || !all_went || !self.goes_on(began).await {
                return Ok(());
            }
        }
    }

    /// What the directory answers, in time; `None` where it does not, which is counted.
    async fn ask<T>(&mut self, question: impl Future<Output = StoreResult<T>>) -> Option<T> {
        let answer = tokio::time::timeout(self.sweep.options.patience, question).await;
        match answer.unwrap_or_else(|_| Err(slow("ask the directory"))) {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.in_doubt = true;
                self.report.doubts += 1;
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the directory did not answer the sweep; nothing is forgotten on doubt"
                );
                None
            }
        }
    }

    /// The active devices of the active members of a graph; `None` where that is not known.
    async fn roster(&mut self, graph: &StorageKey) -> StoreResult<Option<Vec<DeviceRef>>> {
        let directory = &self.sweep.directory;
        let asking = async {
            let members = match graph.owners() {
                Owners::Group(group) => directory.members_of_group(&group).await?,
                Owners::Pair(low, high) if low == high => vec![low],
                Owners::Pair(low, high) => vec![low, high],
            };
            directory.active_members(&members).await
        };
        let Some(active): Option<Vec<MemberId>> = self.ask(asking).await else {
            return Ok(None);
        };
        let standing = self.sweep.store.standing(graph, &active).await?;
        Ok(standing.map(|standing| standing.roster))
    }

    async fn deliveries(&mut self) -> StoreResult<()> {
        let batch = self.sweep.options.batch;
        while !self.in_doubt {
            let began = Instant::now();
            let again = self.now.saturating_add(LOOKED_AT_EVERY);
            let found = self
                .sweep
                .store
                .deliveries(self.now, Some(again), batch)
                .await?;
            let count = found.len();
            let delivered = self.delivered(found).await?;
            let doomed = self
                .sweep
                .store
                .doom_delivered(&delivered, self.now)
                .await?;
            let all_went = self.forget(&doomed).await?;
            if count < batch || !all_went || !self.goes_on(began).await {
                break;
            }
        }
        Ok(())
    }

    /// Those that have reached everybody.
    pub(super) async fn delivered(
        &mut self,
        found: Vec<Delivery>,
    ) -> StoreResult<Vec<(StorageKey, ObjectKey)>> {
        let mut of_graph: BTreeMap<StorageKey, Vec<Delivery>> = BTreeMap::new();
        for delivery in found {
            let graph = delivery.graph.clone();
            of_graph.entry(graph).or_default().push(delivery);
        }
        let mut delivered = Vec::new();
        for (graph, deliveries) in of_graph {
            if self.in_doubt {
                break;
            }
            let Some(roster) = self.roster(&graph).await? else {
                continue;
            };
            delivered.extend(
                deliveries
                    .into_iter()
                    .filter(|it| rules::sweep::is_delivered(&roster, &it.by, &it.fetched))
                    .map(|it| (it.graph, it.object)),
            );
        }
        Ok(delivered)
    }

    async fn groups(&mut self) -> StoreResult<()> {
        let batch = self.sweep.options.batch;
        while !self.in_doubt {
            let began = Instant::now();
            let again = self.now.saturating_add(rules::sweep::ASKED_EVERY);
            let asked = self
                .sweep
                .store
                .groups_to_ask(self.now, Some(again), batch)
                .await?;
            let count = asked.len();
            let noted = self.watched(asked).await;
            self.sweep.store.note_groups(&noted).await?;
            for watch in noted {
                if watch.empty.is_some_and(rules::sweep::is_abandoned) {
                    let reason = ForgetReason::Abandoned;
                    let store = &self.sweep.store;
                    if store.begin_erasure(&watch.graph, reason, self.now).await? {
                        self.report.abandoned += 1;
                        tracing::info!("a graph whose group has long had no members is forgotten");
                    }
                }
            }
            if count < batch || !self.goes_on(began).await {
                break;
            }
        }
        Ok(())
    }

    /// What the directory says of each group: since when it is empty, or that it is not. Those of
    /// which it says nothing are left out.
    pub(super) async fn watched(&mut self, asked: Vec<GroupWatch>) -> Vec<GroupWatch> {
        let mut noted = Vec::with_capacity(asked.len());
        for mut watch in asked {
            if self.in_doubt {
                break;
            }
            let directory = &self.sweep.directory;
            let Some(members) = self.ask(directory.members_of_group(&watch.group)).await else {
                break;
            };
            watch.empty = members
                .is_empty()
                .then(|| rules::sweep::emptiness(watch.empty, self.now));
            noted.push(watch);
        }
        noted
    }

    async fn erasures(&mut self) -> StoreResult<()> {
        let batch = self.sweep.options.batch;
        for erasure in self.sweep.store.erasures(batch).await? {
            loop {
                let began = Instant::now();
                let step = self.sweep.eraser.step(&erasure, self.now, batch).await?;
                let (erased, removed) = step;
                let all_went = removed.failed == 0;
                self.note(removed);
                self.report.erased += erased.records + erased.wraps + erased.idempotency_keys;
                if !erased.more || !all_went {
                    break;
                }
                if !self.goes_on(began).await {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn tombstones(&mut self) -> StoreResult<()> {
        let batch = self.sweep.options.batch;
        let before = self.now.saturating_sub(rules::sweep::TOMBSTONES_FOR);
        loop {
            let began = Instant::now();
            let dropped = self.sweep.store.drop_tombstones(before, batch).await?;
            self.report.tombstones += dropped;
            if dropped < batch as u64 || !self.goes_on(began).await {
                return Ok(());
            }
        }
    }

    async fn idempotency(&mut self) -> StoreResult<()> {
        let batch = self.sweep.options.batch;
        let before = rules::sweep::keys_before(self.now, IDEMPOTENCY_WINDOW);
        loop {
            let began = Instant::now();
            let dropped = self.sweep.store.drop_idempotency(before, batch).await?;
            self.report.idempotency_keys += dropped;
            if dropped < batch as u64 || !self.goes_on(began).await {
                return Ok(());
            }
        }
    }

    /// Compares objects with rows, a few pages a pass and a round an hour: a put that a stalled
    /// store carried out after its row had gone leaves an object that no row leads to.
    async fn objects(&mut self) -> StoreResult<()> {
        let mut place = self.sweep.place.lock().await;
        if place.after.is_none() && place.next.is_some_and(|next| self.now < next) {
            return Ok(());
        }
        for _ in 0..self.sweep.options.pages {
            let began = Instant::now();
            let Some(page) = self.list(place.after.as_ref()).await else {
                return Ok(());
            };
            for object in leaked(self.sweep, &page, self.now).await? {
                if Instant::now() >= self.ends {
                    self.report.cut_short = true;
                    return Ok(());
                }
                let deleting = self.sweep.blobs.delete(&object);
                let deleted = tokio::time::timeout(self.sweep.options.patience, deleting).await;
                // One that cannot be removed holds up none behind it: the next pass goes on there.
                place.after = Some(object);
                match deleted.unwrap_or_else(|_| Err(slow("remove an object"))) {
                    Ok(()) => self.report.leaked += 1,
                    Err(error) => {
                        self.fail(&error);
                        return Ok(());
                    }
                }
            }
            if page.len() == PAGE {
                place.after = page.into_iter().next_back().map(|listed| listed.key);
            } else {
                place.after = None;
                if !std::mem::take(&mut place.from_middle) {
                    place.next = Some(self.now.saturating_add(LEAKED_AFTER));
                    return Ok(());
                }
            }
            if !self.goes_on(began).await {
                return Ok(());
            }
        }
        self.report.cut_short = true;
        Ok(())
    }

    /// Every leaked object, at most `limit`; whether there may be more.
    pub(super) async fn all_leaked(&mut self, limit: usize) -> StoreResult<(Vec<ObjectKey>, bool)> {
        let mut all = Vec::new();
        let mut after = None;
        while let Some(page) = self.list(after.as_ref()).await {
            all.extend(leaked(self.sweep, &page, self.now).await?);
            if all.len() >= limit {
                all.truncate(limit);
                return Ok((all, true));
            }
            if page.len() < PAGE {
                break;
            }
            after = page.into_iter().next_back().map(|listed| listed.key);
        }
        Ok((all, false))
    }

    /// What was not answered.
    pub(super) const fn doubts(&self) -> u64 {
        self.report.doubts + self.report.failed
    }

    fn fail(&mut self, error: &crate::StoreError) {
        self.report.failed += 1;
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "the blob store failed the sweep; a later pass tries again"
        );
    }

    async fn list(&mut self, after: Option<&ObjectKey>) -> Option<Vec<ListedObject>> {
        let listing = self
            .sweep
            .blobs
            .list(self.sweep.store.instance(), after, PAGE);
        let listed = tokio::time::timeout(self.sweep.options.patience, listing).await;
        match listed.unwrap_or_else(|_| Err(slow("list objects"))) {
            Ok(page) => Some(page),
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }
}

/// Those of the listed objects that are old enough and that no row names.
pub(super) async fn leaked(
    sweep: &Sweep,
    page: &[ListedObject],
    now: Timestamp,
) -> StoreResult<Vec<ObjectKey>> {
    let before = now.saturating_sub(LEAKED_AFTER.max(sweep.options.grace));
    let old: Vec<_> = page
        .iter()
        .filter(|listed| listed.modified_at < before)
        .map(|listed| listed.key.clone())
        .collect();
    if old.is_empty() {
        return Ok(Vec::new());
    }
    sweep.store.unknown_objects(&old).await
}
