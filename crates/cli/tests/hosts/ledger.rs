//! What was written and what was delivered, compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use changefeed::{core::Container, remote::Server};
use serde_json::json;

use super::process::eventually;

/// How many partition keys are written.
const KEYS: usize = 12;

/// Orders that are written all the time, each once, and those among them that the server acknowledged.
#[derive(Clone)]
pub(crate) struct Writer {
    acknowledged: Arc<Mutex<Vec<String>>>,
    ended: Arc<AtomicBool>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Writer {
    /// About 200 orders a second.
    pub(crate) fn start(endpoint: String) -> Self {
        Self::with_pace(endpoint, Duration::from_millis(5))
    }

    /// Writes until told to stop, in a thread with a runtime of its own. What fails is written under another id.
    #[expect(clippy::disallowed_methods, reason = "a pace, not a wait for something")]
    pub(crate) fn with_pace(endpoint: String, pace: Duration) -> Self {
        let writer = Self { acknowledged: Arc::default(), ended: Arc::default(), thread: Arc::default() };
        let own = writer.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let orders = open(&endpoint).await;
                let mut number = 0;
                while !own.ended.load(Ordering::Acquire) {
                    number += 1;
                    let id = format!("{}-{number}", number % KEYS);
                    let order = json!({"id": id, "customer": format!("c{}", number % KEYS)});
                    if orders.create(&order).await.is_ok() {
                        own.acknowledged.lock().unwrap().push(id);
                    }
                    tokio::time::sleep(pace).await;
                }
            });
        });
        *writer.thread.lock().unwrap() = Some(thread);
        writer
    }

    pub(crate) fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Waits until this many more orders are written.
    pub(crate) fn writes(&self, more: usize) {
        let before = self.count();
        eventually("orders being written", || self.count() >= before + more);
    }

    /// Stops, and waits for the answer to the last order: none is acknowledged after this.
    pub(crate) fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().unwrap().take() {
            thread.join().unwrap();
        }
    }
}

async fn open(endpoint: &str) -> Container {
    let server = Server::connect(endpoint, changefeed::remote::EMULATOR_KEY).unwrap();
    server.database("shop").container("orders").open().await.unwrap()
}

/// The ledger that all hosts append to, checked while it is read: what of a partition key is delivered for the first
/// time comes after everything of this key that was delivered before. What is delivered again may come at any time.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: String,
    /// Up to here it was read.
    offset: u64,
    /// Who delivered what, line by line.
    instances: Vec<String>,
    delivered: BTreeSet<String>,
    /// Of each partition key the newest LSN.
    newest: BTreeMap<String, u64>,
    duplicates: usize,
    /// So many of the acknowledged orders are known to be delivered.
    caught_up: usize,
}

impl Ledger {
    pub(crate) fn new(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            offset: 0,
            instances: Vec::new(),
            delivered: BTreeSet::new(),
            newest: BTreeMap::new(),
            duplicates: 0,
            caught_up: 0,
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Reads what was appended; a last line that is not complete yet is left for the next time.
    fn read_on(&mut self) {
        let Ok(mut file) = File::open(&self.path) else { return };
        file.seek(SeekFrom::Start(self.offset)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.offset += whole as u64;
        for line in text.get(..whole).unwrap_or_default().lines() {
            self.note(line);
        }
    }

    fn note(&mut self, line: &str) {
        let [id, lsn, instance] = line.split(' ').collect::<Vec<_>>().try_into().expect("id LSN instance");
        let (key, lsn) = (id.split('-').next().unwrap_or_default(), lsn.parse().unwrap());
        self.instances.push(instance.to_owned());
        if !self.delivered.insert(id.to_owned()) {
            self.duplicates += 1;
            return;
        }
        let newest = self.newest.entry(key.to_owned()).or_default();
        assert!(*newest < lsn, "{id} of LSN {lsn} was first delivered after LSN {newest} of the same key");
        *newest = lsn;
    }

    /// How many lines there are.
    pub(crate) fn len(&mut self) -> usize {
        self.read_on();
        self.instances.len()
    }

    /// How many lines are repetitions.
    pub(crate) fn duplicates(&mut self) -> usize {
        self.read_on();
        self.duplicates
    }

    /// The hosts that delivered something after line `from`.
    pub(crate) fn instances(&mut self, from: usize) -> BTreeSet<String> {
        self.read_on();
        self.instances.iter().skip(from).cloned().collect()
    }

    /// Waits until everything that was acknowledged by now has been delivered.
    pub(crate) fn catches_up(&mut self, writer: &Writer) {
        let target = writer.count();
        eventually("all orders in the ledger", || {
            self.read_on();
            let acknowledged = writer.acknowledged.lock().unwrap();
            while self.caught_up < target && self.delivered.contains(&acknowledged[self.caught_up]) {
                self.caught_up += 1;
            }
            self.caught_up == target
        });
    }
}

#[test]
#[should_panic(expected = "2-5 of LSN 5 was first delivered after LSN 7 of the same key")]
fn a_change_that_was_passed_over_is_noticed() {
    let mut ledger = Ledger::new("");
    // Another key, and a repetition, which are fine.
    ["2-3 3 a", "2-7 7 a", "1-6 6 a", "2-3 3 b"].into_iter().for_each(|line| ledger.note(line));
    assert_eq!((ledger.instances.len(), ledger.duplicates), (4, 1));
    ledger.note("2-5 5 b");
}
