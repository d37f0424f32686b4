//! Runs futures side by side, a bounded number at a time.

use futures_util::{StreamExt, stream};

use crate::runtime::BoxFuture;

/// How many requests run at the same time: enough to hide the latency of a remote store, too few to flood it.
pub(crate) const AT_ONCE: usize = 16;

/// Runs futures side by side; results in order.
pub(crate) async fn join_bounded<T>(futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(futures).buffered(AT_ONCE).collect().await
}
