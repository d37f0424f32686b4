//! Every bug that is planted in the model store makes the cases fail that stand for the broken promise: the suite
//! can fail, and says where.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use changefeed_testkit::{
    conformance,
    model::{Bug, ModelFixture},
};

/// For each bug, cases that must notice it.
fn witnesses(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::CutsTransactionsThatFit => &[
            "a_page_cuts_a_transaction_only_if_that_alone_exceeds_the_page_bound",
            "a_page_cuts_a_transaction_of_all_versions_only_if_that_alone_exceeds_the_page_bound",
        ],
        Bug::SkipsTheRestOfACutTransaction => &[
            "a_continuation_inside_a_transaction_resumes_exactly_there",
            "every_page_size_gives_the_same_sequence",
            "a_batch_of_a_hundred_writes_is_accepted",
        ],
        Bug::RepeatsAChangeInsideATransaction => &["a_continuation_inside_a_transaction_resumes_exactly_there"],
        Bug::RenumbersTheRestOfACutTransaction => &["the_pages_of_a_cut_transaction_share_its_lsn"],
        Bug::SkipsAChangeAtThePageEdge => {
            &["every_page_size_gives_the_same_sequence", "a_merged_range_gives_the_same_sequence_at_every_page_size"]
        }
        Bug::RepeatsAChangeAtThePageEdge => &["the_continuation_resumes_exactly_after_its_page"],
        Bug::StandsStillOnEmptyPages => &[
            "an_empty_page_advances_the_continuation",
            "an_empty_sub_range_advances_past_the_writes_of_others",
            "a_reader_that_keeps_reading_never_expires",
        ],
        Bug::CountsChangesOfOtherKeys => &["only_changes_of_the_asked_range_are_counted_and_returned"],
        Bug::MiscountsRemaining => &["remaining_is_the_number_of_changes_of_later_pages"],
        Bug::IgnoresSubRanges => &["any_sub_range_can_be_read", "a_prefix_of_a_hierarchical_key_is_a_range"],
        Bug::OrdersByKey => &["changes_of_a_partition_key_come_in_lsn_order"],
        Bug::ShowsDeletedItems => &["latest_version_mode_leaves_deleted_items_out"],
        Bug::ShowsOldVersions => &["latest_version_mode_gives_each_item_once_at_its_newest_version"],
        Bug::KeepsThePlaceOfRewrittenItems => &["a_rewritten_item_moves_to_the_end_of_the_feed"],
        Bug::DropsIntermediateVersions => &["replaying_all_versions_gives_the_items"],
        Bug::DropsPreviousImages => &["all_versions_mode_gives_every_version_and_delete_with_the_previous_image"],
        Bug::ForgetsTheLsnInFeedBodies => &["a_change_carries_the_item_and_its_lsn"],
        Bug::ShowsTheLsnInReads => &["a_stored_body_tells_its_etag_rid_and_timestamp_but_no_lsn"],
        Bug::IgnoresIfMatch => &["a_write_with_another_etag_is_refused"],
        Bug::IgnoresIfMatchOfDeletes => &["a_write_with_another_etag_is_refused"],
        Bug::OneEtagPerBatch => &["an_item_written_twice_in_a_batch_appears_once_at_its_newest"],
        Bug::KeepsHalfABatch => &["a_batch_happens_together_or_not_at_all"],
        Bug::OneLsnPerWrite => &["a_batch_happens_under_one_lsn_and_returns_one_result_for_each"],
        Bug::CreatesOverExistingItems => {
            &["a_create_of_an_existing_item_is_refused", "of_many_creators_exactly_one_wins"]
        }
        Bug::IgnoresPartitionKeys => &["the_same_id_under_another_partition_key_is_another_item"],
        Bug::TrustsSystemMembers => {
            &["system_members_of_a_client_are_discarded", "system_members_are_recognised_however_they_are_spelled"]
        }
        Bug::AcceptsAWrongPartitionKey => &["a_wrong_partition_key_is_refused"],
        Bug::AcceptsLargeItems => &["an_item_over_two_mebibytes_is_refused"],
        Bug::BurnsAnLsnOnErrors => &["a_body_that_is_not_json_is_refused", "an_id_that_would_break_paths_is_refused"],
        Bug::NowIsTheBeginning => &["now_is_after_the_newest_change"],
        Bug::TimesAreExclusive => &["a_time_includes_what_was_written_at_it"],
        Bug::IgnoresNotBefore => &["not_before_skips_older_changes_wherever_the_read_begins"],
        Bug::AcceptsForeignContinuations => &[
            "a_continuation_of_another_container_is_refused",
            "a_container_created_again_refuses_the_continuations_of_the_old_one",
        ],
        Bug::AcceptsContinuationsBeyondTheEnd => &["a_continuation_beyond_the_end_is_refused"],
        Bug::SkipsWhatLeftRetention | Bug::NeverForgetsVersions => {
            &["a_continuation_after_which_something_left_retention_is_refused"]
        }
        Bug::RetentionHitsLatestMode => &["latest_version_mode_knows_no_retention"],
        Bug::NeverExpires => &["an_expired_item_is_gone"],
        Bug::ExpiryLooksLikeADelete => &["all_versions_mode_shows_an_expiry_as_such"],
        Bug::RewritingDoesNotProlongLife => &["a_write_restarts_the_time_to_live"],
        Bug::ChildrenLoseHistory => &[
            "children_serve_their_parents_history_under_its_continuations",
            "children_serve_all_versions_of_their_parent_under_its_continuations",
            "children_serve_history_from_every_start",
        ],
        Bug::MergedRangesLoseTheRightHistory => {
            &["a_merged_range_serves_both_parents_history", "a_merged_range_serves_all_versions_of_both_parents"]
        }
        Bug::ChildrenCountAnew => &["the_lsns_of_children_come_after_their_parents"],
        Bug::MergedRangesCountFromTheLeft => &[
            "the_lsns_of_a_merged_range_come_after_both_parents",
            "a_merged_range_serves_parents_of_unequal_age",
            "a_merged_range_serves_all_versions_of_parents_of_unequal_age",
        ],
        Bug::GoneRangesAnswer => &["a_split_range_is_gone", "a_merged_away_range_is_gone"],
        Bug::SpanningRangesAnswer => &["a_feed_range_that_spans_several_physical_ranges_is_gone"],
        Bug::ForgetsGrandparents => &["a_child_can_be_split_again_and_names_all_its_ancestors"],
        Bug::ReusesRangeIds => &["a_child_can_be_split_again_and_names_all_its_ancestors"],
        Bug::StaleRanges => &["a_split_gives_two_children_that_tile_their_parent"],
        Bug::NeverWakes => &["changed_returns_after_a_write_in_the_range", "changed_wakes_every_waiting_reader"],
        Bug::DoesNotWakeOnSplits => &["changed_returns_when_the_range_is_split"],
        Bug::MissesNewsBeforeTheWait => &["changed_returns_at_once_when_there_is_news_already"],
        Bug::KeepsTheRidOfDeletedContainers => &["a_handle_to_a_deleted_container_answers_not_found_for_ever"],
        Bug::SharesLsnsBetweenContainers => &["two_containers_count_lsns_of_their_own"],
        Bug::CursorsAreThoseOfThePage => &["a_listing_goes_on_after_any_item_also_when_it_is_gone"],
        Bug::ListingDropsTheItemAtThePageEdge => &["a_full_listing_returns_every_item_exactly_once"],
        Bug::MergesBodies => &["a_replace_puts_a_whole_new_body"],
        Bug::NewResourceIdAtEveryWrite => &["a_resource_id_is_stable_from_creation_to_deletion"],
        Bug::TakesAllUnderscoreMembersForItsOwn => &["only_system_members_at_the_top_belong_to_the_store"],
        Bug::EtagMustMatchSomething => &["an_upsert_with_an_etag_creates_a_missing_item"],
        Bug::ListsByAge => &["databases_are_listed_by_name", "containers_are_listed_by_name"],
        Bug::DropsUnknownSettings => &["a_container_keeps_its_settings"],
        Bug::PartitionKeysMayChange => &["the_partition_key_of_a_container_cannot_change"],
        Bug::UnknownRangesAreGone => &["a_range_id_that_never_existed_is_not_found"],
        Bug::SplitsTouchItems => &["a_split_does_not_touch_items"],
        Bug::ExpiresWithoutBeingAsked => &["without_time_to_live_a_ttl_is_just_a_member"],
        Bug::TellsNoTimeToLive => &["the_time_to_live_is_read_as_last_set"],
        Bug::PublishesLsnsEarly => &["every_version_arrives_exactly_once_while_writers_write"],
        Bug::ChangesItsIdWhenReopened => &["the_store_id_survives_reopening_the_store"],
        Bug::SharesItsIdWithOtherStores => &["another_store_has_another_store_id"],
        Bug::HasAnIdForEachContainer => &["all_containers_of_a_store_have_the_same_store_id"],
        Bug::ReopensTheDeletedContainer => &["a_container_is_opened_again_by_its_name"],
        Bug::DeclaresCapabilitiesByContainer => &["all_containers_of_a_store_declare_the_same_capabilities"],
        Bug::OmitsTheRequestCharge | Bug::OmitsTheRequestChargeOfPages => {
            &["every_response_carries_its_request_charge"]
        }
        Bug::OmitsTheRequestChargeOfErrors => &["a_refused_call_carries_its_request_charge"],
    }
}

#[test]
fn every_planted_bug_is_noticed_by_the_case_that_stands_for_it() {
    let mut unnoticed = Vec::new();
    for bug in Bug::ALL {
        for case in witnesses(bug) {
            if let Err(problem) = notices(bug, case) {
                unnoticed.push(format!("{bug:?}: {case} {problem}"));
            }
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}

/// Runs one case against a store with a bug: it must fail, and by more than slowness unless the bug is about waking.
fn notices(bug: Bug, case: &str) -> Result<(), &'static str> {
    let waits = matches!(bug, Bug::NeverWakes | Bug::DoesNotWakeOnSplits | Bug::MissesNewsBeforeTheWait);
    let run = || conformance::run(case, async || ModelFixture::with_bug(bug));
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(()) => Err("passes"),
        Err(panic) if text(panic.as_ref()).starts_with("waited ") != waits => Err("fails for another reason"),
        Err(_) => Ok(()),
    }
}

#[test]
fn all_bugs_are_in_the_list() {
    // Exhaustive by construction of `witnesses`; this counts them.
    let mut names: Vec<_> = Bug::ALL.iter().map(|bug| format!("{bug:?}")).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), Bug::ALL.len());
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
