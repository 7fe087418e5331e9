//! Pairs of writes, one of them held up at every call of a port while the other runs.
//!
//! Whatever the other does meanwhile, what both are told and what is then stored is what some
//! order of the two, one after the other, would have led to. The two go through relays of their
//! own over one store, as two replicas of a cluster do; each pair has members and a graph of its
//! own.

mod stage;
mod writes;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use argala_core::StoreResult;
use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::{Fresh, relay::RelayPorts};
use crate::Interpose;
use stage::Stage;
use writes::Write;

/// Stamps the suite; `$fresh` is the name of an `async fn() -> Fresh<RelayPorts>`.
#[macro_export]
macro_rules! interleaving_conformance {
    ($fresh:ident) => {
        $crate::stamp_cases! { $fresh, interleaving:
            a_push_held_up_anywhere,
            a_rotation_held_up_anywhere,
            a_revocation_held_up_anywhere,
            a_registration_held_up_anywhere,
            a_grant_held_up_anywhere,
            an_upload_held_up_anywhere,
            a_repeated_upload_held_up_anywhere,
            a_deletion_held_up_anywhere,
            a_deletion_of_what_is_to_come_held_up_anywhere,
            a_sweep_held_up_anywhere,
        }
    };
}

/// Holds one relay up at its `stop`th arrival at a port or return from one, until it is let go.
struct Gate {
    stop: usize,
    passed: AtomicUsize,
    reached: Semaphore,
    go: Semaphore,
}

impl Gate {
    fn at(stop: usize) -> Arc<Self> {
        Arc::new(Self {
            stop,
            passed: AtomicUsize::new(0),
            reached: Semaphore::new(0),
            go: Semaphore::new(0),
        })
    }

    async fn pass(&self) {
        if self.passed.fetch_add(1, Ordering::SeqCst) == self.stop {
            self.reached.add_permits(1);
            let go = self.go.acquire().await;
            drop(go.expect("never closed"));
        }
    }
}

#[async_trait]
impl Interpose for Gate {
    async fn before(&self, _: &'static str) -> StoreResult<()> {
        self.pass().await;
        Ok(())
    }

    async fn after(&self, _: &'static str) -> StoreResult<()> {
        self.pass().await;
        Ok(())
    }
}

/// `first`, held up at each of its stops in turn, beside each other write.
async fn beside_all(fresh: Fresh<RelayPorts>, first: Write) {
    let mut number = 0;
    let mut stage = |stop| {
        number += 1;
        Stage::new(&fresh, number, Gate::at(stop))
    };
    for second in Write::ALL {
        let this_first = stage(usize::MAX).in_turn(Some(first), Some(second)).await;
        let that_first = stage(usize::MAX).backwards(first, second).await;
        let that_alone = stage(usize::MAX).in_turn(None, Some(second)).await;
        let orders = [this_first, that_first];
        let mut stop = 0;
        loop {
            let (seen, held_up) = stage(stop).held_up(first, second).await;
            // An upload may be told to try again where what it met is gone by its end: then it
            // has changed nothing.
            let let_go = first.may_be_let_go(second)
                && seen.is_first_unavailable()
                && seen.second == that_alone.second
                && seen.state == that_alone.state;
            assert!(
                orders.contains(&seen) || let_go,
                "{first:?}, held up at stop {stop}, beside {second:?}: {seen:#?}\n\
                 is neither one after the other nor the other way round: {orders:#?}"
            );
            if !held_up {
                break;
            }
            stop += 1;
        }
        assert!(stop > 2, "{first:?} calls ports, and is held up at them");
    }
}

/// Told as `beside_all` has it.
pub async fn a_push_held_up_anywhere(fresh: Fresh<RelayPorts>) {
    beside_all(fresh, Write::Push).await;
}

/// Told as `beside_all` has it.
pub async fn a_rotation_held_up_anywhere(fresh: Fresh<RelayPorts>) {
    beside_all(fresh, Write::Rotate).await;
}

/// Told as `beside_all` has it.
pub async fn a_revocation_held_up_anywhere(fresh: Fresh<RelayPorts>) {
    beside_all(fresh, Write::Revoke).await;
}

/// Told as `beside_all` has it.
pub async fn a_registration_held_up_anywhere(fresh: Fresh<RelayPorts>) {
    beside_all(fresh, Write::Register).await;
}

/// Told as `beside_all` has it.
pub async fn a_grant_held_up_anywhere(fresh: Fresh<RelayPorts>) {
    beside_all(fresh, Write::Grant).await;
}

/// Of an id that is not there yet.
pub async fn an_upload_held_up_anywhere(fresh: Fresh<RelayPorts>) {
    beside_all(fresh, Write::PutNew).await;
}

/// Of the same bytes under the same id.
pub async fn a_repeated_upload_held_up_anywhere(fresh: Fresh<RelayPorts>) {
    beside_all(fresh, Write::PutAgain).await;
}

/// Told as `beside_all` has it.
pub async fn a_deletion_held_up_anywhere(fresh: Fresh<RelayPorts>) {
    beside_all(fresh, Write::DeleteThere).await;
}

/// Of an id that the other may be uploading.
pub async fn a_deletion_of_what_is_to_come_held_up_anywhere(fresh: Fresh<RelayPorts>) {
    beside_all(fresh, Write::DeleteNew).await;
}

/// Which takes an upload for abandoned as soon as it is older than a moment.
pub async fn a_sweep_held_up_anywhere(fresh: Fresh<RelayPorts>) {
    beside_all(fresh, Write::Sweep).await;
}
