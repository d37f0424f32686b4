//! A fleet of processor hosts on one lease store: how long it takes to balance, and what that costs the store.
//!
//! The hosts are those that ship, on the simulated executor and clock; the lease store is the embedded one in memory,
//! behind a network with latency. Nothing fails: the figures are those of a healthy fleet.

mod feed;
mod lease_store;
mod leases;
mod report;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use changefeed::{Context, DelegateError, LeaseTiming, Notification, Processor, RawChanges, Running, runtime::Runtime};
use changefeed_core::{Container, Result, StoreId};
use changefeed_embedded::Engine;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::{
    feed::FleetFeed,
    lease_store::{LeaseConnection, Owners},
    leases::FleetLeases,
};
pub use self::{
    lease_store::{Requests, Way},
    report::{IdleMinute, Report, Step},
};
use crate::{
    exec::{Exec, Halt, Order},
    rng::Rng,
    runtime::{Clocks, SimRuntime},
    simulation::StoreClock,
};

const SEED: u64 = 1;

/// The intervals of hosts on a remote store.
const TIMING: LeaseTiming = LeaseTiming::REMOTE;

/// Between two looks at whether the leases are balanced.
const LOOK: Duration = Duration::from_millis(100);

/// A fleet that is not balanced after this many looks never will be.
const MOST_LOOKS: u32 = 20 * 60 * 10;

/// Between two changes in the monitored container.
const BETWEEN_CHANGES: Duration = Duration::from_millis(10);

/// After the start, before a minute is counted as idle: everything that the start caused is over.
const SETTLING: Duration = Duration::from_secs(180);

/// For how many renewals of each lease idle hosts are watched. Leases are renewed in step after the start, so that any
/// other time would have one more or one less of all of them.
const IDLE_RENEWALS: u32 = 10;

const MINUTE: Duration = Duration::from_secs(60);

/// Within this time hosts start one after another in the step `staggered`, as processes of a deployment do.
const STAGGER: Duration = Duration::from_secs(3);

/// Runs a fleet through all steps. `progress` is called after each step, with what is known so far: a large fleet takes
/// minutes.
///
/// # Errors
/// A sentence, if the leases were not balanced in time, a change was lost or a task failed.
pub fn run(hosts: usize, leases: usize, progress: fn(&Report)) -> Result<Report, String> {
    simulate(leases, Way::REGION, move |fleet| fleet.steps(hosts, progress))
}

/// Starts a fleet on free leases, each host at a random moment `within` this time, and waits for the balance.
///
/// # Errors
/// A sentence, if the leases were not balanced in time or a task failed.
pub fn start(hosts: usize, leases: usize, within: Duration, way: Way) -> Result<Step, String> {
    simulate(leases, way, move |mut fleet| async move {
        fleet.create_leases().await?;
        let step = fleet.start_within("start", hosts, within).await?;
        fleet.stop(hosts).await?;
        Ok(step)
    })
}

