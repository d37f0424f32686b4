//! One run: takes a scenario, returns what happened.

use std::{sync::Arc, time::Duration};

use changefeed::mutant::plant;
use changefeed_core::Result;
use changefeed_embedded::Engine;
use parking_lot::Mutex;

use crate::{
    checks::liveness,
    coverage::{Coverage, Sometimes},
    documents,
    exec::{Exec, Halt, INJECTED},
    hosts, neighbours, nemesis,
    planted::{Planted, Seam},
    scenario::{BootstrapPlan, LegacyPlan, Scenario},
    simulation::{Simulation, StoreClock, Stores, Violation},
    trace::Trace,
    workload::Writer,
};

/// All-versions history is kept for longer than any run lasts.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The broken rule, if any.
    pub violation: Option<Violation>,
    /// Everything that happened.
    pub trace: Trace,
    /// What was met.
    pub coverage: Coverage,
    /// Its length in microseconds of simulated time.
    pub simulated: u64,
    /// The number of machines.
    pub hosts: usize,
    /// The number of their requests.
    pub requests: u64,
    /// How many changes were delivered, and how many of them again.
    pub delivered: (u64, u64),
}

/// Runs a scenario, with a planted bug if one is given.
pub fn run(scenario: &Scenario, planted: Option<Planted>, keep_trace: bool) -> Outcome {
    silence_injected_panics();
    plant(planted.and_then(Planted::in_processor));
    let seam = planted.and_then(Planted::in_seam);
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("invariant: a runtime without drivers starts");
    let outcome = runtime.block_on(Box::pin(execute(scenario.clone(), seam, keep_trace)));
    drop(runtime);
    plant(None);
    outcome
}

async fn execute(scenario: Scenario, seam: Option<Seam>, keep_trace: bool) -> Outcome {
    let exec = Exec::new(scenario.seed, scenario.order);
    let stores = stores(&exec, &scenario).await.expect("invariant: an empty store accepts containers");
    let hosts = scenario.hosts.len();
    let sim = Arc::new(Simulation::new(exec.clone(), scenario, seam, stores, keep_trace));
    let main = Arc::clone(&sim);
    let halt = exec.run(async move { phases(&main).await }).await;
    match halt {
        Halt::Done => {}
        Halt::Deadlock => sim.violated("L5", "no task can run, and no timer is set".to_owned()),
        Halt::Spinning(task) => sim.violated("L6", format!("task {task} spins: time does not advance")),
        Halt::Panicked(crashed) => sim.violated("L5", format!("task {} panicked: {}", crashed.name, crashed.message)),
    }
    let simulated = exec.now();
    let delivered = {
        let deliveries = sim.deliveries.lock();
        (deliveries.delivered, deliveries.duplicates)
    };
    let (violation, (trace, coverage)) = (sim.violation(), sim.finish());
    exec.shut_down().await;
    let kept = sim.hosts.lock().drop_contexts();
    kept.iter().for_each(|contexts| contexts.lock().clear());
    Outcome { violation, trace, coverage, simulated, hosts, requests: sim.requests(), delivered }
}

async fn stores(exec: &Exec, scenario: &Scenario) -> Result<Stores> {
    let engine = Engine::builder()
        .clock(Arc::new(StoreClock(exec.clone())))
        .store_id(changefeed_core::StoreId::from_bits(0))
        .in_memory()?;
    let database = engine.database("sim");
    let mut monitored = database.container("monitored").partition_key("/pk").ranges(scenario.ranges);
    if scenario.processor.all_versions {
        monitored = monitored.all_versions(RETENTION);
    }
    let mut leases = database.container("leases");
    if scenario.leases_by_partition_key {
        leases = leases.partition_key("/partitionKey");
    }
    Ok(Stores {
        monitored: monitored.create().await?,
        leases: Mutex::new(leases.create().await?),
        letters: database.container("letters").create().await?,
        catalog: engine.catalog(),
    })
}

/// Writes, hosts and faults, then the quiet phase.
async fn phases(sim: &Arc<Simulation>) {
    sim.register_ranges().await;
    let mut writer = Writer::new(sim);
    for _ in 0..sim.scenario.workload.before {
        writer.write().await;
    }
    if let Some(plan) = &sim.scenario.legacy {
        leave_legacy(sim, plan, &mut writer).await;
    }
    if let Some(plan) = &sim.scenario.dotnet_bootstrap {
        bootstrap_as_dotnet(sim, plan, &mut writer).await;
    }
    nemesis::begin(sim);
    neighbours::start(sim);
    for (host, plan) in sim.scenario.hosts.iter().enumerate() {
        let (sim, at) = (Arc::clone(sim), plan.starts_at * 1000);
        sim.clone().exec.detach("host start", async move {
            sim.exec.sleep_until(at).await;
            hosts::start(&sim, host, false);
        });
    }
    writer.run_until(sim.scenario.chaos * 1000).await;
    liveness::quiet_phase(sim, &mut writer).await;
}

/// A host runs for a while and stops; then its leases become those of an old .NET fleet, and ranges change.
async fn leave_legacy(sim: &Arc<Simulation>, plan: &LegacyPlan, writer: &mut Writer) {
    hosts::start(sim, 0, false);
    sim.exec.sleep(Duration::from_millis(plan.ran)).await;
    hosts::stop(sim, 0, false);
    while !sim.hosts.lock().all_down() {
        sim.exec.sleep(Duration::from_millis(100)).await;
    }
    documents::make_legacy(sim).await;
    for (pick, merge) in &plan.reshaped {
        sim.cover(Sometimes::LegacyReshaped);
        if *merge { nemesis::merge(sim, *pick).await } else { nemesis::split(sim, *pick).await }
    }
    for _ in 0..plan.writes {
        writer.write().await;
    }
}

/// .NET hosts start the processor and stop, or stand still, before there is a change; from now on none may be lost.
async fn bootstrap_as_dotnet(sim: &Arc<Simulation>, plan: &BootstrapPlan, writer: &mut Writer) {
    *sim.dotnet_started.lock() = Some(sim.exec.now());
    sim.oracle.lock().started(sim.scenario.processor.from_beginning);
    documents::bootstrap_as_dotnet(sim).await;
    let pause = Duration::from_millis(plan.idle) / (plan.writes + 1);
    for _ in 0..plan.writes {
        sim.exec.sleep(pause).await;
        writer.write().await;
    }
    sim.exec.sleep(pause).await;
}

/// Panics that a scenario wants are not printed.
fn silence_injected_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let payload = panic.payload();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
            if !text.starts_with(INJECTED) {
                usual(panic);
            }
        }));
    });
}
