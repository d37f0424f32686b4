//! A shop on a server of its own: orders, leases, hosts that note what they deliver.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use changefeed::{
    Context, LeaseTiming, Notification, Processor, ProcessorBuilder, RawChanges, Running,
    core::{Container, Database, RangeId, StartFrom},
    remote::{EMULATOR_KEY, Server as Client},
};
use serde_json::json;

use crate::{process::Server, store::Store};

/// Short, but not so short that a busy machine loses leases.
pub(crate) const TIMING: LeaseTiming = LeaseTiming {
    acquire: Duration::from_millis(300),
    renew: Duration::from_millis(800),
    expiration: Duration::from_secs(5),
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Shop {
    pub(crate) server: Server,
    /// For what only an operator does.
    admin: Client,
    store: Store,
    pub(crate) orders: Container,
    pub(crate) leases: Container,
}

impl Shop {
    pub(crate) async fn new(ranges: usize) -> Self {
        let server = Server::start(&["--store", "memory", "--allow-faults"]);
        let admin = Client::connect(&server.endpoint(), EMULATOR_KEY).unwrap();
        let shop = admin.database("shop");
        shop.container("orders").partition_key("/customer").ranges(ranges).create().await.unwrap();
        shop.container("leases").create().await.unwrap();
        let store = Store::connect(&server.endpoint()).await;
        let (orders, leases) = (store.container("orders").await, store.container("leases").await);
        Self { server, admin, store, orders, leases }
    }

    pub(crate) fn database(&self) -> Database {
        self.store.database()
    }

    /// Writes version `n` of these orders. There are seven customers.
    pub(crate) async fn write(&self, numbers: Range<u32>, n: u32) {
        for number in numbers {
            let order = json!({"id": number.to_string(), "customer": format!("c{}", number % 7), "n": n});
            self.orders.upsert(&order).await.unwrap();
        }
    }

    pub(crate) fn builder(&self, instance: &str) -> ProcessorBuilder<changefeed::Latest> {
        Processor::builder("mailer", &self.orders, &self.leases)
            .instance_name(instance)
            .start_from(StartFrom::Beginning)
            .lease_timing(TIMING)
    }

    /// A host of the processor `mailer`, from the beginning.
    pub(crate) async fn host(&self, instance: &str, seen: &Seen) -> Running {
        start(self.builder(instance), seen).await
    }

    pub(crate) async fn split(&self, range: u64) {
        self.admin.catalog().split("shop", "orders", &RangeId::from(range), None).await.unwrap();
    }

    pub(crate) async fn merge(&self, a: u64, b: u64) {
        let ranges = [&RangeId::from(a), &RangeId::from(b)];
        self.admin.catalog().merge("shop", "orders", ranges).await.unwrap();
    }
}

/// Starts a host that notes what it delivers.
pub(crate) async fn start(builder: ProcessorBuilder<changefeed::Latest>, seen: &Seen) -> Running {
    let (own, noted) = (seen.clone(), seen.clone());
    let processor = builder.on_notification(move |notification| noted.hear(notification));
    let processor = processor.build(move |changes: RawChanges, context: Context| {
        own.note(&changes, &context);
        async { Ok(()) }
    });
    processor.unwrap().start().await.unwrap()
}

/// What was delivered, by all hosts that share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    changes: Arc<Mutex<Vec<(String, u64, String)>>>,
    leases: Arc<Mutex<BTreeMap<String, i64>>>,
}

impl Seen {
    pub(crate) fn note(&self, changes: &RawChanges, context: &Context) {
        let instance = context.instance();
        let lines = changes.iter().map(|change| (change.id.as_str().to_owned(), change.lsn.get(), instance.to_owned()));
        self.changes.lock().unwrap().extend(lines);
    }

    fn hear(&self, notification: &Notification) {
        let (lease, by) = match notification {
            Notification::LeaseAcquired(lease) => (lease, 1),
            Notification::LeaseReleased(lease, _) => (lease, -1),
            _ => return,
        };
        *self.leases.lock().unwrap().entry(lease.to_string()).or_default() += by;
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.lock().unwrap().len()
    }

    /// How many leases the hosts that share it own.
    pub(crate) fn leases(&self) -> i64 {
        self.leases.lock().unwrap().values().sum()
    }

    /// How many different changes there were.
    pub(crate) fn distinct(&self) -> usize {
        let changes = self.changes.lock().unwrap();
        changes.iter().map(|(id, lsn, _)| (id, lsn)).collect::<std::collections::BTreeSet<_>>().len()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.changes.lock().unwrap().iter().map(|(id, ..)| id.clone()).collect()
    }

    /// Checks that the changes of each customer came in order, and none twice.
    pub(crate) fn in_order_and_once(&self) {
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        for (id, lsn, _) in self.changes.lock().unwrap().iter() {
            let before = last.insert(id.parse::<u32>().unwrap() % 7, *lsn).unwrap_or(0);
            assert!(before < *lsn, "order {id}: {lsn} after {before}");
        }
    }
}

/// Waits until something holds.
#[expect(clippy::disallowed_methods, reason = "another process does it, in its own time")]
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LONG, "{what} never happens");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Lets time pass, so that something that must not happen could.
#[expect(clippy::disallowed_methods, reason = "what must not happen has no sign")]
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
