//! The world of one run: what hosts, stores, faults and checks share.

use std::{collections::BTreeMap, fmt, sync::Arc, task::Waker};

use changefeed_core::{Catalog, Clock, Container, FeedRange, Mode, Timestamp};
use parking_lot::Mutex;

use crate::{
    checks::{deliveries::Deliveries, ledger::Ledger},
    exec::{Exec, ProcessId},
    hosts::Hosts,
    reach::{Reach, Sometimes},
    rng::Rng,
    runtime::wall_at,
    scenario::{Scenario, Store, Trouble},
    trace::Trace,
    truth::Truth,
};

/// What went against a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise, as in `spec/reliability.md`.
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
    /// To tell it from others.
    pub id: u64,
    /// Which store.
    pub store: Store,
    /// Which host; none: all.
    pub host: Option<usize>,
    /// How.
    pub kind: Trouble,
}

/// The stores of a run, as the world itself sees them.
#[derive(Debug)]
pub struct Stores {
    /// What is processed.
    pub monitored: Container,
    /// Where the leases are.
    pub leases: Container,
    /// Where dead letters go.
    pub letters: Container,
    /// To split and merge.
    pub catalog: Arc<dyn Catalog>,
}

/// Somebody waits for news.
#[derive(Debug)]
pub struct Waiter {
    store: Store,
    range: FeedRange,
    waker: Waker,
}

/// Everything that a run shares.
pub struct World {
    /// Time and tasks.
    pub exec: Exec,
    /// What is to happen.
    pub scenario: Scenario,
    /// The stores.
    pub stores: Stores,
    /// What was written.
    pub truth: Mutex<Truth>,
    /// What the leases say.
    pub ledger: Mutex<Ledger>,
    /// What delegates got.
    pub deliveries: Mutex<Deliveries>,
    /// The machines.
    pub hosts: Mutex<Hosts>,
    /// What fails at the moment.
    pub windows: Mutex<Vec<Window>>,
    /// Whether things may still go wrong.
    pub chaos: Mutex<bool>,
    waiters: Mutex<(u64, BTreeMap<u64, Waiter>)>,
    trace: Mutex<Trace>,
    reach: Mutex<Reach>,
    violation: Mutex<Option<Violation>>,
    streams: Mutex<BTreeMap<String, Rng>>,
    requests: Mutex<BTreeMap<ProcessId, (u64, u32)>>,
    requests_in_all: Mutex<u64>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World(seed {}, {:?})", self.scenario.seed, self.exec)
    }
}

/// A host that makes more requests than this in one simulated second is in a loop without a pause.
const REQUESTS_PER_SECOND: u32 = 3000;

impl World {
    /// A world before anything has happened.
    pub fn new(exec: Exec, scenario: Scenario, stores: Stores, keep_trace: bool) -> Self {
        let mode = if scenario.processor.all_versions { Mode::AllVersions } else { Mode::LatestVersion };
        let truth = Truth::new(mode, scenario.is_manual());
        let hosts = Hosts::new(&scenario);
        Self {
            exec,
            stores,
            truth: Mutex::new(truth),
            ledger: Mutex::default(),
            deliveries: Mutex::default(),
            hosts: Mutex::new(hosts),
            windows: Mutex::default(),
            chaos: Mutex::new(true),
            waiters: Mutex::default(),
            trace: Mutex::new(Trace::new(keep_trace)),
            reach: Mutex::default(),
            violation: Mutex::default(),
            streams: Mutex::default(),
            requests: Mutex::default(),
            requests_in_all: Mutex::default(),
            scenario,
        }
    }

    /// Adds a line to the trace.
    pub fn log(&self, event: fmt::Arguments<'_>) {
        self.trace.lock().event(self.exec.now(), event);
    }

    /// Notes that something was reached.
    pub fn reached(&self, what: Sometimes) {
        self.reach.lock().note(what);
    }

    /// A promise was broken: the run ends here.
    pub fn violated(&self, check: &'static str, what: String) {
        let violation = Violation { check, at: self.exec.now(), what };
        self.log(format_args!("VIOLATION {violation}"));
        self.violation.lock().get_or_insert(violation);
        self.exec.halt();
    }

    /// What was broken, if anything.
    pub fn violation(&self) -> Option<Violation> {
        self.violation.lock().clone()
    }

    /// A draw of an actor.
    pub fn draw<T>(&self, actor: &str, draw: impl FnOnce(&mut Rng) -> T) -> T {
        let mut streams = self.streams.lock();
        if let Some(rng) = streams.get_mut(actor) {
            return draw(rng);
        }
        let rng = streams.entry(actor.to_owned()).or_insert_with(|| Rng::new(self.scenario.seed, actor));
        draw(rng)
    }

    /// Counts a request: nobody may ask without pause.
    pub fn count_request(&self, process: ProcessId) {
        *self.requests_in_all.lock() += 1;
        let second = self.exec.now() / 1_000_000;
        let mut requests = self.requests.lock();
        let entry = requests.entry(process).or_default();
        if entry.0 != second {
            *entry = (second, 0);
        }
        entry.1 += 1;
        if entry.1 == REQUESTS_PER_SECOND {
            drop(requests);
            self.violated("L6", format!("process {process} made {REQUESTS_PER_SECOND} requests in one second"));
        }
    }

    /// How many requests were made.
    pub fn requests(&self) -> u64 {
        *self.requests_in_all.lock()
    }

    /// Registers somebody who waits for news; returns the number to ask for.
    pub fn wait_for_news(&self, store: Store, range: FeedRange, waker: Waker) -> u64 {
        let mut waiters = self.waiters.lock();
        waiters.0 += 1;
        let id = waiters.0;
        waiters.1.insert(id, Waiter { store, range, waker });
        id
    }

    /// Whether the news have come.
    pub fn news_came(&self, id: u64) -> bool {
        !self.waiters.lock().1.contains_key(&id)
    }

    /// Nobody waits any more.
    pub fn forget_waiter(&self, id: u64) {
        let waiter = self.waiters.lock().1.remove(&id);
        drop(waiter);
    }

    /// Wakes those who wait for news of a store, in the ranges that `concerns` names.
    pub fn news(&self, store: Store, concerns: impl Fn(&FeedRange) -> bool) {
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

    /// What is left of the world when the run is over.
    pub fn finish(&self) -> (Trace, Reach) {
        let trace = std::mem::replace(&mut *self.trace.lock(), Trace::new(false));
        (trace, std::mem::take(&mut *self.reach.lock()))
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
