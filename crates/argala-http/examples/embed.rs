//! A host that has members, sessions and storage of its own, with the relay as a part of it:
//! `cargo run -p argala-http --example embed`
//!
//! Everything that the relay asks of the world is asked of [`Host`]. One struct answers it all
//! here; in a real application each trait is implemented where the answer is known.

use std::{
    collections::HashMap,
    io::Write,
    ops::Range,
    sync::{Arc, Mutex},
};

use argala_core::{
    Identity, Relay, StoreResult,
    ports::{
        BlobStore, ByteStream, Clock, Directory, Event, ListedObject, ObjectKey, Poke, PokeSink,
        RateLimiter, RateLimiters, SystemClock, Verdict,
    },
};
use argala_http::{AuthError, Authenticate};
use argala_wire::{
    DeviceId, GroupId, MemberId,
    devices::DeviceRef,
    limits::{Bucket, Quotas},
};
use async_trait::async_trait;
use axum::{Router, extract::State, routing::get};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::request::Parts;

/// The application's own state.
#[derive(Default)]
pub struct Host {
    /// Who is signed in: the member and the device behind each session.
    pub sessions: Mutex<HashMap<String, (String, String)>>,
    /// The groups and who is in them.
    pub groups: Mutex<HashMap<String, Vec<String>>>,
    /// Sealed bytes, by the name that the relay gives them.
    pub objects: Mutex<HashMap<String, Bytes>>,
    /// What the host was asked or told.
    pub journal: Mutex<Vec<String>>,
}

impl Host {
    fn note(&self, line: impl Into<String>) {
        self.journal
            .lock()
            .expect("nobody panics with it")
            .push(line.into());
    }
}

/// The host's own sessions are the credential.
#[async_trait]
impl Authenticate for Host {
    async fn authenticate(&self, parts: &Parts) -> Result<Identity, AuthError> {
        self.note("authenticate");
        let session = parts
            .headers
            .get("x-session")
            .and_then(|value| value.to_str().ok());
        let session = session.ok_or(AuthError::MISSING)?;
        let sessions = self.sessions.lock().expect("nobody panics with it");
        let unknown = AuthError::Refused {
            reason: "unknown_session",
        };
        let (member, device) = sessions.get(session).ok_or(unknown)?;
        let malformed = |_| AuthError::Refused {
            reason: "malformed",
        };
        let device = DeviceRef {
            member_id: MemberId::new(member.as_str()).map_err(malformed)?,
            device_id: DeviceId::new(device.as_str()).map_err(malformed)?,
        };
        Ok(Identity {
            device,
            expires_at: None,
        })
    }
}

/// Three questions about members and groups.
#[async_trait]
impl Directory for Host {
    async fn members_of_group(&self, group: &GroupId) -> StoreResult<Vec<MemberId>> {
        self.note(format!("members of {group}"));
        let groups = self.groups.lock().expect("nobody panics with it");
        let members = groups.get(group.as_str()).into_iter().flatten();
        Ok(members
            .filter_map(|name| MemberId::new(name.as_str()).ok())
            .collect())
    }

    async fn is_group_member(&self, group: &GroupId, member: &MemberId) -> StoreResult<bool> {
        Ok(self.members_of_group(group).await?.contains(member))
    }

    async fn is_active_member(&self, member: &MemberId) -> StoreResult<bool> {
        let groups = self.groups.lock().expect("nobody panics with it");
        Ok(groups
            .values()
            .flatten()
            .any(|name| name == member.as_str()))
    }
}

/// Pokes, to wake phones with.
#[async_trait]
impl PokeSink for Host {
    async fn poke(&self, poke: &Poke) -> StoreResult<()> {
        for member in &poke.members {
            if let Some(graph) = poke.graph_id_for(member) {
                self.note(format!("poke {member}: {graph}"));
            }
        }
        Ok(())
    }
}

