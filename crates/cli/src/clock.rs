//! The real time, in one place: the command runs in no simulation.
#![expect(clippy::disallowed_methods, reason = "the command lives in real time")]

use std::time::{Duration, Instant};

use changefeed_core::Timestamp;

pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Waits, and nothing else happens meanwhile.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// What `work` gives, or none if it takes longer than `time`.
pub(crate) async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, work).await.ok()
}

/// Waits for `work`, but not longer than `time`.
pub(crate) async fn at_most(time: Duration, work: impl Future<Output = ()>) {
    let _ = within(time, work).await;
}
