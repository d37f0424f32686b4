//! Time limits of requests: the only place of the client that waits for a clock.

use std::{future::Future, time::Duration};

/// The outcome of `future`, or none if it takes longer.
#[expect(clippy::disallowed_methods, reason = "sockets live in real time")]
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "sockets live in real time")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

/// The time, to measure how long something takes.
pub(crate) fn instant() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
