//! A lease as the store has it, and the writer of a lease.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Broken,
    key_range::KeyRange,
    lease_document::{DocumentKey, LeaseDocument},
    tiling::is_tiled,
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
    /// When its owner last wrote it, or somebody a new owner.
    pub renewed: u64,
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
    /// A document that was edited by hand.
    pub fn edited(
        old: Option<&Self>,
        new: &Arc<LeaseDocument>,
        range: Option<KeyRange>,
        holder: Option<ProcessId>,
        now: u64,
    ) -> Self {
        Self {
            document: Arc::clone(new),
            holder,
            range,
            written: now,
            renewed: old.filter(|old| !old.is_renewed(new)).map_or(now, |old| old.renewed),
            requested: old
                .filter(|old| old.document.requested_by() == new.requested_by())
                .and_then(|old| old.requested),
            paused: None,
            sought: old.and_then(|old| old.sought),
            created: old.map_or(now, |old| old.created),
            stale: false,
            edited: true,
        }
    }

    /// Whether a write shows that the owner is alive, or that there is another: a request shows neither.
    pub fn is_renewed(&self, new: &LeaseDocument) -> bool {
        let before = &self.document;
        (&before.owner, before.session(), &before.timestamp) != (&new.owner, new.session(), &new.timestamp)
    }

    /// Whether owner, session and epoch of a document are those of the lease.
    pub fn has_owner_of(&self, new: &LeaseDocument) -> bool {
        let before = &self.document;
        (&before.owner, before.session(), before.epoch()) == (&new.owner, new.session(), new.epoch())
    }

    /// Whether a host moves the lease to where an operator moved the one that it was created from.
    pub fn follows_parent(&self, new: &LeaseDocument) -> bool {
        let before = &self.document;
        new.generation() > before.generation() && new.owner.is_none() && new.epoch() == before.epoch() + 1
    }
}

/// How many leases an owner has. Two processes with one instance name are two owners.
pub fn owned(leases: &BTreeMap<DocumentKey, Lease>, owner: Option<&str>, process: Option<ProcessId>) -> usize {
    let named = leases.values().filter(|lease| lease.document.owner.as_deref() == owner && owner.is_some());
    named.filter(|lease| lease.holder.is_none() || process.is_none() || lease.holder == process).count()
}

/// The leases that are not tombstones and whose ranges are known.
pub fn ranges(leases: &BTreeMap<DocumentKey, Lease>) -> impl Iterator<Item = (&str, KeyRange)> {
    let alive = leases.values().filter(|lease| !lease.document.is_gone());
    alive.filter_map(|lease| Some((lease.document.token.as_str(), lease.range.clone()?)))
}

/// The lease that the new one replaces a part of: the narrowest around it, of those that the creator holds if there are
/// any; of two with the same range the younger, which replaces the other.
pub fn parent_of<'a>(
    leases: &'a BTreeMap<DocumentKey, Lease>,
    new: &LeaseDocument,
    range: &KeyRange,
    creator: ProcessId,
) -> Option<&'a Lease> {
    let alive = leases.values().filter(|lease| !lease.document.is_gone() && lease.document.token != new.token);
    let around = alive.filter_map(|lease| Some((lease.range.as_ref()?, lease)));
    let around: Vec<_> = around.filter(|(parent, _)| parent.covers(range)).collect();
    let narrowest = around.iter().copied().reduce(|a, b| {
        let (inside, outside) = (a.0.covers(b.0), b.0.covers(a.0));
        let (held, other) = (b.1.holder == Some(creator), a.1.holder == Some(creator));
        let narrower = inside && (!outside || a.1.created <= b.1.created);
        if held && !other || held == other && narrower { b } else { a }
    });
    // Old leases of ranges that were merged are parents of the same range, each with a position of its own.
    let (nearest, lease) = narrowest?;
    let replaced = around.iter().filter(|(range, other)| *range == nearest && other.holder == Some(creator));
    let position = |lease: &LeaseDocument| (lease.continuation.clone(), lease.generation());
    let exact = replaced.map(|(_, lease)| *lease).find(|lease| position(&lease.document) == position(new));
    Some(exact.unwrap_or(lease))
}

/// Whether an operator has moved a lease that the new one lies in, or that lies in it, and the new one does not know it. The
/// latter is a child of a split that was created so late that it had been split itself.
pub fn is_outdated(leases: &BTreeMap<DocumentKey, Lease>, new: &LeaseDocument, range: &KeyRange) -> bool {
    let moved = |lease: &&Lease| !lease.document.is_gone() && lease.document.generation() > new.generation();
    let nested = |other: &KeyRange| other.covers(range) || range.covers(other);
    leases.values().filter(moved).any(|lease| lease.range.as_ref().is_some_and(nested))
}

/// The children of a lease that is being split which the same command, or a later one, has moved already.
pub fn moved_inside(leases: &BTreeMap<DocumentKey, Lease>, new: &LeaseDocument, range: &KeyRange) -> Vec<KeyRange> {
    let moved = |lease: &&Lease| lease.document.token != new.token && lease.document.generation() >= new.generation();
    let inside = leases.values().filter(moved).filter(|lease| !lease.document.is_gone());
    inside.filter_map(|lease| lease.range.clone()).filter(|inner| range.covers(inner)).collect()
}

/// Whether the leases tile the key space, nothing is left over and no request is open.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn is_tidy(leases: &BTreeMap<DocumentKey, Lease>) -> Result<(), String> {
    if let Some(lease) = leases.values().find(|lease| lease.document.is_gone()) {
        return Err(format!("the tombstone of lease {} is left", lease.document.token));
    }
    is_tiled(&mut ranges(leases).collect::<Vec<_>>())?;
    match leases.values().find(|lease| lease.document.requested_by().is_some()) {
        Some(lease) => Err(format!("the request for lease {} is left", lease.document.token)),
        None => Ok(()),
    }
}

/// S4: a process wrote a lease that it does not hold.
pub fn not_held(writer: &str, before: &LeaseDocument) -> Broken {
    let (token, owner, epoch) = (&before.token, &before.owner, before.epoch());
    ("S4", format!("{writer} wrote lease {token} of {owner:?}, epoch {epoch}, without holding it"))
}

/// S5: a lease changed owners, and its epoch did not go up by one.
pub fn wrong_epoch(before: &LeaseDocument, new: &LeaseDocument) -> Broken {
    let message = format!(
        "lease {} went from {:?} to {:?}, and its epoch from {} to {}",
        new.token,
        before.owner,
        new.owner,
        before.epoch(),
        new.epoch()
    );
    ("S5", message)
}
