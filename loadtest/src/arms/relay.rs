//! The relay's router over the same Postgres, with every check on and no signatures.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use argala_core::{
    Relay,
    memory::MemoryLimiter,
    ports::{Clock, DirectoryTables, Event, Store, SystemClock},
};
use argala_http::{JwtAuth, JwtConfig, JwtKey, mint};
use argala_postgres::{Options, Postgres, StatementProbe, migrate};
use argala_wire::{
    DeviceId, GroupId, MemberId, Sealed, StorageKey,
    codec::Format,
    devices::{DeviceKind, DeviceRef, RegisterRequest, Suite},
    keys::{RotateRequest, RotateWrap},
    limits::{Quotas, Rate, RateLimits, Signatures},
    signing,
};
use async_trait::async_trait;
use axum::Router;
use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;

use super::{Arm, Caller, FULL, bare, ciphertext, share};
use crate::measure::{Graphs, Load};

const HOT: &str = "hot";
const READ: &str = "read";

/// What every arm of the relay's shares: one database, and what is in it at the beginning.
pub(crate) struct Ground {
    url: String,
    connections: usize,
    callers: usize,
    tokens: Vec<String>,
    remembers: Duration,
    probe: Option<StatementProbe>,
}

impl Ground {
    /// Migrates the database at `url`, and fills it: a member and a device for each caller, their
    /// graphs, the one that all share and the one that is pulled. What the directory says is
    /// remembered for so long.
    pub(crate) async fn new(
        url: &str,
        connections: usize,
        callers: usize,
        remembers: Duration,
        probe: Option<StatementProbe>,
    ) -> Result<Arc<Self>> {
        migrate(&Options::new(url)).await?;
        let config = jwt();
        let now = SystemClock.now();
        let tokens = (0..callers)
            .map(|number| {
                Ok(mint(
                    &config,
                    &device(number)?,
                    now,
                    Duration::from_secs(86_400),
                )?)
            })
            .collect::<Result<_>>()?;
        let ground = Arc::new(Self {
            url: url.to_owned(),
            connections,
            callers,
            tokens,
            remembers,
            probe,
        });
        let router = ground.router(true).await?;
        ground.fill(&router).await?;
        let client = bare::connect(url).await?;
        client.batch_execute("VACUUM ANALYZE").await?;
        Ok(ground)
    }

    fn options(&self, together: bool) -> Options {
        Options {
            connections: self.connections,
            group_pushes: together,
            probe: self.probe.clone(),
            ..Options::new(&*self.url)
        }
    }

    /// A relay as a replica has it; rates that are kept and never reached.
    async fn router(&self, together: bool) -> Result<Router> {
        let database = Arc::new(Postgres::open(&self.options(together)).await?);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let rate = Rate {
            per_minute: 60_000_000,
            burst: 60_000_000,
        };
        let rates = RateLimits {
            push: rate,
            pull: rate,
            blobs: rate,
            keys: rate,
        };
        let relay = Relay::builder(database.clone(), database.clone(), database)
            .limiters(MemoryLimiter::for_each_bucket(&rates, &clock))
            .directory_cache_ttl(self.remembers)
            .signatures(Signatures::Optional)
            .quotas(Quotas {
                max_records_per_graph: 1 << 40,
                max_ciphertext_bytes_per_graph: 1 << 50,
                ..Quotas::default()
            })
            .events(|event: &Event| {
                std::hint::black_box(event.name());
            })
            .build();
        let auth = JwtAuth::new(jwt(), clock)?;
        Ok(argala_http::router(relay, Arc::new(auth)))
    }

    async fn fill(&self, router: &Router) -> Result<()> {
        let database = Postgres::open(&self.options(true)).await?;
        let everybody: Vec<_> = (0..self.callers).collect();
        for number in &everybody {
            database.add_member(&member(*number)?).await?;
            self.register(router, *number).await?;
        }
        let mut graphs = vec![
            (HOT.to_owned(), everybody.clone()),
            (READ.to_owned(), everybody),
        ];
        for number in 0..self.callers {
            let own = share(number, self.callers);
            graphs.extend(
                own.into_iter()
                    .map(|graph| (graph.to_string(), vec![number])),
            );
        }
        for (name, members) in &graphs {
            let group = GroupId::new(name.as_str())?;
            database.create_group(&group).await?;
            for number in members {
                database.join_group(&group, &member(*number)?).await?;
            }
            self.rotate(router, name, 1, members).await?;
        }
        for from in (0..FULL).step_by(1_000) {
            let body = push_body("full", from, 1_000, &encoded());
            self.push(router, 0, READ, body).await?;
        }
        Ok(())
    }

    async fn register(&self, router: &Router, number: usize) -> Result<()> {
        let body = Format::Json.encode(&keys_of(&device(number)?, number));
        let (status, answer) = self
            .send(router, number, Method::POST, "/devices", body.into())
            .await?;
        ensure!(status == StatusCode::CREATED, "{status}: {answer:?}");
        Ok(())
    }

