//! The server's half of a write: performs it, and runs the checks at the moment of the commit.

use std::sync::Arc;

use changefeed_core::{Backend, Batch, ErrorKind, PartitionKey, Response, Result, Write, WriteResult};
use serde_json::Value;

use crate::{
    checks::{
        Broken,
        lease::Writer,
        lease_document::{DocumentKey, LeaseDocument},
        takeover::ProcessKind,
    },
    coverage::Sometimes,
    exec::{ENVIRONMENT, ProcessId},
    scenario::Store,
    simulation::Simulation,
    workload::item_number,
};

/// How many items of a lease in a row may become dead letters while nothing succeeds.
const DEAD_LETTERS_IN_A_ROW: usize = 3;

/// A store that is about to perform writes of a process.
#[derive(Debug)]
pub struct Server {
    /// The simulation.
    pub sim: Arc<Simulation>,
    /// The process that sent the request.
    pub process: ProcessId,
    /// Its name.
    pub name: Arc<str>,
    /// When it sent the request.
    pub sent: u64,
    /// The store.
    pub store: Store,
    /// The store itself.
    pub inner: Arc<dyn Backend>,
}

/// The lease that a batch writes, if any.
pub fn lease_in(store: Store, batch: &Batch) -> Option<Arc<LeaseDocument>> {
    if store != Store::Leases {
        return None;
    }
    match batch.writes.first()? {
        Write::Create { body } | Write::Replace { body, .. } | Write::Upsert { body, .. } => {
            LeaseDocument::parse(body).map(Arc::new)
        }
        Write::Delete { .. } => None,
    }
}

impl Server {
    /// A server that performs edits by hand.
    pub fn by_hand(sim: &Arc<Simulation>) -> Self {
        Self {
            sim: Arc::clone(sim),
            process: ENVIRONMENT,
            name: "edit".into(),
            sent: sim.exec.now(),
            store: Store::Leases,
            inner: Arc::clone(sim.stores.leases.lock().backend()),
        }
    }

    /// Performs a batch; `lease` is the result of [`lease_in`].
    ///
    /// # Errors
    /// Those of the store.
    pub async fn commit(&self, batch: Batch, lease: Option<Arc<LeaseDocument>>) -> Result<Response<Vec<WriteResult>>> {
        let (write, partition_key) = (batch.writes.first().cloned(), batch.partition_key.clone());
        let written = self.inner.write(batch).await;
        let Some(write) = write else { return written };
        match &written {
            Ok(results) => {
                if self.process != ENVIRONMENT && self.sim.exec.is_dead(self.process) {
                    self.sim.cover(Sometimes::LateCommit);
                }
                let lsn = results.first().map_or(0, |written| written.lsn.get());
                match self.store {
                    Store::Feed => {}
                    Store::Leases => self.lease(&write, partition_key.as_ref(), lease, lsn),
                    Store::Letters => self.letter(&write),
                }
            }
            Err(error) => {
                self.sim.log(format_args!("{} {:?} {write:?} failed: {}", self.name, self.store, error.kind()));
                match error.kind() {
                    ErrorKind::PreconditionFailed => self.note_conflict(&write, lease.as_deref()),
                    ErrorKind::AlreadyExists if !self.sim.leases.lock().tiling.complete => {
                        self.sim.cover(Sometimes::BootstrapRace);
                    }
                    _ => {}
                }
            }
        }
        written
    }

    fn note_conflict(&self, write: &Write, lease: Option<&LeaseDocument>) {
        let (Write::Replace { .. }, Some(document)) = (write, lease) else { return };
        // A .NET host meets a conflict at nearly every write.
        if self.sim.leases.lock().kind(self.process) == ProcessKind::DotNet {
            return;
        }
        if self.sim.leases.lock().held_by(self.process, &document.token).is_some() {
            self.sim.cover(Sometimes::ConflictStillMine);
        }
    }

    fn lease(&self, write: &Write, partition_key: Option<&PartitionKey>, lease: Option<Arc<LeaseDocument>>, lsn: u64) {
        let sim = &self.sim;
        let writer = Writer { process: self.process, now: sim.exec.now(), sent: self.sent };
        let result = match write {
            Write::Create { body } | Write::Replace { body, .. } | Write::Upsert { body, .. } => match lease {
                None => self.other_document(body, writer),
                Some(document) => self.lease_document(document, writer),
            },
            Write::Delete { id, .. } => {
                sim.log(format_args!("{} deletes {id}", self.name));
                if id.as_str().ends_with(".info") {
                    sim.cover(Sometimes::Reset);
                    sim.leases.lock().reset(sim.scenario.processor.from_beginning, writer.now);
                }
                let (key, mut leases) = (self.document_key(id.as_str(), partition_key), sim.leases.lock());
                if leases.kind(self.process) == ProcessKind::Operator
                    && let Some(range) =
                        leases.leases().find(|lease| lease.document.key == key).and_then(|lease| lease.range.as_ref())
                {
                    let starts = sim.scenario.processor.from_beginning.then(|| leases.starts());
                    sim.oracle.lock().reset_range(range, starts);
                }
                leases.deleted(&key, writer, &mut sim.oracle.lock())
            }
        };
        if let Err((check, what)) = result {
            sim.violated(check, what);
        }
        sim.leases.lock().newest = lsn;
        sim.wake(Store::Leases, |_| true);
    }

