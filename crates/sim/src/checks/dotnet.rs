//! What .NET hosts do to leases, which no host of ours can prevent: they undo seeks, and leave holes that must be repaired.

use std::collections::BTreeMap;

use super::{
    key_range::{KeyRange, gaps},
    lease::{Lease, ranges},
    lease_document::{DocumentKey, LeaseDocument},
    seek::check_sought,
    takeover::ProcessKind,
    tiling::Tiling,
};
use crate::{coverage::Sometimes, oracle::Oracle};

/// A .NET host writes the properties that it had listed, and a lease that it has created without an etag: a seek in
/// between is undone if its position goes with its mark.
pub fn overwritten(old: &Lease, new: &LeaseDocument, oracle: &mut Oracle) {
    let before = &old.document;
    let moved = (&before.continuation, before.start()) != (&new.continuation, new.start());
    if let Some(range) = old.range.as_ref().filter(|_| moved && new.generation() < before.generation()) {
        oracle.seek_undone(range);
    }
}

/// A .NET host asks neither for an owner nor for a seek when it deletes a lease: the seek ends with it unless its successors
/// went along. These may have the mark of a tombstone, which makes them none: a hole to be repaired.
pub fn deleted(old: &Lease, leases: &BTreeMap<DocumentKey, Lease>, tiling: &mut Tiling, oracle: &mut Oracle) {
    let Some(range) = &old.range else { return };
    if check_sought(old, leases.values()).is_err() {
        oracle.seek_undone(range);
    }
    let all: Vec<KeyRange> = leases.values().filter_map(|lease| lease.range.clone()).collect();
    if gaps(range, all.iter()).is_empty() {
        tiling.removed(range, &alive_but(leases, &old.document.token));
    }
}

/// A lease of a range is written; `was_gone`: it had the mark of a tombstone before. A .NET host copies the mark into leases
/// that it has created; who takes it away repairs the hole.
pub fn marked(
    tiling: &mut Tiling,
    leases: &BTreeMap<DocumentKey, Lease>,
    (was_gone, new): (bool, &LeaseDocument),
    range: &KeyRange,
    kind: ProcessKind,
    cover: &mut dyn FnMut(Sometimes),
) {
    match (was_gone, new.is_gone()) {
        (false, true) if kind == ProcessKind::DotNet => {
            cover(Sometimes::DotNetMark);
            // An older lease around it is one that it replaces: its owner may have seen this one without the mark, and ends.
            let created = leases.get(&new.key).map_or(u64::MAX, |lease| lease.created);
            let younger = leases.values().filter(|lease| lease.created > created && !lease.document.is_gone());
            let younger: Vec<KeyRange> = younger.filter_map(|lease| lease.range.clone()).collect();
            tiling.removed(range, &younger);
        }
        (true, false) => tiling.created(range),
        _ => {}
    }
}

/// The ranges of leases that are no tombstones, but for this one.
fn alive_but(leases: &BTreeMap<DocumentKey, Lease>, token: &str) -> Vec<KeyRange> {
    ranges(leases).filter(|(other, _)| *other != token).map(|(_, range)| range).collect()
}
