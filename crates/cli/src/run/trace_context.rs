//! The trace context of a batch, in the form of W3C Trace Context: that of its items, if they carry one and agree. Pure.

use changefeed::RawChanges;
use serde::Deserialize;

/// What a receiver needs to go on with a trace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TraceContext {
    pub(super) parent: String,
    /// What systems of tracing add of their own.
    pub(super) state: Option<String>,
}

/// A longer `tracestate` need not be passed on.
const LONGEST_STATE: usize = 512;

impl TraceContext {
    /// The context of a batch. A batch with items of several traces belongs to none of them: each item has its own.
    pub(super) fn of(changes: &RawChanges) -> Option<Self> {
        let mut found: Option<Self> = None;
        for (change, info) in changes.with_info() {
            let Some(parent) = info.traceparent() else { continue };
            match &found {
                Some(known) if known.parent != parent => return None,
                Some(_) => {}
                None => found = Some(Self { parent, state: change.current.as_deref().and_then(state) }),
            }
        }
        found
    }
}

/// The member `tracestate` of an item, if it can be a header.
fn state(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Carrier {
        tracestate: Option<String>,
    }
    let carrier: Carrier = serde_json::from_slice(body).ok()?;
    let is_shown = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    carrier.tracestate.filter(|state| !state.is_empty() && state.len() <= LONGEST_STATE && state.bytes().all(is_shown))
}

#[cfg(test)]
mod tests {
    use changefeed_core::{Bytes, Change, ItemId, Lsn, Operation, Timestamp};
    use serde_json::{Value, json};

    use super::*;

    fn batch(bodies: &[Value]) -> RawChanges {
        let change = |body: &Value| Change {
            id: ItemId::new("a").unwrap(),
            rid: None,
            lsn: Lsn::new(1),
            timestamp: Timestamp::from_millis(0),
            operation: Operation::Write,
            current: Some(Bytes::from(body.to_string())),
            previous: None,
            previous_lsn: None,
        };
        bodies.iter().map(change).collect::<Vec<_>>().into()
    }

    #[test]
    fn a_batch_has_the_context_on_which_its_items_agree() {
        let (one, other) = (format!("00-{:032x}-{:016x}-01", 1, 2), format!("00-{:032x}-{:016x}-01", 3, 4));
        let (plain, first) = (json!({ "id": "a" }), json!({ "traceparent": one, "tracestate": "vendor=1" }));
        let found = TraceContext::of(&batch(&[plain.clone(), first.clone(), json!({ "traceparent": one })]));
        assert_eq!(found, Some(TraceContext { parent: one.clone(), state: Some("vendor=1".to_owned()) }));
        assert_eq!(TraceContext::of(&batch(&[first, json!({ "traceparent": other })])), None);
        assert_eq!(TraceContext::of(&batch(&[plain, json!({ "traceparent": "no context" })])), None);
        let odd = json!({ "traceparent": one, "tracestate": "a=1\r\nset-cookie: b" });
        assert_eq!(TraceContext::of(&batch(&[odd])).unwrap().state, None, "it cannot be a header");
    }
}
