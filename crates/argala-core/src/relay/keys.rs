//! Graph keys (protocol, routes 7 to 9).

use std::sync::Arc;

use argala_wire::keys::{
    GrantRequest, GrantResponse, RotateRequest, RotateResponse, WrapsResponse,
};

use super::{Access, PageQuery, Relay, page, pokes::Whom};
use crate::{
    Outcome,
    cursor::{self, List},
    ports::{
        Event,
        store::{Grant, Rotate, WrapsQuery},
    },
    rules,
};

impl Relay {
    /// `GET /graphs/{graphId}/wraps`: the calling device's own wraps of epochs after `after`.
    ///
    /// # Errors
    /// [`Rejection::InvalidRequest`](crate::Rejection::InvalidRequest) of the limit,
    /// [`Rejection::CursorInvalid`](crate::Rejection::CursorInvalid).
    pub async fn wraps(
        &self,
        access: &Access,
        after: u64,
        query: PageQuery,
    ) -> Outcome<WrapsResponse> {
        let limit = page::limit(query.limit, self.pages.default_list_limit, &self.pages)?;
        let mut last = after;
        if let Some(text) = &query.cursor {
            let [graph, epoch] = cursor::read(List::Wraps, text)?;
            cursor::of_graph(&graph, access.key())?;
            last = last.max(cursor::number(&epoch)?);
        }
        let mut page = self
            .store
            .wraps(&WrapsQuery {
                key: access.key().clone(),
                device: access.device().clone(),
                after: last,
                limit: limit.saturating_add(1),
            })
            .await?;
        let more = page::cut(&mut page.wraps, limit);
        if let Some(wrap) = page.wraps.last() {
            last = wrap.epoch;
        }
        let graph = cursor::short_name(access.key());
        let cursor = cursor::write(List::Wraps, &[&graph, &last.to_be_bytes()]);
        Ok(WrapsResponse {
            epoch: page.epoch,
            wraps: page.wraps,
            cursor,
            more,
        })
    }

    /// `POST /graphs/{graphId}/rotate`: begins an epoch.
    ///
    /// # Errors
    /// `InvalidRequest`, `EpochConflict`, `RotationIncomplete`; `GraphNotFound` where the
    /// directory, asked afresh, no longer counts the caller among the graph's members.
    pub async fn rotate(
        self: &Arc<Self>,
        access: &Access,
        request: RotateRequest,
    ) -> Outcome<RotateResponse> {
        rules::check_rotate(&request)?;
        let members = self.fresh_members(access).await?;
        let request = Rotate {
            key: access.key().clone(),
            by: access.device().clone(),
            members: members.active.into_iter().collect(),
            epoch: request.epoch,
            fingerprint: rules::rotate::fingerprint(&request.wraps),
            wraps: request.wraps,
            incarnation: self.random.positive(),
            now: self.clock.now(),
        };
        let relay = Arc::clone(self);
        let access = access.clone();
        self.detached(async move {
            let outcome = relay.store.rotate(request).await;
            let rotated = relay.settle(access.caller(), outcome)?;
            relay.emit(&Event::GraphRotate {
                member_id: access.device().member_id.clone(),
                storage_key: access.key().clone(),
                epoch: rotated.epoch,
                devices: rotated.devices,
            });
            if !rotated.replay {
                relay.changed(access.key().clone(), access.device(), Whom::All);
            }
            let (epoch, first_seq, devices) = (rotated.epoch, rotated.first_seq, rotated.devices);
            Ok(RotateResponse {
                epoch,
                first_seq,
                devices,
            })
        })
        .await
    }

    /// `POST /graphs/{graphId}/grant`: gives epochs to devices on the roster.
    ///
    /// # Errors
    /// `InvalidRequest`, `GraphUnkeyed`; `GraphNotFound` as for
    /// [`rotate`](Self::rotate).
    pub async fn grant(
        self: &Arc<Self>,
        access: &Access,
        request: GrantRequest,
    ) -> Outcome<GrantResponse> {
        rules::check_grant(&request)?;
        let members = self.fresh_members(access).await?;
        let request = Grant {
            key: access.key().clone(),
            by: access.device().clone(),
            members: members.active.into_iter().collect(),
            wraps: request.wraps,
            now: self.clock.now(),
        };
        let relay = Arc::clone(self);
        let access = access.clone();
        self.detached(async move {
            let outcome = relay.store.grant(request).await;
            let granted = relay.settle(access.caller(), outcome)?;
            relay.emit(&Event::GraphGrant {
                member_id: access.device().member_id.clone(),
                storage_key: access.key().clone(),
                epoch: granted.epoch,
                devices: granted.devices,
            });
            if !granted.poke.is_empty() {
                relay.changed(
                    access.key().clone(),
                    access.device(),
                    Whom::Only(granted.poke),
                );
            }
            Ok(GrantResponse {
                granted: granted.granted,
                rejected: granted.rejected,
            })
        })
        .await
    }
}
