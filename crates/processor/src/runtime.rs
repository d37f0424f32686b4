//! The door to the world: time, tasks and chance. Nothing else in this crate reads a clock, spawns or draws, so that a
//! simulation can run the very code that ships.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use changefeed_core::{Clock, SystemClock, Timestamp};
use tokio::task::JoinHandle;

/// A future that is owned and can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a host takes from its surroundings.
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// Time since some moment in the past; never jumps, never goes back.
    fn monotonic(&self) -> Duration;

    /// The time of day; may jump.
    fn wall(&self) -> Timestamp;

    /// Ends after `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Runs a task beside the caller. Its name is for people.
    fn spawn(&self, name: &str, task: BoxFuture<'static, ()>) -> JoinHandle<()>;

    /// A number that nobody can foresee.
    fn random(&self) -> u64;
}

/// Tokio's timer and scheduler, the operating system's clock and randomness.
#[derive(Debug)]
pub struct TokioRuntime {
    started: tokio::time::Instant,
}

impl TokioRuntime {
    /// The runtime that the caller runs on.
    #[expect(clippy::new_ret_no_self, reason = "always used behind a pointer")]
    pub fn new() -> Arc<dyn Runtime> {
        Arc::new(Self { started: tokio::time::Instant::now() })
    }
}

impl Runtime for TokioRuntime {
    fn monotonic(&self) -> Duration {
        self.started.elapsed()
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

    #[expect(clippy::disallowed_types, reason = "the standard library's only source of randomness")]
    fn random(&self) -> u64 {
        use std::hash::{BuildHasher, RandomState};

        RandomState::new().hash_one(self.monotonic())
    }
}
