//! A fixed block of seeds: no rule is broken, and enough is met for that to mean something.

use changefeed_sim::{campaign::Campaign, coverage::Sometimes, scenario::Scenario};

/// What even a small block must meet.
const MAIN: [Sometimes; 13] = [
    Sometimes::ExpiryTakeover,
    Sometimes::Granted,
    Sometimes::ConflictStillMine,
    Sometimes::LostResponse,
    Sometimes::Throttled,
    Sometimes::Hung,
    Sometimes::SelfFenced,
    Sometimes::DeadLetter,
    Sometimes::Duplicate,
    Sometimes::Repaired,
    Sometimes::Split,
    Sometimes::Merge,
    Sometimes::Panicked,
];

#[test]
fn a_block_of_seeds_keeps_every_promise_and_meets_what_it_should() {
    let campaign = Campaign::run(0, 2, None, |seed| (seed < 100).then(|| Scenario::from_seed(seed)));
    assert_eq!(campaign.failed, std::collections::BTreeMap::new());
    for what in MAIN {
        assert!(campaign.coverage.count(what) > 0, "never met: {what}");
    }
}
