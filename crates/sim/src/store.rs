//! Stores as a host sees them: over a network that delays, loses and refuses.
//!
//! The server's half of a write runs outside the host's process. So a request of a host that died, stalled or gave up
//! waiting can still be committed later, and an answer can be lost after the commit.

use std::{
    fmt,
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use changefeed::lease::document::LeaseDocument;
use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, ContainerIdentity, Continuation, Error, ErrorKind, FeedRange, Item,
    ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, Write, WriteResult, async_trait,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    checks::ledger::position,
    commit,
    exec::ProcessId,
    reach::Sometimes,
    rng::Rng,
    scenario::{Store, Trouble, WakePlan},
    world::World,
};

/// A store over the network, for one process.
pub struct SimStore {
    world: Arc<World>,
    process: ProcessId,
    host: usize,
    name: Arc<str>,
    store: Store,
    rng: Arc<Mutex<Rng>>,
    inner: Arc<dyn Backend>,
}

impl SimStore {
    /// The way of a process to a store; what `rng` draws becomes of its requests.
    pub fn new(
        world: &Arc<World>,
        process: ProcessId,
        host: usize,
        name: &Arc<str>,
        store: Store,
        rng: Arc<Mutex<Rng>>,
    ) -> Self {
        let stores = &world.stores;
        let container = match store {
            Store::Feed => &stores.monitored,
            Store::Leases => &stores.leases,
            Store::Letters => &stores.letters,
        };
        let inner = Arc::clone(container.backend());
        Self { world: Arc::clone(world), process, host, name: Arc::clone(name), store, rng, inner }
    }

    /// Decides what becomes of a request.
    fn journey(&self, deletes: bool) -> Journey {
        self.world.count_request(self.process);
        let network = &self.world.scenario.network;
        let chaos = *self.world.chaos.lock();
        let trouble = self.trouble(deletes);
        let rng = &mut *self.rng.lock();
        let way = |rng: &mut Rng| rng.between(network.fastest_micros, network.slowest_micros);
        let mut journey = Journey { there: way(rng), back: way(rng), fate: Fate::Answered };
        if chaos && rng.chance(network.tail_per_mille) {
            let late = rng.below(network.tail * 1000);
            if rng.chance(500) { journey.there += late } else { journey.back += late }
        }
        let lost_request = rng.chance(network.lost_request_per_mille);
        let lost_response = rng.chance(network.lost_response_per_mille);
        let throttled = rng.chance(network.throttled_per_mille);
        if chaos && throttled {
            journey.fate = Fate::Refused(ErrorKind::Throttled);
        } else if chaos && lost_request {
            journey.fate = Fate::RequestLost;
        } else if chaos && lost_response {
            journey.fate = Fate::ResponseLost;
        }
        match trouble {
            None => {}
            Some(Trouble::Unavailable) => journey.fate = Fate::Refused(ErrorKind::Unavailable),
            Some(Trouble::Throttled) => journey.fate = Fate::Refused(ErrorKind::Throttled),
            Some(Trouble::NoDeletes) => journey.fate = Fate::Refused(ErrorKind::Forbidden),
            Some(Trouble::NoAnswers) => journey.fate = Fate::ResponseLost,
            Some(Trouble::NoRequests) => journey.fate = Fate::RequestLost,
            Some(Trouble::Slow(millis)) => journey.there += rng.below(millis * 1000),
            Some(Trouble::Hang) => journey.fate = if rng.chance(500) { Fate::Hung } else { Fate::DoneAndHung },
        }
        journey
    }

    fn trouble(&self, deletes: bool) -> Option<Trouble> {
        let windows = self.world.windows.lock();
        let mut concerns = windows.iter().filter(|window| {
            window.store == self.store
                && window.host.is_none_or(|host| host == self.host)
                && (deletes || window.kind != Trouble::NoDeletes)
        });
        concerns.next_back().map(|window| window.kind)
    }

    fn refuse(&self, kind: ErrorKind) -> Error {
        self.world.reached(match kind {
            ErrorKind::Throttled => Sometimes::Throttled,
            ErrorKind::Forbidden => Sometimes::DeleteForbidden,
            _ => Sometimes::Unavailable,
        });
        if self.store == Store::Letters {
            self.world.reached(Sometimes::DeadLetterDown);
        }
        self.world.log(format_args!("{} {:?} refused: {kind}", self.name, self.store));
        Error::new(kind, format!("simulated: {:?} says {kind}", self.store))
    }

    fn timed_out(&self) -> Error {
        self.world.log(format_args!("{} {:?} timed out", self.name, self.store));
        Error::new(ErrorKind::Timeout, format!("simulated: {:?} did not answer", self.store))
    }

    async fn pass(&self, micros: u64) {
        if micros > 0 {
            self.world.exec.sleep(Duration::from_micros(micros)).await;
        }
    }

