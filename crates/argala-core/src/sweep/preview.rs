//! What a pass would forget.

use std::collections::BTreeMap;

use argala_wire::StorageKey;
use serde::Serialize;

use super::{Sweep, pass};
use crate::{
    StoreResult,
    ports::{ForgetReason, ObjectKey},
    relay::IDEMPOTENCY_WINDOW,
    rules,
};

/// Something that a pass would forget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Due {
    /// What kind of thing: `blob`, `graph`, `tombstones`, `idempotencyKeys`, `object`.
    pub what: &'static str,
    /// Why: a reason of `blob.forget`, `old`, or `leaked`.
    pub why: &'static str,
    /// The graph, where it is one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<StorageKey>,
    /// The object, where it is one.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub object: Option<ObjectKey>,
    /// How many.
    pub count: u64,
}

fn as_text<S: serde::Serializer>(
    object: &Option<ObjectKey>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match object {
        Some(object) => serializer.serialize_str(object.as_str()),
        None => serializer.serialize_none(),
    }
}

/// What a pass would forget now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// At most as many of each kind as were asked for.
    pub due: Vec<Due>,
    /// Whether there may be more of some kind than is told.
    pub more: bool,
    /// Questions that the directory did not answer, or listings that the blob store did not.
    pub doubts: u64,
}

impl Preview {
    fn push(
        &mut self,
        what: &'static str,
        why: &'static str,
        graph: Option<StorageKey>,
        object: Option<ObjectKey>,
        count: u64,
    ) {
        self.due.push(Due {
            what,
            why,
            graph,
            object,
            count,
        });
    }
}

pub(super) async fn preview(sweep: &Sweep, limit: usize) -> StoreResult<Preview> {
    let now = sweep.clock.now();
    let store = &sweep.store;
    let mut told = Preview::default();

    let grace = now.saturating_sub(sweep.options.grace);
    let left = now.saturating_sub(pass::LEFT_TO_ITS_CALLER);
    let blobs = store.peek_blobs(now, grace, left, limit).await?;
    told.more |= blobs.len() == limit;
    for blob in blobs {
        let why = blob.reason.as_str();
        told.push("blob", why, Some(blob.graph), Some(blob.object), 1);
    }

    let mut asking = pass::Pass::new(sweep);
    let found = store.deliveries(now, None, limit).await?;
    told.more |= found.len() == limit;
    for (graph, object) in asking.delivered(found).await? {
        let why = ForgetReason::Delivered.as_str();
        told.push("blob", why, Some(graph), Some(object), 1);
    }

    let groups = store.groups_to_ask(now, None, limit).await?;
    told.more |= groups.len() == limit;
    for watch in asking.watched(groups).await {
        if watch.empty.is_some_and(rules::sweep::is_abandoned) {
            let why = ForgetReason::Abandoned.as_str();
            told.push("graph", why, Some(watch.graph), None, 1);
        }
    }
    for erasure in store.erasures(limit).await? {
        let why = erasure.reason.as_str();
        told.push("graph", why, Some(erasure.graph), None, 1);
    }

    let before = now.saturating_sub(rules::sweep::TOMBSTONES_FOR);
    let mut of_graph: BTreeMap<StorageKey, u64> = BTreeMap::new();
    let tombstones = store.peek_tombstones(before, limit).await?;
    for (graph, count) in tombstones {
        *of_graph.entry(graph).or_default() += count;
    }
    told.more |= of_graph.values().sum::<u64>() >= limit as u64;
    for (graph, count) in of_graph {
        told.push("tombstones", "old", Some(graph), None, count);
    }

    let before = rules::sweep::keys_before(now, IDEMPOTENCY_WINDOW);
    let keys = store.peek_idempotency(before, limit).await?;
    told.more |= keys == limit as u64;
    if keys > 0 {
        told.push("idempotencyKeys", "old", None, None, keys);
    }

    let (leaked, more) = asking.all_leaked(limit).await?;
    told.more |= more;
    for object in leaked {
        told.push("object", "leaked", None, Some(object), 1);
    }
    told.doubts = asking.doubts();
    Ok(told)
}
