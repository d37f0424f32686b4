//! Members and elements of checked JSON text, as slices of it.

use super::{
    scan::{blank, end_of},
    unescape::is_named,
};

/// Iterates over the members of a checked object, in their order: raw name with quotes, raw value.
pub fn members(text: &str) -> Members<'_> {
    Members { text, at: 1 }
}

/// Iterates over the raw elements of a checked array.
pub fn elements(text: &str) -> Elements<'_> {
    Elements { text, at: 1 }
}

/// Returns the raw value of the first member called `name`.
pub fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    members(text).find(|(key, _)| is_named(key, name)).map(|(_, value)| value)
}

/// See [`members`].
#[derive(Debug)]
pub struct Members<'a> {
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

/// See [`elements`].
#[derive(Debug)]
pub struct Elements<'a> {
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

/// Returns the start of the next item, past blanks and a comma; none at the closing bracket.
fn next_item(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = blank(bytes, at);
    if bytes.get(at) == Some(&b',') {
        at = blank(bytes, at + 1);
    }
    (!matches!(bytes.get(at), None | Some(b']' | b'}'))).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::{super::unescape::unescape, *};

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
