//! JSON text read in place: checked once, then walked by slices, so that what a query does not touch is never decoded.

use std::borrow::Cow;

/// The nesting that documents and parameters may have; also what Cosmos DB allows.
pub(crate) const MAX_DEPTH: usize = 128;

/// Checks that `bytes` is one JSON value of at most [`MAX_DEPTH`] levels and returns it without blanks around it.
pub(crate) fn check(bytes: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
    let bytes = text.as_bytes();
    let start = blank(bytes, 0);
    let end = skip(bytes, start, MAX_DEPTH)?;
    if blank(bytes, end) != bytes.len() {
        return Err("something follows the JSON value");
    }
    Ok(&text[start..end])
}

/// The members of a checked object, in their order; values are raw.
pub(crate) fn members(text: &str) -> Members<'_> {
    Members { text, at: 1 }
}

/// The elements of a checked array, raw.
pub(crate) fn elements(text: &str) -> Elements<'_> {
    Elements { text, at: 1 }
}

/// The raw value of the first member called `name`.
pub(crate) fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    members(text).find(|(key, _)| key_is(key, name)).map(|(_, value)| value)
}

/// Decodes a checked string, quotes included. Lone surrogates become U+FFFD.
pub(crate) fn unescape(raw: &str) -> Cow<'_, str> {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or("");
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
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
                out.push(c);
                rest = rest.get(used..).unwrap_or("");
            }
            other => out.push(char::from(other)),
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn unicode(rest: &str) -> (char, usize) {
    let hex = |at: usize| rest.get(at..at + 4).and_then(|d| u32::from_str_radix(d, 16).ok());
    let Some(first) = hex(0) else { return (char::REPLACEMENT_CHARACTER, 0) };
    let paired = (0xd800..0xdc00).contains(&first) && rest.get(4..6) == Some("\\u");
    if let Some(second) = hex(6).filter(|second| paired && (0xdc00..0xe000).contains(second)) {
        let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER), 10);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 4)
}

fn key_is(raw: &str, name: &str) -> bool {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or("");
    inner == name || (inner.contains('\\') && unescape(raw) == name)
}

pub(crate) struct Members<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    /// Raw key (with quotes) and raw value.
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        let key = next_item(bytes, self.at)?;
        let key_end = end_of(bytes, key)?;
        let colon = blank(bytes, key_end);
        let value = blank(bytes, colon + 1);
        let value_end = end_of(bytes, value)?;
        self.at = value_end;
        Some((self.text.get(key..key_end)?, self.text.get(value..value_end)?))
    }
}

pub(crate) struct Elements<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        let start = next_item(bytes, self.at)?;
        let end = end_of(bytes, start)?;
        self.at = end;
        self.text.get(start..end)
    }
}

/// Where the next item starts, past blanks and a comma; none at the closing bracket.
fn next_item(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = blank(bytes, at);
    if bytes.get(at) == Some(&b',') {
        at = blank(bytes, at + 1);
    }
    (!matches!(bytes.get(at), None | Some(b']' | b'}'))).then_some(at)
}

