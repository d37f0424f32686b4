//! Containers that are deleted and created again, in a store that gives wrong, late or no answers about it.

mod shop;

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Context, Estimator, Explain, Notification, Processor, Scope, Versions,
    core::{
        Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind,
        FeedRange, Item, ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, StartFrom,
        TimeToLive, WriteResult, async_trait,
    },
};
use changefeed_testkit::faulty::{Call, Fault};
use shop::{Calls, Notifications, Order, Seen, Shop, faulty, pass, until, until_async};

/// What a store answers when a container is opened again.
enum Opening {
    /// A container that had the name before.
    Stale(Container),
    Fails(ErrorKind, &'static str),
    Panics,
    Hangs,
}

/// The next answers, before the right ones.
#[derive(Clone, Default)]
struct Openings {
    next: Arc<Mutex<VecDeque<Opening>>>,
    asked: Arc<AtomicUsize>,
}

impl Openings {
    fn push(&self, openings: impl IntoIterator<Item = Opening>) {
        self.next.lock().expect("lock").extend(openings);
    }

    fn clear(&self) {
        self.next.lock().expect("lock").clear();
    }

    fn is_empty(&self) -> bool {
        self.next.lock().expect("lock").is_empty()
    }

    /// The container, opened again with these answers, as are those that are opened through it; `wrapped` is applied to them.
    fn of(&self, container: &Container, wrapped: fn(&Container) -> Container) -> Container {
        let inner = Arc::clone(container.backend());
        Container::new(Arc::new(Reopened { inner, openings: self.clone(), wrapped }))
    }
}

struct Reopened {
    inner: Arc<dyn Backend>,
    openings: Openings,
    wrapped: fn(&Container) -> Container,
}

impl fmt::Debug for Reopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reopened")
    }
}

#[async_trait]
impl Backend for Reopened {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.inner.feed_ranges().await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.inner.read_changes(request).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.inner.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.inner.read_item(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.inner.write(batch).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.inner.list_items(request).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.inner.time_to_live().await
    }

    async fn reopen(&self) -> Result<Container> {
        self.openings.asked.fetch_add(1, Ordering::Relaxed);
        let next = self.openings.next.lock().expect("lock").pop_front();
        let found = match next {
            None => (self.wrapped)(&self.inner.reopen().await?),
            Some(Opening::Stale(container)) => container,
            Some(Opening::Fails(kind, message)) => return Err(Error::new(kind, message)),
            Some(Opening::Panics) => panic!("injected into reopen"),
            Some(Opening::Hangs) => std::future::pending().await,
        };
        Ok(self.openings.of(&found, self.wrapped))
    }
}

fn as_it_is(container: &Container) -> Container {
    container.clone()
}

fn replacements(notifications: &Notifications) -> usize {
    notifications.count(|one| matches!(one, Notification::ContainerReplaced { .. }))
}

