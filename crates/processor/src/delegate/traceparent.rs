//! The trace context that an item carries, in the form of W3C Trace Context. Pure.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;

/// The member of an item with the trace context of its writer.
const MEMBER: &[u8] = b"\"traceparent\"";

/// The trace context of an item, if it is a valid one.
pub(crate) fn traceparent(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Carrier<'a> {
        #[serde(borrow)]
        traceparent: Option<Cow<'a, str>>,
    }
    // Most items have none, and are not read for it.
    memmem::find(body, MEMBER)?;
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
    use super::*;

    const CONTEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_a_valid_top_level_member_counts() {
        let of = |body: String| traceparent(body.as_bytes());
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
}
