//! What the suite does with a store that cannot do everything.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Catalog, async_trait};
use changefeed_testkit::{
    conformance::{self, Feature, Fixture},
    model::{Bug, ModelFixture},
};

/// A store that says that it cannot merge, although it can.
struct Modest(ModelFixture);

#[async_trait]
impl Fixture for Modest {
    fn catalog(&self) -> Arc<dyn Catalog> {
        self.0.catalog()
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await;
    }

    fn supports(&self, feature: Feature) -> bool {
        feature != Feature::Merge
    }
}

#[test]
fn skipped_cases_are_listed_with_what_they_need() {
    let report = conformance::report(async || Modest(ModelFixture::new()));
    let needs_merge = conformance::cases().iter().filter(|case| case.needs().contains(&Feature::Merge)).count();
    assert!(needs_merge > 0);
    assert_eq!(report.skipped.len(), needs_merge);
    let text = report.to_string();
    let line = "skipped: neighbours_merge_in_either_order needs [Merge], which the store does not support";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_store_that_says_it_cannot_but_does_is_found_out() {
    let report = conformance::report(async || Modest(ModelFixture::new()));
    let failed: Vec<_> = report.failed.iter().map(|(case, _)| case.name()).collect();
    assert_eq!(failed, ["a_store_that_cannot_merge_says_so"]);
}

#[test]
fn failures_are_listed_with_their_reason() {
    let report = conformance::report(async || ModelFixture::with_bug(Bug::AcceptsLargeItems));
    let text = report.to_string();
    let passed = conformance::cases().len() - 1;
    assert!(text.starts_with(&format!("{passed} passed, 0 skipped, 1 failed\n")), "{text}");
    assert!(text.contains("failed: an_item_over_two_mebibytes_is_refused: ") && text.contains("TooLarge"), "{text}");
}

#[test]
fn names_of_cases_are_unique() {
    let mut names: Vec<_> = conformance::cases().iter().map(conformance::Case::name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
