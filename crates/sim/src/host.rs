//! One process with a processor in it. Beside the delegate and the operator, the only place that uses the API of the
//! processor.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use changefeed::{
    AcceptsMode, Backoff, Changes, Context, DeadLetter, Failure, LeaseTiming, Loss, ManualContext, Notification,
    Processor, ProcessorBuilder, RawChanges, Release, Running, Versions, runtime::Runtime,
};
use changefeed_core::{Container, Result, StartFrom};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    checks::Broken,
    coverage::Sometimes,
    delegate::{Delegate, Item, Received, Renamed},
    exec::ProcessId,
    planted::Seam,
    rng::Rng,
    runtime::{SimRuntime, wall_at},
    scenario::{Scenario, Store, Timing},
    simulation::Simulation,
    store::SimStore,
};

/// No request of the processor takes longer than this, in milliseconds.
pub const LONGEST_REQUEST: u64 = 70_000;

/// The name of the processor.
pub const PROCESSOR: &str = "sim";

/// Contexts that are kept after their call.
pub type KeptContexts = Arc<Mutex<Vec<Context>>>;

/// How a process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It stops its processor gracefully.
    Stop,
    /// It drops its processor, and lives on.
    Drop,
}

/// One process.
#[derive(Debug)]
pub struct HostProcess {
    /// The simulation.
    pub sim: Arc<Simulation>,
    /// Its number.
    pub process: ProcessId,
    /// Its machine.
    pub host: usize,
    /// Whether it is the second process with its instance name.
    pub duplicate: bool,
    /// Whether the type of its delegate fits no item.
    pub mismatched: bool,
    /// Its instance name.
    pub name: Arc<str>,
    /// Its name in the trace.
    pub label: Arc<str>,
    /// Its intervals.
    pub timing: Timing,
    /// Its runtime.
    pub runtime: Arc<SimRuntime>,
    /// Decides the outcome of its requests.
    pub network: Arc<Mutex<Rng>>,
}

impl HostProcess {
    /// Runs until a signal says how to end.
    pub async fn run(self, mut signals: oneshot::Receiver<Signal>) {
        let kept = KeptContexts::default();
        let running = tokio::select! {
            biased;
            _ = &mut signals => None,
            running = self.start(&kept) => Some(running),
        };
        if let Some(running) = running {
            self.mark_started();
            match signals.await {
                Ok(Signal::Drop) => self.drop_running(running, kept),
                _ => self.stop(running).await,
            }
        }
        self.sim.hosts.lock().mark_down(self.host, self.process);
        self.sim.log(format_args!("{} is down", self.label));
    }

    fn mark_started(&self) {
        self.sim.oracle.lock().started(self.sim.scenario.processor.from_beginning);
        self.sim.log(format_args!("{} is up", self.label));
        if self.duplicate {
            self.sim.cover(Sometimes::DuplicateInstance);
        }
        self.sim.hosts.lock().mark_started(self.host, self.process);
    }