    async fn rotate(
        &self,
        router: &Router,
        graph: &str,
        epoch: u64,
        members: &[usize],
    ) -> Result<()> {
        let wraps = members.iter().map(|number| {
            let DeviceRef {
                member_id,
                device_id,
            } = device(*number)?;
            Ok(RotateWrap {
                member_id,
                device_id,
                wrap: Sealed(vec![7; 81]),
            })
        });
        let request = RotateRequest {
            epoch,
            wraps: wraps.collect::<Result<_>>()?,
        };
        let body = Format::Json.encode(&request);
        let path = format!("/graphs/g:{graph}/rotate");
        let by = members[0];
        let (status, answer) = self
            .send(router, by, Method::POST, &path, body.into())
            .await?;
        ensure!(status == StatusCode::OK, "{status}: {answer:?}");
        Ok(())
    }

    async fn push(&self, router: &Router, by: usize, graph: &str, body: String) -> Result<Bytes> {
        let path = format!("/graphs/g:{graph}/push");
        let (status, answer) = self
            .send(router, by, Method::POST, &path, body.into())
            .await?;
        ensure!(status == StatusCode::OK, "{status}: {answer:?}");
        Ok(answer)
    }

    async fn send(
        &self,
        router: &Router,
        by: usize,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.tokens[by]))
            .header(header::CONTENT_TYPE, argala_wire::JSON)
            .body(axum::body::Body::new(Full::new(body)))?;
        let response = router.clone().oneshot(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

/// One relay over the ground.
pub(crate) struct RelayArm {
    name: &'static str,
    ground: Arc<Ground>,
    router: Router,
    media_type: &'static str,
}

impl RelayArm {
    pub(crate) async fn new(
        ground: &Arc<Ground>,
        name: &'static str,
        together: bool,
        media_type: &'static str,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            name,
            router: ground.router(together).await?,
            ground: Arc::clone(ground),
            media_type,
        }))
    }

    /// Begins the next epoch of the graph that all callers share.
    pub(crate) async fn rotate(&self, epoch: u64) -> Result<()> {
        let everybody: Vec<_> = (0..self.ground.callers).collect();
        self.ground
            .rotate(&self.router, HOT, epoch, &everybody)
            .await
    }
}

#[async_trait]
impl Arm for Arc<RelayArm> {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn caller(&self, number: usize, load: Load) -> Result<Box<dyn Caller>> {
        let since = SystemClock.now().as_millis();
        Ok(Box::new(RelayCaller {
            arm: Self::clone(self),
            number,
            graphs: match load {
                Load::Push {
                    graphs: Graphs::One,
                    ..
                } => vec![HOT.to_owned()],
                _ => share(number, self.ground.callers)
                    .iter()
                    .map(usize::to_string)
                    .collect(),
            },
            load,
            name: format!("{}-{since}-{number}", self.name),
            turn: 0,
            cursor: None,
            ciphertext: encoded(),
        }))
    }

    async fn stored(&self) -> Result<u64> {
        let client = bare::connect(&self.ground.url).await?;
        let key = StorageKey::group(&GroupId::new(READ)?);
        let row = client
            .query_one(
                "SELECT (SELECT count(*) FROM records r JOIN graphs g ON g.id = r.graph
                         WHERE g.storage_key <> $1),
                        (SELECT sum(head)::bigint FROM graphs WHERE storage_key <> $1),
                        (SELECT sum(records)::bigint FROM graphs WHERE storage_key <> $1)",
                &[&key.as_str()],
            )
            .await?;
        let counts: [i64; 3] = [row.get(0), row.get(1), row.get(2)];
        let same: BTreeSet<_> = counts.iter().collect();
        ensure!(
            same.len() == 1,
            "records, heads and counters are {counts:?}"
        );
        // And by the relay's own reckoning, for the graph where most may go wrong.
        let database = Postgres::open(&self.ground.options(true)).await?;
        let key = StorageKey::group(&GroupId::new(HOT)?);
        let hot = database.recount(&key).await?;
        let hot = hot.context("the graph is there")?;
        ensure!(hot.stored == hot.counted, "{hot:?}");
        Ok(u64::try_from(counts[0])?)
    }
}

struct RelayCaller {
    arm: Arc<RelayArm>,
    number: usize,
    graphs: Vec<String>,
    load: Load,
    name: String,
    turn: usize,
    cursor: Option<String>,
    ciphertext: String,
}

