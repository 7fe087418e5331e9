//! The routes of devices, graphs, keys, records and limits; those of blobs and pokes have files of
//! their own.

use argala_wire::{
    DeviceId, GraphId,
    codec::Format,
    devices::{Device, DevicesResponse, RegisterRequest, RegisterResponse, RevokeResponse},
    graphs::{GraphResponse, GraphSummary, GraphsResponse},
    keys::{GrantRequest, GrantResponse, RotateRequest, RotateResponse, Wrap, WrapsResponse},
    limits::LimitsResponse,
    records::{PullResponse, PushRequest, PushResponse},
};
use bytes::Bytes;
use reqwest::{
    Method,
    header::{HeaderName, HeaderValue},
};

use super::{Client, Request};
use crate::error::Error;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What a pull asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullQuery {
    /// Where to begin; the start where `None`.
    pub cursor: Option<String>,
    /// The most records of the page, 1 to 1,000; 500 where `None`.
    pub limit: Option<u32>,
    /// One epoch alone, with cursors of its own.
    pub epoch: Option<u64>,
}

/// The calling device's wraps of one graph.
#[derive(Debug, Clone)]
pub struct Wraps {
    /// The graph's current epoch; 0 while it has no key.
    pub epoch: u64,
    /// The wraps, epochs ascending.
    pub wraps: Vec<Wrap>,
}

impl Client {
    /// `POST /devices`: publishes the calling device's keys (route 1).
    ///
    /// # Errors
    /// [`Error::Relay`] with `device_key_mismatch`, `device_revoked`, `quota_exceeded`.
    pub async fn register(&self, body: &RegisterRequest) -> Result<RegisterResponse, Error> {
        self.call(&self.post(&["devices"], body)).await
    }

    /// `GET /devices`: the member's own devices, revoked ones too (route 2), every page.
    ///
    /// # Errors
    /// [`Error::Relay`].
    pub async fn devices(&self) -> Result<Vec<Device>, Error> {
        self.device_pages(|| self.get(&["devices"])).await
    }

    async fn device_pages(&self, request: impl Fn() -> Request) -> Result<Vec<Device>, Error> {
        let mut devices = Vec::new();
        let mut cursor = None;
        loop {
            let page: DevicesResponse = self.call(&request().query("cursor", cursor)).await?;
            devices.extend(page.devices);
            if !page.more {
                return Ok(devices);
            }
            cursor = Some(page.cursor);
        }
    }

    /// `DELETE /devices/{deviceId}`: revokes one of the member's own devices (route 3).
    ///
    /// # Errors
    /// [`Error::Relay`] with `device_not_found`.
    pub async fn revoke(&self, device: &DeviceId) -> Result<RevokeResponse, Error> {
        let url = self.url(&["devices", device.as_str()]);
        self.call(&Request::new(Method::DELETE, url)).await
    }

    /// `GET /graphs`: the graphs that the member may read (route 4), every page.
    ///
    /// # Errors
    /// [`Error::Relay`].
    pub async fn graphs(&self) -> Result<Vec<GraphSummary>, Error> {
        let mut graphs = Vec::new();
        let mut cursor = None;
        loop {
            let request = self.get(&["graphs"]).query("cursor", cursor);
            let page: GraphsResponse = self.call(&request).await?;
            graphs.extend(page.graphs);
            if !page.more {
                return Ok(graphs);
            }
            cursor = Some(page.cursor);
        }
    }

    /// `GET /graphs/{graphId}`: counters, ceilings and what is owed (route 5).
    ///
    /// # Errors
    /// [`Error::Relay`] with `graph_not_found`.
    pub async fn graph(&self, graph: &GraphId) -> Result<GraphResponse, Error> {
        self.call(&self.get(&["graphs", graph.as_str()])).await
    }

    /// `GET /graphs/{graphId}/devices`: the roster, and with `former` every device that ever held
    /// a wrap of the graph (route 6), every page.
    ///
    /// # Errors
    /// [`Error::Relay`] with `graph_not_found`.
    pub async fn roster(&self, graph: &GraphId, former: bool) -> Result<Vec<Device>, Error> {
        self.device_pages(|| {
            self.get(&["graphs", graph.as_str(), "devices"])
                .query("revoked", former.then_some("include"))
        })
        .await
    }

