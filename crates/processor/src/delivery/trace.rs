//! The span of a batch, with the trace contexts that its items carry.

use std::{borrow::Cow, collections::BTreeSet};

use changefeed_core::Change;
use memchr::memmem;
use serde::Deserialize;
use tracing::{Span, field};

use crate::{
    lease::{host_context::HostContext, prefix::LeaseToken},
    notification::FailedBatch,
};

/// How many trace contexts the span of a batch names at most: a batch has up to thousands of items.
const MAX_CONTEXTS: usize = 32;

/// The member of an item with the trace context of its writer.
const MEMBER: &[u8] = b"\"traceparent\"";

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
    let finder = memmem::Finder::new(MEMBER);
    let mut found = BTreeSet::new();
    for body in changes.iter().filter_map(|change| change.current.as_deref()) {
        if finder.find(body).is_some() {
            found.extend(traceparent(body));
        }
        if found.len() == MAX_CONTEXTS {
            break;
        }
    }
    found
}

/// The trace context of an item, if it is a valid one.
fn traceparent(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Carrier<'a> {
        #[serde(borrow)]
        traceparent: Option<Cow<'a, str>>,
    }
    let carrier: Carrier<'_> = serde_json::from_slice(body).ok()?;
    carrier.traceparent.filter(|context| is_valid(context)).map(Cow::into_owned)
}

/// Whether a text is a `traceparent` of version 00: version, trace id, parent id and flags in lower-case hexadecimal.
fn is_valid(context: &str) -> bool {
    let hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let some = |part: &str| part.bytes().any(|byte| byte != b'0');
    match context.split('-').collect::<Vec<_>>().as_slice() {
        [version, trace, parent, flags] => {
            *version == "00" && hex(trace, 32) && some(trace) && hex(parent, 16) && some(parent) && hex(flags, 2)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const CONTEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn with(body: String) -> Change {
        Change { current: Some(Bytes::from(body)), ..crate::delegate::change(1) }
    }

    #[test]
    fn only_a_valid_top_level_member_counts() {
        let of = |body: String| traceparents(&[with(body)]).into_iter().next();
        assert_eq!(of(format!(r#"{{"id":"1","traceparent":"{CONTEXT}"}}"#)).as_deref(), Some(CONTEXT));
        assert_eq!(of(r#"{"id":"1"}"#.to_owned()), None);
        assert_eq!(of(format!(r#"{{"id":"1","inner":{{"traceparent":"{CONTEXT}"}}}}"#)), None);
        assert_eq!(of(r#"{"id":"1","traceparent":7}"#.to_owned()), None);
        for bad in [
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(of(format!(r#"{{"id":"1","traceparent":"{bad}"}}"#)), None, "{bad}");
        }
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