    fn document_key(&self, id: &str, partition_key: Option<&PartitionKey>) -> DocumentKey {
        if !self.sim.scenario.leases_by_partition_key {
            return (id.to_owned(), None);
        }
        let value = partition_key.and_then(|key| serde_json::from_str::<Value>(&key.to_string()).ok());
        let text = value.as_ref().and_then(|value| value.get(0)?.as_str());
        (id.to_owned(), text.map(str::to_owned))
    }

    fn lease_document(&self, document: Arc<LeaseDocument>, writer: Writer) -> Result<(), Broken> {
        let sim = &self.sim;
        sim.log(format_args!(
            "{} lease {} owner {} epoch {} at {}{}{}{}",
            self.name,
            document.token,
            document.owner.as_deref().unwrap_or("-"),
            document.epoch(),
            document.continuation.as_deref().unwrap_or("-"),
            document.requested_by().map(|by| format!(" requested by {by}")).unwrap_or_default(),
            if document.is_gone() { " gone" } else { "" },
            if document.is_paused() { " paused" } else { "" },
        ));
        if document.is_paused() && document.owner.is_some() && *sim.delegate_outages.lock() > 0 {
            sim.cover(Sometimes::PausedWhileFailing);
        }
        if document.isolates() {
            sim.cover(Sometimes::Isolated);
        }
        let mut oracle = sim.oracle.lock();
        sim.leases.lock().wrote(document, writer, &mut oracle, &mut |what| sim.cover(what))
    }

    /// `.info`, `.lock`, or a lease that cannot be read any more.
    fn other_document(&self, body: &[u8], writer: Writer) -> Result<(), Broken> {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let id = text("id").unwrap_or_default();
        self.sim.log(format_args!("{} writes {id}", self.name));
        if id.ends_with(".info") {
            let from_beginning = self.sim.scenario.processor.from_beginning;
            self.sim.leases.lock().bootstrapped(&value, from_beginning, &mut self.sim.oracle.lock());
        } else if self.process == ENVIRONMENT {
            let mut oracle = self.sim.oracle.lock();
            return self.sim.leases.lock().deleted(&(id, text("partitionKey")), writer, &mut oracle);
        }
        Ok(())
    }

    /// S13: dead letters.
    fn letter(&self, write: &Write) {
        let sim = &self.sim;
        let (Write::Create { body } | Write::Replace { body, .. } | Write::Upsert { body, .. }) = write else { return };
        let letter: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| letter.get(name).and_then(Value::as_str).unwrap_or_default();
        let (item, lsn) = (text("itemId"), letter.get("lsn").and_then(Value::as_u64).unwrap_or_default());
        sim.log(format_args!("{} dead letter {item} at {lsn}", self.name));
        let mut oracle = sim.oracle.lock();
        let found = item_number(item).and_then(|item| oracle.find(lsn, item));
        let Some((at, change)) = found.and_then(|at| Some((at, oracle.get(at)?.clone()))) else {
            drop(oracle);
            return sim.violated("S13", format!("dead letter {} is of no change", text("id")));
        };
        oracle.update(at, |change| {
            change.dead_lettered = true;
            change.due_since = None;
        });
        drop(oracle);
        sim.cover(Sometimes::DeadLetter);
        if change.killer {
            sim.cover(Sometimes::KillerIsolated);
        }
        let limit = sim.scenario.processor.dead_letter_after.unwrap_or(u32::MAX);
        let deserved = change.killer || change.poison || change.unparsable || change.retries >= limit;
        if !deserved && sim.scenario.has_no_crashes() {
            return sim.violated("S13", format!("item {item} at {lsn} became a dead letter for nothing"));
        }
        let in_a_row = sim.deliveries.lock().dead_letter(self.process, text("lease"), at, (lsn, item.to_owned()));
        if !deserved && in_a_row > DEAD_LETTERS_IN_A_ROW && sim.hosts.lock().is_mismatched(self.process) {
            let lease = text("lease");
            sim.violated(
                "S13",
                format!("lease {lease}: {in_a_row} dead letters in a row for a type that fits nothing"),
            );
        }
    }
}