#[async_trait]
impl Caller for RelayCaller {
    async fn request(&mut self) -> Result<u64> {
        self.turn += 1;
        match self.load {
            Load::Push { records, .. } => {
                let graph = &self.graphs[self.turn % self.graphs.len()];
                let name = format!("{}-{}", self.name, self.turn);
                let body = push_body(&name, 0, records, &self.ciphertext);
                let ground = &self.arm.ground;
                let answer = ground
                    .push(&self.arm.router, self.number, graph, body)
                    .await?;
                let accepted = format!("\"accepted\":{records},\"rejected\":0");
                ensure!(
                    find(&answer, accepted.as_bytes()).is_some(),
                    "not all were taken: {answer:?}"
                );
                Ok(records as u64)
            }
            Load::Pull { page } => self.pull(page).await,
        }
    }
}

impl RelayCaller {
    async fn pull(&mut self, page: usize) -> Result<u64> {
        let mut path = format!("/graphs/g:{READ}/pull?limit={page}");
        if let Some(cursor) = &self.cursor {
            path.push_str("&cursor=");
            path.push_str(cursor);
        }
        let ground = &self.arm.ground;
        let request = Request::builder()
            .uri(path)
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", ground.tokens[self.number]),
            )
            .header(header::ACCEPT, self.arm.media_type)
            .body(axum::body::Body::empty())?;
        let response = self.arm.router.clone().oneshot(request).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        ensure!(status == StatusCode::OK, "{status}: {answer:?}");
        let (cursor, more) = if self.arm.media_type == argala_wire::CBOR {
            after_cbor(&answer)?
        } else {
            after_json(&answer)?
        };
        self.cursor = more.then_some(cursor);
        Ok(if more {
            page
        } else {
            FULL - (FULL - 1) / page * page
        } as u64)
    }
}

/// Where the next page begins and whether there is one, read as cheaply as can be: reading answers
/// is not what is measured.
fn after_json(answer: &[u8]) -> Result<(String, bool)> {
    let mark = b"\"cursor\":\"";
    let at = rfind(answer, mark).context("a cursor")? + mark.len();
    let end = at + find(&answer[at..], b"\"").context("its end")?;
    let cursor = std::str::from_utf8(&answer[at..end])?.to_owned();
    let more = find(&answer[end..], b"\"more\":true").is_some();
    Ok((cursor, more))
}

fn after_cbor(answer: &[u8]) -> Result<(String, bool)> {
    let mark = b"\x66cursor";
    let at = rfind(answer, mark).context("a cursor")? + mark.len();
    let (length, at) = match answer.get(at) {
        Some(head @ 0x60..=0x77) => (usize::from(head - 0x60), at + 1),
        Some(0x78) => (usize::from(answer[at + 1]), at + 2),
        _ => bail!("a cursor is a text of less than 256 bytes"),
    };
    let cursor = std::str::from_utf8(&answer[at..at + length])?.to_owned();
    let more = find(&answer[at + length..], b"\x64more\xf5").is_some();
    Ok((cursor, more))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// From the end: what is looked for follows the records.
fn rfind(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).rposition(|window| window == what)
}

fn encoded() -> String {
    base64_simd::URL_SAFE_NO_PAD.encode_to_string(ciphertext())
}

fn push_body(name: &str, from: usize, records: usize, ciphertext: &str) -> String {
    let mut body = String::with_capacity(40 + records * (ciphertext.len() + 80));
    body.push_str("{\"records\":[");
    for n in from..from + records {
        if n > from {
            body.push(',');
        }
        body.push_str("{\"id\":\"");
        body.push_str(name);
        body.push('-');
        body.push_str(&n.to_string());
        body.push_str("\",\"epoch\":1,\"ciphertext\":\"");
        body.push_str(ciphertext);
        body.push_str("\"}");
    }
    body.push_str("]}");
    body
}

fn member(number: usize) -> Result<MemberId> {
    Ok(MemberId::new(format!("member-{number}"))?)
}

fn device(number: usize) -> Result<DeviceRef> {
    Ok(DeviceRef {
        member_id: member(number)?,
        device_id: DeviceId::new("laptop")?,
    })
}

/// What a device publishes, with a proof that holds.
fn keys_of(device: &DeviceRef, number: usize) -> RegisterRequest {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&(number as u64).to_be_bytes());
    let signing = SigningKey::from_bytes(&seed);
    let (kind, suite) = (DeviceKind::Device, Suite::default());
    let encryption_key = Sealed(seed.to_vec());
    let signing_key = Sealed(signing.verifying_key().as_bytes().to_vec());
    let message = signing::device_proof(
        device,
        kind,
        suite,
        encryption_key.as_slice(),
        signing_key.as_slice(),
    );
    RegisterRequest {
        suite,
        kind,
        encryption_key,
        signing_key,
        label: None,
        proof: Sealed(signing.sign(&message).to_bytes().to_vec()),
    }
}

fn jwt() -> JwtConfig {
    JwtConfig {
        keys: vec![JwtKey::Secret(
            b"a secret of more than 32 bytes, for load alone".to_vec(),
        )],
        ..JwtConfig::default()
    }
}
