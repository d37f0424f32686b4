//! The same seed gives the same trace, byte for byte. All other results depend on this.

use changefeed_sim::{campaign::Campaign, run::run, scenario::Scenario};

#[test]
fn every_seed_run_twice_gives_identical_traces() {
    for seed in 0..24 {
        let scenario = Scenario::from_seed(seed);
        let text = || run(&scenario, None, true).trace.into_text();
        let (first, second) = (text(), text());
        assert!(first.len() > 500, "seed {seed} has almost no trace");
        let differs = first.lines().zip(second.lines()).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

#[test]
fn the_digest_does_not_depend_on_the_number_of_threads() {
    let digest =
        |threads| Campaign::run(100, threads, None, |seed| (seed < 108).then(|| Scenario::from_seed(seed))).digest();
    assert_eq!(digest(1), digest(4));
}

#[test]
fn a_scenario_survives_being_written_and_read() {
    for seed in 0..100 {
        let scenario = Scenario::from_seed(seed);
        let read: Scenario = serde_json::from_str(&scenario.to_json()).expect("a scenario");
        assert_eq!(read, scenario);
    }
}
