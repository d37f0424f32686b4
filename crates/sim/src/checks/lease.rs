//! A lease as the store has it, and the writer of a lease.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    key_range::KeyRange,
    lease_document::{DocumentKey, LeaseDocument},
};
use crate::exec::ProcessId;

/// A lease as the store has it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The document.
    pub document: Arc<LeaseDocument>,
    /// The process that holds it.
    pub holder: Option<ProcessId>,
    /// The keys that it covers, if anybody knows.
    pub range: Option<KeyRange>,
    /// When it was last written.
    pub written: u64,
    /// Since when it has been requested.
    pub requested: Option<u64>,
    /// Since when it has been paused.
    pub paused: Option<u64>,
    /// When an operator last moved it.
    pub sought: Option<u64>,
    /// When it was created.
    pub created: u64,
    /// Whether it was created by a request that was sent before the lease around it existed. That cannot be
    /// prevented, but nothing may be delivered under it.
    pub stale: bool,
    /// Whether it was edited by hand.
    pub edited: bool,
}

/// The writer of a lease.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// The process.
    pub process: ProcessId,
    /// The time of the commit.
    pub now: u64,
    /// When it sent the request.
    pub sent: u64,
}

impl Lease {
    /// Whether a host moves the lease to where an operator moved the one that it was created from.
    pub fn follows_parent(&self, new: &LeaseDocument) -> bool {
        let before = &self.document;
        new.generation() > before.generation() && new.owner.is_none() && new.epoch() == before.epoch() + 1
    }
}

/// The leases that are not tombstones and whose ranges are known.
pub fn ranges(leases: &BTreeMap<DocumentKey, Lease>) -> impl Iterator<Item = (&str, KeyRange)> {
    let alive = leases.values().filter(|lease| !lease.document.is_gone());
    alive.filter_map(|lease| Some((lease.document.token.as_str(), lease.range.clone()?)))
}
