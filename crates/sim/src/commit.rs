//! The server's half of a write: performs it, and has the checks look at it in the same moment.

use std::sync::Arc;

use changefeed::{DeadLetterDocument, lease::document::LeaseDocument};
use changefeed_core::{Backend, Batch, ErrorKind, Response, Result, Write, WriteResult};

use crate::{
    checks::ledger::{Broken, Writer},
    exec::{ProcessId, WORLD},
    reach::Sometimes,
    scenario::Store,
    workload::item_number,
    world::World,
};

/// A store, about to perform writes of a process.
#[derive(Debug)]
pub struct Server {
    /// The world.
    pub world: Arc<World>,
    /// Who asks.
    pub process: ProcessId,
    /// Its name.
    pub name: Arc<str>,
    /// When it asked.
    pub sent: u64,
    /// Which store.
    pub store: Store,
    /// The store itself.
    pub inner: Arc<dyn Backend>,
}

/// The lease that a batch writes, if it does.
pub fn lease_in(store: Store, batch: &Batch) -> Option<Arc<LeaseDocument>> {
    if store != Store::Leases {
        return None;
    }
    match batch.writes.first()? {
        Write::Create { body } | Write::Replace { body, .. } | Write::Upsert { body, .. } => {
            LeaseDocument::parse(body).ok().map(Arc::new)
        }
        Write::Delete { .. } => None,
    }
}

impl Server {
    /// Performs a batch; `lease`: what [`lease_in`] found in it.
    pub async fn commit(&self, batch: Batch, lease: Option<Arc<LeaseDocument>>) -> Result<Response<Vec<WriteResult>>> {
        let write = batch.writes.first().cloned();
        let written = self.inner.write(batch).await;
        let Some(write) = write else { return written };
        match &written {
            Ok(results) => {
                if self.process != WORLD && self.world.exec.is_dead(self.process) {
                    self.world.reached(Sometimes::LateCommit);
                }
                let lsn = results.first().map_or(0, |written| written.lsn.get());
                match self.store {
                    Store::Feed => {}
                    Store::Leases => self.lease(&write, lease, lsn),
                    Store::Letters => self.letter(&write),
                }
            }
            Err(error) => {
                self.world.log(format_args!("{} {:?} {write:?} failed: {}", self.name, self.store, error.kind()));
                match error.kind() {
                    ErrorKind::PreconditionFailed => self.note_conflict(&write, lease.as_deref()),
                    ErrorKind::AlreadyExists if !self.world.ledger.lock().complete => {
                        self.world.reached(Sometimes::BootstrapRace);
                    }
                    _ => {}
                }
            }
        }
        written
    }

    fn note_conflict(&self, write: &Write, lease: Option<&LeaseDocument>) {
        let (Write::Replace { .. }, Some(document)) = (write, lease) else { return };
        let ledger = self.world.ledger.lock();
        if ledger.by_token(document.token.as_str()).and_then(|lease| ledger.holder(lease)) == Some(self.process) {
            drop(ledger);
            self.world.reached(Sometimes::ConflictStillMine);
        }
    }

    fn lease(&self, write: &Write, lease: Option<Arc<LeaseDocument>>, lsn: u64) {
        let world = &self.world;
        let now = world.exec.now();
        let expiration = world.scenario.processor.expiration * 1000;
        let writer = Writer { process: self.process, name: &self.name, now, sent: self.sent, expiration };
        let result = match write {
            Write::Create { body } | Write::Replace { body, .. } | Write::Upsert { body, .. } => match lease {
                None => {
                    self.other_document(body);
                    Ok(())
                }
                Some(document) => self.lease_document(document, writer),
            },
            Write::Delete { id, .. } => {
                world.log(format_args!("{} deletes {id}", self.name));
                world.ledger.lock().deleted(id, writer)
            }
        };
        if let Err((check, what)) = result {
            world.violated(check, what);
        }
        world.ledger.lock().newest = lsn;
        world.news(Store::Leases, |_| true);
    }

    fn lease_document(&self, document: Arc<LeaseDocument>, writer: Writer<'_>) -> Result<(), Broken> {
        let world = &self.world;
        world.log(format_args!(
            "{} lease {} owner {} epoch {} at {}{}{}",
            self.name,
            document.token,
            document.owner.as_deref().unwrap_or("-"),
            document.epoch(),
            document.continuation.as_deref().unwrap_or("-"),
            document.hand_over().map(|asked| format!(" for {}", asked.to)).unwrap_or_default(),
            if document.is_gone() { " gone" } else { "" },
        ));
        if document.suspect().is_some() {
            world.reached(Sometimes::Careful);
        }
        let truth = world.truth.lock();
        world.ledger.lock().wrote(document, writer, &truth, &mut |what| world.reached(what))
    }

    /// `.info` says that the first leases are complete.
    fn other_document(&self, body: &[u8]) {
        let id = serde_json::from_slice::<serde_json::Value>(body).ok();
        let id = id.as_ref().and_then(|value| value.get("id")?.as_str()).unwrap_or_default();
        self.world.log(format_args!("{} writes {id}", self.name));
        if id.ends_with(".info") {
            self.world.ledger.lock().complete = true;
        }
    }

    fn letter(&self, write: &Write) {
        let world = &self.world;
        let (Write::Create { body } | Write::Replace { body, .. } | Write::Upsert { body, .. }) = write else { return };
        let Ok(letter) = serde_json::from_slice::<DeadLetterDocument>(body) else {
            return world.violated("S13", "a dead letter cannot be read".to_owned());
        };
        world.log(format_args!("{} dead letter {} at {}", self.name, letter.item_id, letter.lsn));
        let mut truth = world.truth.lock();
        let found = item_number(&letter.item_id).and_then(|item| truth.find(letter.lsn, item));
        let Some(at) = found else {
            drop(truth);
            return world.violated("S13", format!("dead letter {} is of no change", letter.id));
        };
        world.reached(Sometimes::DeadLetter);
        if truth.get(at).is_some_and(|change| change.killer) {
            world.reached(Sometimes::KillerBuried);
        }
        let limit = world.scenario.processor.dead_letter_after.unwrap_or(u32::MAX);
        let deserves = |change: &crate::truth::Written| change.killer || change.poison || change.asked >= limit;
        if truth.get(at).is_some_and(|change| !deserves(change)) && world.scenario.blames_truly() {
            let what = format!("item {} at {} became a dead letter for nothing", letter.item_id, letter.lsn);
            drop(truth);
            return world.violated("S13", what);
        }
        truth.update(at, |change| change.dead = true);
    }
}
