//! What holds while many ask at the same time (see the store's contract): no record is skipped,
//! counters stay the sums, quotas are never exceeded, and of two that exclude each other one wins.

pub mod blobs;
pub mod keys;
pub mod pushes;
pub mod readers;
pub mod rotations;

use std::{future::Future, sync::Arc};

use tokio::{sync::Barrier, task::JoinHandle};

/// Stamps the suite; `$fresh` is an `async fn() -> Fresh<dyn SweepStore>`.
#[macro_export]
macro_rules! race_conformance {
    ($fresh:path) => {
        $crate::stamp_cases! { $fresh, race::readers:
            no_puller_misses_what_pushers_write,
            a_page_is_of_one_moment,
        }
        $crate::stamp_cases! { $fresh, race::pushes:
            records_stop_at_their_quota_under_many_pushers,
            bytes_stop_at_their_quota_under_many_pushers,
            of_many_who_expect_nothing_one_is_first,
            of_many_who_name_the_head_one_is_first,
            the_same_key_at_once_is_one_push,
            neighbours_do_not_matter,
            a_push_that_is_dropped_is_whole_or_absent,
            graphs_do_not_wait_for_each_other_for_ever,
        }
        $crate::stamp_cases! { $fresh, race::rotations:
            of_many_rotations_one_wins,
            of_many_first_rotations_one_wins,
            a_rotation_parts_the_records_of_two_epochs,
        }
        $crate::stamp_cases! { $fresh, race::keys:
            a_rotation_and_a_revocation_leave_nobody_in,
            a_registration_during_a_rotation_strands_nobody,
            the_device_ceiling_holds_under_many_registrations,
            a_grant_and_a_revocation_leave_no_wrap,
            of_many_grants_of_one_wrap_one_is_kept,
            a_device_is_out_when_its_revocation_is_answered,
            of_many_revocations_of_one_device_one_is_fresh,
            two_devices_revoke_each_other,
            a_revocation_flags_graphs_that_are_written_to,
        }
        $crate::stamp_cases! { $fresh, race::blobs:
            of_many_uploads_of_one_blob_one_is_live,
            blob_bytes_stop_at_their_quota_under_many_uploads,
            a_commit_and_a_revocation_leave_no_blob_of_the_revoked,
            an_abandoned_upload_is_live_or_gone,
            of_many_who_delete_one_blob_one_does,
            sweeps_at_once_give_bytes_back_once,
        }
    };
}

/// Starts tasks that begin together.
pub(crate) struct Start {
    barrier: Arc<Barrier>,
}

impl Start {
    /// Of `count` tasks, each of which is spawned below.
    pub(crate) fn of(count: usize) -> Self {
        Self {
            barrier: Arc::new(Barrier::new(count)),
        }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let barrier = Arc::clone(&self.barrier);
        tokio::spawn(async move {
            barrier.wait().await;
            task.await
        })
    }
}

/// What all of them came to, in the order in which they were spawned.
pub(crate) async fn all<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await.expect("no task panics"));
    }
    results
}
