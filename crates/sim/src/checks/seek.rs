//! S17 for seeks: the position that an operator chose, and that it is not undone.

use std::collections::BTreeMap;

use super::{
    Broken,
    key_range::{KeyRange, gaps},
    lease::{Lease, Writer},
    lease_document::{DocumentKey, LeaseDocument, Start},
};
use crate::{
    oracle::{Oracle, Target},
    runtime::EPOCH_MILLIS,
};

/// The position that a seek wrote.
pub fn target(document: &LeaseDocument) -> Option<Target> {
    match (document.position(), document.start()) {
        (Some(position), _) => Some(Target::After(position)),
        (None, None) => None,
        (None, Some(Start::Beginning)) => Some(Target::After(0)),
        (None, Some(Start::Time(millis))) => Some(Target::Since(millis.saturating_sub(EPOCH_MILLIS) * 1000)),
    }
}

/// A lease that an operator moved ends only if its successors went along. A lease around it that is older is no successor: it
/// is being replaced itself, perhaps after it. Then those that were moved must cover all keys without it.
///
/// # Errors
/// S17.
pub fn check_sought<'a>(old: &Lease, leases: impl Iterator<Item = &'a Lease>) -> Result<(), Broken> {
    let (Some(range), generation, token) = (&old.range, old.document.generation(), &old.document.token) else {
        return Ok(());
    };
    let others = leases.filter(|lease| lease.document.token != *token && !lease.document.is_gone());
    let overlapping =
        others.filter_map(|lease| Some((lease, lease.range.as_ref()?))).filter(|(_, other)| other.overlaps(range));
    let (moved, outdated): (Vec<_>, Vec<_>) =
        overlapping.partition(|(lease, _)| lease.document.generation() >= generation);
    let covered = gaps(range, moved.iter().map(|(_, other)| *other)).is_empty();
    let is_parent = |lease: &Lease, other: &KeyRange| lease.created < old.created && other.covers(range);
    match outdated.iter().find(|(lease, other)| !(covered && is_parent(lease, other))) {
        Some((lease, _)) => {
            let message = format!(
                "the seek of lease {token} to {:?} is undone: it ends, and lease {} stands at {:?}",
                old.document.continuation, lease.document.token, lease.document.continuation
            );
            Err(("S17", message))
        }
        None => Ok(()),
    }
}

/// A host ends a lease: its successors went along with the last seek, but for those that a .NET host has created since the
/// request was sent, in ranges of `by_dotnet`. It begins where it has read to, and nobody can prevent it.
///
/// # Errors
/// S17.
pub fn check_ended(
    old: &Lease,
    leases: &BTreeMap<DocumentKey, Lease>,
    by_dotnet: &[KeyRange],
    writer: Writer,
    oracle: &mut Oracle,
) -> Result<(), Broken> {
    let is_by_dotnet = |lease: &Lease| lease.range.as_ref().is_some_and(|range| by_dotnet.contains(range));
    let unseen = |lease: &Lease| lease.created > writer.sent && is_by_dotnet(lease);
    let generation = old.document.generation();
    let undoes = |lease: &&Lease| unseen(lease) && lease.document.generation() < generation;
    let ranges = leases.values().filter(undoes).filter_map(|lease| lease.range.as_ref());
    let in_old = |range: &&KeyRange| old.range.as_ref().is_some_and(|old| old.overlaps(range));
    ranges.filter(in_old).for_each(|range| oracle.seek_undone(range));
    check_sought(old, leases.values().filter(|lease| !unseen(lease)))
}
