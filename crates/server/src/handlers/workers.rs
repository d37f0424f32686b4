//! Threads for CPU-bound work, so that the threads that serve sockets stay free.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::available_parallelism,
};

use hyper::StatusCode;
use tokio::sync::Semaphore;

use crate::error::{ApiError, ApiResult};

/// The least number of concurrent jobs: one long job must not block all others.
const LEAST: usize = 2;

/// Runs CPU-bound work on blocking threads, a bounded number at once, in order of arrival.
#[derive(Debug)]
pub(crate) struct Workers(Arc<Semaphore>);

/// Whether the request was cancelled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Signals cancellation when its future is dropped.
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

    /// Runs `work` on another thread. If the future is dropped, work that has not begun never runs, and running work is
    /// cancelled through its argument.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Cancelled) -> T + Send + 'static,
    ) -> ApiResult<T> {
        let closed = |_| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping");
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
                Err(_) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")),
            },
        }
    }
}
