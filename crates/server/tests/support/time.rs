//! Real time: sockets live in it, and a test that hangs must end.

use std::{
    future::Future,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use changefeed_core::{Clock, SystemClock};

/// Longer than anything here takes, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The outcome of `future`; none if it takes longer than `limit`.
#[expect(clippy::disallowed_methods, reason = "sockets live in real time")]
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

/// The outcome of `future`, which must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(LONG, future).await.unwrap_or_else(|| panic!("{what} did not happen within {LONG:?}"))
}

/// Waits as a slow client does.
#[expect(clippy::disallowed_methods, reason = "slowness is what is tested")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

/// How long `future` takes.
#[expect(clippy::disallowed_methods, reason = "how long the server waits is what is tested")]
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let begin = std::time::Instant::now();
    let outcome = future.await;
    (outcome, begin.elapsed())
}

/// The moment, as the operating system has it.
pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(SystemClock.wall().as_millis())
}
