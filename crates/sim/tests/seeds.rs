//! The simulation repeats itself to the byte, and holds its promises on a block of seeds.

use changefeed_sim::campaign::Campaign;

#[test]
fn the_same_seeds_give_the_same_traces() {
    let digest = || Campaign::run(1000, 2, |seed| seed < 1006).digest();
    assert_eq!(digest(), digest());
}

#[test]
fn a_block_of_seeds_keeps_every_promise() {
    let campaign = Campaign::run(0, 2, |seed| seed < 10);
    assert!(campaign.failed.is_empty(), "{:?}", campaign.failed);
}