    /// `GET /graphs/{graphId}/wraps`: the calling device's own wraps of epochs past `after`
    /// (route 7), every page.
    ///
    /// # Errors
    /// [`Error::Relay`] with `graph_not_found`.
    pub async fn wraps(&self, graph: &GraphId, after: u64) -> Result<Wraps, Error> {
        let mut wraps = Vec::new();
        let mut cursor = None;
        loop {
            let request = self
                .get(&["graphs", graph.as_str(), "wraps"])
                .query("after", (after > 0).then_some(after))
                .query("cursor", cursor);
            let page: WrapsResponse = self.call(&request).await?;
            wraps.extend(page.wraps);
            if !page.more {
                return Ok(Wraps {
                    epoch: page.epoch,
                    wraps,
                });
            }
            cursor = Some(page.cursor);
        }
    }

    /// `POST /graphs/{graphId}/rotate`: begins an epoch (route 8).
    ///
    /// # Errors
    /// [`Error::Relay`] with `epoch_conflict`, `rotation_incomplete`, `graph_not_found`.
    pub async fn rotate(
        &self,
        graph: &GraphId,
        body: &RotateRequest,
    ) -> Result<RotateResponse, Error> {
        self.call(&self.post(&["graphs", graph.as_str(), "rotate"], body))
            .await
    }

    /// `POST /graphs/{graphId}/grant`: gives keys to devices that lack them (route 9).
    ///
    /// # Errors
    /// [`Error::Relay`] with `graph_unkeyed`, `graph_not_found`.
    pub async fn grant(
        &self,
        graph: &GraphId,
        body: &GrantRequest,
    ) -> Result<GrantResponse, Error> {
        self.call(&self.post(&["graphs", graph.as_str(), "grant"], body))
            .await
    }

    /// `POST /graphs/{graphId}/push`: writes records (route 10). With a `key` a repeat answers as
    /// the first did, for 24 hours.
    ///
    /// # Errors
    /// [`Error::Relay`] with `graph_unkeyed`, `head_moved`, `push_rejected`, `body_too_large`,
    /// `idempotency_conflict`; [`Error::Usage`] where `key` is not 1 to 128 visible ASCII.
    pub async fn push(
        &self,
        graph: &GraphId,
        body: &PushRequest,
        key: Option<&str>,
    ) -> Result<PushResponse, Error> {
        let bytes = Bytes::from(self.format().encode(body));
        self.push_encoded(graph, self.format(), bytes, key).await
    }

    /// [`push`](Self::push), of a body that was encoded (and perhaps stored) before: bodies under
    /// one key are compared byte for byte.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub async fn push_encoded(
        &self,
        graph: &GraphId,
        format: Format,
        body: Bytes,
        key: Option<&str>,
    ) -> Result<PushResponse, Error> {
        let path = ["graphs", graph.as_str(), "push"];
        let mut request = self.post_encoded(&path, format, body);
        if let Some(key) = key {
            let legal = (1..=128).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
            let value = HeaderValue::from_str(key).ok().filter(|_| legal);
            let usage = || Error::Usage("an idempotency key is visible ASCII".to_owned());
            request = request.header(IDEMPOTENCY_KEY, value.ok_or_else(usage)?);
        }
        self.call(&request).await
    }

    /// `GET /graphs/{graphId}/pull`: one page of records (route 11).
    ///
    /// # Errors
    /// [`Error::Relay`] with `cursor_invalid`, `graph_not_found`.
    pub async fn pull(&self, graph: &GraphId, query: &PullQuery) -> Result<PullResponse, Error> {
        let request = self
            .get(&["graphs", graph.as_str(), "pull"])
            .query("cursor", query.cursor.as_ref())
            .query("limit", query.limit)
            .query("epoch", query.epoch);
        self.call(&request).await
    }

    /// `GET /limits`: every ceiling in force.
    ///
    /// # Errors
    /// [`Error::Relay`].
    pub async fn limits(&self) -> Result<LimitsResponse, Error> {
        self.call(&self.get(&["limits"])).await
    }
}
