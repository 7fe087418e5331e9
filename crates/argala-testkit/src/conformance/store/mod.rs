//! What every [`Store`](argala_core::ports::Store) does, method by method.

pub mod devices;
pub mod edges;
pub mod grants;
pub mod graphs;
pub mod history;
pub mod idempotency;
pub mod pulls;
pub mod pushes;
pub mod quotas;
pub mod revocations;
pub mod rosters;
pub mod rotations;
mod scene;
pub mod sweeps;
pub mod uploads;
pub mod wraps;

pub(crate) use scene::{Scene, acme, at, refused, ttl, wrap_text};

/// Stamps the suite; `$fresh` is an `async fn() -> Fresh<dyn SweepStore>`.
#[macro_export]
macro_rules! store_conformance {
    ($fresh:path) => {
        $crate::stamp_cases! { $fresh, store::devices:
            a_device_stands_as_it_was_registered,
            registering_again_changes_the_label_alone,
            other_keys_are_refused_and_change_nothing,
            the_ceiling_counts_active_devices_of_one_member,
            devices_are_listed_oldest_first_page_by_page,
            last_seen_is_told_in_the_list_alone_and_only_rises,
            device_ids_are_compared_byte_for_byte,
            the_revoked_among_many_are_found,
        }
        $crate::stamp_cases! { $fresh, store::revocations:
            a_revocation_flags_the_graphs_of_whose_current_epoch_it_holds_a_wrap,
            a_revocation_blanks_every_wrap_and_the_holder_stays,
            a_revocation_again_flags_nothing,
            only_an_active_device_revokes_and_only_its_members,
            a_revoked_device_changes_nothing_any_more,
            a_revoked_device_pulls_nothing,
            a_device_revokes_itself,
            a_flag_lasts_until_the_rotation,
        }
        $crate::stamp_cases! { $fresh, store::graphs:
            a_graph_is_not_there_until_its_first_rotate,
            own_and_pair_graphs_are_listed_for_their_members,
            listed_groups_decide_where_the_directory_lists_them,
            held_groups_decide_where_it_does_not,
            who_holds_the_current_epoch_is_told,
            graphs_are_listed_in_byte_order_page_by_page,
            odd_names_share_no_graph,
            the_directorys_flag_is_of_one_epoch,
        }
        $crate::stamp_cases! { $fresh, store::rosters:
            a_standing_is_holders_and_roster,
            a_standing_shows_who_was_revoked_and_who_came,
            graph_devices_are_the_roster_and_who_ever_held,
            graph_devices_are_listed_page_by_page,
            thousands_of_members_are_no_matter,
        }
        $crate::stamp_cases! { $fresh, store::rotations:
            a_rotation_gives_each_device_its_wrap,
            an_epoch_begins_after_the_head,
            a_refused_rotation_writes_nothing,
            the_roster_is_the_active_devices_of_the_members,
            a_repeat_answers_as_it_did_the_first_time,
            a_rotation_of_many_devices_is_whole,
            only_an_active_device_rotates,
        }
        $crate::stamp_cases! { $fresh, store::grants:
            a_granted_wrap_is_read_by_its_device,
            no_wrap_is_overwritten,
            each_refusal_is_told_in_the_order_sent,
            a_grant_of_thousands_is_whole,
            only_an_active_device_grants_and_only_where_there_is_a_key,
        }
        $crate::stamp_cases! { $fresh, store::wraps:
            a_device_reads_its_own_wraps_alone,
            wraps_are_listed_page_by_page,
        }
        $crate::stamp_cases! { $fresh, store::pushes:
            what_is_pushed_is_pulled,
            a_later_push_replaces_and_moves,
            the_same_content_is_written_once,
            one_bad_record_stops_no_other,
            an_atomic_push_is_all_or_nothing,
            a_head_that_moved_refuses_the_push,
            a_tombstone_comes_and_goes,
            expectations_are_held_to_the_seq,
            a_thousand_records_are_one_push,
            graphs_count_for_themselves,
            odd_ids_and_every_byte_survive,
            only_holders_push_and_only_where_there_is_a_key,
        }
        $crate::stamp_cases! { $fresh, store::quotas:
            records_stop_at_their_quota,
            bytes_stop_at_their_quota,
            what_shrinks_fits_a_full_graph,
            tombstones_stop_at_twice_the_quota,
        }
        $crate::stamp_cases! { $fresh, store::idempotency:
            a_repeat_is_answered_as_the_first_time,
            another_body_is_a_conflict,
            a_key_is_of_one_device_and_one_graph,
            a_key_lasts_as_long_as_it_is_told_to,
            only_answers_are_kept,
            old_keys_are_dropped_a_few_at_a_time,
        }
        $crate::stamp_cases! { $fresh, store::pulls:
            a_walk_finds_everything_in_order,
            what_a_device_does_not_hold_is_held_back,
            a_page_ends_at_its_bytes_and_at_what_it_holds_back,
            one_epoch_is_walked_alone,
            who_has_the_page_is_told_so,
            an_unknown_graph_is_empty_and_its_cursor_stays_good,
            bad_cursors_are_told_apart,
            a_granted_epoch_is_found_by_a_new_walk,
        }
        $crate::stamp_cases! { $fresh, store::uploads:
            an_upload_is_charged_then_live_then_forgotten,
            a_live_blob_is_told_and_nothing_is_reserved,
            of_two_uploads_the_first_is_live,
            an_abandoned_upload_gives_its_bytes_back,
            an_upload_stops_at_the_quota,
            an_expired_blob_makes_room_for_the_next,
            a_revoked_device_commits_nothing,
            only_an_active_device_uploads_and_forgets,
            blobs_of_two_graphs_do_not_touch,
            a_fetch_is_noted_as_often_as_it_comes,
        }
        $crate::stamp_cases! { $fresh, store::sweeps:
            what_is_due_is_marked_and_told_once,
            what_is_not_due_stays,
            what_was_marked_long_ago_is_told_again,
            a_few_at_a_time_get_through,
            a_row_is_dropped_once_and_only_when_marked,
        }
        $crate::stamp_cases! { $fresh, store::edges:
            the_store_is_reached_and_has_a_name,
            the_largest_numbers_are_answered,
            empty_requests_are_answered,
            the_longest_ids_are_kept,
            a_megabyte_survives,
        }
        $crate::stamp_cases! { $fresh, store::history:
            a_random_history_is_the_references_1,
            a_random_history_is_the_references_2,
            a_random_history_is_the_references_3,
        }
    };
}