/// The host's own storage.
#[async_trait]
impl BlobStore for Host {
    async fn put(&self, key: &ObjectKey, _size: u64, body: ByteStream) -> StoreResult<()> {
        let broken = |error| argala_core::StoreError::unavailable("receiving a blob", error);
        let pieces: Vec<Bytes> = body.try_collect().await.map_err(broken)?;
        self.note("object put");
        let mut objects = self.objects.lock().expect("nobody panics with it");
        objects.insert(key.as_str().to_owned(), pieces.concat().into());
        Ok(())
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> StoreResult<Option<ByteStream>> {
        self.note("object get");
        let objects = self.objects.lock().expect("nobody panics with it");
        Ok(objects.get(key.as_str()).map(|bytes| {
            let bytes = range.map_or_else(
                || bytes.clone(),
                |range| bytes.slice(range.start as usize..range.end as usize),
            );
            stream::iter([Ok(bytes)]).boxed()
        }))
    }

    async fn delete(&self, key: &ObjectKey) -> StoreResult<()> {
        self.note("object delete");
        self.objects
            .lock()
            .expect("nobody panics with it")
            .remove(key.as_str());
        Ok(())
    }

    async fn list(
        &self,
        instance: &str,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> StoreResult<Vec<ListedObject>> {
        let prefix = format!("{instance}/");
        let objects = self.objects.lock().expect("nobody panics with it");
        let listed = objects.iter().filter_map(|(name, bytes)| {
            let key = ObjectKey::parse(name).filter(|_| name.starts_with(&prefix))?;
            (Some(&key) > after).then(|| ListedObject {
                key,
                size: bytes.len() as u64,
                // A store that forgets all when it ends has no old objects.
                modified_at: SystemClock.now(),
            })
        });
        let mut listed: Vec<_> = listed.collect();
        listed.sort_by(|one, other| one.key.cmp(&other.key));
        listed.truncate(limit);
        Ok(listed)
    }
}

/// The host's own rate limit of one bucket.
struct Limit(Arc<Host>, Bucket);

#[async_trait]
impl RateLimiter for Limit {
    async fn check(&self, member: &MemberId) -> Verdict {
        self.0.note(format!("limit {} {member}", self.1.as_str()));
        Verdict::Allowed
    }
}

/// The application: its own routes, and the relay under a prefix.
pub fn app(host: &Arc<Host>, database: &std::path::Path) -> anyhow::Result<Router> {
    let store = argala_sqlite::Sqlite::open(database, &argala_sqlite::Options::default())?;
    let limit = |bucket| -> Arc<dyn RateLimiter> { Arc::new(Limit(host.clone(), bucket)) };
    let journal = host.clone();
    let relay = Relay::builder(Arc::new(store), host.clone(), host.clone())
        .events(move |event: &Event| journal.note(format!("event {}", event.name())))
        .poke_sink(host.clone())
        .quotas(Quotas {
            max_blob_bytes: 1024 * 1024,
            ..Quotas::default()
        })
        .limiters(RateLimiters {
            push: limit(Bucket::Push),
            pull: limit(Bucket::Pull),
            blobs: limit(Bucket::Blobs),
            keys: limit(Bucket::Keys),
        })
        .build();
    Ok(Router::new()
        .route("/members", get(members))
        .nest("/sync", argala_http::router(relay, host.clone()))
        .with_state(host.clone()))
}

async fn members(State(host): State<Arc<Host>>) -> String {
    let sessions = host.sessions.lock().expect("nobody panics with it");
    format!("{} signed in", sessions.len())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let host = Arc::new(Host::default());
    let mut session = HashMap::from([("s1".to_owned(), ("sam".to_owned(), "laptop".to_owned()))]);
    std::mem::swap(
        &mut *host.sessions.lock().expect("nobody panics with it"),
        &mut session,
    );
    let mut groups = HashMap::from([("acme".to_owned(), vec!["sam".to_owned()])]);
    std::mem::swap(
        &mut *host.groups.lock().expect("nobody panics with it"),
        &mut groups,
    );
    let app = app(&host, &std::env::temp_dir().join("argala-embed.db"))?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let line = "curl -H 'x-session: s1' http://127.0.0.1:3000/sync/limits";
    writeln!(std::io::stdout(), "{line}")?;
    Ok(axum::serve(listener, app).await?)
}
