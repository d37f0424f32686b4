//! Strings without their quotes and escapes.

use std::borrow::Cow;

/// Decodes a checked string, quotes included. A lone surrogate becomes U+FFFD.
pub fn unescape(raw: &str) -> Cow<'_, str> {
    let inner = inner(raw);
    if inner.contains('\\') { Cow::Owned(decode(inner).0) } else { Cow::Borrowed(inner) }
}

/// Decodes a checked string, quotes included; none if it has a lone surrogate, which is no character.
pub fn unescape_strict(raw: &str) -> Option<Cow<'_, str>> {
    let inner = inner(raw);
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    let (text, is_exact) = decode(inner);
    is_exact.then_some(Cow::Owned(text))
}

/// Returns `true` if a raw string stands for `name`.
pub(super) fn is_named(raw: &str, name: &str) -> bool {
    let inner = inner(raw);
    inner == name || (inner.contains('\\') && unescape(raw) == name)
}

fn inner(raw: &str) -> &str {
    raw.get(1..raw.len().saturating_sub(1)).unwrap_or("")
}

/// The text without escapes, and whether every escape stands for a character.
fn decode(inner: &str) -> (String, bool) {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    let mut is_exact = true;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest.as_bytes().get(at + 1).copied().unwrap_or(b'\\');
        rest = rest.get(at + 2..).unwrap_or("");
        match code {
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => {
                let (c, used) = unicode(rest);
                is_exact &= c.is_some();
                out.push(c.unwrap_or(char::REPLACEMENT_CHARACTER));
                rest = rest.get(used..).unwrap_or("");
            }
            other => out.push(char::from(other)),
        }
    }
    out.push_str(rest);
    (out, is_exact)
}

/// The character of the digits after `\u`, with those of a second escape if both are a pair of surrogates; and how many
/// bytes it takes.
fn unicode(rest: &str) -> (Option<char>, usize) {
    let hex = |at: usize| rest.get(at..at + 4).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let Some(first) = hex(0) else { return (None, 0) };
    let is_paired = (0xd800..0xdc00).contains(&first) && rest.get(4..6) == Some("\\u");
    if let Some(second) = hex(6).filter(|second| is_paired && (0xdc00..0xe000).contains(second)) {
        return (char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)), 10);
    }
    (char::from_u32(first), 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        for (raw, text) in
            [(r#""plain é""#, "plain é"), (r#""\u00e9\n\"""#, "é\n\""), (r#""\ud83d\ude00""#, "😀"), (r#""""#, "")]
        {
            assert_eq!(unescape(raw), text);
            assert_eq!(unescape_strict(raw).as_deref(), Some(text));
        }
        for lone in [r#""\ud800""#, r#""\udc00\ud800""#, r#""\ud800\u0041""#] {
            assert_eq!(unescape_strict(lone), None, "{lone}");
        }
        assert_eq!(unescape(r#""a\ud800b""#), "a\u{fffd}b");
    }
}
