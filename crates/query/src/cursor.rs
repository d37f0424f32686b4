//! Continuations: where the next page starts. Positions and keys, never offsets, so that items which come and go
//! between pages neither repeat nor hide others.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::error::SqlError;

/// Longer continuations do not fit the headers they travel in.
pub(crate) const MAX_CONTINUATION: usize = 8 * 1024;
/// Marks our continuations, and their version.
const PREFIX: &str = "cfq1.";

/// The contents of a continuation. Short names: it is sent with every page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cursor {
    /// Hash of the query and its parameters.
    pub(crate) q: String,
    /// Position of the last item that was used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) a: Option<String>,
    /// Position of an item of which only the first `n` rows were used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) n: u64,
    /// Key of the last row, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) k: Option<String>,
    /// Rows still to skip.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) s: u64,
    /// Rows still to return, if the query limits them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) t: Option<u64>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Cursor {
    pub(crate) fn write(&self) -> Result<String, SqlError> {
        let json = serde_json::to_vec(self).map_err(|e| SqlError::new(format!("continuation: {e}")))?;
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&json));
        if text.len() > MAX_CONTINUATION {
            return Err(SqlError::new(format!(
                "the sort key of the last row makes a continuation of {} bytes, at most {MAX_CONTINUATION} are possible: \
                 order by a shorter value, or ask for more items in a page",
                text.len()
            )));
        }
        Ok(text)
    }

    pub(crate) fn read(text: &str, query: &str) -> Result<Self, SqlError> {
        let bad = |why: &str| SqlError::new(format!("the continuation cannot be used: {why}; start without it"));
        if text.len() > MAX_CONTINUATION {
            return Err(bad("it is too long"));
        }
        let encoded = text.strip_prefix(PREFIX).ok_or_else(|| bad("this server did not write it"))?;
        let json = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| bad("it is damaged"))?;
        let cursor: Self = serde_json::from_slice(&json).map_err(|_| bad("it is damaged"))?;
        if cursor.q != query {
            return Err(bad("it belongs to another query or other parameters"));
        }
        Ok(cursor)
    }

    /// The key of the last row.
    pub(crate) fn key(&self) -> Result<Option<Vec<u8>>, SqlError> {
        match &self.k {
            None => Ok(None),
            Some(text) => match URL_SAFE_NO_PAD.decode(text) {
                Ok(key) => Ok(Some(key)),
                Err(_) => Err(SqlError::new("the continuation cannot be used: it is damaged; start without it")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continuation_is_printable_and_read_strictly() {
        let cursor = Cursor { q: "h".into(), a: Some("ü\n1".into()), t: Some(3), ..Cursor::default() };
        let text = cursor.write().unwrap();
        assert!(text.bytes().all(|b| b.is_ascii_graphic()));
        assert_eq!(Cursor::read(&text, "h").unwrap(), cursor);
        let other = Cursor::read(&text, "x").unwrap_err();
        assert!(other.message.contains("another query"), "{other}");
        let unknown = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(b"{\"q\":\"h\",\"z\":1}"));
        for bad in ["", "x", "cfq1.", "cfq1.*", "cfq2.AAAA", &unknown, &text[..text.len() - 1], &"a".repeat(9000)] {
            assert!(Cursor::read(bad, "h").is_err(), "{bad}");
        }
        let long = Cursor { k: Some("k".repeat(9000)), ..cursor };
        assert!(long.write().unwrap_err().message.contains("shorter value"));
    }
}
