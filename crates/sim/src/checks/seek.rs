//! S17 for seeks: the position that an operator chose, and that it is not undone.

use super::{
    Broken,
    lease::Lease,
    lease_document::{LeaseDocument, Start},
};
use crate::{oracle::Target, runtime::EPOCH_MILLIS};

/// The position that a seek wrote.
pub fn target(document: &LeaseDocument) -> Option<Target> {
    match (document.position(), document.start()) {
        (Some(position), _) => Some(Target::After(position)),
        (None, None) => None,
        (None, Some(Start::Beginning)) => Some(Target::After(0)),
        (None, Some(Start::Time(millis))) => Some(Target::Since(millis.saturating_sub(EPOCH_MILLIS) * 1000)),
    }
}

/// A lease that an operator moved ends only if its successors went along.
///
/// # Errors
/// S17.
pub fn check_sought<'a>(old: &Lease, leases: impl Iterator<Item = &'a Lease>) -> Result<(), Broken> {
    let (Some(range), generation, token) = (&old.range, old.document.generation(), &old.document.token) else {
        return Ok(());
    };
    let successors = leases.filter(|lease| lease.document.token != *token && !lease.document.is_gone());
    let mut overlapping = successors.filter(|lease| lease.range.as_ref().is_some_and(|other| other.overlaps(range)));
    match overlapping.find(|lease| lease.document.generation() < generation) {
        Some(lease) => {
            let message = format!(
                "the seek of lease {token} to {:?} is undone: it ends, and lease {} stands at {:?}",
                old.document.continuation, lease.document.token, lease.document.continuation
            );
            Err(("S17", message))
        }
        None => Ok(()),
    }
}
