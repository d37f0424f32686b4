//! Whether a container is there, as its answers show.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// What the answers of a container say about whether it is there.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    missing: Notify,
    answered: AtomicBool,
}

impl Presence {
    /// It has answered.
    pub(crate) fn confirm(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// A request did not find it.
    pub(crate) fn miss(&self) {
        self.missing.notify_one();
    }

    /// Completes when a request has not found it since the last call.
    pub(crate) async fn missed(&self) {
        self.missing.notified().await;
    }

    /// Returns whether it has answered since the last call.
    pub(crate) fn take_answered(&self) -> bool {
        self.answered.swap(false, Ordering::Relaxed)
    }
}
