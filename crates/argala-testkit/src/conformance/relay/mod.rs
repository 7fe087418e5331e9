//! What a [`Relay`] does over any store: what no single port shows.

pub mod admission;
pub mod notice;
pub mod roster;
pub mod streams;
pub mod sweeps;
pub mod upkeep;
pub mod uploads;

use std::{sync::Arc, time::Duration};

use argala_core::{
    Access, Caller, Fault, Gate, Identity, Outcome, PullQuery, Rejection, Relay, RelayBuilder,
    ports::{
        BlobStore, SweepStore,
        store::{PullPage, Pulled},
    },
    sweep::{Sweep, SweepOptions},
};
use argala_wire::{
    limits::{Bucket, Signatures},
    records::{PushRequest, PushResponse},
};

use crate::{EventLog, MemoryDirectory, PokeLog, TestClock, TestDevice, TestRandom};

/// Stamps the suite; `$fresh` is the name of an `async fn() -> Fresh<RelayPorts>`.
#[macro_export]
macro_rules! relay_conformance {
    ($fresh:ident) => {
        mod admission {
            use super::$fresh as fresh;

            $crate::stamp_cases! { fresh, relay::admission:
                the_checks_come_in_their_order,
                a_revocation_is_remembered_before_the_allowance,
                an_answer_of_the_directory_is_good_for_its_time,
                rotate_grant_and_roster_ask_afresh,
                a_directory_that_fails_is_never_a_yes,
                a_sink_that_panics_is_contained_and_counted,
                presence_is_told_at_once_and_kept_after_closing,
            }
        }
        mod notice {
            use super::$fresh as fresh;

            $crate::stamp_cases! { fresh, relay::notice:
                everybody_but_the_cause_is_poked,
                a_burst_is_few_pokes_and_the_last_change_is_told,
                two_causes_within_a_window_are_told_of_each_other,
                nothing_new_pokes_nobody,
                a_grant_pokes_those_who_were_granted,
                a_caller_who_hangs_up_stops_no_event_and_no_poke,
                a_sink_that_fails_fails_no_push,
            }
        }
        mod roster {
            use super::$fresh as fresh;

            $crate::stamp_cases! { fresh, relay::roster:
                a_member_who_leaves_is_owed_within_a_minute_of_use,
                a_member_who_returns_is_owed_no_longer,
                a_revocation_is_owed_at_once,
                the_list_learns_of_the_directory_too,
                a_list_leaves_out_what_may_not_be_read_and_still_ends,
            }
        }
        mod streams {
            use super::$fresh as fresh;

            $crate::stamp_cases! { fresh, relay::streams:
                hello_then_pokes_then_resync_on_closing,
                a_revoked_device_hears_no_more,
                a_device_revoked_elsewhere_hears_no_more,
                a_credential_that_expires_ends_the_stream,
                a_member_has_so_many_streams_and_gets_them_back,
            }
        }
        mod sweeps {
            use super::$fresh as fresh;

            $crate::stamp_cases! { fresh, relay::sweeps:
                a_blob_that_everybody_has_is_forgotten,
                who_leaves_is_not_waited_for,
                nothing_is_delivered_on_doubt,
                the_graph_of_a_group_that_is_long_empty_goes,
                an_emptiness_that_is_broken_begins_anew,
                old_tombstones_go_and_older_cursors_expire,
                an_idempotency_key_answers_for_a_day,
                an_object_that_no_row_names_is_removed,
                a_comparison_that_begins_in_the_middle_comes_round,
                an_object_that_cannot_be_removed_comes_up_again,
                leaked_objects_that_cannot_be_removed_come_up_again,
                a_blob_store_that_fails_is_asked_once_a_pass,
                a_pass_ends_in_time,
                a_blob_that_is_being_deleted_is_left_to_its_caller,
                what_a_pass_would_forget_is_told,
            }
        }
        mod upkeep {
            use super::$fresh as fresh;

            $crate::stamp_cases! { fresh, relay::upkeep:
                an_erased_graph_is_gone_at_once_and_for_good,
                an_erasure_that_is_cut_off_is_found_again,
                a_graph_that_is_going_names_nobody,
                a_member_is_erased_from_what_others_share,
                a_part_that_is_cut_off_is_found_again,
                a_member_without_a_key_is_erased_too,
                a_restored_store_owes_rotations_and_tells_old_cursors,
                counters_that_are_right_are_left_alone,
            }
        }
        mod uploads {
            use super::$fresh as fresh;

            $crate::stamp_cases! { fresh, relay::uploads:
                an_upload_is_there_whole,
                bytes_that_are_not_as_announced_leave_nothing,
                a_caller_who_hangs_up_gets_the_bytes_back,
                two_uploads_of_one_id_are_told_apart,
                a_blob_that_goes_while_it_is_compared_is_not_confirmed,
                an_upload_whose_commit_was_not_heard_of_keeps_its_object,
                a_whole_read_is_a_delivery_and_a_part_is_none,
                an_empty_blob_is_delivered_too,
                a_lost_object_is_told_as_a_fault,
                what_has_expired_is_gone_before_the_sweep_and_after,
                the_sweep_ends_what_was_never_finished,
            }
        }
    };
}

/// What a relay is put over.
pub struct RelayPorts {
    /// The store.
    pub store: Arc<dyn SweepStore>,
    /// The blob store.
    pub blobs: Arc<dyn BlobStore>,
}

