//! Stores as a host sees them: over a network that delays, loses and refuses requests.
//!
//! The server's half of a write runs outside the host's process. So a request of a host that crashed, stalled or timed
//! out can still be committed later, and a response can be lost after the commit.

use std::{
    fmt,
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind, FeedRange,
    Item, ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, Write, WriteResult,
    async_trait,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    checks::{
        key_range::KeyRange,
        lease_document::{LeaseDocument, position},
        limits::{OTHER_UNITS, read_units},
        reports,
        takeover::ProcessKind,
    },
    commit,
    coverage::Sometimes,
    exec::ProcessId,
    rng::Rng,
    scenario::{Store, StoreFault, WakePlan},
    seams,
    simulation::Simulation,
};

/// A store over the network, for one process.
pub struct SimStore {
    sim: Arc<Simulation>,
    process: ProcessId,
    host: usize,
    name: Arc<str>,
    store: Store,
    rng: Arc<Mutex<Rng>>,
    inner: Arc<dyn Backend>,
}

impl SimStore {
    /// The connection of a process to a store; `rng` decides the outcome of its requests.
    pub fn new(
        sim: &Arc<Simulation>,
        process: ProcessId,
        host: usize,
        name: &Arc<str>,
        store: Store,
        rng: Arc<Mutex<Rng>>,
    ) -> Self {
        let stores = &sim.stores;
        let container = match store {
            Store::Feed => stores.monitored.clone(),
            Store::Leases => stores.leases.lock().clone(),
            Store::Letters => stores.letters.clone(),
        };
        let inner = Arc::clone(container.backend());
        Self { sim: Arc::clone(sim), process, host, name: Arc::clone(name), store, rng, inner }
    }

    /// Decides the delays and the outcome of a request.
    fn route(&self, deletes: bool) -> Route {
        self.sim.count_request(self.process);
        let network = &self.sim.scenario.network;
        let chaos = *self.sim.chaos.lock();
        let fault = self.store_fault(deletes);
        let rng = &mut *self.rng.lock();
        let way = |rng: &mut Rng| rng.between(network.fastest_micros, network.slowest_micros);
        let mut route = Route { there: way(rng), back: way(rng), outcome: Outcome::Answered };
        if chaos && rng.chance(network.tail_per_mille) {
            let late = rng.below(network.tail * 1000);
            if rng.chance(500) { route.there += late } else { route.back += late }
        }
        let lost_request = rng.chance(network.lost_request_per_mille);
        let lost_response = rng.chance(network.lost_response_per_mille);
        let throttled = rng.chance(network.throttled_per_mille);
        if chaos && throttled {
            route.outcome = Outcome::Refused(ErrorKind::Throttled);
        } else if chaos && lost_request {
            route.outcome = Outcome::RequestLost;
        } else if chaos && lost_response {
            route.outcome = Outcome::ResponseLost;
        }
        match fault {
            None => {}
            Some(StoreFault::Unavailable) => route.outcome = Outcome::Refused(ErrorKind::Unavailable),
            Some(StoreFault::Throttled) => route.outcome = Outcome::Refused(ErrorKind::Throttled),
            Some(StoreFault::NoDeletes) => route.outcome = Outcome::Refused(ErrorKind::Forbidden),
            Some(StoreFault::NoAnswers) => route.outcome = Outcome::ResponseLost,
            Some(StoreFault::NoRequests) => route.outcome = Outcome::RequestLost,
            Some(StoreFault::Slow(millis)) => route.there += rng.below(millis * 1000),
            Some(StoreFault::HungReads | StoreFault::SlowReads(_)) => {}
            Some(StoreFault::Hang) => {
                route.outcome = if rng.chance(500) { Outcome::Hung } else { Outcome::DoneAndHung }
            }
        }
        route
    }

    fn store_fault(&self, deletes: bool) -> Option<StoreFault> {
        let windows = self.sim.windows.lock();
        let mut concerns = windows.iter().filter(|window| {
            window.store == self.store
                && window.host.is_none_or(|host| host == self.host)
                && (deletes || window.kind != StoreFault::NoDeletes)
        });
        concerns.next_back().map(|window| window.kind)
    }

    fn refuse(&self, kind: ErrorKind) -> Error {
        self.sim.cover(match kind {
            ErrorKind::Throttled => Sometimes::Throttled,
            ErrorKind::Forbidden => Sometimes::DeleteForbidden,
            _ => Sometimes::Unavailable,
        });
        if self.store == Store::Letters {
            self.sim.cover(Sometimes::DeadLetterDown);
        }
        self.sim.log(format_args!("{} {:?} refused: {kind}", self.name, self.store));
        Error::new(kind, format!("simulated: {:?} says {kind}", self.store))
    }

    fn timed_out(&self) -> Error {
        self.sim.log(format_args!("{} {:?} timed out", self.name, self.store));
        Error::new(ErrorKind::Timeout, format!("simulated: {:?} did not answer", self.store))
    }

    async fn pass(&self, micros: u64) {
        if micros > 0 {
            self.sim.exec.sleep(Duration::from_micros(micros)).await;
        }
    }

