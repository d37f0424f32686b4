//! Machines and the processes on them: started, stopped, killed, stalled.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use changefeed::{
    Backoff, Checkpoint, Context, DeadLetter, LeaseTiming, Notification, Processor, ProcessorBuilder, RawChanges,
    Release, Running, lease::ownership::Loss, runtime::Runtime,
};
use changefeed_core::{Container, Result, StartFrom};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    delegate::Delegate,
    exec::ProcessId,
    reach::Sometimes,
    rng::Rng,
    runtime::{Clocks, SimRuntime},
    scenario::{Scenario, Store},
    store::SimStore,
    world::World,
};

/// A process that was killed by an item is started again after this long.
const RESTART: Duration = Duration::from_secs(2);

/// No request of the processor takes longer than this, in milliseconds.
const LONGEST_REQUEST: u64 = 70_000;

/// A machine.
#[derive(Debug)]
struct Machine {
    name: Arc<str>,
    clocks: Arc<Clocks>,
    born: u32,
    main: Option<Life>,
    twin: Option<Life>,
    /// When it last stalled or went on.
    stalled: u64,
}

/// A process, as the world knows it.
struct Life {
    process: ProcessId,
    stop: Option<oneshot::Sender<()>>,
    started: bool,
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Life(process {})", self.process)
    }
}

/// All machines.
#[derive(Debug)]
pub struct Hosts(Vec<Machine>);

impl Hosts {
    /// The machines of a scenario, all off.
    pub fn new(scenario: &Scenario) -> Self {
        let machine = |(at, plan): (usize, &crate::scenario::HostPlan)| Machine {
            name: format!("h{at}").into(),
            clocks: Arc::new(Clocks { drift_ppm: plan.drift_ppm, offset_millis: Mutex::new(plan.offset) }),
            born: 0,
            main: None,
            twin: None,
            stalled: 0,
        };
        Self(scenario.hosts.iter().enumerate().map(machine).collect())
    }

    /// The names of all machines.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|machine| &machine.name)
    }

    /// Whether all are up.
    pub fn all_started(&self) -> bool {
        self.0.iter().all(|machine| machine.main.as_ref().is_some_and(|life| life.started))
    }

    /// Whether one is down.
    pub fn is_down(&self, host: usize) -> bool {
        self.0.get(host).is_none_or(|machine| machine.main.is_none())
    }

    /// Whether the host with this name is up.
    pub fn is_up(&self, name: &str) -> bool {
        self.0.iter().any(|machine| &*machine.name == name && machine.main.is_some())
    }

    /// Whether all are down.
    pub fn all_down(&self) -> bool {
        self.0.iter().all(|machine| machine.main.is_none() && machine.twin.is_none())
    }

    /// Lets the time of day on a machine jump.
    pub fn jump(&self, host: usize, by: i64) {
        if let Some(machine) = self.0.get(host) {
            *machine.clocks.offset_millis.lock() += by;
        }
    }
}

/// Starts a process on a machine, if none runs there; or a second one with the same name.
pub fn start(world: &Arc<World>, host: usize, twin: bool) {
    let mut hosts = world.hosts.lock();
    let Some(machine) = hosts.0.get_mut(host) else { return };
    if if twin { machine.twin.is_some() } else { machine.main.is_some() } {
        return;
    }
    machine.born += 1;
    let process = world.exec.process();
    let (stop, stopped) = oneshot::channel();
    let life = Life { process, stop: Some(stop), started: false };
    *(if twin { &mut machine.twin } else { &mut machine.main }) = Some(life);
    let (name, born, clocks) = (Arc::clone(&machine.name), machine.born, Arc::clone(&machine.clocks));
    drop(hosts);
    let label: Arc<str> = format!("{name}#{born}").into();
    world.log(format_args!("{label} starts as process {process}"));
    let rng = Rng::new(world.scenario.seed, &format!("host {label}"));
    let runtime: Arc<dyn Runtime> = Arc::new(SimRuntime::new(&world.exec, process, &clocks, rng));
    let network = Arc::new(Mutex::new(Rng::new(world.scenario.seed, &format!("network {label}"))));
    let process = Process { world: Arc::clone(world), process, host, twin, name, label, runtime, network };
    let id = process.process;
    drop(world.exec.spawn(id, "life", Box::pin(process.live(stopped))));
}

/// Kills the processes of a machine.
pub fn crash(world: &Arc<World>, host: usize) {
    let mut hosts = world.hosts.lock();
    let Some(machine) = hosts.0.get_mut(host) else { return };
    if let Some(life) = machine.main.take() {
        world.log(format_args!("{} crashes", machine.name));
        world.exec.kill(life.process);
    }
}

