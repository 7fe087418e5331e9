//! Pulling: pages of records in, items that can be believed out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use argala_wire::{
    Code, GraphId, StorageKey,
    devices::DeviceRef,
    records::{CursorReason, PullResponse, PulledRecord},
    signing,
};

use super::Session;
use crate::{
    access::{Item, Late, Position, Pulled, Refused},
    api::PullQuery,
    crypto::{PublicKeys, Verdict, record::RecordCipher},
    error::{Error, Refusal},
    events::Event,
    state::{Direction, News, Rejected},
};

/// What opens the records of one epoch.
struct Epoch {
    cipher: RecordCipher,
    /// The least first seq of the epochs after it whose keys are here: none of its records has
    /// that seq or a later one.
    ended: u64,
}

type Epochs = BTreeMap<u64, Epoch>;

/// The graph that is pulled.
struct Target<'a> {
    graph: &'a GraphId,
    key: &'a StorageKey,
    /// Whether this pull has asked for new keys already.
    asked: bool,
}

/// How a page lies in its walk.
struct Place {
    position: Position,
    more: bool,
    from_start: bool,
}

impl Session {
    pub(super) async fn pull_page(
        &mut self,
        graph: &GraphId,
        position: &Position,
    ) -> Result<Pulled, Error> {
        let key = self.storage_key(graph);
        let mut position = position.clone();
        self.graphs.entry(key.clone()).or_default().started_over = None;
        // A kind that was declared since may be that of records refused before.
        if !self.kinds.is_subset(&position.kinds) && !position.is_start() {
            position = Position::default();
        }
        let first_look = self.is_behind(&key) != Some(false);
        let asked = first_look || (position.held_back && !position.in_walk);
        if asked {
            self.refresh_keys(graph).await?;
        }
        let target = Target {
            graph,
            key: &key,
            asked,
        };
        if position.is_start() {
            return self.first_page(&target).await;
        }
        if let Some(late) = self.next_late(&key, &mut position) {
            return self.late_page(&target, position, late).await;
        }
        let query = PullQuery {
            cursor: position.cursor.clone(),
            ..PullQuery::default()
        };
        match self.api.pull(graph, &query).await {
            Ok(page) => self.main_page(&target, position, page, false).await,
            Err(error) if error.code() == Some(Code::CursorInvalid) => {
                self.tell_started_over(graph, &key, &error);
                self.first_page(&target).await
            }
            Err(error) => Err(error),
        }
    }

    /// Why the last page of a graph had to be one from the start, where the relay no longer took
    /// the position: after [`CursorReason::Expired`] what is not shown is gone, after any other
    /// the relay may have lost it.
    #[must_use]
    pub fn started_over(&self, graph: &GraphId) -> Option<CursorReason> {
        self.graphs.get(&self.storage_key(graph))?.started_over
    }

    fn tell_started_over(&mut self, graph: &GraphId, key: &StorageKey, error: &Error) {
        let why = error.problem().and_then(|problem| problem.reason);
        self.graphs.entry(key.clone()).or_default().started_over = why;
        self.tell(&Event::StartedOver {
            graph: graph.clone(),
            why,
        });
    }

    async fn first_page(&mut self, target: &Target<'_>) -> Result<Pulled, Error> {
        let epochs = self.file.contents().epochs(target.key);
        let position = Position {
            epochs: epochs.map(|(epoch, _)| epoch).collect(),
            kinds: self.kinds.clone(),
            ..Position::default()
        };
        let page = self.api.pull(target.graph, &PullQuery::default()).await?;
        self.main_page(target, position, page, true).await
    }

    async fn main_page(
        &mut self,
        target: &Target<'_>,
        mut position: Position,
        page: PullResponse,
        from_start: bool,
    ) -> Result<Pulled, Error> {
        position.cursor = Some(page.cursor.clone());
        position.head = position.head.max(page.head);
        position.held_back |= page.filtered > 0;
        position.in_walk = page.more;
        let place = Place {
            position,
            more: page.more,
            from_start,
        };
        self.digest(target, page, place).await
    }