    fn timeout(&self) -> u64 {
        self.world.scenario.network.timeout * 1000
    }

    /// A request that changes nothing.
    async fn read<T>(&self, run: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let journey = self.journey(false);
        match journey.fate {
            Fate::Refused(kind) => {
                self.pass(journey.there + journey.back).await;
                return Err(self.refuse(kind));
            }
            Fate::RequestLost | Fate::ResponseLost => {
                self.pass(self.timeout()).await;
                return Err(self.timed_out());
            }
            Fate::Hung | Fate::DoneAndHung => return self.hang().await,
            Fate::Answered => {}
        }
        if journey.there + journey.back > self.timeout() {
            self.pass(self.timeout()).await;
            return Err(self.timed_out());
        }
        self.pass(journey.there).await;
        let answer = run.await;
        self.pass(journey.back).await;
        answer
    }

    async fn hang<T>(&self) -> T {
        self.world.reached(Sometimes::Hung);
        self.world.log(format_args!("{} {:?} hangs", self.name, self.store));
        std::future::pending().await
    }

    /// A request that changes something: the server goes on with it whatever becomes of the caller.
    async fn send(&self, batch: Batch, lease: Option<Arc<LeaseDocument>>) -> Result<Response<Vec<WriteResult>>> {
        let deletes = batch.writes.iter().any(|write| matches!(write, Write::Delete { .. }));
        let journey = self.journey(deletes);
        let unknown = |store: &Self| store.timed_out().with_unknown_effect();
        match journey.fate {
            Fate::Refused(kind) => {
                self.pass(journey.there + journey.back).await;
                return Err(self.refuse(kind));
            }
            Fate::RequestLost => {
                self.pass(self.timeout()).await;
                self.world.reached(Sometimes::LostRequest);
                return Err(unknown(self));
            }
            Fate::Hung => return self.hang().await,
            Fate::ResponseLost | Fate::DoneAndHung | Fate::Answered => {}
        }
        let server = commit::Server {
            world: Arc::clone(&self.world),
            process: self.process,
            name: Arc::clone(&self.name),
            sent: self.world.exec.now(),
            store: self.store,
            inner: Arc::clone(&self.inner),
        };
        if journey.there + journey.back == 0 && journey.fate == Fate::Answered {
            return server.commit(batch, lease).await;
        }
        let (reply, mut answer) = oneshot::channel();
        let exec = self.world.exec.clone();
        let (there, back) = (Duration::from_micros(journey.there), Duration::from_micros(journey.back));
        self.world.exec.detach("server", async move {
            exec.sleep(there).await;
            let written = server.commit(batch, lease).await;
            exec.sleep(back).await;
            drop(reply.send(written));
        });
        match journey.fate {
            Fate::DoneAndHung => return self.hang().await,
            Fate::ResponseLost => {
                self.pass(self.timeout()).await;
                self.world.reached(Sometimes::LostResponse);
                return Err(unknown(self));
            }
            _ => {}
        }
        let limit = self.world.exec.sleep(Duration::from_micros(self.timeout()));
        tokio::select! {
            biased;
            written = &mut answer => written.unwrap_or_else(|_| Err(unknown(self))),
            () = limit => Err(unknown(self)),
        }
    }

    /// Ends when there are news, as far as this store tells.
    async fn news(&self, range: &FeedRange, after: u64) {
        let known = match self.store {
            Store::Feed => self.world.truth.lock().has_news(range, after),
            _ => self.world.ledger.lock().newest > after,
        };
        if known {
            return;
        }
        let mut waiting = Waiting { world: &self.world, id: None };
        poll_fn(|context| {
            if waiting.id.is_some_and(|id| self.world.news_came(id)) {
                return Poll::Ready(());
            }
            if waiting.id.is_none() {
                waiting.id = Some(self.world.wait_for_news(self.store, range.clone(), context.waker().clone()));
            }
            Poll::Pending
        })
        .await;
    }
}

struct Waiting<'a> {
    world: &'a World,
    id: Option<u64>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.world.forget_waiter(id);
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
struct Journey {
    there: u64,
    back: u64,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
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
        self.read(self.inner.read_changes(request)).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        let WakePlan::After(millis) = self.world.scenario.network.wakes else {
            return std::future::pending().await;
        };
        let Some(after) = position(Some(continuation.token())) else { return };
        self.news(range, after).await;
        self.pass(millis * 1000).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.read(self.inner.read_item(key)).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let begun = self.world.exec.now();
        let lease = commit::lease_in(self.store, &batch);
        let written = self.send(batch, lease.clone()).await;
        if written.is_ok()
            && let Some(lease) = lease
        {
            let heard = self.world.exec.now();
            self.world.ledger.lock().confirm(self.process, &lease, begun, heard);
        }
        written
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.read(self.inner.list_items(request)).await
    }
}
