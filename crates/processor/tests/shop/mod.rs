//! What the tests around the processor share: a shop with orders, hosts that write down what they were given, and a
//! wall clock that moves only when a test moves it.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use changefeed::{
    Changes, Context, Control, DeadLetters, Failure, Latest, LeaseTiming, LeaseToken, Notification, Processor,
    ProcessorBuilder, Running,
    core::{Container, FeedRange, PhysicalRange, StartFrom, Timestamp},
    embedded::Engine,
    runtime::{BoxFuture, Runtime, TokioRuntime},
};
use changefeed_testkit::{
    clock::TestClock,
    faulty::{FaultPlan, Faulty},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

/// Short intervals, so that little simulated time passes until a lease expires.
pub(crate) const TIMING: LeaseTiming = LeaseTiming {
    acquire: Duration::from_secs(1),
    renew: Duration::from_millis(2500),
    expiration: Duration::from_secs(8),
};

/// What is sold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) customer: String,
    pub(crate) version: u64,
}

/// A store with containers for orders, leases and dead letters.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) engine: Engine,
    pub(crate) clock: TestClock,
    pub(crate) orders: Container,
    pub(crate) leases: Container,
    pub(crate) rejected: Container,
}

impl Shop {
    pub(crate) async fn new(ranges: usize) -> Self {
        let clock = TestClock::new();
        let engine = Engine::builder().clock(Arc::new(clock.clone())).in_memory().expect("open");
        let shop = engine.database("shop");
        let orders = shop.container("orders").partition_key("/customer").ranges(ranges).create().await.expect("orders");
        let leases = shop.container("leases").create().await.expect("leases");
        let rejected = shop.container("rejected").create().await.expect("rejected");
        Self { engine, clock, orders, leases, rejected }
    }

    /// A shop whose orders keep all their versions for a day.
    pub(crate) async fn with_history() -> Self {
        let shop = Self::new(1).await;
        let orders = shop.engine.database("shop").container("history").partition_key("/customer").ranges(2);
        let orders = orders.all_versions(Duration::from_secs(86_400)).create().await.expect("history");
        Self { orders, ..shop }
    }

    pub(crate) async fn write(&self, items: Range<u64>, version: u64) {
        for item in items {
            self.orders.upsert(&order(item, version)).await.expect("upsert");
        }
    }

    pub(crate) async fn ranges(&self) -> Vec<PhysicalRange> {
        self.orders.feed_ranges().await.expect("ranges")
    }

    /// Splits the range at this place in key order.
    pub(crate) async fn split(&self, at: usize) {
        let range = self.ranges().await[at].id.clone();
        self.engine.catalog().split("shop", "orders", &range, None).await.expect("split");
    }

    /// Merges the range at this place in key order with the next.
    pub(crate) async fn merge(&self, at: usize) {
        let ranges = self.ranges().await;
        let pair = [&ranges[at].id, &ranges[at + 1].id];
        self.engine.catalog().merge("shop", "orders", pair).await.expect("merge");
    }

    /// Deletes the orders and creates the container again, with this many ranges.
    pub(crate) async fn recreate_orders(&mut self, ranges: usize) {
        let shop = self.engine.database("shop");
        self.engine.catalog().delete_container("shop", "orders").await.expect("delete");
        let orders = shop.container("orders").partition_key("/customer").ranges(ranges);
        self.orders = orders.create().await.expect("orders");
    }

    pub(crate) async fn recreate_leases(&mut self) {
        self.engine.catalog().delete_container("shop", "leases").await.expect("delete");
        self.leases = self.engine.database("shop").container("leases").create().await.expect("leases");
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        self.runtime_with_clock_off_by(0)
    }

    /// A runtime on a machine whose clock is ahead of the store's by this many milliseconds, or behind it.
    pub(crate) fn runtime_with_clock_off_by(&self, millis: i64) -> Arc<dyn Runtime> {
        Arc::new(ShopRuntime { inner: TokioRuntime::new(), clock: self.clock.clone(), millis })
    }

    /// A processor that begins at the beginning.
    pub(crate) fn processor(&self, instance: &str) -> ProcessorBuilder<Latest> {
        Processor::builder("mailer", &self.orders, &self.leases)
            .instance_name(instance)
            .start_from(StartFrom::Beginning)
            .lease_timing(TIMING)
            .runtime(self.runtime())
    }

    /// A host that writes down what it was given.
    pub(crate) async fn host(&self, instance: &str, seen: &Seen) -> Running {
        start(self.processor(instance), seen).await
    }

    /// Runs a host until it has handled everything, then ends it in good order.
    pub(crate) async fn catch_up(&self, seen: &Seen, expected: usize) {
        let running = self.host("worker-1", seen).await;
        until("delivery", || seen.len() >= expected).await;
        running.stop().await.expect("stop");
    }

    /// Operator commands for processor `mailer`.
    pub(crate) fn control(&self) -> Control {
        Control::new("mailer", &self.orders, &self.leases).lease_timing(TIMING).runtime(self.runtime())
    }

    /// The dead letters of processor `mailer`.
    pub(crate) fn letters(&self) -> DeadLetters {
        DeadLetters::new(&self.rejected).processor("mailer").runtime(self.runtime())
    }