    /// The walk over one epoch that is under way or due: its key has come since the main walk
    /// passed some of its records.
    fn next_late(&self, key: &StorageKey, position: &mut Position) -> Option<Late> {
        if position.late.is_some() {
            return position.late.take();
        }
        if position.in_walk {
            return None;
        }
        for (epoch, epoch_key) in self.file.contents().epochs(key) {
            if position.epochs.contains(&epoch) {
                continue;
            }
            // What lies wholly ahead, the main walk will bring.
            if position.held_back && epoch_key.first_seq <= position.head {
                let cursor = None;
                return Some(Late { epoch, cursor });
            }
            position.epochs.insert(epoch);
        }
        None
    }

    async fn late_page(
        &mut self,
        target: &Target<'_>,
        mut position: Position,
        late: Late,
    ) -> Result<Pulled, Error> {
        let mut query = PullQuery {
            cursor: late.cursor,
            epoch: Some(late.epoch),
            ..PullQuery::default()
        };
        let page = match self.api.pull(target.graph, &query).await {
            Err(error) if error.code() == Some(Code::CursorInvalid) && query.cursor.is_some() => {
                // The main walk finds out for itself.
                query.cursor = None;
                self.api.pull(target.graph, &query).await?
            }
            page => page?,
        };
        if page.more {
            position.late = Some(Late {
                epoch: late.epoch,
                cursor: Some(page.cursor.clone()),
            });
        } else {
            position.epochs.insert(late.epoch);
        }
        let place = Place {
            position,
            // The main walk always follows.
            more: true,
            from_start: false,
        };
        self.digest(target, page, place).await
    }

    /// Makes items of a page's records, and keeps in sight those that are not to be believed.
    async fn digest(
        &mut self,
        target: &Target<'_>,
        page: PullResponse,
        mut place: Place,
    ) -> Result<Pulled, Error> {
        let (graph, key) = (target.graph, target.key);
        self.hear_epoch(graph, key, page.epoch)?;
        let lacking = |epoch| self.file.contents().key(key, epoch).is_none();
        let lacks = (page.epoch > 0 && lacking(page.epoch))
            || page.records.iter().any(|record| lacking(record.epoch));
        if lacks && !target.asked {
            self.refresh_keys(graph).await?;
        }
        // The relay has handed the key out, and it is not used: as good as held back by the relay.
        let lacking = |epoch| self.file.contents().key(key, epoch).is_none();
        place.position.held_back |= page.records.iter().any(|record| lacking(record.epoch));
        let mut pushers: BTreeSet<&DeviceRef> = BTreeSet::new();
        pushers.extend(page.records.iter().map(|record| &record.by));
        self.meet(graph, pushers).await?;
        let devices = self.every_known();
        let epochs = self.opened_epochs(key);
        let (mut items, mut refused) = (Vec::new(), Vec::new());
        let (mut own, mut fresh) = (0, false);
        let (me, kinds) = (self.file.device().clone(), self.kinds.clone());
        for record in page.records {
            let seen = self.seen(key)?;
            let judged = judge(key, &record, &devices, &epochs).and_then(|payload| {
                match seen.look(&record.id, &record.by, payload.counter) {
                    News::Replayed => return Err(Refusal::Replayed),
                    News::Same => {}
                    News::New => {
                        seen.note(&record.id, &record.by, payload.counter);
                        fresh = true;
                    }
                }
                if record.by == me {
                    own = own.max(payload.counter);
                }
                if kinds.contains(&payload.kind) {
                    Ok(payload)
                } else {
                    Err(Refusal::UndeclaredKind)
                }
            });
            match judged {
                Ok(payload) => items.push(Item {
                    id: record.id,
                    seq: record.seq,
                    epoch: record.epoch,
                    by: record.by,
                    at: record.at,
                    kind: payload.kind,
                    body: payload.body,
                    deleted: record.deleted,
                }),
                Err(why) => refused.push(Refused {
                    id: record.id,
                    seq: record.seq,
                    by: record.by,
                    why,
                }),
            }
        }
        if fresh {
            self.seen(key)?.commit()?;
        }
        if own > 0 && self.file.contents_mut().saw_own_counter(own) {
            self.file.save()?;
        }
        self.keep_in_sight(target, place.from_start, &items, &refused)?;
        Ok(Pulled {
            items,
            refused,
            position: place.position,
            more: place.more,
            from_start: place.from_start,
            filtered: page.filtered,
            head: page.head,
            behind: self.is_behind(key) == Some(true),
        })
    }

