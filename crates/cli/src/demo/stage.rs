//! The stage: a server process with the store, host processes on it, and the writer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use changefeed::{
    DeadLetters, LeaseTiming,
    core::{Catalog, Container, RangeId},
    remote::{EMULATOR_KEY, Server},
    runtime::Runtime,
};
use tokio::{
    io::{BufReader, Lines},
    process::ChildStdout,
    sync::{mpsc, oneshot, watch},
};

use super::{
    child::Process,
    folder::Folder,
    host_event::HostEvent,
    ledger::{Order, SharedLedger},
    narrator::Event,
    writer::{Dice, Writer},
};
use crate::exit::Result;

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

/// Changes a second.
pub(crate) const RATE: u32 = 300;

/// Changes that are under way at any moment while all is well.
const USUALLY_OPEN: usize = 12;

pub(crate) const DATABASE: &str = "demo";
pub(crate) const ORDERS: &str = "orders";
pub(crate) const LEASES: &str = "leases";
pub(crate) const DEAD_LETTERS: &str = "dead-letters";

/// A host at work.
struct Host {
    process: Process,
    /// Orders that it has handled in batches that are not finished: they will come again if it dies now.
    in_hand: Arc<AtomicUsize>,
    /// Completes when everything that it told has been heard.
    heard: oneshot::Receiver<()>,
}

/// A writer at work.
struct Writing {
    stop: watch::Sender<bool>,
    done: oneshot::Receiver<changefeed::core::Result<()>>,
}

/// The server, its hosts and the writer.
pub(crate) struct Stage {
    server: Process,
    endpoint: String,
    catalog: Arc<dyn Catalog>,
    letters: Container,
    pub(crate) writer: Writer,
    runtime: Arc<dyn Runtime>,
    events: mpsc::UnboundedSender<Event>,
    hosts: BTreeMap<&'static str, Host>,
    writing: Option<Writing>,
}

impl Stage {
    /// Starts a server on the folder and makes the containers.
    pub(crate) async fn open(
        folder: &Folder,
        seed: u64,
        runtime: Arc<dyn Runtime>,
        ledger: SharedLedger,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self> {
        let (server, endpoint) = Process::server(folder.path()).await?;
        drop(events.send(Event::Say(format!("a server with the store: process {}, at {endpoint}", server.id()))));
        let client = Server::connect(&endpoint, EMULATOR_KEY)?;
        let database = client.database(DATABASE);
        let orders = database.container(ORDERS).partition_key("/customer").ranges(RANGES).create().await?;
        database.container(LEASES).create().await?;
        let letters = database.container(DEAD_LETTERS).create().await?;
        let writer = Writer { orders, ledger, dice: Dice::new(seed), placed: Arc::new(AtomicU64::new(0)) };
        let (hosts, writing, catalog) = (BTreeMap::new(), None, client.catalog());
        Ok(Self { server, endpoint, catalog, letters, writer, runtime, events, hosts, writing })
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
        Ok(done.await.unwrap_or(Ok(()))?)
    }

    /// Starts a host of the processor, and waits until it runs.
    pub(crate) async fn start_host(&mut self, name: &'static str) -> Result<()> {
        let (mut process, mut lines) = Process::host(name, &self.endpoint)?;
        drop(self.events.send(Event::Starting(name, process.id())));
        let in_hand = Arc::new(AtomicUsize::new(0));
        let mut told = Told {
            host: name,
            ledger: self.writer.ledger.clone(),
            in_hand: Arc::clone(&in_hand),
            events: self.events.clone(),
        };
        loop {
            match told.next(&mut lines).await {
                Some(HostEvent::Started) => break,
                Some(_) => {}
                None => return Err(format!("{name} does not start: {}", process.complaint().await).into()),
            }
        }
        let (done, heard) = oneshot::channel();
        let listen = async move {
            while told.next(&mut lines).await.is_some() {}
            // Nobody may wait for it.
            let _ = done.send(());
        };
        drop(self.runtime.spawn("host", Box::pin(listen)));
        self.hosts.insert(name, Host { process, in_hand, heard });
        Ok(())
    }

    /// Orders that come again if this host dies now.
    pub(crate) fn in_hand(&self, name: &str) -> usize {
        self.hosts.get(name).map_or(0, |host| host.in_hand.load(Ordering::Relaxed))
    }

    /// Changes that were handled again, so far.
    pub(crate) fn duplicates(&self) -> u64 {
        self.writer.ledger.lock().totals().duplicates
    }

    /// Ends a host by SIGKILL: it finishes nothing, stores nothing and releases no lease.
    pub(crate) async fn kill(&mut self, name: &'static str) -> Result<()> {
        if let Some(host) = self.hosts.remove(name) {
            host.process.kill().await?;
            // What it told before it died counts: it was handled.
            let _ = host.heard.await;
            drop(self.events.send(Event::Died(name)));
        }
        Ok(())
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
            host.process.stop(&*self.runtime).await?;
            let _ = host.heard.await;
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

    /// Stops the server.
    pub(crate) async fn close(self) -> Result<()> {
        let Self { server, catalog, letters, writer, runtime, .. } = self;
        drop((catalog, letters, writer));
        server.stop(&*runtime).await
    }
}

/// What a host tells.
struct Told {
    host: &'static str,
    ledger: SharedLedger,
    in_hand: Arc<AtomicUsize>,
    events: mpsc::UnboundedSender<Event>,
}

impl Told {
    /// The next event, entered into the ledger and passed on; none when the host has ended.
    async fn next(&mut self, lines: &mut Lines<BufReader<ChildStdout>>) -> Option<HostEvent> {
        // A line that a killed host did not finish is none.
        let line = lines.next_line().await.ok()??;
        let event: HostEvent = serde_json::from_str(&line).ok()?;
        match &event {
            HostEvent::Handled { order } => {
                self.ledger.lock().handled(order);
                self.in_hand.fetch_add(1, Ordering::Relaxed);
            }
            HostEvent::BatchDone { handled } => drop(self.in_hand.fetch_sub(*handled, Ordering::Relaxed)),
            _ => {}
        }
        drop(self.events.send(Event::Host(self.host, event.clone())));
        Some(event)
    }
}
