//! The list of all cases. A case is its name, its subject (the module) and what it needs from the store.

use super::{
    Case, Feature, all_versions, bad_input, batches, catalog, charges, concurrency, etags, feed_order, identity, items,
    latest, listing, merges, paging, ranges, retention, splits, starts, time_to_live, wake_ups,
};

/// Hands the list to another macro, so that the table below and the tests of `conformance!` are made from one text.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ($($to:ident)? $(:: $path:ident)* { $($with:tt)* }) => {
        $($to)? $(:: $path)* ! {
            { $($with)* }
            catalog {
                databases_are_listed_by_name:;
                a_database_keeps_what_the_store_does_not_know:;
                containers_are_listed_by_name:;
                a_name_that_is_taken_is_refused:;
                a_name_that_would_break_paths_is_refused:;
                an_unknown_database_is_not_found:;
                an_unknown_container_is_not_found:;
                a_container_knows_who_it_is:;
                the_same_name_in_two_databases_is_two_containers:;
                two_handles_are_one_container:;
                a_container_keeps_its_settings:;
                settings_can_be_replaced_without_losing_items:;
                the_partition_key_of_a_container_cannot_change:;
                a_container_without_ranges_is_refused:;
                a_handle_to_a_deleted_container_answers_not_found_for_ever: DeletedHandles;
                a_container_is_opened_again_by_its_name:;
                a_container_created_again_refuses_the_continuations_of_the_old_one:;
                deleting_a_database_deletes_its_containers: DeletedHandles;
            }
            identity {
                all_containers_of_a_store_have_the_same_store_id:;
                the_store_id_survives_reopening_the_store: Reopen;
                another_store_has_another_store_id: OtherStore;
                all_containers_of_a_store_declare_the_same_capabilities:;
                a_continuation_survives_reopening_the_store: Reopen;
            }
            charges {
                every_response_carries_its_request_charge: Charges;
                a_refused_call_carries_its_request_charge: Charges;
                a_store_that_does_not_charge_says_zero: !Charges;
            }
            items {
                a_created_item_reads_back_as_it_was_written:;
                a_stored_body_tells_its_etag_rid_and_timestamp_but_no_lsn:;
                a_create_of_an_existing_item_is_refused:;
                the_same_id_under_another_partition_key_is_another_item:;
                an_upsert_creates_or_replaces:;
                a_replace_puts_a_whole_new_body:;
                a_missing_item_is_not_found:;
                a_deleted_item_is_gone_and_can_be_created_again:;
                a_resource_id_is_stable_from_creation_to_deletion:;
                system_members_of_a_client_are_discarded:;
                system_members_are_recognised_however_they_are_spelled:;
                only_system_members_at_the_top_belong_to_the_store:;
                a_write_returns_the_stored_item_only_when_asked:;
                every_json_value_survives:;
                a_body_is_stored_under_the_id_that_it_shows:;
                partition_keys_of_every_type_are_apart:;
                ids_of_every_allowed_shape_are_accepted:;
                hierarchical_keys_name_items_with_all_their_parts: HierarchicalKeys;
                version_1_keys_name_items_like_others: Version1Keys;
                a_nested_partition_key_path_is_followed:;
            }
            etags {
                every_write_gives_an_etag_that_never_comes_back:;
                an_item_has_the_etag_of_its_last_write:;
                a_write_with_the_current_etag_succeeds:;
                a_write_with_another_etag_is_refused:;
                an_upsert_with_an_etag_creates_a_missing_item:;
                an_etag_does_not_make_a_missing_item_appear:;
                the_etag_of_a_deleted_item_does_not_fit_its_successor:;
                an_etag_in_a_batch_is_compared_with_what_the_batch_wrote:;
            }
            batches {
                a_batch_happens_under_one_lsn_and_returns_one_result_for_each:;
                a_batch_happens_together_or_not_at_all:;
                an_item_written_twice_in_a_batch_appears_once_at_its_newest:;
                a_batch_may_delete_what_it_created_and_create_what_it_deleted:;
                all_versions_of_a_batch_come_in_its_order: AllVersions;
                a_batch_of_a_hundred_writes_is_accepted:;
                a_batch_takes_its_partition_key_from_the_bodies:;
                a_batch_under_a_hierarchical_key_is_one_transaction: HierarchicalKeys;
            }
            listing {
                a_full_listing_returns_every_item_exactly_once:;
                a_listing_keeps_its_order_from_page_size_to_page_size:;
                a_listing_shows_items_as_a_read_does:;
                a_listing_by_prefix_returns_only_ids_that_begin_with_it:;
                a_listing_of_a_range_may_span_physical_ranges: ManyRanges;
                a_listing_returns_what_stays_while_other_items_come_and_go:;
                a_listing_goes_on_after_any_item_also_when_it_is_gone:;
                an_empty_container_lists_nothing:;
            }
            feed_order {
                lsns_ascend_per_partition_key:;
                changes_of_a_partition_key_come_in_lsn_order:;
                changes_of_an_item_come_in_lsn_order: AllVersions;
                changes_of_a_key_come_in_the_order_of_their_writes: ManyRanges;
                a_change_carries_the_item_and_its_lsn:;
                two_containers_count_lsns_of_their_own:;
                the_newest_lsn_is_that_of_the_newest_commit_of_the_range: ManyRanges;
                a_page_names_the_physical_range_that_answered: ManyRanges;
            }
            paging {
                every_page_size_gives_the_same_sequence:;
                every_page_size_gives_the_same_sequence_of_all_versions: AllVersions;
                a_page_cuts_a_transaction_only_if_that_alone_exceeds_the_page_bound:;
                a_page_cuts_a_transaction_of_all_versions_only_if_that_alone_exceeds_the_page_bound: AllVersions;
                the_pages_of_a_cut_transaction_share_its_lsn:;
                a_continuation_inside_a_transaction_resumes_exactly_there:;
                a_continuation_inside_a_transaction_survives_rewrites_and_deletes:;
                the_continuation_resumes_exactly_after_its_page:;
                the_continuation_resumes_exactly_after_its_page_of_all_versions: AllVersions;
                the_same_continuation_gives_the_same_page:;
                an_empty_page_means_that_there_is_nothing_new:;
                an_empty_page_advances_the_continuation:;
                an_empty_page_advances_to_the_newest_lsn: NumberedContinuations;
                the_continuation_of_a_page_lies_between_its_last_change_and_the_newest: NumberedContinuations;
                an_item_rewritten_behind_the_reader_comes_again:;
                the_item_that_a_continuation_points_at_may_vanish:;
                remaining_is_the_number_of_changes_of_later_pages:;
                remaining_is_the_number_of_versions_of_later_pages: AllVersions;
            }
            starts {
                every_start_works_in_every_scope: ManyRanges;
                the_beginning_is_the_oldest_change:;
                now_is_after_the_newest_change:;
                a_time_includes_what_was_written_at_it:;
                a_time_in_the_future_shows_nothing_yet:;
                a_rewritten_item_is_found_at_the_time_of_its_newest_version:;
                not_before_skips_older_changes_wherever_the_read_begins:;
            }
            latest {
                latest_version_mode_gives_each_item_once_at_its_newest_version:;
                latest_version_mode_leaves_deleted_items_out:;
                a_rewritten_item_moves_to_the_end_of_the_feed:;
                an_item_deleted_and_created_again_appears_once:;
                the_feed_from_the_beginning_is_the_listing:;
            }
            all_versions {
                all_versions_mode_gives_every_version_and_delete_with_the_previous_image: AllVersions;
                a_previous_image_is_the_whole_item_as_it_was: AllVersions;
                all_versions_mode_starts_at_now_or_at_a_continuation_only: AllVersions;
                a_container_without_retention_refuses_all_versions_mode:;
                a_store_without_all_versions_mode_says_so: !AllVersions;
                all_versions_of_a_sub_range_are_those_of_its_keys: AllVersions;
                replaying_all_versions_gives_the_items: AllVersions;
                both_modes_read_side_by_side: AllVersions;
            }
            ranges {
                a_container_begins_with_the_ranges_it_was_created_with: ManyRanges;
                feed_ranges_stay_the_same_while_nothing_is_split: ManyRanges;
                physical_ranges_share_the_keys_without_loss: ManyRanges;
                any_sub_range_can_be_read:;
                any_sub_range_of_a_version_1_container_can_be_read: Version1Keys;
                only_changes_of_the_asked_range_are_counted_and_returned:;
                an_empty_sub_range_advances_past_the_writes_of_others:;
                a_prefix_of_a_hierarchical_key_is_a_range: HierarchicalKeys;
                a_feed_range_that_spans_several_physical_ranges_is_gone: ManyRanges;
                a_range_id_that_never_existed_is_not_found:;
                a_store_with_one_range_per_container_says_so: !ManyRanges;
            }
            splits {
                a_split_gives_two_children_that_tile_their_parent: ManyRanges Split;
                a_split_in_the_middle_shares_the_keys: Split;
                children_serve_their_parents_history_under_its_continuations: Split;
                children_serve_all_versions_of_their_parent_under_its_continuations: Split AllVersions;
                children_serve_history_from_every_start: Split;
                the_lsns_of_children_come_after_their_parents: Split;
                a_split_range_is_gone: Split;
                a_split_range_is_gone_for_all_versions: Split AllVersions;
                a_reader_of_a_part_on_one_side_does_not_notice_a_split: Split;
                a_child_can_be_split_again_and_names_all_its_ancestors: Split RangeParents;
                a_store_that_does_not_know_the_parents_of_ranges_names_none: Split !RangeParents;
                a_split_at_a_key_cuts_there: Split;
                a_split_that_makes_no_sense_is_refused: ManyRanges Split;
                a_split_does_not_touch_items: Split;
                the_neighbours_of_a_split_range_do_not_notice: ManyRanges Split;
                a_container_of_hierarchical_keys_splits: Split HierarchicalKeys;
                a_version_1_container_splits: Split Version1Keys;
                a_range_of_one_key_cannot_be_split: Split;
                a_store_that_cannot_split_says_so: !Split;
            }
            merges {
                a_merge_makes_one_range_of_two_neighbours: ManyRanges Merge RangeParents;
                neighbours_merge_in_either_order: ManyRanges Merge;
                a_merged_range_serves_both_parents_history: ManyRanges Merge;
                a_merged_range_serves_all_versions_of_both_parents: ManyRanges Merge AllVersions;
                the_lsns_of_a_merged_range_come_after_both_parents: ManyRanges Merge;
                a_merged_range_serves_parents_of_unequal_age: ManyRanges Merge;
                a_merged_range_serves_all_versions_of_parents_of_unequal_age: ManyRanges Merge AllVersions;
                a_merged_range_gives_the_same_sequence_at_every_page_size: ManyRanges Merge;
                a_merged_away_range_is_gone: ManyRanges Merge;
                a_merge_that_makes_no_sense_is_refused: ManyRanges Merge;
                a_range_can_be_split_and_merged_again_and_again: Split Merge RangeParents;
                writers_go_on_after_a_merge: ManyRanges Merge;
                a_store_that_cannot_merge_says_so: ManyRanges !Merge;
            }
            retention {
                a_continuation_after_which_something_left_retention_is_refused: AllVersions;
                a_continuation_after_which_nothing_left_retention_is_served: AllVersions;
                changes_within_retention_are_served: AllVersions;
                a_reader_that_keeps_reading_never_expires: AllVersions;
                latest_version_mode_knows_no_retention: AllVersions;
                a_previous_image_outlives_the_version_it_shows: AllVersions;
                retention_can_be_turned_on_and_off: AllVersions;
                a_split_does_not_change_what_has_left_retention: Split AllVersions;
            }
            time_to_live {
                an_expired_item_is_gone: TimeToLive;
                an_expired_item_can_be_created_again: TimeToLive;
                a_write_restarts_the_time_to_live: TimeToLive;
                an_items_own_time_to_live_wins: TimeToLive;
                a_new_version_may_live_longer_or_shorter: TimeToLive;
                without_time_to_live_a_ttl_is_just_a_member:;
                items_only_lets_expire_those_that_ask_for_it: TimeToLive;
                all_versions_mode_shows_an_expiry_as_such: AllVersions TimeToLive;
                each_item_expires_exactly_once: AllVersions TimeToLive;
                a_deleted_item_does_not_expire: AllVersions TimeToLive;
                items_expire_in_the_children_of_a_split: Split TimeToLive;
                the_time_to_live_is_read_as_last_set: TimeToLive;
                a_store_without_time_to_live_says_so: !TimeToLive;
            }
            wake_ups {
                changed_returns_after_a_write_in_the_range: WakeUps;
                changed_returns_at_once_when_there_is_news_already: WakeUps;
                changed_returns_after_a_write_in_a_sub_range: WakeUps;
                changed_wakes_every_waiting_reader: WakeUps;
                changed_returns_when_the_range_is_split: Split WakeUps;
                changed_goes_on_in_the_children_of_a_split: Split WakeUps;
                changed_returns_after_a_delete_in_all_versions_mode: AllVersions WakeUps;
                changed_returns_after_an_expiry_in_all_versions_mode: AllVersions TimeToLive WakeUps;
                a_reader_that_stops_waiting_changes_nothing: WakeUps;
            }
            bad_input {
                an_item_without_an_id_is_refused:;
                an_id_that_would_break_paths_is_refused:;
                an_id_over_1023_bytes_is_refused:;
                a_body_that_is_not_an_object_is_refused:;
                a_body_that_is_not_json_is_refused:;
                a_body_that_is_not_utf8_is_refused:;
                an_item_over_two_mebibytes_is_refused:;
                an_item_of_two_mebibytes_is_accepted:;
                a_body_nested_very_deep_does_no_harm:;
                a_wrong_partition_key_is_refused:;
                a_missing_partition_key_is_refused:;
                a_key_with_the_wrong_number_of_parts_is_refused:;
                a_prefix_does_not_name_an_item: HierarchicalKeys;
                a_text_that_is_not_an_etag_never_reaches_the_store:;
                a_batch_that_is_empty_or_too_long_is_refused:;
                a_batch_of_several_partition_keys_is_refused:;
                a_text_that_is_not_a_continuation_is_refused:;
                a_continuation_of_another_container_is_refused:;
                a_continuation_beyond_the_end_is_refused: NumberedContinuations;
                a_range_that_makes_no_sense_never_reaches_the_store:;
                a_range_outside_of_the_named_physical_range_shows_nothing: ManyRanges;
                a_page_of_nothing_is_refused:;
                a_listing_that_goes_on_from_nowhere_is_refused:;
            }
            concurrency {
                no_final_version_is_missed_while_writers_write:;
                every_version_arrives_exactly_once_while_writers_write: AllVersions;
                a_reader_that_waits_for_changed_misses_nothing: WakeUps;
                no_change_is_lost_while_ranges_split: Split;
                no_version_is_lost_while_ranges_split: Split AllVersions;
                readers_see_a_batch_whole_or_not_at_all:;
                of_many_creators_exactly_one_wins:;
                of_many_writers_with_one_etag_exactly_one_wins:;
                no_update_is_lost_when_each_insists_on_what_it_read:;
                a_listing_during_writes_returns_what_stays:;
                a_write_that_is_dropped_happened_whole_or_not_at_all:;
            }
        }
    };
}

macro_rules! table {
    ({} $($subject:ident { $($name:ident: $($feature:ident)* $(!$lack:ident)*;)* })*) => {
        &[$($(Case {
            name: stringify!($name),
            subject: stringify!($subject),
            needs: &[$(Feature::$feature),*],
            lacks: &[$(Feature::$lack),*],
            run: |fixture| Box::pin($subject::$name(fixture)),
        }),*),*]
    };
}

/// All cases, in the order in which they should be read.
pub fn cases() -> &'static [Case] {
    CASES
}

const CASES: &[Case] = __conformance_cases! { table {} };