    fn opened_epochs(&self, key: &StorageKey) -> Epochs {
        let mut epochs = Epochs::new();
        let held: Vec<_> = self.file.contents().epochs(key).collect();
        let mut ended = u64::MAX;
        for (epoch, epoch_key) in held.into_iter().rev() {
            let cipher = RecordCipher::new(&epoch_key.key, key, epoch);
            epochs.insert(epoch, Epoch { cipher, ended });
            ended = ended.min(epoch_key.first_seq);
        }
        epochs
    }

    fn keep_in_sight(
        &mut self,
        target: &Target<'_>,
        from_start: bool,
        items: &[Item],
        refused: &[Refused],
    ) -> Result<(), Error> {
        let (graph, key) = (target.graph, target.key);
        let mut outbox = self.outbox(key)?;
        let mut changed = !refused.is_empty();
        changed |= from_start && outbox.pull_anew();
        if !outbox.rejected().is_empty() {
            for item in items {
                changed |= outbox.pulled_well(&item.id);
            }
        }
        for refused in refused {
            outbox.reject(Rejected {
                direction: Direction::Pull,
                id: refused.id.clone(),
                reason: refused.why.as_str().to_owned(),
                detail: None,
                seq: Some(refused.seq),
                by: Some(refused.by.clone()),
                write: None,
            });
        }
        if changed {
            outbox.save()?;
            if self.file.contents_mut().touch(key) {
                self.file.save()?;
            }
        }
        for refused in refused {
            self.tell_rejected(graph, refused.why);
        }
        Ok(())
    }

    /// How far `reader` has come in a graph; the start where it has not begun. For readers that
    /// keep nothing of their own where the position could lie.
    #[must_use]
    pub fn position(&self, graph: &GraphId, reader: &str) -> Position {
        let key = self.storage_key(graph);
        self.file.contents().position(&key, reader)
    }

    /// Remembers how far `reader` has come in a graph.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn set_position(
        &mut self,
        graph: &GraphId,
        reader: &str,
        position: Position,
    ) -> Result<(), Error> {
        let key = self.storage_key(graph);
        let contents = self.file.contents_mut();
        contents.set_position(&key, reader, position);
        self.file.save()
    }
}

/// Whether a record can be believed, and what it holds.
fn judge(
    graph: &StorageKey,
    record: &PulledRecord,
    devices: &HashMap<DeviceRef, PublicKeys>,
    epochs: &Epochs,
) -> Result<crate::crypto::record::Payload, Refusal> {
    let sig = record.sig.as_ref().ok_or(Refusal::Unsigned)?;
    let message = signing::record(
        graph,
        record.epoch,
        &record.id,
        record.deleted,
        record.ciphertext.as_slice(),
    );
    let signed_by = |keys: &PublicKeys| keys.verify(&message, sig.as_slice()) == Verdict::Good;
    match devices.get(&record.by) {
        Some(keys) if signed_by(keys) => {}
        // Somebody else's good signature is worth telling apart from none at all.
        named => {
            return Err(if devices.values().any(signed_by) {
                Refusal::ByMismatch
            } else if named.is_none() {
                Refusal::UnknownDevice
            } else {
                Refusal::SignatureInvalid
            });
        }
    }
    let epoch = epochs.get(&record.epoch).ok_or(Refusal::Unreadable)?;
    if record.seq >= epoch.ended {
        return Err(Refusal::EpochPassed);
    }
    let sealed = record.ciphertext.as_slice();
    let opened = epoch.cipher.open(&record.id, record.deleted, sealed);
    opened.map_err(|_| Refusal::Unreadable)
}
