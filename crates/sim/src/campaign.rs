//! Many seeds on several threads; the result does not depend on how many.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::{
    reach::Reach,
    run::{Outcome, run},
    scenario::Scenario,
    trace::hash,
    world::Violation,
};

/// What came out of many runs.
#[derive(Debug, Default)]
pub struct Campaign {
    /// Seeds that broke a promise.
    pub failed: BTreeMap<u64, Violation>,
    /// The digest of each trace.
    digests: BTreeMap<u64, u64>,
    /// What was reached.
    pub reach: Reach,
    /// Simulated time of all hosts together, in microseconds.
    pub host_time: u64,
    /// Requests to stores.
    pub requests: u64,
    /// Deliveries, and how many of them were not the first of their change.
    pub delivered: (u64, u64),
}

impl Campaign {
    /// Runs seeds from `first` on, on so many threads, until `goes_on` says no to one.
    pub fn run(first: u64, threads: usize, goes_on: impl Fn(u64) -> bool + Sync) -> Self {
        let (next, campaign) = (AtomicU64::new(first), Mutex::new(Self::default()));
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if !goes_on(seed) {
                            return;
                        }
                        let outcome = run(&Scenario::from_seed(seed), None, false);
                        campaign.lock().add(seed, &outcome);
                    }
                });
            }
        });
        campaign.into_inner()
    }

    fn add(&mut self, seed: u64, outcome: &Outcome) {
        if let Some(violation) = &outcome.violation {
            eprintln!("seed {seed}: {violation}");
            self.failed.insert(seed, violation.clone());
        }
        self.digests.insert(seed, outcome.trace.digest());
        self.reach.add(&outcome.reach);
        self.host_time += outcome.simulated * outcome.hosts as u64;
        self.requests += outcome.requests;
        self.delivered.0 += outcome.delivered.0;
        self.delivered.1 += outcome.delivered.1;
    }

    /// How many seeds were run.
    pub fn seeds(&self) -> usize {
        self.digests.len()
    }

    /// The digest of all traces.
    pub fn digest(&self) -> u64 {
        self.digests.values().fold(0, |digest, trace| hash(digest, &trace.to_le_bytes()))
    }
}
