//! Memory of requests and responses, counted over all connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::error::{ApiError, ApiResult};

/// The retry delay if the budget is used up.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Counts bytes, and refuses new requests while too many are held.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    used: AtomicUsize,
    limit: usize,
}

impl MemoryBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { used: AtomicUsize::new(0), limit }
    }

    /// Lets a request begin.
    ///
    /// # Errors
    /// 429 while requests and responses use up the budget.
    pub(crate) fn admit(&self) -> ApiResult<()> {
        let used = self.used.load(Ordering::Relaxed);
        if used < self.limit {
            return Ok(());
        }
        let mut error = ApiError::throttled(RETRY_AFTER);
        error.message = format!("requests under way hold {used} bytes: wait, then try again");
        Err(error)
    }

    /// Counts bytes until the result is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Held { budget: Arc::clone(self), bytes }
    }
}

/// Bytes that are counted.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_refused_while_too_much_is_held() {
        let budget = Arc::new(MemoryBudget::new(100));
        let first = budget.hold(99);
        assert!(budget.admit().is_ok());
        let second = budget.hold(500);
        let error = budget.admit().unwrap_err();
        assert_eq!((error.status.as_u16(), error.retry_after), (429, Some(RETRY_AFTER)));
        drop(second);
        assert!(budget.admit().is_ok());
        drop(first);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