    fn timeout(&self) -> u64 {
        self.sim.scenario.network.timeout * 1000
    }

    /// A request that only reads.
    async fn read<T>(&self, run: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let route = self.route(false);
        match route.outcome {
            Outcome::Refused(kind) => {
                self.pass(route.there + route.back).await;
                return Err(self.refuse(kind));
            }
            Outcome::RequestLost | Outcome::ResponseLost => {
                self.pass(self.timeout()).await;
                return Err(self.timed_out());
            }
            Outcome::Hung | Outcome::DoneAndHung => return self.hang().await,
            Outcome::Answered => {}
        }
        if route.there + route.back > self.timeout() {
            self.pass(self.timeout()).await;
            return Err(self.timed_out());
        }
        self.pass(route.there).await;
        let answer = run.await;
        self.pass(route.back).await;
        answer
    }

    /// Charges a request, if the user limits request units.
    fn charged<T>(&self, response: Result<Response<T>>, units: impl FnOnce(&T) -> f64) -> Result<Response<T>> {
        let Ok(mut response) = response else { return response };
        if self.sim.scenario.processor.max_request_units_per_second.is_some() {
            response.request_charge = units(&response.value);
            self.sim.limits.lock().charge(self.process, response.request_charge);
        }
        Ok(response)
    }

    /// S19: the host may read the feed.
    fn check_units(&self) {
        let Some(limit) = self.sim.scenario.processor.max_request_units_per_second else { return };
        if self.sim.leases.lock().kind(self.process) != ProcessKind::Host {
            return;
        }
        let allowed = self.sim.limits.lock().read(self.process, self.sim.exec.now(), limit);
        if let Err((check, what)) = allowed {
            self.sim.violated(check, what);
        }
    }

    /// S19: the host holds what it may.
    fn check_memory(&self, range: &FeedRange, page: &mut ChangePage) {
        let Some(limit) = self.sim.scenario.processor.max_bytes_in_flight else { return };
        if self.sim.leases.lock().kind(self.process) != ProcessKind::Host {
            return;
        }
        let held = self.sim.limits.lock().page(self.process, KeyRange::of(range), page, limit);
        if let Err((check, what)) = held {
            self.sim.violated(check, what);
        }
    }

    /// The process has read leases, or failed to.
    fn observed(&self, succeeded: bool) {
        if self.store == Store::Leases {
            self.sim.leases.lock().observations.read(self.process, self.sim.exec.now(), succeeded);
        }
    }

    async fn slow_read(&self, millis: u64) {
        if millis > 0 {
            self.sim.cover(Sometimes::SlowRead);
            self.pass(millis * 1000).await;
        }
    }

    /// Panics now and then, as a store with a bug does.
    fn maybe_panic(&self) {
        let panics = self.sim.scenario.network.panics;
        if panics == 0 || !*self.sim.chaos.lock() || !self.sim.hosts.lock().is_started(self.host, self.process) {
            return;
        }
        if self.rng.lock().below(100_000) < panics {
            self.sim.cover(Sometimes::StorePanicked);
            self.sim.log(format_args!("{} {:?} panics", self.name, self.store));
            reports::store_panics(&self.sim, self.process, self.host);
            panic!("injected: the store panics");
        }
    }

    async fn hang<T>(&self) -> T {
        self.sim.cover(Sometimes::Hung);
        self.sim.log(format_args!("{} {:?} hangs", self.name, self.store));
        std::future::pending().await
    }

    /// A request that writes: the server performs it even if the caller is gone.
    async fn send(&self, batch: Batch, lease: Option<Arc<LeaseDocument>>) -> Result<Response<Vec<WriteResult>>> {
        let deletes = batch.writes.iter().any(|write| matches!(write, Write::Delete { .. }));
        let route = self.route(deletes);
        let unknown = |store: &Self| store.timed_out().with_unknown_effect();
        match route.outcome {
            Outcome::Refused(kind) => {
                self.pass(route.there + route.back).await;
                return Err(self.refuse(kind));
            }
            Outcome::RequestLost => {
                self.pass(self.timeout()).await;
                self.sim.cover(Sometimes::LostRequest);
                return Err(unknown(self));
            }
            Outcome::Hung => return self.hang().await,
            Outcome::ResponseLost | Outcome::DoneAndHung | Outcome::Answered => {}
        }
        let server = commit::Server {
            sim: Arc::clone(&self.sim),
            process: self.process,
            name: Arc::clone(&self.name),
            sent: self.sim.exec.now(),
            store: self.store,
            inner: Arc::clone(&self.inner),
        };
        if route.there + route.back == 0 && route.outcome == Outcome::Answered {
            return server.commit(batch, lease).await;
        }
        let (reply, mut answer) = oneshot::channel();
        let exec = self.sim.exec.clone();
        let (there, back) = (Duration::from_micros(route.there), Duration::from_micros(route.back));
        self.sim.exec.detach("server", async move {
            exec.sleep(there).await;
            let written = server.commit(batch, lease).await;
            exec.sleep(back).await;
            drop(reply.send(written));
        });
        match route.outcome {
            Outcome::DoneAndHung => return self.hang().await,
            Outcome::ResponseLost => {
                self.pass(self.timeout()).await;
                self.sim.cover(Sometimes::LostResponse);
                return Err(unknown(self));
            }
            _ => {}
        }
        let limit = self.sim.exec.sleep(Duration::from_micros(self.timeout()));
        tokio::select! {
            biased;
            written = &mut answer => written.unwrap_or_else(|_| Err(unknown(self))),
            () = limit => Err(unknown(self)),
        }
    }

