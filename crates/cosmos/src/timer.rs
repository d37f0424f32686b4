//! Time limits of calls and pauses between them: the only place of the crate that waits for a clock.

use std::{future::Future, time::Duration};

/// The outcome of `future`, or none if it takes longer.
#[expect(clippy::disallowed_methods, reason = "sockets live in real time")]
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

/// Waits before something is repeated.
#[expect(clippy::disallowed_methods, reason = "sockets live in real time")]
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
