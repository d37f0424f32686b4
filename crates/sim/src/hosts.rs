//! Machines and the lifecycle of the processes on them: started, stopped, dropped, crashed, stalled.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    checks::takeover::{Process, ProcessKind},
    coverage::Sometimes,
    exec::ProcessId,
    host::{HostProcess, KeptContexts, Signal},
    rng::Rng,
    runtime::{Clocks, SimRuntime},
    scenario::Scenario,
    simulation::Simulation,
};

/// A process that an item has crashed is started again after this long.
const RESTART: Duration = Duration::from_secs(2);

/// A machine.
#[derive(Debug)]
struct Machine {
    name: Arc<str>,
    clocks: Arc<Clocks>,
    starts: u32,
    main: Option<ProcessHandle>,
    /// A second process with the same instance name.
    duplicate: Option<ProcessHandle>,
    /// When it last stalled or resumed.
    stalled: u64,
    /// Whether its next process has a delegate whose type fits no item.
    mismatched: bool,
    /// Contexts that outlive their process's processor.
    kept: Vec<KeptContexts>,
}

/// A process, as the simulation controls it.
struct ProcessHandle {
    process: ProcessId,
    signal: Option<oneshot::Sender<Signal>>,
    started: bool,
    mismatched: bool,
}

impl fmt::Debug for ProcessHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessHandle(process {})", self.process)
    }
}

/// All machines.
#[derive(Debug)]
pub struct Hosts(Vec<Machine>);

impl Hosts {
    /// The machines of a scenario, without processes.
    pub fn new(scenario: &Scenario) -> Self {
        let machine = |(at, plan): (usize, &crate::scenario::HostPlan)| Machine {
            name: format!("h{at}").into(),
            clocks: Arc::new(Clocks {
                drift_ppm: plan.drift_ppm,
                offset_millis: Mutex::new(plan.offset),
                suspended: Mutex::new(0),
            }),
            starts: 0,
            main: None,
            duplicate: None,
            stalled: 0,
            mismatched: false,
            kept: Vec::new(),
        };
        Self(scenario.hosts.iter().enumerate().map(machine).collect())
    }

    /// The instance names of all machines.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|machine| &machine.name)
    }

    /// Whether all hosts are up.
    pub fn all_started(&self) -> bool {
        self.0.iter().all(|machine| machine.main.as_ref().is_some_and(|handle| handle.started))
    }

    /// Whether a host is down.
    pub fn is_down(&self, host: usize) -> bool {
        self.0.get(host).is_none_or(|machine| machine.main.is_none())
    }

    /// Whether the host with this name is up.
    pub fn is_up(&self, name: &str) -> bool {
        self.0.iter().any(|machine| &*machine.name == name && machine.main.is_some())
    }

    /// Whether all hosts are down.
    pub fn all_down(&self) -> bool {
        self.0.iter().all(|machine| machine.main.is_none() && machine.duplicate.is_none())
    }

    /// Whether the processor of a process has started and is not being stopped.
    pub fn is_started(&self, host: usize, process: ProcessId) -> bool {
        self.handle(host, process).is_some_and(|handle| handle.started)
    }

    /// Whether a process has been up since `moment` and never stalled.
    pub fn ran_through(&self, host: usize, process: ProcessId, moment: u64) -> bool {
        let stalled = self.0.get(host).is_none_or(|machine| machine.stalled >= moment);
        self.is_started(host, process) && !stalled
    }

    /// The processes that run, one for each machine.
    pub fn processes(&self) -> Vec<Option<ProcessId>> {
        self.0.iter().map(|machine| machine.main.as_ref().map(|handle| handle.process)).collect()
    }

    /// Whether a machine has stalled since `moment`.
    pub fn stalled_since(&self, host: usize, moment: u64) -> bool {
        self.0.get(host).is_some_and(|machine| machine.stalled >= moment)
    }

    /// Whether a process has a delegate whose type fits no item.
    pub fn is_mismatched(&self, process: ProcessId) -> bool {
        let mut handles = self.0.iter().flat_map(|machine| machine.main.iter().chain(&machine.duplicate));
        handles.any(|handle| handle.process == process && handle.mismatched)
    }

    /// Moves the wall clock of a machine.
    pub fn jump(&self, host: usize, by: i64) {
        if let Some(machine) = self.0.get(host) {
            *machine.clocks.offset_millis.lock() += by;
        }
    }

    /// A machine slept for so many microseconds.
    pub fn slept(&self, host: usize, micros: u64) {
        if let Some(machine) = self.0.get(host) {
            *machine.clocks.suspended.lock() += micros;
        }
    }

    /// Whether the next process of a machine has a delegate whose type fits no item.
    pub fn mismatch(&mut self, host: usize, mismatched: bool) {
        if let Some(machine) = self.0.get_mut(host) {
            machine.mismatched = mismatched;
        }
    }

    /// Marks a process as started.
    pub fn mark_started(&mut self, host: usize, process: ProcessId) {
        if let Some(handle) = self.0.get_mut(host).and_then(|machine| machine.handle(process)) {
            handle.started = handle.signal.is_some();
        }
    }

    /// A process has ended.
    pub fn mark_down(&mut self, host: usize, process: ProcessId) {
        if let Some(machine) = self.0.get_mut(host) {
            machine.main.take_if(|handle| handle.process == process);
            machine.duplicate.take_if(|handle| handle.process == process);
        }
    }

    /// Keeps contexts until the end of the run.
    pub fn keep(&mut self, host: usize, contexts: KeptContexts) {
        if let Some(machine) = self.0.get_mut(host) {
            machine.kept.push(contexts);
        }
    }

    /// Drops all contexts that were kept.
    pub fn drop_contexts(&mut self) -> Vec<KeptContexts> {
        self.0.iter_mut().flat_map(|machine| std::mem::take(&mut machine.kept)).collect()
    }

    fn handle(&self, host: usize, process: ProcessId) -> Option<&ProcessHandle> {
        let machine = self.0.get(host)?;
        machine.main.iter().chain(&machine.duplicate).find(|handle| handle.process == process)
    }
}

