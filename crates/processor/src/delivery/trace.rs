//! The span of a batch, with the trace contexts that its items carry.

use std::collections::BTreeSet;

use changefeed_core::Change;
use tracing::{Span, field};

use crate::{
    delegate::traceparent,
    lease::{host_context::HostContext, prefix::LeaseToken},
    notification::FailedBatch,
};

/// How many trace contexts the span of a batch names at most: a batch has up to thousands of items.
const MAX_CONTEXTS: usize = 32;

/// The span of one delegate call. Bodies are looked at only if somebody wants the span.
pub(super) fn span(host: &HostContext, lease: &LeaseToken, batch: &FailedBatch, changes: &[Change]) -> Span {
    let span = tracing::info_span!(
        parent: &host.span,
        "delegate",
        otel.kind = "consumer",
        processor = %host.name,
        instance = %host.instance,
        lease = %lease,
        attempt = batch.attempt,
        first_lsn = %batch.first_lsn,
        last_lsn = %batch.last_lsn,
        items = batch.items,
        traceparents = field::Empty,
    );
    if !span.is_disabled() {
        let contexts = traceparents(changes);
        if !contexts.is_empty() {
            span.record("traceparents", contexts.into_iter().collect::<Vec<_>>().join(","));
        }
    }
    span
}

/// The different trace contexts of items, in order of their text.
fn traceparents(changes: &[Change]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for body in changes.iter().filter_map(|change| change.current.as_deref()) {
        found.extend(traceparent(body));
        if found.len() == MAX_CONTEXTS {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn with(body: String) -> Change {
        Change { current: Some(Bytes::from(body)), ..crate::delegate::change(1) }
    }

    #[test]
    fn a_batch_names_each_context_once_and_not_too_many() {
        let context = |number: usize| format!("00-{number:032x}-b7ad6b7169203331-01");
        let item = |number: usize| with(format!(r#"{{"id":"1","traceparent":"{}"}}"#, context(number)));
        assert_eq!(traceparents(&[item(1), item(2), item(1)]).len(), 2);
        let many: Vec<Change> = (1..100).map(item).collect();
        assert_eq!(traceparents(&many).len(), MAX_CONTEXTS);
    }
}
