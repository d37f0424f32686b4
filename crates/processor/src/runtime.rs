//! Clock, task spawning and randomness. Nothing else in this crate reads a clock, spawns a task or draws a number, so that
//! a simulation runs the code that ships.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, LazyLock},
    time::Duration,
};

use changefeed_core::{Clock, SystemClock, Timestamp};
use tokio::task::JoinHandle;

/// A future that is owned and can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Clock, task spawning and randomness of a host.
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// Returns the time since some moment in the past. Never goes back; counts the time that the machine was suspended.
    fn monotonic(&self) -> Duration;

    /// Returns the time of day; may jump.
    fn wall(&self) -> Timestamp;

    /// Completes after `duration`. Time that the machine is suspended need not count.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Spawns a task. Its name is for people.
    fn spawn(&self, name: &str, task: BoxFuture<'static, ()>) -> JoinHandle<()>;

    /// Returns a random number.
    fn random(&self) -> u64;

    /// Returns a number that no other process has, the same for all hosts of this process; `None` if there is none.
    ///
    /// A lease store in this process has no other users. So a host that finds a lease there under the number of another
    /// process, or of a host of this process that has ended, knows that the owner is dead, and does not wait for the lease
    /// to expire.
    fn process(&self) -> Option<u64> {
        None
    }
}

/// Tokio's timer and scheduler, the operating system's clock.
#[derive(Debug)]
pub struct TokioRuntime {
    started: tokio::time::Instant,
    suspension: Suspension,
}

impl TokioRuntime {
    /// Uses the tokio runtime of the caller.
    #[expect(clippy::new_ret_no_self, reason = "always used behind a pointer")]
    pub fn new() -> Arc<dyn Runtime> {
        Arc::new(Self { started: tokio::time::Instant::now(), suspension: Suspension::new() })
    }
}

impl Runtime for TokioRuntime {
    fn monotonic(&self) -> Duration {
        self.started.elapsed() + self.suspension.total()
    }

    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
    fn spawn(&self, _name: &str, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        tokio::spawn(task)
    }

    fn random(&self) -> u64 {
        fastrand::u64(..)
    }

    fn process(&self) -> Option<u64> {
        static PROCESS: LazyLock<u64> = LazyLock::new(|| fastrand::u64(..));
        Some(*PROCESS)
    }
}

/// Measures for how long the machine was suspended. Tokio's clock stands still then, and others may take the leases.
#[derive(Debug)]
struct Suspension {
    #[cfg(target_os = "linux")]
    at_start: Duration,
}

#[cfg(target_os = "linux")]
impl Suspension {
    /// Differences below this come from reading two clocks one after the other.
    const NOISE: Duration = Duration::from_millis(50);

    fn new() -> Self {
        Self { at_start: Self::since_boot() }
    }

    /// For how long the machine was suspended since it was booted.
    fn since_boot() -> Duration {
        use rustix::time::{ClockId, clock_gettime};

        let time = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        time(ClockId::Boottime).saturating_sub(time(ClockId::Monotonic))
    }

    fn total(&self) -> Duration {
        let total = Self::since_boot().saturating_sub(self.at_start);
        if total < Self::NOISE { Duration::ZERO } else { total }
    }
}

#[cfg(not(target_os = "linux"))]
impl Suspension {
    fn new() -> Self {
        Self {}
    }

    fn total(&self) -> Duration {
        Duration::ZERO
    }
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
