//! Pairs of writes, one of them held up at every place where it waits while the other runs.
//!
//! Whatever the other does meanwhile, what both are told, what is told of them, and what is then
//! stored is what some order of the two, one after the other, would have led to. The two go through
//! relays of their own over one store, as two replicas of a cluster do; each pair has members and a
//! graph of its own. Where both are after the same thing, one has it.
//!
//! [`interleaving_conformance!`](crate::interleaving_conformance) holds a write up at its calls of
//! the ports and at its own waits, [`statements_conformance!`](crate::statements_conformance)
//! within a call of the store, before each statement: there the other may have to wait for a lock.

mod gate;
mod seen;
mod stage;
mod writes;

pub use gate::Statements;

use super::{Fresh, relay::RelayPorts};
use gate::Stop;
use seen::Seen;
use stage::{HeldUp, Rest, Stage};
use writes::Write;

/// One of two replicas of a relay.
pub struct Replica {
    /// What the relay is put over.
    pub ports: RelayPorts,
    /// Is told when a statement begins, where the database can tell.
    pub statements: Statements,
}

/// Stamps the suite; `$fresh` is the name of an `async fn() -> Fresh<Replica>` of two.
#[macro_export]
macro_rules! interleaving_conformance {
    ($fresh:ident) => {
        $crate::stamp_cases! { $fresh, interleaving::calls:
            a_push_held_up_anywhere,
            a_rotation_held_up_anywhere,
            a_revocation_held_up_anywhere,
            a_revocation_of_whom_it_concerns_held_up_anywhere,
            a_registration_held_up_anywhere,
            a_grant_held_up_anywhere,
            an_upload_held_up_anywhere,
            a_repeated_upload_held_up_anywhere,
            a_deletion_held_up_anywhere,
            a_deletion_of_what_is_to_come_held_up_anywhere,
            a_sweep_held_up_anywhere,
            a_sweep_of_what_is_old_held_up_anywhere,
            a_sweep_of_an_abandoned_graph_held_up_anywhere,
        }
    };
}

/// Stamps the same pairs, held up at statements.
#[macro_export]
macro_rules! statements_conformance {
    ($fresh:ident) => {
        $crate::stamp_cases! { $fresh, interleaving::statements:
            a_push_held_up_anywhere,
            a_rotation_held_up_anywhere,
            a_revocation_held_up_anywhere,
            a_revocation_of_whom_it_concerns_held_up_anywhere,
            a_registration_held_up_anywhere,
            a_grant_held_up_anywhere,
            an_upload_held_up_anywhere,
            a_repeated_upload_held_up_anywhere,
            a_deletion_held_up_anywhere,
            a_deletion_of_what_is_to_come_held_up_anywhere,
            a_sweep_held_up_anywhere,
            a_sweep_of_what_is_old_held_up_anywhere,
            a_sweep_of_an_abandoned_graph_held_up_anywhere,
        }
    };
}

/// How often a pair met, and how.
#[derive(Debug, Default)]
struct Count {
    held_up: usize,
    awaited: usize,
}

/// The pairs of one test, a stage for each time that one is played.
struct Pairs {
    fresh: Fresh<Replica>,
    stages: u64,
    /// What is left of stages that are over.
    rests: Vec<Rest>,
}

impl Pairs {
    fn of(fresh: Fresh<Replica>) -> Self {
        Self {
            fresh,
            stages: 0,
            rests: Vec::new(),
        }
    }

    fn stage(&mut self, stop: Stop) -> Stage {
        self.stages += 1;
        Stage::new(&self.fresh, self.stages, stop)
    }

    /// Notes that a stage is over but for its rest. Statements of the rest would be taken for the
    /// next stage's where they are counted: then there is none left.
    async fn over(&mut self, (seen, rest): (Seen, Rest), kind: Option<fn(usize) -> Stop>) -> Seen {
        self.rests.push(rest);
        if kind.is_none_or(|kind| kind(0) == Stop::Statement(0)) {
            self.rest().await;
        }
        seen
    }

    /// Waits for the rests of all stages.
    async fn rest(&mut self) {
        for rest in self.rests.drain(..) {
            rest.await.expect("nothing is told amiss");
        }
    }

