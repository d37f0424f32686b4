//! The stage: the store, the hosts on it and the writer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Backoff, Changes, Context, DeadLetter, DeadLetters, DelegateError, Latest, LeaseTiming, Processor,
    ProcessorBuilder, Running,
    core::{Catalog, Container, RangeId, Result, StartFrom},
    embedded::Engine,
    runtime::Runtime,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    folder::Folder,
    ledger::{Order, SharedLedger},
    narrator::Event,
    writer::{Dice, Writer},
};

/// Ranges that the container begins with: two for each of three hosts.
pub(crate) const RANGES: usize = 6;

/// How often an order is tried before it becomes a dead letter.
pub(crate) const ATTEMPTS: u32 = 3;

/// Short, so that a takeover can be watched.
pub(crate) const TIMING: LeaseTiming = LeaseTiming {
    acquire: Duration::from_millis(300),
    renew: Duration::from_millis(500),
    expiration: Duration::from_secs(2),
};

/// What handling one order takes: slow enough that a rush makes a queue.
const WORK: Duration = Duration::from_millis(3);

/// Changes in a batch at most.
const BATCH: usize = 50;

/// Changes a second.
pub(crate) const RATE: u32 = 300;

/// Changes that are under way at any moment while all is well.
const USUALLY_OPEN: usize = 12;

const DATABASE: &str = "demo";
const ORDERS: &str = "orders";

/// A host at work.
struct Host {
    running: Running,
    /// Orders that it has handled in batches that are not finished: they will come again if it dies now.
    in_hand: Arc<AtomicUsize>,
}

/// A writer at work.
struct Writing {
    stop: watch::Sender<bool>,
    done: oneshot::Receiver<Result<()>>,
}

/// The store, its hosts and its writer.
pub(crate) struct Stage {
    engine: Engine,
    catalog: Arc<dyn Catalog>,
    leases: Container,
    letters: Container,
    pub(crate) writer: Writer,
    runtime: Arc<dyn Runtime>,
    events: mpsc::UnboundedSender<Event>,
    hosts: BTreeMap<&'static str, Host>,
    writing: Option<Writing>,
}

