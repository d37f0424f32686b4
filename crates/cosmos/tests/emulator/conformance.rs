//! The conformance suite on the emulator. It shows less than the service: the cases that it cannot show are listed with the
//! reason, and each of them must fail, so that the list names no case that could be run.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use azure_data_cosmos_driver::{
    in_memory_emulator::{ContainerConfig, EmulatorStore, Epk as EmulatorEpk},
    models::{
        PartitionKeyDefinition as EmulatorDefinition, PartitionKeyKind as EmulatorKind,
        PartitionKeyVersion as EmulatorVersion,
    },
};
use changefeed_core::{
    Capabilities, Catalog, Container, ContainerInfo, ContainerSpec, DatabaseInfo, DatabaseSpec, Epk, Error, ErrorKind,
    PartitionKeyDefinition, PartitionKeyKind, PartitionKeyVersion, PhysicalRange, RangeId, Result, async_trait,
    check_name,
};
use changefeed_testkit::conformance::{Case, Feature, Fixture, cases, report};

use crate::{
    account::Emulated,
    support::{TestCatalog, on_sdk},
};

struct Fresh {
    /// Gone when dropped.
    _account: Emulated,
    catalog: Arc<dyn Catalog>,
    other: std::sync::Mutex<Option<Emulated>>,
}

impl Fresh {
    async fn new() -> Self {
        let account = Emulated::new().await;
        let catalog = catalog(&account).await;
        Self { _account: account, catalog, other: std::sync::Mutex::default() }
    }
}

async fn catalog(emulated: &Emulated) -> Arc<dyn Catalog> {
    let account = emulated.connect().await;
    let admin = Arc::new(Operator { store: emulated.store(), sdk: account.catalog() });
    Arc::new(TestCatalog { account, admin })
}

#[async_trait]
impl Fixture for Fresh {
    fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::clone(&self.catalog)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().all_versions(true).split_on_demand(true)
    }

    fn supports(&self, feature: Feature) -> bool {
        let lacking = [
            // What the SDK does not offer, as with a server.
            Feature::NumberedContinuations,
            Feature::ListedLsns,
            Feature::DeletedHandles,
            // The emulator is gone with its process, ignores the time to live of items, and loses the order of LSNs in merges.
            Feature::Reopen,
            Feature::TimeToLive,
            Feature::Merge,
        ];
        !lacking.contains(&feature)
    }

    async fn other_store(&self) -> Arc<dyn Catalog> {
        let other = Emulated::new().await;
        let catalog = catalog(&other).await;
        *self.other.lock().unwrap() = Some(other);
        catalog
    }

    async fn advance(&self, by: Duration) {
        panic!("the emulator has the clock of the machine, which cannot be moved by {by:?}");
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(15)
    }
}

/// The catalog through the SDK, and what only an operator of the service can do through the store of the emulator.
#[derive(Debug)]
struct Operator {
    store: Arc<EmulatorStore>,
    sdk: Arc<dyn Catalog>,
}

impl Operator {
    async fn ranges(&self, database: &str, container: &str) -> Result<Vec<PhysicalRange>> {
        let (sdk, database, container) = (Arc::clone(&self.sdk), database.to_owned(), container.to_owned());
        on_sdk(async move { sdk.container(&database, &container).await?.feed_ranges().await }).await
    }
}

/// The partition key as the emulator has it.
fn definition(definition: &PartitionKeyDefinition) -> EmulatorDefinition {
    let paths = definition.paths().map(|path| path.to_owned().into()).collect();
    let kind = match definition.kind() {
        PartitionKeyKind::Hash => EmulatorKind::Hash,
        PartitionKeyKind::MultiHash => EmulatorKind::MultiHash,
    };
    let version = match definition.version() {
        PartitionKeyVersion::V1 => EmulatorVersion::V1,
        PartitionKeyVersion::V2 => EmulatorVersion::V2,
    };
    EmulatorDefinition::new(paths).with_kind(kind).with_version(version)
}

/// The id as the emulator has it.
fn number(range: &RangeId) -> Result<u32> {
    let missing = |_| Error::new(ErrorKind::RangeNotFound, format!("there is no range {range}"));
    range.as_str().parse().map_err(missing)
}

