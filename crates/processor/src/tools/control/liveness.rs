//! Whether the owner of a lease is alive, judged from outside by one look. Pure.

use std::time::Duration;

use changefeed_core::Timestamp;

use crate::lease::listing::{Listing, StoredLease};

/// What one look tells about the owner of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// No host owns it.
    None,
    /// It wrote within its promise, or nobody can tell.
    Alive,
    /// It has been silent for longer than it promised, or its process has ended.
    Dead,
}

/// Judges by the store's clock, if the listing has the ages of leases; otherwise by the time that the owner wrote into the
/// lease and by this machine's clock, which may differ from that of the owner. `expiration` counts for an owner that promised
/// nothing. A wrong judgement costs duplicates and loses nothing: every write is fenced by etag and epoch.
pub(super) fn owner_state(listing: &Listing, lease: &StoredLease, now: Timestamp, expiration: Duration) -> OwnerState {
    let document = &lease.document;
    if document.owner.is_none() {
        return OwnerState::None;
    }
    if listing.dead.contains(&document.token) {
        return OwnerState::Dead;
    }
    let since = |at: Timestamp| Duration::from_millis(now.as_millis().saturating_sub(at.as_millis()));
    match listing.ages.get(&document.token).copied().or_else(|| document.written_at().map(since)) {
        Some(age) if age >= document.expires_after(expiration) => OwnerState::Dead,
        _ => OwnerState::Alive,
    }
}