/// The ids of all documents of the processor.
async fn ids(shop: &Shop) -> Vec<String> {
    let items = shop.leases.list("mailer").await.expect("list");
    items.into_iter().map(|item| item.id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_out_of_date_stop_no_host_and_delete_no_lease() {
    let mut shop = Shop::new(2).await;
    let (seen, notifications, openings) = (Seen::default(), Notifications::default(), Openings::default());
    let watched = Shop { orders: openings.of(&shop.orders, as_it_is), ..shop.clone() };
    let processor = watched.processor("a").start_from(StartFrom::Now).on_notification(notifications.listen());
    let running = shop::start(processor, &seen).await;
    let deleted = shop.orders.clone();
    shop.recreate_orders(2).await;
    shop.write(0..10, 1).await;
    until("delivery", || seen.len() == 10).await;
    until_async("the old leases to go", || async { ids(&shop).await.len() == 3 }).await;
    shop.control().pause(Scope::All).await.expect("pause");
    until("the leases to be given up", || running.owned_leases().is_empty()).await;
    let before = ids(&shop).await;
    // It has no lease, so it looks now and then: once a replica answers that knows the deleted container, then for long.
    for answers in [1, 40] {
        openings.push((0..answers).map(|_| Opening::Stale(deleted.clone())));
        pass(shop::TIMING.expiration * 5).await;
        openings.clear();
        assert_eq!(ids(&shop).await, before, "{answers}");
        assert_eq!(replacements(&notifications), 1, "{answers}");
    }
    shop.control().resume(Scope::All).await.expect("resume");
    shop.write(0..10, 2).await;
    until("delivery", || seen.len() == 20).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_is_replaced_before_it_is_followed_is_left_out() {
    let mut shop = Shop::new(1).await;
    let (calls, seen, notifications) = (Calls::default(), Seen::default(), Notifications::default());
    let builder = shop.processor("a").on_notification(notifications.listen());
    let running = shop::start_slow(builder, shop.runtime(), Duration::from_secs(5), &calls).await;
    shop.write(0..1, 1).await;
    until("a call", || calls.len() == 1).await;
    // While the call runs, another host begins on the second container, and that is replaced by a third.
    shop.recreate_orders(1).await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(replacements(&notifications), 1, "it has noticed");
    shop.host("b", &seen).await.stop().await.expect("stop");
    shop.recreate_orders(1).await;
    shop.write(0..3, 3).await;
    until("delivery", || calls.handled().len() == 4).await;
    running.stop().await.expect("stop");
    assert_eq!(seen.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_or_hangs_when_a_container_is_opened_again_is_asked_again() {
    let mut shop = Shop::new(1).await;
    let (seen, notifications, openings) = (Seen::default(), Notifications::default(), Openings::default());
    let watched = Shop { orders: openings.of(&shop.orders, as_it_is), ..shop.clone() };
    let processor = watched.processor("a").read_timeout(Duration::from_secs(5));
    let running = shop::start(processor.on_notification(notifications.listen()), &seen).await;
    shop.write(0..3, 1).await;
    until("delivery", || seen.len() == 3).await;
    openings.push([Opening::Panics, Opening::Hangs, Opening::Fails(ErrorKind::Forbidden, "the key was replaced")]);
    shop.recreate_orders(1).await;
    shop.write(0..3, 2).await;
    until("delivery", || seen.len() == 6).await;
    assert!(openings.is_empty());
    for reason in ["open container shop/orders: the store panicked", "no answer within 5s", "the key was replaced"] {
        assert_eq!(notifications.errors(reason), 1, "{reason}: {}", notifications.text());
    }
    running.stop().await.expect("stop");
}

/// A container whose first reads of a single change, with which a host finds out where it can begin, panic and hang.
fn bad_first_reads(container: &Container) -> Container {
    let reads = AtomicUsize::new(0);
    faulty(container, move |call: &Call<'_>| match call {
        Call::ReadChanges(request) if request.max_items == 1 => match reads.fetch_add(1, Ordering::Relaxed) {
            0 => Fault::Panic,
            1 => Fault::NeverReturns,
            _ => Fault::None,
        },
        _ => Fault::None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_new_container_that_panics_or_hangs_at_first_is_followed_with_all_versions() {
    let shop = Shop::with_history().await;
    let (seen, openings, notifications) =
        (Arc::<Mutex<Vec<u64>>>::default(), Openings::default(), Notifications::default());
    let own = Arc::clone(&seen);
    let processor = Processor::builder("audit", &openings.of(&shop.orders, bad_first_reads), &shop.leases)
        .all_versions()
        .lease_timing(shop::TIMING)
        .read_timeout(Duration::from_secs(5))
        .runtime(shop.runtime())
        .on_notification(notifications.listen())
        .build(move |versions: Versions<Order>, _: Context| {
            own.lock().unwrap().extend(versions.iter().filter_map(|one| one.current.as_ref()).map(|one| one.version));
            async { Ok(()) }
        })
        .expect("build");
    let running = processor.start().await.expect("start");
    shop.write(0..1, 1).await;
    until("delivery", || seen.lock().unwrap().len() == 1).await;
    shop.engine.catalog().delete_container("shop", "history").await.expect("delete");
    let again = shop.engine.database("shop").container("history").partition_key("/customer");
    let orders = again.all_versions(Duration::from_secs(86_400)).create().await.expect("history");
    let shop = Shop { orders, ..shop };
    shop.write(0..1, 2).await;
    until("delivery", || *seen.lock().unwrap() == [1, 2]).await;
    assert!(notifications.errors("the store of history panicked") > 0, "{}", notifications.text());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_lease_container_that_is_refused_is_not_used_and_the_reason_is_reported() {
    let mut shop = Shop::new(1).await;
    let (seen, notifications, openings) = (Seen::default(), Notifications::default(), Openings::default());
    let watched = Shop { leases: openings.of(&shop.leases, as_it_is), ..shop.clone() };
    let running = shop::start(watched.processor("a").on_notification(notifications.listen()), &seen).await;
    shop.write(0..3, 1).await;
    until("delivery", || seen.len() == 3).await;
    let reason = "container shop/leases deletes items after 60 s (defaultTtl)";
    openings.push((0..1000).map(|_| Opening::Fails(ErrorKind::InvalidArgument, reason)));
    shop.recreate_leases().await;
    until("the reason", || notifications.errors(reason) > 0).await;
    pass(shop::TIMING.expiration).await;
    assert_eq!(ids(&shop).await, [""; 0]);
    openings.clear();
    shop.write(3..6, 1).await;
    until("delivery", || seen.counts().len() == 6).await;
    running.stop().await.expect("stop");
}

/// A container whose reads from a position are forbidden twice.
fn forbidden_positions(container: &Container) -> Container {
    let reads = AtomicUsize::new(0);
    faulty(container, move |call: &Call<'_>| match call {
        Call::ReadChanges(request)
            if request.max_items == 1
                && matches!(request.start, StartFrom::Continuation(_))
                && reads.fetch_add(1, Ordering::Relaxed) < 2 =>
        {
            Fault::Error(ErrorKind::Forbidden)
        }
        _ => Fault::None,
    })
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_says_nothing_about_a_position_moves_no_lease() {
    let mut shop = Shop::new(1).await;
    let (calls, seen, openings) = (Calls::default(), Seen::default(), Openings::default());
    let watched = Shop { orders: openings.of(&shop.orders, forbidden_positions), ..shop.clone() };
    let from_now = watched.processor("a").start_from(StartFrom::Now);
    let first = shop::start_slow(from_now, shop.runtime(), Duration::from_secs(20), &calls).await;
    shop.write(0..1, 1).await;
    until("a call", || calls.len() == 1).await;
    shop.recreate_orders(1).await;
    let second = shop::start(shop.processor("b").start_from(StartFrom::Now), &seen).await;
    shop.write(0..20, 2).await;
    until("delivery", || seen.len() == 20).await;
    second.stop().await.expect("stop");
    until("the first host to follow", || !first.owned_leases().is_empty() && calls.handled().len() == 1).await;
    pass(Duration::from_secs(60)).await;
    first.stop().await.expect("stop");
    assert_eq!((calls.len(), seen.len()), (1, 20));
}

#[tokio::test(start_paused = true)]
async fn an_estimator_that_has_followed_asks_for_nothing_but_its_leases() {
    let mut shop = Shop::new(1).await;
    let (seen, openings) = (Seen::default(), Openings::default());
    let others = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&others);
    let leases = faulty(&shop.leases, move |call: &Call<'_>| {
        if matches!(call, Call::ListItems(request) if !request.id_prefix.ends_with("..")) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Fault::None
    });
    let orders = openings.of(&shop.orders, as_it_is);
    let estimator = Estimator::new("mailer", &orders, &leases).runtime(shop.runtime());
    let running = shop.host("a", &seen).await;
    shop.recreate_orders(2).await;
    shop.write(0..3, 1).await;
    until("delivery", || seen.len() == 3).await;
    until_async("the old leases to go", || async { ids(&shop).await.len() == 3 }).await;
    assert_eq!(estimator.lag().await.expect("lag").leases.len(), 2);
    let asked = openings.asked.load(Ordering::Relaxed);
    for _ in 0..5 {
        assert_eq!(estimator.lag().await.expect("lag").leases.len(), 2);
    }
    assert_eq!((others.load(Ordering::Relaxed), openings.asked.load(Ordering::Relaxed)), (0, asked));
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn as_long_as_no_host_has_followed_explain_says_so() {
    let mut shop = Shop::new(1).await;
    shop.host("a", &Seen::default()).await.stop().await.expect("stop");
    let explain = Explain::new("mailer", &shop.orders, &shop.leases).runtime(shop.runtime());
    shop.recreate_orders(1).await;
    let error = explain.leases().await.expect_err("no leases");
    assert_eq!(error.kind(), ErrorKind::ItemNotFound);
    assert!(error.message().contains("was deleted and created again: a host that runs creates them"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_program_finds_the_container_that_replaces_its_own() {
    let mut shop = Shop::new(1).await;
    let old = shop.orders.clone();
    assert!(changefeed::replacement(&old).await.expect("there").is_none());
    shop.engine.catalog().delete_container("shop", "orders").await.expect("delete");
    let error = changefeed::replacement(&old).await.expect_err("deleted");
    assert_eq!(error.kind(), ErrorKind::ContainerNotFound);
    let again = shop.engine.database("shop").container("orders").partition_key("/customer");
    shop.orders = again.create().await.expect("orders");
    let found = changefeed::replacement(&old).await.expect("created again").expect("another one");
    assert_eq!(found.identity(), shop.orders.identity());
}
