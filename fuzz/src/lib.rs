//! Code that several targets share.

use std::time::Duration;

use changefeed::lease::document::{LeaseDocument, OwnerKind};

/// Reads everything in a lease, as hosts and tools do, and checks what holds for any lease.
pub fn read_everything(lease: &LeaseDocument) {
    let start = lease.start();
    assert!(start.is_none() || lease.continuation.is_none(), "a checkpoint comes before a start");
    assert_eq!(lease.attempts().continuation, lease.continuation);
    assert!(lease.owner.as_ref().is_none_or(|owner| !owner.trim().is_empty()));
    let owner = lease.owner_kind();
    assert_eq!(owner.is_some(), lease.owner.is_some(), "an owner is of some kind");
    let own = Duration::from_secs(10);
    let expiration = lease.expires_after(own);
    assert!(expiration > Duration::ZERO && expiration <= Duration::from_secs(600), "{expiration:?}");
    match owner {
        None => assert_eq!(expiration, own),
        Some(OwnerKind::Version1 | OwnerKind::Foreign) => assert!(expiration >= Duration::from_secs(60)),
        Some(OwnerKind::Current) => {}
    }
    assert!(lease.search().is_none_or(|search| search.window > 0));
    let read = (lease.epoch(), lease.generation(), lease.session(), lease.hand_over(), lease.search(), lease.status());
    let flags = (lease.is_paused(), lease.is_gone(), lease.range(), lease.written_at());
    for warning in lease.warnings() {
        assert!(warning.starts_with("property cf.") && warning.chars().count() < 1000, "{warning}");
    }
    std::hint::black_box((read, flags, format!("{lease:?}")));
}
