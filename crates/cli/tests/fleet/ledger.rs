//! What was written and what was delivered, compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use changefeed::{core::Container, remote::Server};
use serde_json::json;

use crate::process::eventually;

/// How many partition keys are written.
const KEYS: usize = 12;

/// Between two writes: about 200 a second.
const PACE: Duration = Duration::from_millis(5);

/// Orders that are written all the time, each once, and those among them that the server acknowledged.
#[derive(Clone)]
pub(crate) struct Writer {
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
    ended: Arc<AtomicBool>,
}

impl Writer {
    /// Writes until told to stop, in a thread with a runtime of its own. What fails is written under another id.
    #[expect(clippy::disallowed_methods, reason = "a pace, not a wait for something")]
    pub(crate) fn start(endpoint: String, database: &'static str, name: &'static str) -> Self {
        let writer = Self { acknowledged: Arc::default(), ended: Arc::default() };
        let own = writer.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let orders = open(&endpoint, database, name).await;
                let mut number = 0;
                while !own.ended.load(Ordering::Acquire) {
                    number += 1;
                    let id = format!("{}-{number}", number % KEYS);
                    let order = json!({"id": id, "customer": format!("c{}", number % KEYS)});
                    if orders.create(&order).await.is_ok() {
                        own.acknowledged.lock().unwrap().insert(id);
                    }
                    tokio::time::sleep(PACE).await;
                }
            });
        });
        writer
    }

    pub(crate) fn acknowledged(&self) -> BTreeSet<String> {
        self.acknowledged.lock().unwrap().clone()
    }

    /// Waits until this many more orders are written.
    pub(crate) fn writes(&self, more: usize) {
        let before = self.acknowledged().len();
        eventually("orders being written", || self.acknowledged().len() >= before + more);
    }

    pub(crate) fn stop(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

async fn open(endpoint: &str, database: &str, name: &str) -> Container {
    let server = Server::connect(endpoint, changefeed::remote::EMULATOR_KEY).unwrap();
    server.database(database).container(name).open().await.unwrap()
}

/// One line of the ledger.
pub(crate) struct Line {
    id: String,
    lsn: u64,
    instance: String,
}

/// Reads the ledger that all hosts append to; a last line that is not complete yet is left out.
pub(crate) fn read(ledger: &str) -> Vec<Line> {
    let text = fs::read_to_string(ledger).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let line = |line: &str| {
        let [id, lsn, instance] = line.split(' ').collect::<Vec<_>>().try_into().expect("id LSN instance");
        Line { id: id.to_owned(), lsn: lsn.parse().unwrap(), instance: instance.to_owned() }
    };
    whole.lines().map(line).collect()
}

/// Waits until everything that was acknowledged by now is in the ledger.
pub(crate) fn catches_up(ledger: &str, writer: &Writer) {
    let mut missing = writer.acknowledged();
    eventually("all orders in the ledger", || {
        let delivered: BTreeSet<String> = read(ledger).into_iter().map(|line| line.id).collect();
        missing.retain(|id| !delivered.contains(id));
        missing.is_empty()
    });
}

/// How many lines are repetitions.
pub(crate) fn duplicates(ledger: &str) -> usize {
    let lines = read(ledger);
    let distinct: BTreeSet<(&str, u64)> = lines.iter().map(|line| (line.id.as_str(), line.lsn)).collect();
    lines.len() - distinct.len()
}

/// The hosts that delivered something after line `from`.
pub(crate) fn instances(ledger: &str, from: usize) -> BTreeSet<String> {
    read(ledger).into_iter().skip(from).map(|line| line.instance).collect()
}

/// Checks that per partition key no change came before an earlier one: what is delivered again is a stretch that ends
/// where delivery had come.
pub(crate) fn check_order(ledger: &str) {
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in read(ledger) {
        let key = line.id.split('-').next().unwrap().to_owned();
        let lsns = seen.entry(key.clone()).or_default();
        match lsns.iter().position(|lsn| *lsn == line.lsn) {
            // Delivered again: from here on everything has to come again.
            Some(again) => lsns.truncate(again + 1),
            None => {
                assert!(lsns.last().is_none_or(|last| *last < line.lsn), "key {key}: {} after {lsns:?}", line.lsn);
                lsns.push(line.lsn);
            }
        }
    }
}