/// A relay whose surroundings a test holds in its hands: sam and alex in the group `acme`.
pub(super) struct Rig {
    pub(super) relay: Arc<Relay>,
    pub(super) store: Arc<dyn SweepStore>,
    pub(super) blobs: Arc<dyn BlobStore>,
    pub(super) clock: TestClock,
    pub(super) directory: MemoryDirectory,
    pub(super) events: EventLog,
    pub(super) pokes: PokeLog,
    pub(super) laptop: TestDevice,
    pub(super) phone: TestDevice,
    pub(super) alex: TestDevice,
}

pub(super) const GROUP: &str = "g:acme";

impl Rig {
    pub(super) fn new(ports: &RelayPorts) -> Self {
        Self::with(ports, |builder| builder)
    }

    pub(super) fn with(
        ports: &RelayPorts,
        change: impl FnOnce(RelayBuilder) -> RelayBuilder,
    ) -> Self {
        let clock = TestClock::new();
        let directory = MemoryDirectory::of(&["sam", "alex"], &[("acme", &["sam", "alex"])]);
        let (events, pokes) = (EventLog::new(), PokeLog::new());
        let builder = Relay::builder(
            Arc::<dyn SweepStore>::clone(&ports.store),
            Arc::clone(&ports.blobs),
            Arc::new(directory.clone()),
        )
        .clock(Arc::new(clock.clone()))
        .random(Arc::new(TestRandom::new(7)))
        .signatures(Signatures::Required)
        .events(events.clone())
        .poke_sink(Arc::new(pokes.clone()));
        Self {
            relay: change(builder).build(),
            store: Arc::clone(&ports.store),
            blobs: Arc::clone(&ports.blobs),
            clock,
            directory,
            events,
            pokes,
            laptop: TestDevice::new("sam", "laptop"),
            phone: TestDevice::new("sam", "phone"),
            alex: TestDevice::new("alex", "tablet"),
        }
    }

    /// The sweep of the same ports.
    pub(super) fn sweep(&self) -> Sweep {
        Sweep::new(
            Arc::clone(&self.store),
            Arc::clone(&self.blobs),
            Arc::new(self.directory.clone()),
            SweepOptions::default(),
        )
        .clock(Arc::new(self.clock.clone()))
        .events(Arc::new(self.events.clone()))
    }

    pub(super) async fn admit(&self, device: &TestDevice, bucket: Bucket) -> Outcome<Caller> {
        let identity = Identity {
            device: device.to_ref(),
            expires_at: None,
        };
        self.relay.admit(identity, bucket, Gate::Registered).await
    }

    pub(super) async fn open(&self, device: &TestDevice, graph: &str) -> Outcome<Access> {
        let caller = self.admit(device, Bucket::Keys).await?;
        self.relay
            .open_graph(caller, &graph.parse().expect("a graph"))
            .await
    }

    pub(super) async fn register(&self, device: &TestDevice) {
        let identity = Identity {
            device: device.to_ref(),
            expires_at: None,
        };
        let caller = self.relay.admit(identity, Bucket::Keys, Gate::Anyone).await;
        let caller = caller.expect("an active member");
        self.relay
            .register(&caller, device.register_request())
            .await
            .expect("registers");
    }

    /// Registers all three devices and begins the group's first epoch for them.
    pub(super) async fn keyed(&self) {
        for device in [&self.laptop, &self.phone, &self.alex] {
            self.register(device).await;
        }
        self.rotate(1, &[&self.laptop, &self.phone, &self.alex])
            .await
            .expect("rotates");
        self.settle().await;
    }

    pub(super) async fn rotate(&self, epoch: u64, devices: &[&TestDevice]) -> Outcome<u64> {
        let access = self.open(&self.laptop, GROUP).await?;
        let request = argala_wire::keys::RotateRequest {
            epoch,
            wraps: devices
                .iter()
                .map(|device| device.rotate_wrap("a key"))
                .collect(),
        };
        Ok(self.relay.rotate(&access, request).await?.first_seq)
    }

    pub(super) async fn push(
        &self,
        device: &TestDevice,
        id: &str,
        content: &str,
    ) -> Outcome<PushResponse> {
        let access = self.open(device, GROUP).await?;
        self.relay
            .push(&access, self.one(device, &access, id, content), None)
            .await
    }

    pub(super) fn one(
        &self,
        device: &TestDevice,
        access: &Access,
        id: &str,
        content: &str,
    ) -> PushRequest {
        let record = device.record(access.key(), id, 1, content.as_bytes());
        PushRequest {
            records: vec![record],
            if_head: None,
            atomic: false,
        }
    }

    pub(super) async fn pull(&self, device: &TestDevice) -> Outcome<PullPage> {
        let access = self.open(device, GROUP).await?;
        let query = PullQuery {
            variant: "application/json",
            ..PullQuery::default()
        };
        match self.relay.pull(&access, query).await? {
            Pulled::Page(page) => Ok(page),
            Pulled::Unchanged { .. } => panic!("nothing was known"),
        }
    }

    /// Waits until no poke is on its way, and forgets pokes and events.
    pub(super) async fn settle(&self) {
        // Twice a window: a poke may be on its way, and open a window of its own.
        tokio::time::sleep(Duration::from_millis(150)).await;
        drop((self.pokes.take(), self.events.take()));
    }
}

pub(super) fn rejection<T>(outcome: Outcome<T>) -> Rejection {
    match outcome {
        Err(Fault::Rejected(rejection)) => rejection,
        Err(Fault::Store(error)) => panic!("the store failed: {error}: {:?}", error.source),
        Ok(_) => panic!("it was not refused"),
    }
}
