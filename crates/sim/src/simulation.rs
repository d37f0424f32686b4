//! The state of one run, shared by hosts, stores, faults and checks.

use std::{collections::BTreeMap, fmt, sync::Arc, task::Waker};

use changefeed_core::{Catalog, Clock, Container, FeedRange, Mode, Timestamp};
use parking_lot::Mutex;

use crate::{
    checks::{
        deliveries::Deliveries, key_range::KeyRange, lease_checker::LeaseChecker, limits::Limits, reports::Reports,
    },
    coverage::{Coverage, Sometimes},
    exec::{Exec, ProcessId},
    hosts::Hosts,
    oracle::Oracle,
    planted::Seam,
    rng::Rng,
    runtime::wall_at,
    scenario::{Scenario, Store, StoreFault},
    trace::Trace,
};

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule, as in `spec/reliability.md` and [`crate::checks`].
    pub check: &'static str,
    /// When, in microseconds.
    pub at: u64,
    /// What happened, in a sentence.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at / 1_000_000, self.at / 1000 % 1000);
        write!(f, "{} at {seconds}.{millis:03} s: {}", self.check, self.what)
    }
}

/// Requests of some hosts to a store that fail for a while.
#[derive(Debug)]
pub struct Window {
    /// Tells it from others.
    pub id: u64,
    /// The store.
    pub store: Store,
    /// The host; none: all.
    pub host: Option<usize>,
    /// How they fail.
    pub kind: StoreFault,
}

/// The stores of a run, without a network in between.
#[derive(Debug)]
pub struct Stores {
    /// The monitored container.
    pub monitored: Container,
    /// The lease container: another one once an operator has created it again.
    pub leases: Mutex<Container>,
    /// The dead-letter container.
    pub letters: Container,
    /// Splits and merges.
    pub catalog: Arc<dyn Catalog>,
}

/// A reader that waits for a change.
#[derive(Debug)]
struct Waiter {
    store: Store,
    range: FeedRange,
    waker: Waker,
}

/// The state of one run.
pub struct Simulation {
    /// Time and tasks.
    pub exec: Exec,
    /// The scenario.
    pub scenario: Scenario,
    /// A bug that the simulation itself plants.
    pub seam: Option<Seam>,
    /// The stores.
    pub stores: Stores,
    /// What was written.
    pub oracle: Mutex<Oracle>,
    /// The leases.
    pub leases: Mutex<LeaseChecker>,
    /// The delegate calls.
    pub deliveries: Mutex<Deliveries>,
    /// What hosts have reported.
    pub reports: Mutex<Reports>,
    /// What hosts hold and spend.
    pub limits: Mutex<Limits>,
    /// The machines.
    pub hosts: Mutex<Hosts>,
    /// Store faults of this moment.
    pub windows: Mutex<Vec<Window>>,
    /// Whether the fault phase lasts.
    pub chaos: Mutex<bool>,
    /// The number of outages of this moment that make every delegate call fail.
    pub delegate_outages: Mutex<u32>,
    /// When .NET hosts started the processor, if they did.
    pub dotnet_started: Mutex<Option<u64>>,
    /// The number of operator commands that are being carried out.
    pub commands: Mutex<u32>,
    waiters: Mutex<(u64, BTreeMap<u64, Waiter>)>,
    trace: Mutex<Trace>,
    coverage: Mutex<Coverage>,
    violation: Mutex<Option<Violation>>,
    streams: Mutex<BTreeMap<String, Rng>>,
    requests: Mutex<BTreeMap<ProcessId, (u64, u32)>>,
    total_requests: Mutex<u64>,
    finished: Mutex<bool>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Simulation(seed {}, {:?})", self.scenario.seed, self.exec)
    }
}

/// A host that sends more requests than this in one simulated second loops without a pause.
const REQUESTS_PER_SECOND: u32 = 3000;

impl Simulation {
    /// A simulation at time 0.
    pub fn new(exec: Exec, scenario: Scenario, seam: Option<Seam>, stores: Stores, keep_trace: bool) -> Self {
        let mode = if scenario.processor.all_versions { Mode::AllVersions } else { Mode::LatestVersion };
        let oracle = Oracle::new(mode, scenario.is_manual());
        let hosts = Hosts::new(&scenario);
        let leases = LeaseChecker::new(scenario.processor.forced_steal);
        Self {
            exec,
            seam,
            stores,
            oracle: Mutex::new(oracle),
            leases: Mutex::new(leases),
            deliveries: Mutex::default(),
            reports: Mutex::default(),
            limits: Mutex::default(),
            hosts: Mutex::new(hosts),
            windows: Mutex::default(),
            chaos: Mutex::new(true),
            delegate_outages: Mutex::default(),
            dotnet_started: Mutex::default(),
            commands: Mutex::default(),
            waiters: Mutex::default(),
            trace: Mutex::new(Trace::new(keep_trace)),
            coverage: Mutex::default(),
            violation: Mutex::default(),
            streams: Mutex::default(),
            requests: Mutex::default(),
            total_requests: Mutex::default(),
            finished: Mutex::default(),
            scenario,
        }
    }