/// Where a value of checked text ends. Looks only at brackets and quotes, which is enough once it was checked.
fn end_of(bytes: &[u8], start: usize) -> Option<usize> {
    match bytes.get(start)? {
        b'"' => string_end(bytes, start),
        b'{' | b'[' => {
            let mut depth = 0usize;
            let mut at = start;
            loop {
                match bytes.get(at)? {
                    b'"' => {
                        at = string_end(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let ends = |b: &u8| matches!(b, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r');
            Some(bytes[start..].iter().position(ends).map_or(bytes.len(), |i| start + i))
        }
    }
}

fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at = plain_end(bytes, at);
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Where the first quote, backslash or control character is, or a few bytes before the end. Eight bytes at a time:
/// documents are mostly text.
fn plain_end(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    // The lowest bit set marks the first byte of `word` below `limit`.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & HIGHS;
    while let Some(chunk) = bytes.get(at..at + 8).and_then(|chunk| chunk.try_into().ok()) {
        let word = u64::from_le_bytes(chunk);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let special = below(word, 0x20) | quote | backslash;
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at
}

fn blank(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// Strictly reads one value and returns where it ends.
fn skip(bytes: &[u8], start: usize, depth: usize) -> Result<usize, &'static str> {
    match bytes.get(start) {
        Some(b'{') => skip_object(bytes, start, depth),
        Some(b'[') => skip_array(bytes, start, depth),
        Some(b'"') => skip_string(bytes, start),
        Some(b'-' | b'0'..=b'9') => skip_number(bytes, start),
        _ => ["true", "false", "null"]
            .iter()
            .find(|word| bytes[start.min(bytes.len())..].starts_with(word.as_bytes()))
            .map(|word| start + word.len())
            .ok_or("a JSON value is missing"),
    }
}

fn skip_object(bytes: &[u8], start: usize, depth: usize) -> Result<usize, &'static str> {
    let deeper = depth.checked_sub(1).ok_or("it is nested deeper than 128 levels")?;
    let mut at = blank(bytes, start + 1);
    if bytes.get(at) == Some(&b'}') {
        return Ok(at + 1);
    }
    loop {
        if bytes.get(at) != Some(&b'"') {
            return Err("a property name is missing");
        }
        at = blank(bytes, skip_string(bytes, at)?);
        if bytes.get(at) != Some(&b':') {
            return Err("a colon is missing");
        }
        at = blank(bytes, skip(bytes, blank(bytes, at + 1), deeper)?);
        match bytes.get(at) {
            Some(b',') => at = blank(bytes, at + 1),
            Some(b'}') => return Ok(at + 1),
            _ => return Err("an object is not closed"),
        }
    }
}

fn skip_array(bytes: &[u8], start: usize, depth: usize) -> Result<usize, &'static str> {
    let deeper = depth.checked_sub(1).ok_or("it is nested deeper than 128 levels")?;
    let mut at = blank(bytes, start + 1);
    if bytes.get(at) == Some(&b']') {
        return Ok(at + 1);
    }
    loop {
        at = blank(bytes, skip(bytes, at, deeper)?);
        match bytes.get(at) {
            Some(b',') => at = blank(bytes, at + 1),
            Some(b']') => return Ok(at + 1),
            _ => return Err("an array is not closed"),
        }
    }
}

fn skip_string(bytes: &[u8], start: usize) -> Result<usize, &'static str> {
    let mut at = start + 1;
    loop {
        at = plain_end(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => match bytes.get(at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                Some(b'u') if bytes.get(at + 2..at + 6).is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit)) => at += 6,
                _ => return Err("a string has an unknown escape"),
            },
            Some(0..=0x1f) => return Err("a string holds a control character"),
            Some(_) => at += 1,
            None => return Err("a string is not closed"),
        }
    }
}

fn skip_number(bytes: &[u8], start: usize) -> Result<usize, &'static str> {
    let digits = |at: usize| {
        let mut end = at;
        while bytes.get(end).is_some_and(u8::is_ascii_digit) {
            end += 1;
        }
        if end == at { Err("a number lacks digits") } else { Ok(end) }
    };
    let int = start + usize::from(bytes.get(start) == Some(&b'-'));
    let mut end = digits(int)?;
    if bytes.get(int) == Some(&b'0') && end > int + 1 {
        return Err("a number starts with 0");
    }
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1)?;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end = digits(end + 1 + sign)?;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_agrees_with_serde_json() {
        let cases = [
            "{}",
            "[]",
            "{\"a\":[1,-2.5e+3,true,false,null,\"\\u00e9\\n\"]}",
            " [ 1 , 2 ] ",
            "1",
            "\"\"",
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "01",
            "1.",
            "-",
            "1e",
            "tru",
            "\"\\x\"",
            "\"\u{1}\"",
            "[1] 2",
            "nul",
            "[1 2]",
            "{\"a\":1,}",
            "\"abc",
            "-0",
            "0.5",
            "1E5",
            "[[[]]]",
            "{\"a\":{\"b\":[{}]}}",
            "\"\\u12g4\"",
        ];
        for case in cases {
            let theirs = serde_json::from_str::<serde_json::Value>(case).is_ok();
            assert_eq!(check(case.as_bytes()).is_ok(), theirs, "{case}");
        }
        assert!(check(&[b'"', 0xff, b'"']).is_err());
    }

    #[test]
    fn strings_end_where_they_end_whatever_their_length() {
        for length in 0..40 {
            for special in ["", "\\n", "\\\"", "\\\\", "é", "\u{7f}"] {
                let text = format!("[\"{}{special}{}\",1]", "a".repeat(length), "b".repeat(length % 7));
                assert_eq!(check(text.as_bytes()), Ok(text.as_str()));
                assert_eq!(elements(&text).count(), 2, "{text}");
            }
            for bad in ["\u{0}", "\u{1f}", "\n"] {
                let text = format!("\"{}{bad}bbbbbbbbbb\"", "a".repeat(length));
                assert!(check(text.as_bytes()).is_err());
            }
        }
    }

    #[test]
    fn depth_is_limited() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(check(nested(128).as_bytes()).is_ok());
        assert!(check(nested(129).as_bytes()).is_err());
        assert!(check("[".repeat(1_000_000).as_bytes()).is_err());
    }

    #[test]
    fn members_and_elements_are_slices_of_the_text() {
        let text = "{ \"a\" : [1, {\"b\":\"]}\"} , 2.50 ] , \"x\\u0079\" : null}";
        assert_eq!(member(text, "a"), Some("[1, {\"b\":\"]}\"} , 2.50 ]"));
        assert_eq!(member(text, "xy"), Some("null"));
        assert_eq!(member(text, "b"), None);
        let list: Vec<_> = elements("[1, {\"b\":\"]}\"} , 2.50 ]").collect();
        assert_eq!(list, ["1", "{\"b\":\"]}\"}", "2.50"]);
        assert_eq!(unescape("\"\\ud83d\\ude00\\ud800\\\"\""), "😀\u{fffd}\"");
    }
}