#[async_trait]
impl Catalog for Operator {
    async fn create_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        self.sdk.create_database(spec).await
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.sdk.list_databases().await
    }

    async fn replace_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        self.sdk.replace_database(spec).await
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        self.sdk.delete_database(name).await
    }

    /// With as many ranges as asked for: the service decides, and so does the store of the emulator.
    async fn create_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        let names = self.sdk.list_databases().await?;
        let is_there = names.iter().any(|info| info.name == database)
            && self.sdk.list_containers(database).await?.iter().any(|info| info.spec.name == spec.name);
        if is_there || !names.iter().any(|info| info.name == database) {
            return self.sdk.create_container(database, ContainerSpec { ranges: 1, ..spec }).await;
        }
        check_name(&spec.name)?;
        let ranges = u32::try_from(spec.ranges).unwrap_or(0);
        let config = ContainerConfig::new().with_partition_count(ranges).build();
        let config = config.map_err(|error| Error::new(ErrorKind::InvalidArgument, error.to_string()))?;
        self.store.create_container_with_config(database, &spec.name, definition(&spec.partition_key), config);
        // The rest of the settings.
        self.sdk.replace_container(database, spec).await
    }

    async fn list_containers(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        self.sdk.list_containers(database).await
    }

    async fn replace_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        self.sdk.replace_container(database, spec).await
    }

    async fn delete_container(&self, database: &str, name: &str) -> Result<()> {
        self.sdk.delete_container(database, name).await
    }

    async fn container(&self, database: &str, name: &str) -> Result<Container> {
        self.sdk.container(database, name).await
    }

    async fn split(
        &self,
        database: &str,
        container: &str,
        range: &RangeId,
        at: Option<Epk>,
    ) -> Result<Vec<PhysicalRange>> {
        let parent = number(range)?;
        match at {
            None => self.store.split_partition(database, container, parent, Duration::ZERO),
            Some(at) => {
                let at = EmulatorEpk::try_from(at.to_string()).expect("keys have the same form");
                self.store.split_partition_at_epk(database, container, parent, at, Duration::ZERO);
            }
        }
        self.store.drain_pending_control_plane().await;
        let children = self.store.child_partition_ids(database, container, &[parent]);
        let ranges = self.ranges(database, container).await?;
        let is_child = |range: &PhysicalRange| number(&range.id).is_ok_and(|id| children.contains(&id));
        Ok(ranges.into_iter().filter(is_child).collect())
    }

    async fn merge(&self, _: &str, _: &str, _: [&RangeId; 2]) -> Result<PhysicalRange> {
        Err(Error::new(ErrorKind::Unsupported, "a range that the emulator has merged has the LSNs of one parent"))
    }
}

