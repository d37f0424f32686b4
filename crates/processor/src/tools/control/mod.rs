//! Operator commands: seek, reset, pause and resume, with dry runs where they move anything.

mod reset;
mod seek;

use std::sync::Arc;

use changefeed_core::{Container, Effect, Error, ErrorKind, Result};

pub use self::{
    reset::Reset,
    seek::{Moved, Position, Seek, SeekTo},
};
use super::snapshot::{ProcessorRef, Snapshot};
use crate::{
    lease::{
        document::LeaseDocument,
        prefix::LeaseToken,
        store::{LeaseStore, StoredLease},
        timing::LeaseTiming,
    },
    runtime::{Runtime, TokioRuntime},
};

/// How often a lease may change under our hands before we give up: its owner writes a few times a second at most.
const CONFLICT_TRIES: u32 = 16;

/// Which leases are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of the processor.
    All,
    /// One, by its token.
    Lease(LeaseToken),
}

/// Operator commands: seek, reset, pause, resume. Hosts may be running or not: what is written into a lease reaches its
/// owner at the owner's next write. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    processor: ProcessorRef,
    timing: LeaseTiming,
    runtime: Option<Arc<dyn Runtime>>,
}

impl Control {
    /// Control of the processor `name`.
    pub fn new(name: &str, monitored: &Container, leases: &Container) -> Self {
        let timing = LeaseTiming::for_container(leases);
        Self { processor: ProcessorRef::new(name, monitored, leases), timing, runtime: None }
    }

    /// The intervals that the hosts use. Default: as for a processor.
    #[must_use]
    pub fn lease_timing(mut self, timing: LeaseTiming) -> Self {
        self.timing = timing;
        self
    }

    /// Where time comes from: for simulations. Default: tokio and the operating system.
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Moves leases to another position, forth or back: from there on everything is delivered (again). An owner loses
    /// the lease, so that it cannot store what it did before, and whoever takes it next begins at the new position.
    /// A batch that is being delivered at that moment may still finish.
    ///
    /// Nothing happens before [`Seek::apply`].
    pub fn seek(&self, to: SeekTo, scope: Scope) -> Seek {
        Seek::new(self.clone(), to, scope)
    }

    /// Forgets that the processor ever ran: deletes its leases and what says that they were made. The next host to
    /// start begins where its own `start_from` says.
    ///
    /// Nothing happens before [`Reset::apply`].
    pub fn reset(&self) -> Reset {
        Reset::new(self.clone())
    }

    /// Has no work begin on these leases until they are resumed; owners finish their batch, store progress and let
    /// go. Returns those that were not paused before. Leases that come from a split of a paused one are paused, too.
    ///
    /// # Errors
    /// `ItemNotFound` if there is no such processor or lease, `Unavailable` if a lease kept changing, and those of
    /// the store.
    pub async fn pause(&self, scope: Scope) -> Result<Vec<LeaseToken>> {
        self.set_paused(scope, true).await
    }

    /// Lets work go on. Returns the leases that were paused.
    ///
    /// # Errors
    /// As for [`Control::pause`].
    pub async fn resume(&self, scope: Scope) -> Result<Vec<LeaseToken>> {
        self.set_paused(scope, false).await
    }

    async fn set_paused(&self, scope: Scope, paused: bool) -> Result<Vec<LeaseToken>> {
        let look = self.processor.snapshot().await?;
        let mut changed = Vec::new();
        for lease in chosen(&look, &scope)? {
            if lease.document.is_paused() != paused {
                let done = |document: &LeaseDocument| document.is_paused() == paused;
                update(&look.store, lease, done, |document| document.set_paused(paused)).await?;
                changed.push(lease.document.token.clone());
            }
        }
        Ok(changed)
    }

    fn clock(&self) -> Arc<dyn Runtime> {
        self.runtime.clone().unwrap_or_else(TokioRuntime::new)
    }
}

/// The leases that are meant; tombstones never are. Refuses to go on beside documents that cannot be read, if all are
/// meant: one of them would stay as it was.
fn chosen<'a>(look: &'a Snapshot, scope: &Scope) -> Result<Vec<&'a StoredLease>> {
    match scope {
        Scope::All => match look.listing.broken.first() {
            Some((id, error)) => {
                Err(Error::new(ErrorKind::Corrupt, format!("document {id} cannot be read: {error}; nothing was done")))
            }
            None => Ok(look.leases().collect()),
        },
        Scope::Lease(token) => match look.leases().find(|lease| lease.document.token == *token) {
            Some(lease) => Ok(vec![lease]),
            None => {
                let known: Vec<&str> = look.leases().map(|lease| lease.document.token.as_str()).collect();
                let message = format!("there is no lease {token}: the leases are {}", known.join(", "));
                Err(Error::new(ErrorKind::ItemNotFound, message))
            }
        },
    }
}

/// Changes a lease by compare-and-swap, reading it again after each conflict. `done` says whether a document that was
/// read after an unknown outcome already is as wanted.
async fn update(
    store: &LeaseStore,
    seen: &StoredLease,
    done: impl Fn(&LeaseDocument) -> bool,
    change: impl Fn(&mut LeaseDocument),
) -> Result<()> {
    let mut current = seen.clone();
    for _ in 0..CONFLICT_TRIES {
        let mut document = current.document.clone();
        change(&mut document);
        match store.replace(&document, &current.etag).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::PreconditionFailed || error.effect() == Effect::Unknown => {
                let unknown = error.effect() == Effect::Unknown;
                current = match store.read(&document).await? {
                    Some(stored) if unknown && done(&stored.document) => return Ok(()),
                    Some(stored) if stored.document.is_gone() => return Err(replaced(&document.token)),
                    Some(stored) => stored,
                    None => return Err(replaced(&document.token)),
                };
            }
            Err(error) if error.kind() == ErrorKind::ItemNotFound => return Err(replaced(&document.token)),
            Err(error) => return Err(error),
        }
    }
    let token = &seen.document.token;
    let message = format!("lease {token} changed {CONFLICT_TRIES} times while it was being written: try again");
    Err(Error::new(ErrorKind::Unavailable, message))
}

fn replaced(token: &LeaseToken) -> Error {
    let message = format!("lease {token} was replaced meanwhile, by a split or merge: try again");
    Error::new(ErrorKind::Unavailable, message)
}