impl Stage {
    /// Opens a store in the folder and makes its containers.
    pub(crate) async fn open(
        folder: &Folder,
        seed: u64,
        runtime: Arc<dyn Runtime>,
        ledger: SharedLedger,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self> {
        let engine = Engine::open(folder.path())?;
        let database = engine.database(DATABASE);
        let orders = database.container(ORDERS).partition_key("/customer").ranges(RANGES).create().await?;
        let leases = database.container("leases").create().await?;
        let letters = database.container("dead-letters").create().await?;
        let writer = Writer { orders, ledger, dice: Dice::new(seed), placed: Arc::new(AtomicU64::new(0)) };
        let (hosts, writing, catalog) = (BTreeMap::new(), None, engine.catalog());
        Ok(Self { engine, catalog, leases, letters, writer, runtime, events, hosts, writing })
    }

    /// Starts the writer.
    pub(crate) fn start_writer(&mut self) {
        let (stop, stopped) = watch::channel(false);
        let (reply, done) = oneshot::channel();
        let (writer, runtime) = (self.writer.clone(), Arc::clone(&self.runtime));
        let task = async move { drop(reply.send(writer.run(f64::from(RATE), runtime, stopped).await)) };
        drop(self.runtime.spawn("writer", Box::pin(task)));
        self.writing = Some(Writing { stop, done });
    }

    /// Stops the writer and waits for its last acknowledgement.
    pub(crate) async fn stop_writer(&mut self) -> Result<()> {
        let Some(Writing { stop, done }) = self.writing.take() else { return Ok(()) };
        stop.send_replace(true);
        done.await.unwrap_or(Ok(()))
    }

    /// Starts a host of the processor.
    pub(crate) async fn start_host(&mut self, name: &'static str) -> Result<()> {
        drop(self.events.send(Event::Starting(name)));
        let in_hand = Arc::new(AtomicUsize::new(0));
        let hands = Hands {
            host: name,
            ledger: self.writer.ledger.clone(),
            in_hand: Arc::clone(&in_hand),
            runtime: Arc::clone(&self.runtime),
            events: self.events.clone(),
        };
        let processor = self.builder(name).build(move |orders: Changes<Order>, ctx: Context| {
            let hands = hands.clone();
            async move { hands.handle(orders, ctx).await }
        })?;
        let running = processor.start().await?;
        self.hosts.insert(name, Host { running, in_hand });
        Ok(())
    }

    fn builder(&self, name: &'static str) -> ProcessorBuilder<Latest> {
        let events = self.events.clone();
        Processor::builder("shop", &self.writer.orders, &self.leases)
            .instance_name(name)
            .start_from(StartFrom::Beginning)
            .lease_timing(TIMING)
            .max_items(BATCH)
            .retry(Backoff { first: Duration::from_millis(400), longest: Duration::from_secs(2) })
            .dead_letter(DeadLetter::to(&self.letters).after_attempts(ATTEMPTS))
            .stop_deadline(Duration::from_secs(5))
            .on_notification(move |notification| drop(events.send(Event::Notified(name, notification.clone()))))
    }

    /// Orders that come again if this host dies now.
    pub(crate) fn in_hand(&self, name: &str) -> usize {
        self.hosts.get(name).map_or(0, |host| host.in_hand.load(Ordering::Relaxed))
    }

    /// Changes that were handled again, so far.
    pub(crate) fn duplicates(&self) -> u64 {
        self.writer.ledger.lock().totals().duplicates
    }

    /// Ends a host as a crash would: it finishes nothing, stores nothing and releases no lease.
    pub(crate) fn kill(&mut self, name: &'static str) {
        drop(self.hosts.remove(name));
        drop(self.events.send(Event::Died(name)));
    }

    /// How many changes are under way at any moment while all is well: none once the writer has stopped.
    pub(crate) fn usually_open(&self) -> usize {
        if self.writing.is_some() { USUALLY_OPEN } else { 0 }
    }

    /// Splits a range in two.
    pub(crate) async fn split(&self, range: u64) -> Result<Vec<String>> {
        let children = self.catalog.split(DATABASE, ORDERS, &RangeId::from(range), None).await?;
        Ok(children.into_iter().map(|child| child.id.to_string()).collect())
    }

    /// Stops all hosts in good order.
    pub(crate) async fn stop_hosts(&mut self) -> Result<()> {
        while let Some((_, host)) = self.hosts.pop_first() {
            host.running.stop().await?;
        }
        Ok(())
    }

    /// Enters what is in the dead-letter container into the ledger.
    pub(crate) async fn count_dead_letters(&self) -> Result<()> {
        for letter in DeadLetters::new(&self.letters).list().await? {
            if let Some(order) = letter.change()?.parse::<Order>()? {
                self.writer.ledger.lock().dead(&order);
            }
        }
        Ok(())
    }

    /// Closes the store.
    pub(crate) async fn close(self) -> Result<()> {
        self.engine.close().await
    }
}

/// What a host does with orders.
#[derive(Clone)]
struct Hands {
    host: &'static str,
    ledger: SharedLedger,
    in_hand: Arc<AtomicUsize>,
    runtime: Arc<dyn Runtime>,
    events: mpsc::UnboundedSender<Event>,
}

impl Hands {
    /// Handles orders one by one, up to the first that cannot be handled.
    async fn handle(&self, orders: Changes<Order>, ctx: Context) -> std::result::Result<(), DelegateError> {
        let mut handled = 0;
        let mut outcome = Ok(());
        for (index, order) in orders.iter().enumerate() {
            self.runtime.sleep(WORK).await;
            if order.amount < 0 {
                outcome = Err(self.refuse(order, &ctx).at(index));
                break;
            }
            self.ledger.lock().handled(order);
            self.in_hand.fetch_add(1, Ordering::Relaxed);
            handled += 1;
        }
        self.in_hand.fetch_sub(handled, Ordering::Relaxed);
        outcome
    }

    fn refuse(&self, order: &Order, ctx: &Context) -> DelegateError {
        let reason = "its amount is negative".to_owned();
        let (host, item, attempt) = (self.host, order.id.clone(), ctx.attempt());
        drop(self.events.send(Event::Refused { host, item, attempt, reason: reason.clone() }));
        DelegateError::new(reason)
    }
}