    /// An item as the host reads it.
    fn as_read(&self, mut item: Item) -> Item {
        if self.store == Store::Leases {
            seams::on_read(&self.sim, self.host, &mut item.body);
        }
        item
    }

    /// Returns when there may be a change.
    async fn wait_for_change(&self, range: &FeedRange, after: u64) {
        let known = match self.store {
            Store::Feed => self.sim.oracle.lock().has_news(&KeyRange::of(range), after),
            _ => self.sim.leases.lock().newest > after,
        };
        if known {
            return;
        }
        let mut waiting = Waiting { sim: &self.sim, id: None };
        poll_fn(|context| {
            if waiting.id.is_some_and(|id| self.sim.has_changed(id)) {
                return Poll::Ready(());
            }
            if waiting.id.is_none() {
                waiting.id = Some(self.sim.wait_for_change(self.store, range.clone(), context.waker().clone()));
            }
            Poll::Pending
        })
        .await;
    }
}

struct Waiting<'a> {
    sim: &'a Simulation,
    id: Option<u64>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.sim.forget_waiter(id);
        }
    }
}

/// The delays and the outcome of a request.
#[derive(Clone, Copy, Debug)]
struct Route {
    there: u64,
    back: u64,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Answered,
    Refused(ErrorKind),
    RequestLost,
    ResponseLost,
    Hung,
    DoneAndHung,
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStore({:?} of {})", self.store, self.name)
    }
}

#[async_trait]
impl Backend for SimStore {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.read(self.inner.feed_ranges()).await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.maybe_panic();
        if self.store == Store::Feed && request.max_items > 1 {
            self.check_units();
        }
        if self.store != Store::Feed || request.max_items == 1 {
            let observes = request.max_items > 1;
            let page = self.charged(self.read(self.inner.read_changes(request)).await, |_| OTHER_UNITS);
            if observes {
                self.observed(page.is_ok());
            }
            let mut page = page?;
            if self.store == Store::Leases {
                let bodies = page.changes.iter_mut().filter_map(|change| change.current.as_mut());
                bodies.for_each(|body| seams::on_read(&self.sim, self.host, body));
            }
            return Ok(page);
        }
        let (keys, range) = (request.range.clone(), request.range.to_string());
        match self.store_fault(false) {
            Some(StoreFault::HungReads) => {
                self.sim.cover(Sometimes::HungRead);
                reports::read_hangs(&self.sim, self.process, self.host, range);
                return self.hang().await;
            }
            Some(StoreFault::SlowReads(millis)) => self.slow_read(millis).await,
            _ => self.slow_read(self.sim.scenario.network.slow_reads).await,
        }
        let page = self.charged(self.read(self.inner.read_changes(request)).await, read_units);
        self.sim.reports.lock().read_returned(self.process, &range);
        let mut page = page?;
        self.check_memory(&keys, &mut page);
        Ok(page)
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        let WakePlan::After(millis) = self.sim.scenario.network.wakes else {
            return std::future::pending().await;
        };
        let Some(after) = position(Some(continuation.token())) else { return };
        self.wait_for_change(range, after).await;
        self.pass(millis * 1000).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        let item = self.charged(self.read(self.inner.read_item(key)).await, |_| OTHER_UNITS)?;
        Ok(item.map(|item| self.as_read(item)))
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.maybe_panic();
        let begun = self.sim.exec.now();
        let batch = if self.store == Store::Leases { seams::on_write(&self.sim, batch) } else { batch };
        let lease = commit::lease_in(self.store, &batch);
        let written = self.charged(self.send(batch, lease.clone()).await, |_| OTHER_UNITS);
        if written.is_ok()
            && let Some(lease) = lease
        {
            let answered = self.sim.exec.now();
            self.sim.leases.lock().confirm(self.process, &lease, begun, answered);
        }
        written
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.maybe_panic();
        let page = self.charged(self.read(self.inner.list_items(request)).await, |_| OTHER_UNITS);
        self.observed(page.is_ok());
        let mut page = page?;
        page.items = std::mem::take(&mut page.items).into_iter().map(|item| self.as_read(item)).collect();
        Ok(page)
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.charged(self.read(self.inner.time_to_live()).await, |_| OTHER_UNITS)
    }

    /// Only the lease container is deleted and created again.
    async fn reopen(&self) -> Result<Container> {
        let opened = self.read(self.inner.reopen()).await?;
        let (sim, name, rng) = (Arc::clone(&self.sim), Arc::clone(&self.name), Arc::clone(&self.rng));
        let Self { process, host, store, .. } = *self;
        Ok(Container::new(Arc::new(Self { sim, process, host, name, store, rng, inner: Arc::clone(opened.backend()) })))
    }
}
