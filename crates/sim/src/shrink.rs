//! Shrinking: finds a smaller scenario that breaks the same rule.

use crate::{
    planted::Planted,
    run::run,
    scenario::{DelegatePlan, FinalStep, Scenario, WorkloadPlan},
};

/// Leaves out what is not needed to break the same rule.
pub fn shrink(scenario: &Scenario, planted: Option<Planted>) -> Scenario {
    let broken = |scenario: &Scenario| run(scenario, planted, false).violation.map(|violation| violation.check);
    let wanted = broken(scenario);
    let mut best = scenario.clone();
    loop {
        let smaller = candidates(&best).into_iter().find(|candidate| broken(candidate) == wanted);
        match smaller {
            Some(smaller) if wanted.is_some() => best = smaller,
            _ => return best,
        }
    }
}

/// Scenarios that are one step simpler, the largest steps first.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let mut candidates = Vec::new();
    let mut add = |change: &dyn Fn(&mut Scenario)| {
        let mut simpler = scenario.clone();
        change(&mut simpler);
        if simpler != *scenario {
            candidates.push(simpler);
        }
    };
    let half = scenario.faults.len() / 2;
    if half > 0 {
        add(&|simpler| drop(simpler.faults.drain(..half)));
        add(&|simpler| drop(simpler.faults.drain(half..)));
    }
    for at in 0..scenario.faults.len() {
        add(&|simpler| {
            simpler.faults.remove(at);
        });
    }
    add(&|simpler| simpler.chaos /= 2);
    if scenario.hosts.len() > 1 {
        add(&|simpler| {
            simpler.hosts.pop();
        });
    }
    add(&|simpler| simpler.final_step = FinalStep::Stay);
    add(&|simpler| simpler.ranges = 1);
    add(&|simpler| simpler.hosts.iter_mut().for_each(|host| (host.drift_ppm, host.offset) = (0, 0)));
    add(&|simpler| {
        let network = &mut simpler.network;
        (network.tail_per_mille, network.throttled_per_mille) = (0, 0);
    });
    add(&|simpler| {
        (simpler.network.lost_request_per_mille, simpler.network.lost_response_per_mille) = (0, 0);
    });
    add(&|simpler| {
        let DelegatePlan { shortest, longest, typed, .. } = simpler.delegate;
        simpler.delegate = DelegatePlan { shortest, longest, typed, ..DelegatePlan::default() };
    });
    add(&|simpler| (simpler.workload.poison_per_mille, simpler.workload.killers) = (0, 0));
    add(&|simpler| (simpler.delegate.typed, simpler.workload.unparsable_per_mille) = (false, 0));
    add(&|simpler| simpler.workload = WorkloadPlan { unparsable_per_mille: 0, ..simpler.workload.clone() });
    add(&|simpler| (simpler.network.panics, simpler.network.slow_reads) = (0, 0));
    add(&|simpler| (simpler.delegate.long_per_mille, simpler.delegate.slow_per_mille) = (0, 0));
    add(&|simpler| (simpler.delegate.keeps_contexts, simpler.delegate.watches_cancelled) = (false, false));
    add(&|simpler| {
        simpler.neighbours.pop();
    });
    add(&|simpler| simpler.legacy = None);
    add(&|simpler| simpler.dotnet_bootstrap = None);
    add(&|simpler| simpler.hosts.iter_mut().for_each(|host| host.timing = None));
    add(&|simpler| (simpler.leases_by_partition_key, simpler.new_names) = (false, false));
    add(&|simpler| (simpler.workload.batch_per_mille, simpler.workload.delete_per_mille) = (0, 0));
    candidates
}