    /// `first`, held up at each stop of a kind in turn, beside `second`.
    async fn meet(
        &mut self,
        first: Write,
        second: Write,
        kinds: &[fn(usize) -> Stop],
    ) -> Vec<Count> {
        let (one, two) = (Some(first), Some(second));
        let mut alone = Vec::with_capacity(4);
        for order in [(one, two), (one, None), (None, two)] {
            let played = self.stage(Stop::Never).in_turn(order.0, order.1).await;
            alone.push(self.over(played, None).await);
        }
        let played = self.stage(Stop::Never).backwards(first, second).await;
        let backwards = self.over(played, None).await;
        let [forwards, first_alone, second_alone] = alone.try_into().expect("three of them");
        let orders = [forwards, backwards];
        if first.is_rival_of(second) {
            let won = [&orders[0].won, &orders[1].won];
            assert_eq!(
                won,
                [&[true, false], &[false, true]],
                "of {first:?} and {second:?} whoever comes first has it: {orders:#?}"
            );
        }
        let mut counts = Vec::new();
        for &kind in kinds {
            let mut count = Count::default();
            for at in 0.. {
                let stop = kind(at);
                let (played, held_up) = self.stage(stop).held_up(first, second).await;
                let seen = self.over(played, Some(kind)).await;
                // An upload may be told to try again where what it met is gone by its end: then it
                // has changed nothing.
                let lets_go = first.may_be_let_go(second) && seen.lets_first_go(&second_alone)
                    || second.may_be_let_go(first) && seen.lets_second_go(&first_alone);
                assert!(
                    orders.contains(&seen) || lets_go,
                    "{first:?}, held up at {stop:?}, beside {second:?}: {seen:#?}\n\
                     is neither one after the other nor the other way round: {orders:#?}"
                );
                match held_up {
                    HeldUp::Not => break,
                    HeldUp::Whole => count.held_up += 1,
                    HeldUp::Awaited => {
                        count.held_up += 1;
                        count.awaited += 1;
                    }
                }
            }
            counts.push(count);
        }
        self.rest().await;
        counts
    }
}

/// `first`, held up where it calls a port and where it waits for something else, beside each other
/// write.
async fn at_calls(fresh: Fresh<Replica>, first: &[Write]) {
    let mut pairs = Pairs::of(fresh);
    for &first in first {
        let others = first.others();
        let mut waits = 0;
        for &second in &others {
            let kinds: [fn(usize) -> Stop; 2] = [Stop::Call, Stop::Wait];
            let counts = pairs.meet(first, second, &kinds).await;
            assert!(counts[0].held_up > 4, "{first:?} calls ports");
            waits += counts[1].held_up;
        }
        // Most wait once, for the task that does the work.
        let least = if first.waits_more_than_once() {
            others.len()
        } else {
            0
        };
        assert!(waits > least, "{first:?} waits for more than its ports");
    }
}

/// `first`, held up within the store, beside each other write.
async fn at_statements(fresh: Fresh<Replica>, first: &[Write]) {
    let mut pairs = Pairs::of(fresh);
    // Somebody waits, but not for each: what finds nothing holds nothing.
    let mut awaited = 0;
    for &first in first {
        for second in first.others_within_the_store() {
            let counts = pairs.meet(first, second, &[Stop::Statement]).await;
            assert!(counts[0].held_up > 0, "{first:?} has statements");
            awaited += counts[0].awaited;
        }
    }
    assert!(awaited > 0, "{first:?} hold locks that others wait for");
}

macro_rules! cases {
    ($($case:ident: $first:expr, $what:literal;)+) => {
        /// Held up at calls of ports and at waits.
        pub mod calls {
            use super::{Fresh, Replica, Write};
            $(
                #[doc = $what]
                pub async fn $case(fresh: Fresh<Replica>) {
                    super::at_calls(fresh, &$first).await;
                }
            )+
        }

        /// Held up at statements.
        pub mod statements {
            use super::{Fresh, Replica, Write};
            $(
                #[doc = $what]
                pub async fn $case(fresh: Fresh<Replica>) {
                    super::at_statements(fresh, &$first).await;
                }
            )+
        }
    };
}

cases! {
    a_push_held_up_anywhere: [Write::Push],
        "With as many signatures as a thread of their own is used for.";
    a_rotation_held_up_anywhere: [Write::Rotate],
        "Of an epoch that another may begin.";
    a_revocation_held_up_anywhere: [Write::Revoke],
        "Of the device that pushes and uploads.";
    a_revocation_of_whom_it_concerns_held_up_anywhere:
        [Write::RevokeLate, Write::RevokeNext, Write::RevokeLaptop],
        "Of the device that is granted a key, that registers, or that makes the other write.";
    a_registration_held_up_anywhere: [Write::Register],
        "Of an id that another may register with other keys.";
    a_grant_held_up_anywhere: [Write::Grant],
        "To a device that another may grant another wrap.";
    an_upload_held_up_anywhere: [Write::PutNew],
        "Of an id that is not there yet, a piece at a time.";
    a_repeated_upload_held_up_anywhere: [Write::PutAgain],
        "Of the same bytes under the same id.";
    a_deletion_held_up_anywhere: [Write::DeleteThere, Write::DeleteDelivered],
        "Of a blob that is there, and of one that a sweep is about to forget.";
    a_deletion_of_what_is_to_come_held_up_anywhere: [Write::DeleteNew],
        "Of an id that the other may be uploading.";
    a_sweep_held_up_anywhere: [Write::Sweep],
        "Which takes an upload for abandoned as soon as it is older than a moment.";
    a_sweep_of_what_is_old_held_up_anywhere: [Write::SweepOld],
        "When a tombstone has had its time, and an idempotency key.";
    a_sweep_of_an_abandoned_graph_held_up_anywhere: [Write::SweepAbandoned],
        "Whose group has long had no members.";
}