impl Machine {
    fn handle(&mut self, process: ProcessId) -> Option<&mut ProcessHandle> {
        self.main.iter_mut().chain(&mut self.duplicate).find(|handle| handle.process == process)
    }
}

/// Starts a process on a machine, if none runs there; or a second one with the same instance name.
pub fn start(sim: &Arc<Simulation>, host: usize, duplicate: bool) {
    let mut hosts = sim.hosts.lock();
    let Some(machine) = hosts.0.get_mut(host) else { return };
    if if duplicate { machine.duplicate.is_some() } else { machine.main.is_some() } {
        return;
    }
    machine.starts += 1;
    if sim.scenario.new_names && !duplicate {
        machine.name = format!("h{host}v{}", machine.starts).into();
    }
    let process = sim.exec.process();
    let (signal, signals) = oneshot::channel();
    let mismatched = machine.mismatched;
    let handle = ProcessHandle { process, signal: Some(signal), started: false, mismatched };
    *(if duplicate { &mut machine.duplicate } else { &mut machine.main }) = Some(handle);
    let (name, starts, clocks) = (Arc::clone(&machine.name), machine.starts, Arc::clone(&machine.clocks));
    drop(hosts);
    let label: Arc<str> = format!("{name}#{starts}").into();
    sim.log(format_args!("{label} starts as process {process}"));
    let timing = sim.scenario.timing(host);
    let facts = Process {
        name: name.to_string(),
        kind: ProcessKind::Host,
        expiration: timing.expiration * 1000,
        acquire: timing.acquire * 1000,
        renew: timing.renew * 1000,
    };
    sim.leases.lock().register(process, facts);
    if mismatched {
        sim.cover(Sometimes::Mismatched);
    }
    let rng = Rng::new(sim.scenario.seed, &format!("host {label}"));
    let runtime = Arc::new(SimRuntime::new(&sim.exec, process, &clocks, rng, sim.seam));
    let network = Arc::new(Mutex::new(Rng::new(sim.scenario.seed, &format!("network {label}"))));
    let sim_of_host = Arc::clone(sim);
    let host_process =
        HostProcess { sim: sim_of_host, process, host, duplicate, mismatched, name, label, timing, runtime, network };
    drop(sim.exec.spawn(process, "main", Box::pin(host_process.run(signals))));
}

/// Kills the main process of a machine.
pub fn crash(sim: &Arc<Simulation>, host: usize) {
    let mut hosts = sim.hosts.lock();
    let Some(machine) = hosts.0.get_mut(host) else { return };
    if let Some(handle) = machine.main.take() {
        sim.log(format_args!("{} crashes", machine.name));
        sim.exec.kill(handle.process);
    }
}

/// A process crashes because of an item, and is started again.
pub fn crash_of_item(sim: &Arc<Simulation>, host: usize, process: ProcessId) {
    sim.exec.kill(process);
    sim.hosts.lock().mark_down(host, process);
    let (sim, later) = (Arc::clone(sim), sim.exec.sleep(RESTART));
    sim.clone().exec.detach("restart", async move {
        later.await;
        start(&sim, host, false);
    });
}

/// Stops a process gracefully; it marks itself as down.
pub fn stop(sim: &Arc<Simulation>, host: usize, duplicate: bool) {
    signal(sim, host, duplicate, Signal::Stop);
}

/// Has a process drop its running processor without stopping it.
pub fn drop_running(sim: &Arc<Simulation>, host: usize) {
    signal(sim, host, false, Signal::Drop);
}

fn signal(sim: &Arc<Simulation>, host: usize, duplicate: bool, signal: Signal) {
    let mut hosts = sim.hosts.lock();
    let Some(machine) = hosts.0.get_mut(host) else { return };
    let handle = if duplicate { &mut machine.duplicate } else { &mut machine.main };
    if let Some(handle) = handle
        && let Some(sender) = handle.signal.take()
    {
        handle.started = false;
        let _ = sender.send(signal);
    }
}

/// Stalls the processes of a machine, or lets them continue.
pub fn stall(sim: &Arc<Simulation>, host: usize, stalled: bool) {
    let mut hosts = sim.hosts.lock();
    let Some(machine) = hosts.0.get_mut(host) else { return };
    machine.stalled = sim.exec.now();
    sim.log(format_args!("{} {}", machine.name, if stalled { "stalls" } else { "continues" }));
    for handle in machine.main.iter().chain(&machine.duplicate) {
        sim.exec.stall(handle.process, stalled);
        sim.leases.lock().observations.stall(handle.process, sim.exec.now(), stalled);
    }
}
