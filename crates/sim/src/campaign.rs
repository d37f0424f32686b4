//! Many seeds on several threads. The result does not depend on the number of threads.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::{
    coverage::Coverage,
    planted::Planted,
    run::{Outcome, run},
    scenario::Scenario,
    simulation::Violation,
    trace::hash,
};

/// The results of many runs.
#[derive(Debug, Default)]
pub struct Campaign {
    /// Seeds that broke a rule.
    pub failed: BTreeMap<u64, Violation>,
    /// The digest of each trace.
    digests: BTreeMap<u64, u64>,
    /// What was met.
    pub coverage: Coverage,
    /// Simulated time of all hosts together, in microseconds.
    pub host_time: u64,
    /// Requests to stores.
    pub requests: u64,
    /// Deliveries, and how many of them were not the first of their change.
    pub delivered: (u64, u64),
}

impl Campaign {
    /// Runs the scenarios that `draw` makes of seeds from `first` on, until it returns none, each with the planted bug.
    pub fn run(
        first: u64,
        threads: usize,
        planted: Option<Planted>,
        draw: impl Fn(u64) -> Option<Scenario> + Sync,
    ) -> Self {
        let (next, campaign) = (AtomicU64::new(first), Mutex::new(Self::default()));
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        let Some(scenario) = draw(seed) else { return };
                        let outcome = run(&scenario, planted, false);
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
        self.coverage.add(&outcome.coverage);
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
