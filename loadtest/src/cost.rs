//! What one request costs the database.
//!
//! Through the router, as a client makes it: with the look at the device, and without the looks at
//! the directory that are remembered for some seconds. Round trips are counted on the wire, by a
//! proxy before the server: one each time the relay speaks after the server has.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    arms::{
        Arm, GRAPHS, bare,
        relay::{Ground, RelayArm},
    },
    compare::databases,
    measure::{Graphs, Load},
};

#[derive(Args)]
pub(crate) struct Options {
    /// A database, `postgres://…`, by way of which another is made, `cost`.
    #[arg(long, value_name = "URL")]
    server: String,
}

/// How often each request is made; the median is reported.
const TIMES: usize = 9;
/// For how long what the directory says is remembered: longer than all of it takes, so that no
/// request is counted with looks at the directory that are due by then.
const DIRECTORY: Duration = Duration::from_secs(3_600);
/// Members of the graph that is rotated, a device each.
const MEMBERS: usize = 32;

#[derive(Debug, Default)]
struct Counters {
    statements: AtomicU64,
    trips: AtomicU64,
}

impl Counters {
    fn read(&self) -> (u64, u64) {
        (
            self.statements.load(Ordering::SeqCst),
            self.trips.load(Ordering::SeqCst),
        )
    }
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let [url] = databases(&options.server, ["cost"]).await?;
    let counters = Arc::new(Counters::default());
    let probe = {
        let counters = Arc::clone(&counters);
        move |_: &str| {
            counters.statements.fetch_add(1, Ordering::SeqCst);
        }
    };
    let proxied = proxy(&url, Arc::clone(&counters)).await?;
    // One connection, so that what is counted is one request's.
    let ground = Ground::new(&proxied, 1, MEMBERS, DIRECTORY, Some(Arc::new(probe))).await?;
    let relay = RelayArm::new(&ground, "relay", true, argala_wire::JSON).await?;
    let watch = bare::connect(&url).await?;
    println!("| request | statements | round trips | write-ahead log, bytes |");
    println!("| --- | ---: | ---: | ---: |");
    let push = |records| Load::Push {
        records,
        graphs: Graphs::Many,
    };
    for (name, load) in [
        ("push of 1 record", push(1)),
        ("push of 10 records", push(10)),
        ("push of 100 records", push(100)),
        ("pull of 100 records", Load::Pull { page: 100 }),
        ("pull of 1,000 records", Load::Pull { page: 1_000 }),
    ] {
        let mut caller = Arm::caller(&relay, 0, load).await?;
        // Each graph once: what is remembered of the directory is no request's own.
        for _ in 0..GRAPHS.div_ceil(MEMBERS) {
            caller.request().await?;
        }
        let mut costs = Vec::new();
        for _ in 0..=TIMES {
            let before = (counters.read(), wal(&watch).await?);
            caller.request().await?;
            costs.push(since(before, counters.read(), wal(&watch).await?));
            rest().await;
        }
        line(name, costs);
    }
    let mut costs = Vec::new();
    for epoch in 2..=TIMES as u64 + 2 {
        let before = (counters.read(), wal(&watch).await?);
        relay.rotate(epoch).await?;
        costs.push(since(before, counters.read(), wal(&watch).await?));
        rest().await;
    }
    line("rotation for 32 devices of 32 members", costs);
    Ok(())
}

/// Lets what runs beside the answer, pokes above all, come to its end.
async fn rest() {
    tokio::time::sleep(Duration::from_millis(150)).await;
}

/// Where the server's log stands.
async fn wal(watch: &tokio_postgres::Client) -> Result<u64> {
    let row = watch
        .query_one(
            "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint",
            &[],
        )
        .await?;
    Ok(u64::try_from(row.get::<_, i64>(0))?)
}

type Cost = [u64; 3];

fn since(((statements, trips), log): ((u64, u64), u64), now: (u64, u64), log_now: u64) -> Cost {
    [now.0 - statements, now.1 - trips, log_now - log]
}

/// The medians; the first time is left out, since it prepares statements.
fn line(name: &str, costs: Vec<Cost>) {
    let median = |of: usize| {
        let mut all: Vec<_> = costs[1..].iter().map(|cost| cost[of]).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    println!("| {name} | {} | {} | {} |", median(0), median(1), median(2));
}

/// A way to the server at `url` that counts round trips; tells its own URL.
async fn proxy(url: &str, counters: Arc<Counters>) -> Result<String> {
    let (before, path) = url.rsplit_once('/').context("a URL has a path")?;
    let (who, server) = before.rsplit_once('@').context("a URL names a user")?;
    let server = server.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, counters) = (server.clone(), Arc::clone(&counters));
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect(&server).await else {
                    return;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                // Whether the server has spoken since the client did.
                let answered = Arc::new(AtomicBool::new(true));
                let there = Arc::clone(&answered);
                let asks = move || {
                    if there.swap(false, Ordering::SeqCst) {
                        counters.trips.fetch_add(1, Ordering::SeqCst);
                    }
                };
                let answers = move || answered.store(true, Ordering::SeqCst);
                tokio::join!(
                    pass(from_client, to_server, asks),
                    pass(from_server, to_client, answers),
                );
            });
        }
    });
    Ok(format!("{who}@127.0.0.1:{port}/{path}"))
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, note: impl Fn()) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        note();
        if to.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
    // The other side learns of the end, or has ended itself.
    let _ = to.shutdown().await;
}
