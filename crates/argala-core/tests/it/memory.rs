//! The ports that live in memory.

use std::sync::Arc;

use argala_core::{
    memory::{MemoryCounters, MemoryLimiter, MemoryPokes},
    ports::{CounterStore, RateLimiter, SystemClock},
};
use argala_testkit::{
    TestClock,
    conformance::{Fresh, poke::PokePorts},
};
use argala_wire::limits::Rate;

async fn limiter(rate: Rate, clock: TestClock) -> Fresh<dyn RateLimiter> {
    Fresh::new(Arc::new(MemoryLimiter::new(rate, Arc::new(clock))), ())
}

async fn pokes() -> Fresh<PokePorts> {
    let pokes = Arc::new(MemoryPokes::new());
    let ports = PokePorts {
        sink: Arc::<MemoryPokes>::clone(&pokes),
        source: Arc::<MemoryPokes>::clone(&pokes),
        subscriptions: Some(Box::new(move || pokes.subscriptions())),
    };
    Fresh::new(Arc::new(ports), ())
}

async fn counters() -> Fresh<dyn CounterStore> {
    Fresh::new(Arc::new(MemoryCounters::new(Arc::new(SystemClock))), ())
}

mod counter_stores {
    argala_testkit::counter_conformance!(super::counters);
}

mod limiters {
    argala_testkit::limiter_conformance!(super::limiter);
}

mod poke_ports {
    argala_testkit::poke_conformance!(super::pokes);
}