    /// Adds a line to the trace.
    pub fn log(&self, event: fmt::Arguments<'_>) {
        self.trace.lock().event(self.exec.now(), event);
    }

    /// Records that something was met.
    pub fn cover(&self, what: Sometimes) {
        self.coverage.lock().note(what);
    }

    /// Records a broken rule and ends the run.
    pub fn violated(&self, check: &'static str, what: String) {
        if *self.finished.lock() {
            return;
        }
        let violation = Violation { check, at: self.exec.now(), what };
        self.log(format_args!("VIOLATION {violation}"));
        self.violation.lock().get_or_insert(violation);
        self.exec.halt();
    }

    /// The first broken rule, if any.
    pub fn violation(&self) -> Option<Violation> {
        self.violation.lock().clone()
    }

    /// Whether the simulation plants this bug.
    pub fn has(&self, seam: Seam) -> bool {
        self.seam == Some(seam)
    }

    /// A random draw of an actor.
    pub fn draw<T>(&self, actor: &str, draw: impl FnOnce(&mut Rng) -> T) -> T {
        let mut streams = self.streams.lock();
        if let Some(rng) = streams.get_mut(actor) {
            return draw(rng);
        }
        let rng = streams.entry(actor.to_owned()).or_insert_with(|| Rng::new(self.scenario.seed, actor));
        draw(rng)
    }

    /// Counts a request (L6).
    pub fn count_request(&self, process: ProcessId) {
        *self.total_requests.lock() += 1;
        let second = self.exec.now() / 1_000_000;
        let mut requests = self.requests.lock();
        let entry = requests.entry(process).or_default();
        if entry.0 != second {
            *entry = (second, 0);
        }
        entry.1 += 1;
        if entry.1 == REQUESTS_PER_SECOND {
            drop(requests);
            self.violated("L6", format!("process {process} sent {REQUESTS_PER_SECOND} requests in one second"));
        }
    }

    /// The number of requests.
    pub fn requests(&self) -> u64 {
        *self.total_requests.lock()
    }

    /// Registers the physical ranges of the monitored container, as they are now.
    pub async fn register_ranges(&self) {
        let Ok(ranges) = self.stores.monitored.feed_ranges().await else { return };
        let mut leases = self.leases.lock();
        for range in ranges {
            leases.register_range(range.id.as_str(), KeyRange::of(&range.range));
        }
    }

    /// A call of a process has ended, in which so many changes of its batch were handled.
    pub fn call_ended(&self, process: ProcessId, token: &str, handled: usize) {
        let range = self.leases.lock().ownerships.range(process, token).cloned();
        if let Some(range) = range {
            self.limits.lock().call_ended(process, &range, handled);
        }
    }

    /// Registers a reader that waits for a change; returns its number.
    pub fn wait_for_change(&self, store: Store, range: FeedRange, waker: Waker) -> u64 {
        let mut waiters = self.waiters.lock();
        waiters.0 += 1;
        let id = waiters.0;
        waiters.1.insert(id, Waiter { store, range, waker });
        id
    }

    /// Whether the change has come.
    pub fn has_changed(&self, id: u64) -> bool {
        !self.waiters.lock().1.contains_key(&id)
    }

    /// The reader does not wait any more.
    pub fn forget_waiter(&self, id: u64) {
        let waiter = self.waiters.lock().1.remove(&id);
        drop(waiter);
    }

    /// Wakes readers of a store whose range `concerns` accepts.
    pub fn wake(&self, store: Store, concerns: impl Fn(&FeedRange) -> bool) {
        let mut waiters = self.waiters.lock();
        let ids: Vec<u64> = waiters
            .1
            .iter()
            .filter(|(_, waiter)| waiter.store == store && concerns(&waiter.range))
            .map(|(id, _)| *id)
            .collect();
        let woken: Vec<Waiter> = ids.iter().filter_map(|id| waiters.1.remove(id)).collect();
        drop(waiters);
        for waiter in woken {
            waiter.waker.wake();
        }
    }

    /// The trace and coverage, at the end of the run.
    pub fn finish(&self) -> (Trace, Coverage) {
        *self.finished.lock() = true;
        let trace = std::mem::replace(&mut *self.trace.lock(), Trace::new(false));
        (trace, std::mem::take(&mut *self.coverage.lock()))
    }
}

/// The stores' own clock: simulated, and right.
#[derive(Debug)]
pub struct StoreClock(pub Exec);

impl Clock for StoreClock {
    fn wall(&self) -> Timestamp {
        wall_at(self.0.now())
    }
}