/// A process dies of what it handles, and is started again.
pub fn die(world: &Arc<World>, host: usize, process: ProcessId) {
    let mut hosts = world.hosts.lock();
    world.exec.kill(process);
    if let Some(machine) = hosts.0.get_mut(host) {
        machine.main.take_if(|life| life.process == process);
        machine.twin.take_if(|life| life.process == process);
    }
    let (world, later) = (Arc::clone(world), world.exec.sleep(RESTART));
    world.clone().exec.detach("restart", async move {
        later.await;
        start(&world, host, false);
    });
}

/// Stops a process in good order; it is down when it says so.
pub fn stop(world: &Arc<World>, host: usize, twin: bool) {
    let mut hosts = world.hosts.lock();
    let Some(machine) = hosts.0.get_mut(host) else { return };
    let life = if twin { &mut machine.twin } else { &mut machine.main };
    if let Some(life) = life
        && let Some(stop) = life.stop.take()
    {
        life.started = false;
        let _ = stop.send(());
    }
}

/// Stalls the processes of a machine, or lets them go on.
pub fn stall(world: &Arc<World>, host: usize, stalled: bool) {
    let mut hosts = world.hosts.lock();
    let Some(machine) = hosts.0.get_mut(host) else { return };
    machine.stalled = world.exec.now();
    world.log(format_args!("{} {}", machine.name, if stalled { "stalls" } else { "goes on" }));
    for life in machine.main.iter().chain(&machine.twin) {
        world.exec.stall(life.process, stalled);
    }
}

/// One process.
struct Process {
    world: Arc<World>,
    process: ProcessId,
    host: usize,
    twin: bool,
    name: Arc<str>,
    label: Arc<str>,
    runtime: Arc<dyn Runtime>,
    /// Decides what becomes of its requests.
    network: Arc<Mutex<Rng>>,
}

impl Process {
    async fn live(self, mut stopped: oneshot::Receiver<()>) {
        let running = tokio::select! {
            biased;
            _ = &mut stopped => None,
            running = self.start() => Some(running),
        };
        if let Some(running) = running {
            self.mark_started();
            drop(stopped.await);
            self.stop(running).await;
        }
        let mut hosts = self.world.hosts.lock();
        if let Some(machine) = hosts.0.get_mut(self.host) {
            machine.main.take_if(|life| life.process == self.process);
            machine.twin.take_if(|life| life.process == self.process);
        }
        self.world.log(format_args!("{} is down", self.label));
    }

    fn mark_started(&self) {
        self.world.truth.lock().started(self.world.scenario.processor.from_beginning);
        self.world.log(format_args!("{} is up", self.label));
        if self.twin {
            self.world.reached(Sometimes::Twin);
        }
        let mut hosts = self.world.hosts.lock();
        if let Some(machine) = hosts.0.get_mut(self.host)
            && let Some(life) = machine.main.as_mut().filter(|life| life.process == self.process)
        {
            life.started = life.stop.is_some();
        }
    }

    /// Starts the processor; a user would try again, so do we.
    async fn start(&self) -> Running {
        loop {
            let processor = self.build().expect("invariant: scenarios have sensible options");
            match Box::pin(processor.start()).await {
                Ok(running) => return running,
                Err(error) => self.world.log(format_args!("{} cannot start: {error:?}", self.label)),
            }
            self.runtime.sleep(Duration::from_secs(1)).await;
        }
    }

    async fn stop(&self, running: Running) {
        let world = &self.world;
        let begun = world.exec.now();
        world.log(format_args!("{} is stopping", self.label));
        if world.deliveries.lock().is_busy(self.process) {
            world.reached(Sometimes::StopDuringCall);
        }
        if world.windows.lock().iter().any(|window| window.store == Store::Leases) {
            world.reached(Sometimes::StopDuringOutage);
        }
        let stopped = Box::pin(running.stop()).await;
        let took = world.exec.now() - begun;
        let limit = world.scenario.processor.stop_deadline * 1060 + 10_000;
        let stalled = world.hosts.lock().0.get(self.host).is_some_and(|machine| machine.stalled >= begun);
        if took > limit && !stalled {
            world.violated("L4", format!("{} took {} ms to stop", self.label, took / 1000));
        }
        if let Err(error) = stopped {
            world.log(format_args!("{} stopped: {error:?}", self.label));
            // A call or a request that began before the quiet phase may still hang.
            let calm = begun > (world.scenario.chaos + LONGEST_REQUEST) * 1000;
            if world.scenario.is_planned_only() || calm {
                world.violated("L4", format!("{} could not stop in good order: {error:?}", self.label));
            }
        }
    }

