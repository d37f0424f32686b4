//! A fixed block of seeds: every promise is kept, and the block is worth something because much happened in it.

use changefeed_sim::{campaign::Campaign, reach::Sometimes};

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
    let campaign = Campaign::run(0, 2, |seed| seed < 100);
    assert_eq!(campaign.failed, std::collections::BTreeMap::new());
    for what in MAIN {
        assert!(campaign.reach.count(what) > 0, "never reached: {what}");
    }
}
