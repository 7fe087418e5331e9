//! The suites that every adapter passes, by way of three replicas.

use std::sync::Arc;

use argala_core::ports::Clock;
use argala_testkit::{
    TestClock,
    conformance::{Fresh, poke::PokePorts},
    eventually,
};
use argala_wire::limits::Rate;

use crate::bench::{Counters, Limiter, Pokes, patient, replica, up};

/// Three replicas' limiters of one rate, on a clock that the test moves.
pub(crate) async fn limiter(url: &str, rate: Rate, clock: TestClock) -> Fresh<Limiter> {
    let options = patient(url);
    let clock: Arc<dyn Clock> = Arc::new(clock);
    let (mut limiters, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let redis = replica(&options);
        limiters.push(redis.limiter_on(&clock, rate));
        up(&redis).await;
        kept.push(redis);
    }
    Fresh::of(limiters, kept)
}

/// Three replicas' ends of what carries pokes.
pub(crate) async fn pokes(url: &str) -> Fresh<PokePorts> {
    let options = patient(url);
    let mut ports = Vec::new();
    for _ in 0..3 {
        let pokes = Pokes::start(&options);
        up(&pokes.redis).await;
        let Pokes {
            redis,
            sink,
            source,
        } = pokes;
        ports.push(Arc::new(PokePorts {
            sink,
            source,
            // Not of all replicas together, which the suite would have to add up.
            subscriptions: None,
        }));
        // Its tasks run as long as the ports are used.
        std::mem::forget(redis);
    }
    Fresh::of(ports, ())
}

/// Three replicas' counters.
pub(crate) async fn counters(url: &str) -> Fresh<Counters> {
    let options = patient(url);
    let (mut counters, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let redis = replica(&options);
        let own = redis.counters();
        eventually("the counters are there", || async {
            own.read("nothing").await.ok()
        })
        .await;
        counters.push(own);
        kept.push(redis);
    }
    Fresh::of(counters, kept)
}

/// Stamps all three suites on the servers that a function starts, once for all tests of a process.
macro_rules! suites {
    ($start:path) => {
        async fn url() -> &'static str {
            static SERVERS: tokio::sync::OnceCell<argala_testkit::servers::PrivateRedis> =
                tokio::sync::OnceCell::const_new();
            SERVERS.get_or_init($start).await.url()
        }

        async fn limiter(
            rate: argala_wire::limits::Rate,
            clock: argala_testkit::TestClock,
        ) -> argala_testkit::conformance::Fresh<crate::bench::Limiter> {
            crate::suites::limiter(url().await, rate, clock).await
        }

        async fn pokes()
        -> argala_testkit::conformance::Fresh<argala_testkit::conformance::poke::PokePorts> {
            crate::suites::pokes(url().await).await
        }

        async fn counters() -> argala_testkit::conformance::Fresh<crate::bench::Counters> {
            crate::suites::counters(url().await).await
        }

        mod limits {
            argala_testkit::limiter_conformance!(super::limiter);
        }

        mod poke_ports {
            argala_testkit::poke_conformance!(super::pokes);
        }

        mod counter_stores {
            argala_testkit::counter_conformance!(super::counters);
        }
    };
}

pub(crate) use suites;
