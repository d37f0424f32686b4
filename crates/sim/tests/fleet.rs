//! What a fleet may ask of its lease store, at a size that is cheap: the bounds of docs/benchmarks.md.

use std::time::Duration;

use changefeed_sim::fleet::{self, Report, Step, Way};

const HOSTS: usize = 20;
const LEASES: usize = 200;

/// How often a host may list all leases until a fleet that starts at one moment is balanced.
const LISTINGS_OF_A_START: u64 = 10;

/// How many pages of listings and of the feed, and single leases, a host may read in that time.
const READS_OF_A_START: u64 = 20;

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
    assert!(start.requests.reads() <= READS_OF_A_START * HOSTS as u64, "a cold start: {start:?}");
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

#[test]
fn hosts_that_start_within_a_moment_write_each_lease_hardly_more_than_once() {
    // On the same machine a host that did not wait would own all leases before the next one starts.
    for way in [Way::MACHINE, Way::REGION] {
        for within in [Duration::ZERO, Duration::from_millis(100)] {
            let start = fleet::start(HOSTS, LEASES, within, way).expect("balanced");
            assert!(start.ownership_writes_per_lease <= 1.5, "{way:?}, within {within:?}: {start:?}");
            assert!(start.requests.reads() <= READS_OF_A_START * HOSTS as u64, "{way:?}, within {within:?}: {start:?}");
        }
    }
}

#[test]
fn hosts_that_start_within_three_seconds_hand_each_lease_over_once_at_most() {
    // What a host acquires while it is alone has to be handed over: the write that acquires it, and three to move it.
    for way in [Way::MACHINE, Way::REGION] {
        let start = fleet::start(HOSTS, LEASES, Duration::from_secs(3), way).expect("balanced");
        assert!(start.ownership_writes_per_lease <= 4.0, "{way:?}: {start:?}");
        // The owner reads each lease that it hands over.
        let reads = start.requests.reads() - start.requests.point_reads;
        assert!(reads <= READS_OF_A_START * HOSTS as u64, "{way:?}: {start:?}");
        assert!(start.requests.point_reads <= LEASES as u64, "{way:?}: {start:?}");
    }
}

#[test]
fn a_host_that_starts_alone_owns_all_leases_within_a_second() {
    for way in [Way::MACHINE, Way::REGION] {
        let start = fleet::start(1, LEASES, Duration::ZERO, way).expect("balanced");
        assert!(start.seconds < 1.0, "{way:?}: {start:?}");
        assert_eq!(start.requests.ownership_writes, LEASES as u64, "{way:?}: {start:?}");
    }
}
