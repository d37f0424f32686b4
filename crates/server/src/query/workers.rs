//! Threads for work that takes long, so that the threads that serve sockets stay free.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::available_parallelism,
};

use hyper::StatusCode;
use tokio::sync::Semaphore;

use crate::problem::{Answer, Problem};

/// How many pieces of long work run at once at least: one that takes long must not keep all others waiting.
const LEAST: usize = 2;

/// Runs long work in turns, first come first served.
#[derive(Debug)]
pub(crate) struct Workers(Arc<Semaphore>);

/// Whether the client has left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Says that the client has left when its future is dropped.
struct CancelOnDrop(Cancelled);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl Workers {
    /// As many as the machine has cores.
    pub(crate) fn new() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new(cores.max(LEAST))))
    }

    /// Performs `work` on another thread when it is its turn. If the future is dropped, work that has not begun never
    /// does, and work under way is told by its argument.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Cancelled) -> T + Send + 'static,
    ) -> Answer<T> {
        let closed = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping");
        let turn = Arc::clone(&self.0).acquire_owned().await.map_err(closed)?;
        let cancelled = Cancelled::default();
        let guard = CancelOnDrop(cancelled.clone());
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&cancelled);
            drop(turn);
            done
        });
        let done = done.await;
        drop(guard);
        match done {
            Ok(done) => Ok(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")),
            },
        }
    }
}