fn simulate<T, F>(leases: usize, way: Way, run: impl FnOnce(Fleet) -> F + Send + 'static) -> Result<T, String>
where
    T: Send + 'static,
    F: Future<Output = Result<T, String>> + Send,
{
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().map_err(|error| format!("start a runtime: {error}"))?;
    runtime.block_on(async {
        let exec = Exec::new(SEED, Order::Fifo);
        let fleet = Fleet::new(&exec, leases, way).await.map_err(|error| format!("create the stores: {error}"))?;
        let (done, report) = oneshot::channel();
        let halt = exec
            .run(async move {
                drop(done.send(run(fleet).await));
            })
            .await;
        let report = report.await;
        exec.shut_down().await;
        match (halt, report) {
            (Halt::Done, Ok(report)) => report,
            (halt, _) => Err(format!("the simulation ended early: {halt:?}")),
        }
    })
}

struct Fleet {
    exec: Exec,
    feed: Arc<FleetFeed>,
    leases: Arc<FleetLeases>,
    way: Way,
    count: usize,
    hosts: Vec<HostHandle>,
    /// The number of the next host.
    next: usize,
    /// Requests of hosts that have stopped.
    stopped: Requests,
    owners: Owners,
    deliveries: Arc<Mutex<Deliveries>>,
    /// Whether changes are written.
    writing: Arc<AtomicBool>,
}

/// A running host.
struct HostHandle {
    connection: Arc<LeaseConnection>,
    owned: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<Result<()>>,
}

#[derive(Debug, Default)]
struct Deliveries {
    delivered: BTreeSet<u64>,
    duplicates: u64,
}

impl Fleet {
    async fn new(exec: &Exec, count: usize, way: Way) -> Result<Self> {
        let engine =
            Engine::builder().clock(Arc::new(StoreClock(exec.clone()))).store_id(StoreId::from_bits(0)).in_memory()?;
        let database = engine.database("fleet");
        let monitored = database.container("monitored").partition_key("/pk").create().await?;
        Ok(Self {
            exec: exec.clone(),
            feed: Arc::new(FleetFeed::new(monitored.identity().clone(), count)?),
            leases: FleetLeases::new(&database.container("leases").create().await?),
            way,
            count,
            hosts: Vec::new(),
            next: 0,
            stopped: Requests::default(),
            owners: Owners::default(),
            deliveries: Arc::default(),
            writing: Arc::new(AtomicBool::new(true)),
        })
    }

    async fn steps(mut self, hosts: usize, progress: fn(&Report)) -> Result<Report, String> {
        let mut report = Report { hosts, leases: self.count, steps: Vec::new(), idle: None };
        self.create_leases().await?;
        self.write_changes();
        report.steps.push(self.step("start", |fleet| fleet.start(hosts)).await?);
        progress(&report);
        self.writing.store(false, Ordering::Relaxed);
        self.exec.sleep(SETTLING).await;
        report.idle = Some(self.idle_minute().await);
        progress(&report);
        self.writing.store(true, Ordering::Relaxed);
        report.steps.push(self.step("+1", |fleet| fleet.start(1)).await?);
        progress(&report);
        report.steps.push(self.step("x2", |fleet| fleet.start(hosts.saturating_sub(1))).await?);
        progress(&report);
        report.steps.push(self.halve(hosts).await?);
        progress(&report);
        let left = self.hosts.len();
        self.stop(left).await?;
        report.steps.push(self.start_within("staggered", hosts, STAGGER).await?);
        self.writing.store(false, Ordering::Relaxed);
        self.exec.sleep(MINUTE).await;
        let (written, delivered) = (self.feed.written(), self.deliveries.lock().delivered.len());
        if delivered as u64 != written {
            return Err(format!("{written} changes were written, {delivered} were delivered"));
        }
        let left = self.hosts.len();
        self.stop(left).await?;
        Ok(report)
    }

    /// Has a host create the leases; it stops at once, so that a start shows acquisition alone.
    async fn create_leases(&mut self) -> Result<(), String> {
        self.start(1);
        self.balanced("creation of the leases").await?;
        self.stop(1).await
    }

    /// Starts hosts one after another at random moments, and waits for the balance.
    async fn start_within(&mut self, name: &'static str, hosts: usize, within: Duration) -> Result<Step, String> {
        let before = self.before();
        let mut rng = Rng::new(SEED, name);
        let most = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        let mut moments: Vec<u64> = (0..hosts).map(|_| rng.between(0, most)).collect();
        moments.sort_unstable();
        for moment in moments {
            let passed = self.exec.now() - before.0;
            self.exec.sleep(Duration::from_micros(moment.saturating_sub(passed))).await;
            self.start(1);
        }
        self.balanced(name).await?;
        Ok(self.since(name, &before))
    }

    /// Changes the number of hosts and waits for the balance.
    async fn step(&mut self, name: &'static str, change: impl FnOnce(&mut Self)) -> Result<Step, String> {
        let before = self.before();
        change(self);
        self.balanced(name).await?;
        Ok(self.since(name, &before))
    }

    /// Stops half of the hosts, all at once.
    async fn halve(&mut self, half: usize) -> Result<Step, String> {
        let before = self.before();
        self.stop(half).await?;
        self.balanced("/2").await?;
        Ok(self.since("/2", &before))
    }

    fn before(&self) -> (u64, Requests, u64) {
        (self.exec.now(), self.requests(), self.deliveries.lock().duplicates)
    }

    fn since(&self, name: &'static str, (began, before, duplicates): &(u64, Requests, u64)) -> Step {
        let seconds = (self.exec.now() - began) as f64 / 1e6;
        let requests = self.requests() - *before;
        Step {
            name,
            hosts: self.hosts.len(),
            seconds,
            cycles: seconds / TIMING.acquire.as_secs_f64(),
            requests,
            ownership_writes_per_lease: requests.ownership_writes as f64 / self.count as f64,
            duplicates: self.deliveries.lock().duplicates - duplicates,
        }
    }

    /// The requests of all hosts so far.
    fn requests(&self) -> Requests {
        let mut sum = self.stopped;
        self.hosts.iter().for_each(|host| sum += host.connection.requests());
        sum
    }

    /// Starts hosts, all at the same moment.
    fn start(&mut self, count: usize) {
        for _ in 0..count {
            let host = self.start_one();
            self.hosts.push(host);
        }
    }

    fn start_one(&mut self) -> HostHandle {
        let name = format!("host-{:05}", self.next);
        self.next += 1;
        let process = self.exec.process();
        let clocks = Arc::new(Clocks { drift_ppm: 0, offset_millis: Mutex::new(0), suspended: Mutex::new(0) });
        let rng = |actor: &str| Rng::new(SEED, &format!("{actor} {name}"));
        let runtime = Arc::new(SimRuntime::new(&self.exec, process, &clocks, rng("host"), None));
        let connection = LeaseConnection::new(&self.leases, &self.exec, self.way, rng("network"), &self.owners);
        let owned = Arc::new(AtomicUsize::new(0));
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let processor = self.processor(&name, &runtime, &connection, &owned);
        let main = async move {
            let run = async {
                let running: Running = Box::pin(processor?.start()).await?;
                let _ = stopped.await;
                Box::pin(running.stop()).await
            };
            drop(end.send(run.await));
        };
        drop(self.exec.spawn(process, "main", Box::pin(main)));
        HostHandle { connection, owned, stop, ended }
    }

    fn processor(
        &self,
        name: &str,
        runtime: &Arc<SimRuntime>,
        connection: &Arc<LeaseConnection>,
        owned: &Arc<AtomicUsize>,
    ) -> Result<Processor> {
        let leases = Container::new(Arc::clone(connection) as Arc<dyn changefeed_core::Backend>);
        let (owned, deliveries) = (Arc::clone(owned), Arc::clone(&self.deliveries));
        Processor::builder("fleet", &feed::container(&self.feed), &leases)
            .instance_name(name)
            .lease_timing(TIMING)
            .runtime(Arc::clone(runtime) as Arc<dyn Runtime>)
            .on_notification(move |notification| {
                match notification {
                    Notification::LeaseAcquired(_) => owned.fetch_add(1, Ordering::Relaxed),
                    Notification::LeaseReleased(..) => owned.fetch_sub(1, Ordering::Relaxed),
                    _ => 0,
                };
            })
            .build(move |changes: RawChanges, _: Context| {
                deliveries.lock().add(&changes);
                async { Ok::<(), DelegateError>(()) }
            })
    }

    /// Stops the oldest hosts, all at the same moment.
    async fn stop(&mut self, count: usize) -> Result<(), String> {
        let stopping: Vec<HostHandle> = self.hosts.drain(..count.min(self.hosts.len())).collect();
        let (ends, connections): (Vec<_>, Vec<_>) = stopping
            .into_iter()
            .map(|host| {
                let _ = host.stop.send(());
                (host.ended, host.connection)
            })
            .unzip();
        for ended in ends {
            match ended.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(format!("a host did not stop: {error:?}")),
                Err(_) => return Err("a host ended early".to_owned()),
            }
        }
        connections.iter().for_each(|connection| self.stopped += connection.requests());
        Ok(())
    }

    /// Waits until the hosts own all leases, none more than one more than another.
    async fn balanced(&self, what: &str) -> Result<(), String> {
        for _ in 0..MOST_LOOKS {
            let owned: Vec<usize> = self.hosts.iter().map(|host| host.owned.load(Ordering::Relaxed)).collect();
            let (least, most) = (owned.iter().min().copied(), owned.iter().max().copied());
            if owned.iter().sum::<usize>() == self.count && most <= least.map(|least| least + 1) {
                return Ok(());
            }
            self.exec.sleep(LOOK).await;
        }
        Err(format!("{what}: the leases were not balanced within {} s", MOST_LOOKS * LOOK.subsec_millis() / 1000))
    }

    /// Counts the requests of some minutes, per minute.
    async fn idle_minute(&self) -> IdleMinute {
        let before: Vec<Requests> = self.hosts.iter().map(|host| host.connection.requests()).collect();
        let watched = TIMING.renew * IDLE_RENEWALS;
        self.exec.sleep(watched).await;
        let spent: Vec<Requests> =
            self.hosts.iter().zip(before).map(|(host, before)| host.connection.requests() - before).collect();
        let per_minute = |count: u64| count as f64 * MINUTE.as_secs_f64() / watched.as_secs_f64();
        let reads = |requests: &Requests| requests.listings + requests.feed_reads;
        let sum = |count: &dyn Fn(&Requests) -> u64| per_minute(spent.iter().map(count).sum());
        let hosts = self.hosts.len() as f64;
        IdleMinute {
            writes_per_lease: sum(&|requests| requests.writes) / self.count as f64,
            writes_allowed: MINUTE.as_secs_f64() / TIMING.renew.as_secs_f64(),
            most_reads: per_minute(spent.iter().map(reads).max().unwrap_or(0)),
            reads_allowed: MINUTE.as_secs_f64() / TIMING.acquire.as_secs_f64(),
            mean_reads: sum(&reads) / hosts,
            mean_documents: sum(&|requests| requests.documents) / hosts,
        }
    }

    /// Writes changes to random ranges whenever `writing` says so.
    fn write_changes(&self) {
        let (exec, feed, ranges) = (self.exec.clone(), Arc::clone(&self.feed), self.count as u64);
        let writing = Arc::clone(&self.writing);
        let mut rng = Rng::new(SEED, "writer");
        self.exec.detach("writer", async move {
            loop {
                if writing.load(Ordering::Relaxed) {
                    feed.write_change(usize::try_from(rng.below(ranges)).unwrap_or_default());
                }
                exec.sleep(BETWEEN_CHANGES).await;
            }
        });
    }
}

impl Deliveries {
    fn add(&mut self, changes: &RawChanges) {
        for change in changes {
            if !self.delivered.insert(change.lsn.get()) {
                self.duplicates += 1;
            }
        }
    }
}