    /// The ids of the items in the dead-letter container, sorted.
    pub(crate) async fn dead_lettered(&self) -> Vec<String> {
        let letters = self.letters().list().await.expect("list");
        let mut items: Vec<String> = letters.into_iter().map(|letter| letter.item_id).collect();
        items.sort_unstable();
        items
    }

    /// The owner of each lease, by token.
    pub(crate) async fn owners(&self) -> Vec<Option<String>> {
        let documents = self.lease_documents().await;
        documents.values().map(|lease| lease["Owner"].as_str().map(str::to_owned)).collect()
    }

    /// Whether no lease has an owner.
    pub(crate) async fn is_released(&self) -> bool {
        self.owners().await.iter().all(Option::is_none)
    }

    /// Edits a lease document as another program would: replaces the version that was read.
    pub(crate) async fn edit_lease(&self, token: &str, edit: impl Fn(&mut Value)) {
        for _ in 0..16 {
            let items = self.leases.list("mailer").await.expect("list");
            let found = items.iter().map(|item| (&item.etag, item.parse::<Value>().expect("json")));
            let (etag, mut lease) = found.into_iter().find(|(_, lease)| lease["LeaseToken"] == token).expect("lease");
            edit(&mut lease);
            if self.leases.replace_if(&lease, etag).await.is_ok() {
                return;
            }
        }
        panic!("lease {token} kept changing");
    }

    /// Makes `owner`, a host of the .NET SDK, the owner of a lease: it sets owner and time and copies the properties.
    pub(crate) async fn dotnet_acquires(&self, token: &str, owner: &str) {
        self.edit_lease(token, |lease| {
            lease["Owner"] = owner.into();
            lease["timestamp"] = "2026-11-16T20:00:00.0000000Z".into();
        })
        .await;
    }

    /// Renews a lease as a host of the .NET SDK does; false if the lease is no longer its own.
    pub(crate) async fn dotnet_renews(&self, token: &str, owner: &str) -> bool {
        let owned = self.lease_documents().await[token]["Owner"] == owner;
        if owned {
            self.dotnet_acquires(token, owner).await;
        }
        owned
    }

    /// The lease documents of processor `mailer`, by token, as JSON.
    pub(crate) async fn lease_documents(&self) -> BTreeMap<String, Value> {
        let items = self.leases.list("mailer").await.expect("list");
        let leases = items.iter().map(|item| item.parse::<Value>().expect("json"));
        leases.filter_map(|lease| Some((lease["LeaseToken"].as_str()?.to_owned(), lease))).collect()
    }
}

pub(crate) fn order(item: u64, version: u64) -> Order {
    Order { id: format!("o{item}"), customer: format!("c{}", item % 50), version }
}

/// How many changes of its range the checkpoint in a lease document has passed; 0 if it has none. The first one has LSN 2.
pub(crate) fn checkpoint(lease: &Value) -> u64 {
    let token = lease["ContinuationToken"].as_str().unwrap_or("0");
    token.trim_matches('"').parse::<u64>().expect("an LSN").saturating_sub(1)
}

/// A container that fails as `plan` says.
pub(crate) fn faulty(container: &Container, plan: impl FaultPlan) -> Container {
    Container::new(Arc::new(Faulty::new(Arc::clone(container.backend()), plan)))
}

pub(crate) async fn start(builder: ProcessorBuilder<Latest>, seen: &Seen) -> Running {
    let seen = seen.clone();
    let processor = builder.build(move |changes: Changes<Order>, ctx: Context| {
        let seen = seen.clone();
        async move {
            seen.add(&changes, &ctx);
            Ok(())
        }
    });
    processor.expect("build").start().await.expect("start")
}

/// What was delivered, in order.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Order>>>);

impl Seen {
    pub(crate) fn add(&self, changes: &Changes<Order>, _: &Context) {
        self.lock().extend(changes.iter().cloned());
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Order>> {
        self.0.lock().expect("lock")
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut *self.lock())
    }

    /// The ids of the items, in order of delivery.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.lock().iter().map(|order| order.id.clone()).collect()
    }

    /// How often each (item, version) was delivered.
    pub(crate) fn counts(&self) -> BTreeMap<(String, u64), usize> {
        let mut counts = BTreeMap::new();
        for order in self.lock().iter() {
            *counts.entry((order.id.clone(), order.version)).or_default() += 1;
        }
        counts
    }
}

/// One call of a delegate.
#[derive(Clone, Debug)]
pub(crate) struct DelegateCall {
    pub(crate) instance: String,
    pub(crate) lease: String,
    pub(crate) attempt: u32,
    pub(crate) orders: Vec<Order>,
    /// Whether the delegate ran to its end.
    pub(crate) finished: bool,
}

/// The delegate calls of all hosts, in the order in which they began.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<DelegateCall>>>);