    /// Starts the processor; tries again after an error, as a user would.
    async fn start(&self, kept: &KeptContexts) -> Running {
        loop {
            let processor = self.build(kept).expect("invariant: scenarios have sensible options");
            match Box::pin(processor.start()).await {
                Ok(running) => return running,
                Err(error) => self.sim.log(format_args!("{} cannot start: {error:?}", self.label)),
            }
            self.runtime.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Drops the processor while its contexts stay alive.
    fn drop_running(&self, running: Running, kept: KeptContexts) {
        let sim = &self.sim;
        sim.log(format_args!("{} drops its processor and keeps {} contexts", self.label, kept.lock().len()));
        if !kept.lock().is_empty() {
            sim.cover(Sometimes::Dropped);
        }
        sim.hosts.lock().keep(self.host, kept);
        sim.leases.lock().dropped(self.process, sim.exec.now());
        if sim.has(Seam::RunningLeaked) { std::mem::forget(running) } else { drop(running) }
    }

    /// L4: a stop returns within its deadline.
    async fn stop(&self, running: Running) {
        let sim = &self.sim;
        let begun = sim.exec.now();
        sim.log(format_args!("{} is stopping", self.label));
        if sim.deliveries.lock().is_busy(self.process) {
            sim.cover(Sometimes::StopDuringCall);
        }
        if sim.windows.lock().iter().any(|window| window.store == Store::Leases) {
            sim.cover(Sometimes::StopDuringOutage);
        }
        let stopped = Box::pin(running.stop()).await;
        let took = sim.exec.now() - begun;
        let limit = sim.scenario.processor.stop_deadline * 1060 + 10_000;
        let stalled = sim.hosts.lock().stalled_since(self.host, begun);
        if took > limit && !stalled {
            sim.violated("L4", format!("{} took {} ms to stop", self.label, took / 1000));
        }
        if let Err(error) = stopped {
            sim.log(format_args!("{} stopped: {error:?}", self.label));
            // A call or a request that began before the quiet phase may still hang.
            let longest = LONGEST_REQUEST + sim.scenario.delegate.long + sim.scenario.network.slow_reads;
            let calm = begun > (sim.scenario.chaos + longest) * 1000;
            if sim.scenario.is_planned_only() || calm {
                sim.violated("L4", format!("{} could not stop gracefully: {error:?}", self.label));
            }
        }
    }

    fn container(&self, store: Store) -> Container {
        let rng = Arc::clone(&self.network);
        Container::new(Arc::new(SimStore::new(&self.sim, self.process, self.host, &self.name, store, rng)))
    }

    fn build(&self, kept: &KeptContexts) -> Result<Processor> {
        let scenario: &Scenario = &self.sim.scenario;
        let plan = &scenario.processor;
        let millis = Duration::from_millis;
        let (monitored, leases) = (self.container(Store::Feed), self.container(Store::Leases));
        let Timing { acquire, renew, expiration } = self.timing;
        let timing = LeaseTiming { acquire: millis(acquire), renew: millis(renew), expiration: millis(expiration) };
        let mut builder = Processor::builder(PROCESSOR, &monitored, &leases)
            .instance_name(&*self.name)
            .lease_timing(timing)
            .poll_interval(millis(plan.poll))
            .max_items(plan.max_items)
            .retry(Backoff { first: millis(100), longest: millis(2000) })
            .stop_deadline(millis(plan.stop_deadline))
            .runtime(Arc::clone(&self.runtime) as Arc<dyn Runtime>)
            .on_notification(self.listener());
        if plan.forced_steal {
            builder = builder.steal_after((timing.expiration / 2).max(timing.renew));
        }
        if let Some(calls) = plan.max_concurrent_calls {
            builder = builder.max_concurrent_calls(calls);
        }
        if let Some(bytes) = plan.max_bytes_in_flight {
            builder = builder.max_bytes_in_flight(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        if let Some(units) = plan.max_request_units_per_second {
            builder = builder.max_request_units_per_second(units as f64);
        }
        let at_time = self.sim.scenario.dotnet_bootstrap.as_ref().is_some_and(|plan| plan.at_time);
        if plan.from_beginning {
            builder = builder.start_from(StartFrom::Beginning);
        } else if let Some(started) = self.sim.dotnet_started.lock().filter(|_| at_time) {
            builder = builder.start_from(wall_at(started));
        }
        if let Some(attempts) = plan.dead_letter_after {
            let mut letters = DeadLetter::to(&self.container(Store::Letters)).after_attempts(attempts);
            let mismatched = self.sim.hosts.lock().is_mismatched(self.process);
            if self.sim.scenario.workload.unparsable_per_mille > 0 && !mismatched {
                // By chance more items in a row may not parse than an outage has: nobody else ends it here.
                letters = letters.outage_ends_after(timing.expiration * 2);
            }
            builder = builder.dead_letter(letters);
        }
        if let Some(limit) = plan.delegate_timeout {
            builder = builder.delegate_timeout(millis(limit));
        }
        match (plan.all_versions, scenario.delegate.typed, self.mismatched) {
            (false, _, true) => self.finish(builder, kept, Received::typed::<Changes<Renamed>>),
            (true, _, true) => self.finish(builder.all_versions(), kept, Received::typed::<Versions<Renamed>>),
            (false, true, _) => self.finish(builder, kept, Received::latest),
            (true, true, _) => self.finish(builder.all_versions(), kept, Received::versions),
            (false, false, _) => self.finish(builder, kept, Received::raw),
            (true, false, _) => self.finish(builder.all_versions(), kept, Received::raw),
        }
    }

    fn finish<M, I: AcceptsMode<M>>(
        &self,
        builder: ProcessorBuilder<M>,
        kept: &KeptContexts,
        read: fn(&I) -> Vec<Received>,
    ) -> Result<Processor> {
        let delegate = Delegate {
            sim: Arc::clone(&self.sim),
            process: self.process,
            host: self.host,
            name: Arc::clone(&self.label),
            timing: self.timing,
            runtime: Arc::clone(&self.runtime),
            batches: Arc::new(Mutex::new(BTreeMap::new())),
            kept: Arc::clone(kept),
        };
        if self.sim.scenario.is_manual() {
            return builder.manual_checkpoints().build(move |changes: I, context: ManualContext| {
                delegate.clone().call(read(&changes), (*context).clone(), Some(context))
            });
        }
        builder.build(move |changes: I, context: Context| delegate.clone().call(read(&changes), context, None))
    }

    /// Receives the notifications of the host.
    fn listener(&self) -> impl Fn(&Notification) + Send + Sync + 'static {
        let (sim, process, label) = (Arc::clone(&self.sim), self.process, Arc::clone(&self.label));
        let host = self.host;
        let expiration = self.timing.expiration * 1000;
        move |notification| {
            sim.log(format_args!("{label} {notification:?}"));
            let broken = match notification {
                Notification::LeaseAcquired(token) => {
                    sim.deliveries.lock().acquired(process, token.as_str(), &sim.leases.lock())
                }
                Notification::LeaseReleased(token, release) => {
                    // Its reads are over, and those of the next time are others.
                    let range = sim.leases.lock().by_token(token.as_str()).and_then(|lease| lease.range.clone());
                    if let Some(range) = range {
                        sim.reports.lock().read_returned(process, &range.to_string());
                    }
                    let released = sim.deliveries.lock().released(process, token.as_str());
                    released.and_then(|()| check_loss(&sim, (host, process), expiration, token.as_str(), release))
                }
                Notification::Error(report) => {
                    sim.reports.lock().error(process, sim.exec.now());
                    if let (Some(token), Failure::Delegate(_)) = (&report.lease, &report.failure) {
                        // Items that do not parse never reach the delegate.
                        sim.call_ended(process, token.as_str(), 0);
                    }
                    Ok(())
                }
                Notification::Repaired(_) => {
                    sim.cover(Sometimes::Repaired);
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err((check, what)) = broken {
                sim.violated(check, what);
            }
        }
    }
}

/// S14: a lease is given up only if the store says that it is lost, or the host's own deadline has passed; not while its
/// progress could still be stored.
fn check_loss(
    sim: &Simulation,
    (host, process): (usize, ProcessId),
    expiration: u64,
    token: &str,
    release: &Release,
) -> Result<(), Broken> {
    let Release::Lost(loss) = release else { return Ok(()) };
    let leases = sim.leases.lock();
    if *loss == Loss::Superseded {
        return Ok(());
    }
    if *loss == Loss::Expired {
        sim.cover(Sometimes::SelfFenced);
        let now = sim.exec.now();
        let stored = leases.held_by(process, token).map(|lease| lease.document.position().unwrap_or(0));
        let goes_on = !sim.scenario.is_manual() && sim.hosts.lock().is_started(host, process);
        if let Some(stored) = stored.filter(|_| goes_on)
            && let Some(lsn) = sim.deliveries.lock().handled_after(process, token, stored, &sim.oracle.lock())
        {
            let what =
                format!("lease {token} was given up at the checkpoint {stored} while still held; {lsn} was handled");
            return Err(("S14", what));
        }
        // A response that arrives at this very moment may be handled after the decision.
        let since = leases.ownerships.confirmed_before(process, token, now).map(|begun| now - begun);
        let least = expiration * 7 / 10;
        return match since {
            Some(since) if since < least => {
                Err(("S14", format!("lease {token} was given up {} ms after it was renewed", since / 1000)))
            }
            _ => Ok(()),
        };
    }
    if leases.held_by(process, token).is_some() {
        return Err(("S14", format!("lease {token} was given up as lost ({loss}), but is still held")));
    }
    Ok(())
}

impl Received {
    /// Raw changes name their position and item.
    fn raw(changes: &RawChanges) -> Vec<Self> {
        changes.iter().map(|change| Self::Place(change.lsn.get(), change.id.to_string())).collect()
    }

    /// Typed items name the write that they come from.
    fn latest(changes: &Changes<Item>) -> Vec<Self> {
        changes.iter().map(|item| Self::Number(item.n)).collect()
    }

    /// Typed versions name their position and item.
    fn versions(versions: &Versions<Item>) -> Vec<Self> {
        versions.iter().map(|version| Self::Place(version.lsn.get(), version.id.clone())).collect()
    }

    /// A type that fits nothing is never received.
    fn typed<I>(_: &I) -> Vec<Self> {
        Vec::new()
    }
}
