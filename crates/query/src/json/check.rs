//! Strict validation of JSON text, with a limit on its depth.

use super::scan::{blank, plain_end};

/// How deep arrays and objects of items and parameters may nest, as in Cosmos DB.
pub const MAX_DEPTH: usize = 128;

/// Checks that `bytes` is one JSON value of at most [`MAX_DEPTH`] levels, and returns it without blanks around it.
///
/// # Errors
/// Says what is wrong with it.
pub fn check(bytes: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
    let bytes = text.as_bytes();
    let start = blank(bytes, 0);
    let end = skip(bytes, start, MAX_DEPTH)?;
    if blank(bytes, end) != bytes.len() {
        return Err("something follows the JSON value");
    }
    Ok(&text[start..end])
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
    use super::{super::iterate::elements, *};

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
}