impl Calls {
    /// Notes that a call begins; returns its number, for [`Calls::finish`].
    pub(crate) fn begin(&self, changes: &Changes<Order>, ctx: &Context) -> usize {
        let mut calls = self.0.lock().expect("lock");
        calls.push(DelegateCall {
            instance: ctx.instance().to_owned(),
            lease: ctx.lease().to_string(),
            attempt: ctx.attempt(),
            orders: changes.iter().cloned().collect(),
            finished: false,
        });
        calls.len() - 1
    }

    pub(crate) fn finish(&self, call: usize) {
        self.0.lock().expect("lock")[call].finished = true;
    }

    pub(crate) fn all(&self) -> Vec<DelegateCall> {
        self.0.lock().expect("lock").clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("lock").len()
    }

    /// How often each (item, version) was given to a delegate, whether that ran to its end or not.
    pub(crate) fn given(&self) -> BTreeMap<(String, u64), usize> {
        let mut given = BTreeMap::new();
        for order in self.all().into_iter().flat_map(|call| call.orders) {
            *given.entry((order.id, order.version)).or_default() += 1;
        }
        given
    }

    /// The (item, version) pairs of calls that ran to their end.
    pub(crate) fn handled(&self) -> BTreeSet<(String, u64)> {
        let finished = self.all().into_iter().filter(|call| call.finished);
        finished.flat_map(|call| call.orders).map(|order| (order.id, order.version)).collect()
    }
}

/// Starts a host whose delegate takes `time` for each batch.
pub(crate) async fn start_slow(
    builder: ProcessorBuilder<Latest>,
    runtime: Arc<dyn Runtime>,
    time: Duration,
    calls: &Calls,
) -> Running {
    let calls = calls.clone();
    let delegate = move |changes: Changes<Order>, ctx: Context| {
        let (calls, runtime) = (calls.clone(), Arc::clone(&runtime));
        async move {
            let call = calls.begin(&changes, &ctx);
            runtime.sleep(time).await;
            calls.finish(call);
            Ok(())
        }
    };
    builder.build(delegate).expect("build").start().await.expect("start")
}

/// Holds whoever passes until it is opened.
#[derive(Clone)]
pub(crate) struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    pub(crate) async fn pass(&self) {
        drop(self.0.subscribe().wait_for(|open| *open).await);
    }
}

/// Notifications of a host, kept.
#[derive(Clone, Default)]
pub(crate) struct Notifications(Arc<Mutex<Vec<Notification>>>);

impl Notifications {
    pub(crate) fn listen(&self) -> impl Fn(&Notification) + Send + Sync + use<> {
        let notifications = Arc::clone(&self.0);
        move |notification| notifications.lock().expect("lock").push(notification.clone())
    }

    pub(crate) fn any(&self, wanted: impl Fn(&Notification) -> bool) -> bool {
        self.0.lock().expect("lock").iter().any(wanted)
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Notification) -> bool) -> usize {
        self.0.lock().expect("lock").iter().filter(|notification| wanted(notification)).count()
    }

    /// How many errors were reported, and with a text that contains `part`.
    pub(crate) fn errors(&self, part: &str) -> usize {
        self.count(|notification| {
            matches!(notification, Notification::Error(report) if report.failure.to_string().contains(part))
        })
    }

    pub(crate) fn failures(&self, wanted: impl Fn(&Failure) -> bool) -> usize {
        self.count(|notification| matches!(notification, Notification::Error(report) if wanted(&report.failure)))
    }

    pub(crate) fn text(&self) -> String {
        let shown = |notification: &Notification| match notification {
            Notification::Error(report) => {
                format!("error at {}: {}", report.lease.as_ref().map_or("-", LeaseToken::as_str), report.failure)
            }
            other => format!("{other:?}"),
        };
        self.0.lock().expect("lock").iter().map(shown).collect::<Vec<_>>().join("\n")
    }
}

/// Waits until `condition` holds; the limit only ends a test that would hang.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..4000 {
        if condition() {
            return;
        }
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    panic!("{what} did not happen");
}

/// Waits until a condition that has to ask holds.
pub(crate) async fn until_async<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    for _ in 0..4000 {
        if condition().await {
            return;
        }
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    panic!("{what} did not happen");
}

/// Lets everything that runs go on for a while.
pub(crate) async fn pass(time: Duration) {
    for _ in 0..time.as_millis() / 50 {
        tokio::time::advance(Duration::from_millis(50)).await;
    }
}

/// Whether a customer's key lies in a range.
pub(crate) fn is_in(orders: &Container, order: &Order, range: &FeedRange) -> bool {
    let key = order.customer.as_str().into();
    range.contains(&orders.identity().partition_key.epk(&key).expect("key"))
}

/// Tokio's time for everything but the time of day.
struct ShopRuntime {
    inner: Arc<dyn Runtime>,
    clock: TestClock,
    /// How far the time of day is ahead of the clock.
    millis: i64,
}

impl fmt::Debug for ShopRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShopRuntime")
    }
}

impl Runtime for ShopRuntime {
    fn monotonic(&self) -> Duration {
        self.inner.monotonic()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.clock.now().as_millis().saturating_add_signed(self.millis))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }

    fn spawn(&self, name: &str, task: BoxFuture<'static, ()>) -> tokio::task::JoinHandle<()> {
        self.inner.spawn(name, task)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}
