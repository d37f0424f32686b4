//! Hosts that note what they deliver, and what they have noted.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use changefeed::{Context, LeaseTiming, Notification, ProcessorBuilder, RawChanges, Running};

/// Short, but not so short that a busy machine loses leases.
pub(crate) const TIMING: LeaseTiming = LeaseTiming {
    acquire: Duration::from_millis(300),
    renew: Duration::from_millis(800),
    expiration: Duration::from_secs(5),
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

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

    /// Checks that the changes of each customer came in the order in which their numbers were written, and none twice. A
    /// store that does not tell the LSN of a change gives it that of its page.
    pub(crate) fn in_order_and_once(&self) {
        let mut last: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for (id, lsn, _) in self.changes.lock().unwrap().iter() {
            let number = id.parse::<u32>().unwrap();
            if let Some(before) = last.insert(number % 7, (*lsn, number)) {
                assert!(before.0 <= *lsn && before.1 < number, "order {id} at {lsn} after {before:?}");
            }
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
