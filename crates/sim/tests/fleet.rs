//! What a fleet may ask of its lease store, at a size that is cheap: the bounds of docs/benchmarks.md.

use changefeed_sim::fleet::{self, Report, Step};

const HOSTS: usize = 20;
const LEASES: usize = 200;

/// How often a host may list all leases until a fleet that starts at one moment is balanced.
const LISTINGS_OF_A_START: u64 = 10;

/// How often a host may read a lease in a minute: each renewal, one in 17 s, and one listing.
const READS_OF_A_LEASE: f64 = 60.0 / 17.0 + 1.0;

fn step<'a>(report: &'a Report, name: &str) -> &'a Step {
    report.steps.iter().find(|step| step.name == name).expect("a step")
}

#[test]
fn a_fleet_asks_no_more_of_its_lease_store_than_it_may() {
    let report = fleet::run(HOSTS, LEASES, |_| {}).expect("balanced");
    let start = step(&report, "start");
    // The goal is 2; one is the least.
    assert!(start.ownership_writes_per_lease <= 1.3, "a cold start: {start:?}");
    assert!(start.requests.listings <= LISTINGS_OF_A_START * HOSTS as u64, "a cold start: {start:?}");
    for step in &report.steps {
        assert_eq!(step.duplicates, 0, "planned moves repeat nothing: {step:?}");
    }
    let idle = report.idle.as_ref().expect("an idle time");
    // One write for each renewal; a sum of fractions.
    assert!(idle.writes_per_lease <= idle.writes_allowed + 1e-6, "{idle:?}");
    assert!(idle.most_reads <= idle.reads_allowed, "{idle:?}");
    assert!(idle.mean_documents <= READS_OF_A_LEASE * LEASES as f64, "{idle:?}");
    // A fleet that does nothing would pass all of that.
    assert!(start.requests.ownership_writes >= LEASES as u64 && idle.writes_per_lease > 3.0, "{start:?}, {idle:?}");
}