    fn container(&self, store: Store) -> Container {
        let rng = Arc::clone(&self.network);
        Container::new(Arc::new(SimStore::new(&self.world, self.process, self.host, &self.name, store, rng)))
    }

    fn build(&self) -> Result<Processor> {
        let plan = &self.world.scenario.processor;
        let millis = Duration::from_millis;
        let (monitored, leases) = (self.container(Store::Feed), self.container(Store::Leases));
        let timing = LeaseTiming {
            acquire: millis(plan.acquire),
            renew: millis(plan.renew),
            expiration: millis(plan.expiration),
        };
        let checkpoint = if self.world.scenario.is_manual() { Checkpoint::Manual } else { Checkpoint::Automatic };
        let mut builder = Processor::builder("sim", &monitored, &leases)
            .instance_name(&*self.name)
            .lease_timing(timing)
            .poll_interval(millis(plan.poll))
            .max_items(plan.max_items)
            .checkpoint(checkpoint)
            .retry(Backoff { first: millis(100), longest: millis(2000) })
            .stop_deadline(millis(plan.stop_deadline))
            .runtime(Arc::clone(&self.runtime))
            .on_notification(self.listener());
        if plan.from_beginning {
            builder = builder.start_from(StartFrom::Beginning);
        }
        if let Some(attempts) = plan.dead_letter_after {
            builder = builder.dead_letter(DeadLetter::to(&self.container(Store::Letters)).after_attempts(attempts));
        }
        if let Some(limit) = plan.delegate_timeout {
            builder = builder.delegate_timeout(millis(limit));
        }
        if plan.all_versions { self.finish(builder.all_versions()) } else { self.finish(builder) }
    }

    fn finish<M>(&self, builder: ProcessorBuilder<M>) -> Result<Processor>
    where
        RawChanges: changefeed::Fits<M>,
    {
        let delegate = Delegate {
            world: Arc::clone(&self.world),
            process: self.process,
            host: self.host,
            name: Arc::clone(&self.label),
            runtime: Arc::clone(&self.runtime),
            memory: Arc::new(Mutex::new(BTreeMap::new())),
        };
        builder.build(move |changes: RawChanges, context: Context| delegate.clone().call(changes, context))
    }

    /// Hears what the host tells about itself.
    fn listener(&self) -> impl Fn(&Notification) + Send + Sync + 'static {
        let (world, process, label) = (Arc::clone(&self.world), self.process, Arc::clone(&self.label));
        move |notification| {
            world.log(format_args!("{label} {notification:?}"));
            let broken = match notification {
                Notification::LeaseAcquired(token) => {
                    world.deliveries.lock().acquired(process, token.as_str(), &world.ledger.lock())
                }
                Notification::LeaseReleased(token, release) => {
                    let released = world.deliveries.lock().released(process, token.as_str());
                    released.and_then(|()| check_loss(&world, process, token.as_str(), release))
                }
                Notification::Repaired(_) => {
                    world.reached(Sometimes::Repaired);
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err((check, what)) = broken {
                world.violated(check, what);
            }
        }
    }
}

/// S14: a lease is given up only if the store says so or the own deadline has passed.
fn check_loss(
    world: &World,
    process: ProcessId,
    token: &str,
    release: &Release,
) -> Result<(), crate::checks::ledger::Broken> {
    let Release::Lost(loss) = release else { return Ok(()) };
    let ledger = world.ledger.lock();
    if *loss == Loss::Expired {
        world.reached(Sometimes::SelfFenced);
        let (now, expiration) = (world.exec.now(), world.scenario.processor.expiration * 1000);
        // Of a write that is confirmed in this moment it may hear after it has decided.
        let since = ledger.confirmed_before(process, token, now).map(|begun| now - begun);
        let least = expiration * 7 / 10;
        return match since {
            Some(since) if since < least => {
                Err(("S14", format!("lease {token} was given up {} ms after it was renewed", since / 1000)))
            }
            _ => Ok(()),
        };
    }
    let holder = ledger.by_token(token).and_then(|lease| ledger.holder(lease));
    if holder == Some(process) {
        return Err(("S14", format!("lease {token} was given up as lost ({loss}), but is still its own")));
    }
    Ok(())
}
