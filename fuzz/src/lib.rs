//! What several targets share.

use changefeed::lease::document::LeaseDocument;

/// Reads all that a lease says, as hosts and tools do.
pub fn read_everything(lease: &LeaseDocument) {
    let start = lease.start();
    assert!(start.is_none() || lease.continuation.is_none(), "a checkpoint comes before a start");
    assert_eq!(lease.attempts().continuation, lease.continuation);
    assert!(lease.owner.as_ref().is_none_or(|owner| !owner.trim().is_empty()));
    let read = (lease.epoch(), lease.generation(), lease.session(), lease.hand_over(), lease.suspect(), lease.state());
    let flags = (lease.is_paused(), lease.is_gone(), lease.range(), lease.written_at());
    for warning in lease.warnings() {
        assert!(warning.starts_with("property cf.") && warning.chars().count() < 1000, "{warning}");
    }
    std::hint::black_box((read, flags, format!("{lease:?}")));
}
