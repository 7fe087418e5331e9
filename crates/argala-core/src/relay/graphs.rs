//! What a member is told of graphs (protocol, routes 4 to 6).

use std::sync::Arc;

use argala_wire::{
    MemberId, Owners, StorageKey,
    devices::{DeviceRef, DevicesResponse},
    graphs::{GraphResponse, GraphSummary, GraphsResponse},
    limits::MAX_OWED,
};

use super::{Access, Caller, PageQuery, Relay, page};
use crate::{
    Outcome,
    cursor::{self, List},
    ports::store::{GraphDevicesQuery, GraphListing, GraphsQuery},
    rules::roster,
};

impl Relay {
    /// `GET /graphs`: the graphs that the caller may read now and that exist.
    ///
    /// # Errors
    /// `InvalidRequest` of the limit, `CursorInvalid`.
    pub async fn graphs(
        self: &Arc<Self>,
        caller: &Caller,
        query: PageQuery,
    ) -> Outcome<GraphsResponse> {
        let limit = page::limit(query.limit, self.pages.default_list_limit, &self.pages)?;
        let member = &caller.device().member_id;
        let groups = self.directory.groups_of_member(member).await?;
        let asks_each_group = groups.is_none();
        let mut after: Option<StorageKey> = match &query.cursor {
            None => None,
            Some(text) => {
                let [key] = cursor::read(List::Graphs, text)?;
                if key.is_empty() {
                    None
                } else {
                    Some(cursor::text(&key)?)
                }
            }
        };
        let mut graphs = Vec::new();
        let mut due = Vec::new();
        let mut more = false;
        // Graphs that the caller may not read now are left out of a page, not counted in it. One
        // item more than the page holds shows whether there is another page.
        'page: loop {
            let listings = self
                .store
                .graphs_of(&GraphsQuery {
                    device: caller.device().clone(),
                    groups: groups.clone(),
                    after: after.clone(),
                    limit: limit.saturating_add(1),
                })
                .await?;
            let is_last = listings.len() <= limit;
            let seen = listings.last().map(|listing| listing.graph.key.clone());
            for listing in self.readable(member, listings, asks_each_group).await? {
                if graphs.len() == limit {
                    more = true;
                    break 'page;
                }
                let graph = &listing.graph;
                after = Some(graph.key.clone());
                if self.is_roster_check_due(&graph.key) {
                    due.push(graph.key.clone());
                }
                graphs.extend(graph.key.graph_id_for(member).map(|graph_id| GraphSummary {
                    graph_id,
                    epoch: graph.epoch,
                    head: graph.head,
                    rotation_owed: graph.rotation_owed(),
                    behind: !listing.holds_current,
                }));
            }
            after = seen.or(after);
            if is_last {
                break;
            }
        }
        self.refresh_flags_later(due);
        let last = after
            .as_ref()
            .map_or(b"".as_slice(), |key| key.as_str().as_bytes());
        Ok(GraphsResponse {
            graphs,
            cursor: cursor::write(List::Graphs, &[last]),
            more,
        })
    }

    /// Those of `listings` that the member may read now.
    async fn readable(
        &self,
        member: &MemberId,
        listings: Vec<GraphListing>,
        asks_each_group: bool,
    ) -> Outcome<Vec<GraphListing>> {
        let others: Vec<_> = listings
            .iter()
            .filter_map(|listing| other(&listing.graph.key, member))
            .collect();
        let active = self.directory.active_members(&others, false).await?;
        let mut readable = Vec::with_capacity(listings.len());
        for listing in listings {
            let may = match listing.graph.key.owners() {
                Owners::Group(group) if asks_each_group => {
                    self.directory.is_group_member(&group, member).await?
                }
                Owners::Group(_) => true,
                Owners::Pair(..) => {
                    other(&listing.graph.key, member).is_none_or(|other| active.contains(&other))
                }
            };
            if may {
                readable.push(listing);
            }
        }
        Ok(readable)
    }

    /// Looks after the answer, one graph after the other: a list may be a thousand graphs long.
    fn refresh_flags_later(self: &Arc<Self>, due: Vec<StorageKey>) {
        if due.is_empty() {
            return;
        }
        let relay = Arc::clone(self);
        self.tasks.spawn(async move {
            for key in due {
                if relay.closing.is_cancelled() {
                    return;
                }
                if let Err(error) = relay.refresh_directory_flag(&key).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "rotation flags were not brought up to date"
                    );
                    return;
                }
            }
        });
    }

    /// `GET /graphs/{graphId}`: what a graph holds, and what it owes as of now.
    ///
    /// # Errors
    /// `GraphNotFound` where the directory, asked afresh, no longer counts the caller among the
    /// graph's members. A graph without a key answers with zeros.
    pub async fn graph(&self, access: &Access) -> Outcome<GraphResponse> {
        let key = access.key();
        let graph_id = key
            .graph_id_for(&access.device().member_id)
            .ok_or(crate::Rejection::GraphNotFound)?;
        let members = self.fresh_members(access).await?;
        let active: Vec<_> = members.active.iter().cloned().collect();
        let mut answer = GraphResponse {
            graph_id,
            epoch: 0,
            head: 0,
            records: 0,
            ciphertext_bytes: 0,
            blob_bytes: 0,
            quotas: self.quotas,
            rotation_owed: false,
            rotation_reasons: Vec::new(),
            grants_owed: Vec::new(),
        };
        if let Some(standing) = self.store.standing(key, &active).await? {
            let graph = &standing.graph;
            answer.epoch = graph.epoch;
            answer.head = graph.head;
            answer.records = graph.counters.records;
            answer.ciphertext_bytes = graph.counters.ciphertext_bytes;
            answer.blob_bytes = graph.counters.blob_bytes;
            answer.rotation_reasons = roster::owed_rotations(&standing, &members)
                .take(MAX_OWED)
                .collect();
            answer.rotation_owed = !answer.rotation_reasons.is_empty();
            answer.grants_owed = roster::owed_grants(&standing)
                .take(MAX_OWED)
                .cloned()
                .collect();
            let owed = roster::directory_owes(&standing, &members);
            if owed != graph.directory_owed {
                self.store.flag_directory(key, graph.epoch, owed).await?;
            }
            self.roster_checks.insert(key.clone(), self.clock.now());
        }
        Ok(answer)
    }

    /// `GET /graphs/{graphId}/devices`: the roster, and with `former` every device beside it that
    /// ever held a wrap of the graph.
    ///
    /// # Errors
    /// `InvalidRequest` of the limit, `CursorInvalid`; `GraphNotFound` where the directory, asked
    /// afresh, no longer counts the caller among the graph's members.
    pub async fn graph_devices(
        &self,
        access: &Access,
        former: bool,
        query: PageQuery,
    ) -> Outcome<DevicesResponse> {
        let limit = page::limit(query.limit, self.pages.default_list_limit, &self.pages)?;
        let mut after = match &query.cursor {
            None => None,
            Some(text) => {
                let [graph, member, device] = cursor::read(List::GraphDevices, text)?;
                cursor::of_graph(&graph, access.key())?;
                if member.is_empty() && device.is_empty() {
                    None
                } else {
                    Some(DeviceRef {
                        member_id: cursor::text(&member)?,
                        device_id: cursor::text(&device)?,
                    })
                }
            }
        };
        let members = self.fresh_members(access).await?;
        let mut devices = self
            .store
            .graph_devices(&GraphDevicesQuery {
                key: access.key().clone(),
                members: members.active.into_iter().collect(),
                former,
                after: after.clone(),
                limit: limit.saturating_add(1),
            })
            .await?;
        let more = page::cut(&mut devices, limit);
        if let Some(last) = devices.last() {
            after = Some(last.to_ref());
        }
        let (member, device) = after.as_ref().map_or(("", ""), |mark| {
            (mark.member_id.as_str(), mark.device_id.as_str())
        });
        let graph = cursor::short_name(access.key());
        let cursor = cursor::write(
            List::GraphDevices,
            &[&graph, member.as_bytes(), device.as_bytes()],
        );
        Ok(DevicesResponse {
            devices,
            cursor,
            more,
        })
    }
}

/// The other member of a pair's graph; `None` for an own graph and a group's.
fn other(key: &StorageKey, member: &MemberId) -> Option<MemberId> {
    match key.owners() {
        Owners::Pair(low, high) if low == high => None,
        Owners::Pair(low, high) => Some(if low == *member { high } else { low }),
        Owners::Group(_) => None,
    }
}
