//! One run: a scenario in, what happened out.

use std::{sync::Arc, time::Duration};

use changefeed::mutant::{Mutant, plant};
use changefeed_core::Result;
use changefeed_embedded::Engine;

use crate::{
    checks::ending,
    exec::{Exec, Halt},
    hosts, nemesis,
    reach::Reach,
    scenario::Scenario,
    trace::Trace,
    workload::Writer,
    world::{StoreClock, Stores, Violation, World},
};

/// All-versions history is kept for longer than any run lasts.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// What came out of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What was broken, if anything.
    pub violation: Option<Violation>,
    /// Everything that happened.
    pub trace: Trace,
    /// What was reached.
    pub reach: Reach,
    /// How long it was, in microseconds of simulated time.
    pub simulated: u64,
    /// How many machines there were.
    pub hosts: usize,
    /// How many requests they made.
    pub requests: u64,
    /// How many changes were delivered, and how many of them again.
    pub delivered: (u64, u64),
}

/// Runs a scenario, with a planted bug if one is given.
pub fn run(scenario: &Scenario, mutant: Option<Mutant>, keep_trace: bool) -> Outcome {
    quiet_panics();
    plant(mutant);
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("invariant: a runtime without drivers starts");
    let outcome = runtime.block_on(Box::pin(play(scenario.clone(), keep_trace)));
    drop(runtime);
    plant(None);
    outcome
}

async fn play(scenario: Scenario, keep_trace: bool) -> Outcome {
    let exec = Exec::new(scenario.seed, scenario.order);
    let stores = stores(&exec, &scenario).await.expect("invariant: an empty store accepts containers");
    let hosts = scenario.hosts.len();
    let world = Arc::new(World::new(exec.clone(), scenario, stores, keep_trace));
    let main = Arc::clone(&world);
    let halt = exec.run(async move { story(&main).await }).await;
    match halt {
        Halt::Done => {}
        Halt::Deadlock => world.violated("L5", "nobody can run, and nobody waits for a moment".to_owned()),
        Halt::Spinning(task) => world.violated("L6", format!("task {task} spins: time does not move")),
        Halt::Panicked(crashed) => world.violated("L5", format!("task {} panicked: {}", crashed.name, crashed.message)),
    }
    let simulated = exec.now();
    exec.shut_down().await;
    let delivered = {
        let deliveries = world.deliveries.lock();
        (deliveries.delivered, deliveries.duplicates)
    };
    let (trace, reach) = world.finish();
    Outcome { violation: world.violation(), trace, reach, simulated, hosts, requests: world.requests(), delivered }
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
    Ok(Stores {
        monitored: monitored.create().await?,
        leases: database.container("leases").create().await?,
        letters: database.container("letters").create().await?,
        catalog: engine.catalog(),
    })
}

/// Writes, hosts and faults, then quiet.
async fn story(world: &Arc<World>) {
    let mut writer = Writer::new(world);
    for _ in 0..world.scenario.workload.before {
        writer.write().await;
    }
    nemesis::begin(world);
    for (host, plan) in world.scenario.hosts.iter().enumerate() {
        let (world, at) = (Arc::clone(world), plan.starts_at * 1000);
        world.clone().exec.detach("power button", async move {
            world.exec.sleep_until(at).await;
            hosts::start(&world, host, false);
        });
    }
    writer.run_until(world.scenario.chaos * 1000).await;
    ending::quiet_phase(world, &mut writer).await;
}

/// Panics that a scenario wants are no news.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let text = panic.payload_as_str().unwrap_or_default();
            if !text.starts_with("injected") {
                usual(panic);
            }
        }));
    });
}
