//! Whether a change of owner was allowed, and what it means for the owner before. Pure.

use super::{Broken, lease_document::LeaseDocument};
use crate::{coverage::Sometimes, exec::ProcessId, scenario::WITHOUT_PROMISE};

/// How an ownership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By the owner itself: released, granted or deleted.
    Graceful,
    /// By another host, after the owner had been silent for the interval that it promised.
    Expired,
    /// By another host, although the owner was alive.
    Abrupt,
}

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// A host of this library.
    Host,
    /// A host of the .NET SDK.
    DotNet,
    /// A host of the version before.
    Previous,
    /// An operator that uses `Control`.
    Operator,
    /// The simulation itself, which edits documents by hand.
    Environment,
}

/// Facts about a process, in microseconds.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its instance name.
    pub name: String,
    /// What it is.
    pub kind: ProcessKind,
    /// Its expiration interval.
    pub expiration: u64,
    /// Its balance interval.
    pub acquire: u64,
    /// Its renew interval.
    pub renew: u64,
}

/// An acquisition to be checked.
#[derive(Debug)]
pub struct Takeover<'a> {
    /// The document before.
    pub before: &'a LeaseDocument,
    /// The process that held it, and what is known about it.
    pub holder: Option<(ProcessId, &'a Process)>,
    /// Whether the document was edited by hand.
    pub edited: bool,
    /// How long its owner had not written it.
    pub silent: u64,
    /// For how much of this the process that takes it could not read leases.
    pub unobserved: u64,
    /// How long ago the hand-over request for it was sent.
    pub requested: Option<u64>,
    /// The process that takes it.
    pub taker: (ProcessId, &'a Process),
    /// The number of leases of the owner and of the taker.
    pub counts: (usize, usize),
    /// How long ago the taker last stole from a .NET host.
    pub last_steal: Option<u64>,
    /// Whether forced steals are switched on.
    pub forced_steal: bool,
}

impl Takeover<'_> {
    /// How long the owner must be silent before its lease is free, in microseconds.
    fn promised(&self) -> u64 {
        if let Some(millis) = self.before.promise() {
            return millis * 1000;
        }
        let least = WITHOUT_PROMISE * 1000;
        match self.holder {
            // Hosts of ours that promise nothing: their own interval counts.
            Some((_, holder)) if holder.kind == ProcessKind::Host => holder.expiration,
            Some((_, holder)) => holder.expiration.max(least),
            None if self.edited => least,
            // Granted to a host that has not taken it.
            None => self.taker.1.expiration,
        }
    }

    /// Judges an acquisition by a host of this library or of the version before.
    ///
    /// # Errors
    /// S5, if the owner was alive and had not agreed.
    pub fn classify(&self, cover: &mut dyn FnMut(Sometimes)) -> Result<End, Broken> {
        let (process, taker) = self.taker;
        let own_name = self.before.owner.as_deref() == Some(taker.name.as_str());
        let held_by_taker = self.holder.is_some_and(|(holder, _)| holder == process);
        let previous = taker.kind == ProcessKind::Previous;
        let interval = if previous { taker.expiration } else { self.promised() };
        if self.before.owner.is_none() || own_name && self.holder.is_none() {
            return Ok(End::Graceful);
        }
        // A host of the version before counts all time.
        let observed = if previous { self.silent } else { self.silent.saturating_sub(self.unobserved) };
        // No clock is more than five percent wrong.
        if observed >= interval * 9 / 10 {
            cover(Sometimes::ExpiryTakeover);
            // A host of the version before knows its own interval only: the owner may be alive.
            let alive = self.silent < self.promised() * 9 / 10;
            return Ok(if alive { End::Abrupt } else { End::Expired });
        }
        if held_by_taker {
            return Ok(End::Graceful);
        }
        if own_name {
            return Ok(End::Abrupt);
        }
        // Somebody whose name was written into the document by hand is taken for such a host.
        let foreign = self.holder.is_none_or(|(_, holder)| holder.kind == ProcessKind::DotNet);
        let rare = self.last_steal.is_none_or(|ago| ago >= taker.acquire * 6 / 10);
        // Other hosts may have moved leases since the taker listed them.
        if foreign && rare && self.counts.0 + 2 > self.counts.1 {
            cover(Sometimes::StolenFromDotNet);
            return Ok(End::Abrupt);
        }
        let overdue = self.requested.is_some_and(|ago| ago >= taker.expiration * 4 / 10);
        if overdue && (self.forced_steal || previous) {
            cover(Sometimes::Forced);
            return Ok(End::Abrupt);
        }
        let message = format!(
            "{} took lease {} from {:?}, which had written it {} ms before ({} of them could not be observed) and promised {} ms",
            taker.name,
            self.before.token,
            self.before.owner,
            self.silent / 1000,
            self.unobserved / 1000,
            interval / 1000
        );
        Err(("S5", message))
    }
}