#[test]
fn every_case_holds_but_those_that_the_emulator_cannot_show() {
    let report = report(Fresh::new);
    let names = |lists: &[(&str, &[&'static str])]| -> BTreeSet<&str> {
        lists.iter().flat_map(|(_, cases)| cases.iter().copied()).collect()
    };
    let (not_shown, by_chance) = (names(&NOT_SHOWN), names(&SHOWN_BY_CHANCE));
    let failed: BTreeSet<&str> = report.failed.iter().map(|(case, _)| case.name()).collect();
    assert_eq!(failed.difference(&by_chance).copied().collect::<BTreeSet<_>>(), not_shown, "\n{report}");
    let others: Vec<&str> = report.not_applicable.iter().map(|reason| reason.case.name()).collect();
    assert_eq!(others, NOT_APPLICABLE, "\n{report}");
    let all = cases().iter().map(Case::name).collect::<BTreeSet<_>>();
    assert!(by_chance.is_subset(&all) && by_chance.is_disjoint(&not_shown), "{by_chance:?}");
}

/// What the emulator lacks or does otherwise than the service, and the cases that fail by it.
const NOT_SHOWN: [(&str, &[&str]); 10] = [
    (
        "the emulator keeps the newest version of an item, and no deletes",
        &[
            "all_versions_of_a_batch_come_in_its_order",
            "a_page_cuts_a_transaction_of_all_versions_only_if_that_alone_exceeds_the_page_bound",
            "all_versions_mode_gives_every_version_and_delete_with_the_previous_image",
            "a_previous_image_is_the_whole_item_as_it_was",
            "a_container_without_retention_refuses_all_versions_mode",
            "all_versions_of_a_sub_range_are_those_of_its_keys",
            "both_modes_read_side_by_side",
            "children_serve_all_versions_of_their_parent_under_its_continuations",
            "retention_can_be_turned_on_and_off",
            "no_version_is_lost_while_ranges_split",
        ],
    ),
    (
        "the emulator does not tell the LSN of a change, which then is that of its page",
        &[
            "changes_of_a_partition_key_come_in_lsn_order",
            "changes_of_an_item_come_in_lsn_order",
            "the_pages_of_a_cut_transaction_share_its_lsn",
            "children_serve_their_parents_history_under_its_continuations",
            "a_container_of_hierarchical_keys_splits",
            "a_version_1_container_splits",
        ],
    ),
    (
        "changes of one LSN come in the order of their ids, and a page may end between them",
        &[
            "a_batch_happens_under_one_lsn_and_returns_one_result_for_each",
            "a_page_cuts_a_transaction_only_if_that_alone_exceeds_the_page_bound",
        ],
    ),
    (
        "a position is that of a change, and stays where it is while there is none",
        &["an_empty_page_advances_the_continuation", "an_empty_sub_range_advances_past_the_writes_of_others"],
    ),
    (
        "a position has the id of an item, which does not fit into a header",
        &["ids_of_every_allowed_shape_are_accepted"],
    ),
    (
        "a start at a time is one at the beginning, and the clock of the emulator cannot be moved",
        &[
            "every_start_works_in_every_scope",
            "a_time_includes_what_was_written_at_it",
            "a_time_in_the_future_shows_nothing_yet",
            "a_rewritten_item_is_found_at_the_time_of_its_newest_version",
            "not_before_skips_older_changes_wherever_the_read_begins",
            "children_serve_history_from_every_start",
        ],
    ),
    (
        "there is no retention, and the clock of the emulator cannot be moved",
        &[
            "a_continuation_after_which_something_left_retention_is_refused",
            "a_continuation_after_which_nothing_left_retention_is_served",
            "changes_within_retention_are_served",
            "a_reader_that_keeps_reading_never_expires",
            "latest_version_mode_knows_no_retention",
            "a_previous_image_outlives_the_version_it_shows",
            "a_split_does_not_change_what_has_left_retention",
            "without_time_to_live_a_ttl_is_just_a_member",
        ],
    ),
    (
        "the SDK has no such members of databases and containers",
        &[
            "a_database_keeps_what_the_store_does_not_know",
            "an_unknown_database_is_not_found",
            "a_container_keeps_its_settings",
            "settings_can_be_replaced_without_losing_items",
        ],
    ),
    (
        "the emulator accepts what the service refuses, or refuses it in another way",
        &[
            "an_unknown_container_is_not_found",
            "the_same_name_in_two_databases_is_two_containers",
            "the_partition_key_of_a_container_cannot_change",
            "a_refused_call_carries_its_request_charge",
            "a_store_without_time_to_live_says_so",
            "system_members_of_a_client_are_discarded",
            "system_members_are_recognised_however_they_are_spelled",
        ],
    ),
    (
        "splits are those of the store of the emulator, which does not check them",
        &["a_split_that_makes_no_sense_is_refused", "a_range_of_one_key_cannot_be_split"],
    ),
];

/// Cases that fail or not by the order in which tasks run.
const SHOWN_BY_CHANCE: [(&str, &[&str]); 2] = [
    (
        "the emulator keeps the newest version of an item: others are seen if they are read in time",
        &["every_version_arrives_exactly_once_while_writers_write"],
    ),
    (
        "the emulator does not tell the LSN of a change: it is that of its page, which may be right",
        &["a_write_that_is_dropped_happened_whole_or_not_at_all"],
    ),
];

/// About stores that lack what this one has, and about what the SDK or the fixture does not offer.
const NOT_APPLICABLE: [&str; 45] = [
    "a_handle_to_a_deleted_container_answers_not_found_for_ever",
    "deleting_a_database_deletes_its_containers",
    "the_store_id_survives_reopening_the_store",
    "a_continuation_survives_reopening_the_store",
    "a_store_that_does_not_charge_says_zero",
    "an_empty_page_advances_to_the_newest_lsn",
    "the_continuation_of_a_page_lies_between_its_last_change_and_the_newest",
    "a_store_without_all_versions_mode_says_so",
    "a_store_with_one_range_per_container_says_so",
    "a_child_can_be_split_again_and_names_all_its_ancestors",
    "a_store_that_cannot_split_says_so",
    "a_merge_makes_one_range_of_two_neighbours",
    "neighbours_merge_in_either_order",
    "a_merged_range_serves_both_parents_history",
    "a_merged_range_serves_all_versions_of_both_parents",
    "the_lsns_of_a_merged_range_come_after_both_parents",
    "a_merged_range_serves_parents_of_unequal_age",
    "a_merged_range_serves_all_versions_of_parents_of_unequal_age",
    "a_merged_range_gives_the_same_sequence_at_every_page_size",
    "a_merged_away_range_is_gone",
    "a_merge_that_makes_no_sense_is_refused",
    "a_range_can_be_split_and_merged_again_and_again",
    "writers_go_on_after_a_merge",
    "an_expired_item_is_gone",
    "an_expired_item_can_be_created_again",
    "a_write_restarts_the_time_to_live",
    "an_items_own_time_to_live_wins",
    "a_new_version_may_live_longer_or_shorter",
    "items_only_lets_expire_those_that_ask_for_it",
    "all_versions_mode_shows_an_expiry_as_such",
    "each_item_expires_exactly_once",
    "a_deleted_item_does_not_expire",
    "items_expire_in_the_children_of_a_split",
    "the_time_to_live_is_read_as_last_set",
    "changed_returns_after_a_write_in_the_range",
    "changed_returns_at_once_when_there_is_news_already",
    "changed_returns_after_a_write_in_a_sub_range",
    "changed_wakes_every_waiting_reader",
    "changed_returns_when_the_range_is_split",
    "changed_goes_on_in_the_children_of_a_split",
    "changed_returns_after_a_delete_in_all_versions_mode",
    "changed_returns_after_an_expiry_in_all_versions_mode",
    "a_reader_that_stops_waiting_changes_nothing",
    "a_continuation_beyond_the_end_is_refused",
    "a_reader_that_waits_for_changed_misses_nothing",
];
