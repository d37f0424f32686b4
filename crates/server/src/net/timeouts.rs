//! Timeouts. The only module of the server that waits for a clock.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;

/// Returns the output of `future`; none if it takes longer.
#[expect(clippy::disallowed_methods, reason = "sockets live in real time")]
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "sockets live in real time")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

/// A deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(tokio::time::Instant);

impl Deadline {
    pub(crate) fn after(length: Duration) -> Self {
        Self(tokio::time::Instant::now() + length)
    }

    pub(crate) fn is_over(&self) -> bool {
        tokio::time::Instant::now() >= self.0
    }
}

/// A timer for hyper that keeps a single deadline per connection. Hyper creates a timer for each request and drops it soon
/// after; here that only stores the deadline, without registering a timer in the runtime. In return the task of the
/// connection has to run [`ConnectionTimer::tick`] beside it, which wakes the task when the current deadline is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionTimer(Arc<Mutex<Option<Instant>>>);

impl ConnectionTimer {
    /// Wakes the task whenever a deadline may be over. No timeout may be shorter than `least`. Never returns.
    pub(crate) async fn tick(&self, least: Duration) -> Infallible {
        loop {
            let now = self.now();
            // A timeout that starts later ends no sooner than that.
            let noted = *self.0.lock();
            let next = noted.filter(|deadline| *deadline > now).unwrap_or(now + least);
            tokio::time::sleep_until(next.into()).await;
        }
    }
}

impl Timer for ConnectionTimer {
    fn sleep(&self, length: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + length)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        *self.0.lock() = Some(deadline);
        Box::pin(Wait { deadline, waits: self.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// A timeout that completes when it is polled after its deadline.
struct Wait {
    deadline: Instant,
    waits: ConnectionTimer,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.waits.now() < self.deadline { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Sleep for Wait {}
