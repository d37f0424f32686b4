//! What the suite does with a store that cannot do everything.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Capabilities, Catalog, async_trait};
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

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn reopen(&self) {
        self.0.reopen().await;
    }

    async fn other_store(&self) -> Arc<dyn Catalog> {
        self.0.other_store().await
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await;
    }

    fn supports(&self, feature: Feature) -> bool {
        feature != Feature::Merge
    }
}

#[test]
fn cases_that_do_not_apply_are_listed_with_what_they_need() {
    let report = conformance::report(async || Modest(ModelFixture::new()));
    let needs_merge = conformance::cases().iter().filter(|case| case.needs().contains(&Feature::Merge)).count();
    assert!(needs_merge > 0);
    let listed = report.not_applicable.iter().filter(|one| one.missing == [Feature::Merge]).count();
    assert_eq!(listed, needs_merge);
    let text = report.to_string();
    for line in [
        "not applicable: neighbours_merge_in_either_order needs [Merge], which the store does not declare",
        "not applicable: a_store_that_cannot_split_says_so is about stores without [Split]",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let reported = report.passed.len() + report.not_applicable.len() + report.failed.len();
    assert_eq!(reported, conformance::cases().len(), "every case is in the report");
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
    // The model can do everything, so that cases about refusals do not apply.
    let refusals = conformance::cases().iter().filter(|case| !case.lacks().is_empty()).count();
    let passed = conformance::cases().len() - refusals - 1;
    assert!(text.starts_with(&format!("{passed} passed, {refusals} not applicable, 1 failed\n")), "{text}");
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
