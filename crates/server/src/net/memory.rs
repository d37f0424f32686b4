//! Memory that requests and responses hold, counted over all connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::problem::{Answer, Problem};

/// How long a client should wait if there is no memory for its request.
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
    /// 429 while requests and responses hold as much as they may.
    pub(crate) fn admit(&self) -> Answer<()> {
        let used = self.used.load(Ordering::Relaxed);
        if used < self.limit {
            return Ok(());
        }
        let mut problem = Problem::throttled(RETRY_AFTER);
        problem.message = format!("requests under way hold {used} bytes: wait, then try again");
        Err(problem)
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
        let problem = budget.admit().unwrap_err();
        assert_eq!((problem.status.as_u16(), problem.retry_after), (429, Some(RETRY_AFTER)));
        drop(second);
        assert!(budget.admit().is_ok());
        drop(first);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
