//! Comparing what a command printed with what the document says: `[..]` is any text, `...` any lines.

/// Whether the lines are as expected.
pub(crate) fn matches(expected: &[String], actual: &[&str]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((first, rest)) if first == "..." => (0..=actual.len()).any(|skip| matches(rest, &actual[skip..])),
        Some((first, rest)) => match actual.split_first() {
            Some((line, others)) => line_matches(first, line) && matches(rest, others),
            None => false,
        },
    }
}

fn line_matches(expected: &str, actual: &str) -> bool {
    let mut parts = expected.split("[..]");
    let Some(mut rest) = parts.next().and_then(|first| actual.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn wildcards_match_what_differs_and_nothing_else() {
    assert!(line_matches("a [..] b", "a 12 s b") && line_matches("plain", "plain"));
    assert!(!line_matches("a [..] b", "a 12 s c") && !line_matches("plain", "plain and more"));
    let expected = ["first", "...", "last"].map(str::to_owned);
    assert!(matches(&expected, &["first", "last"]) && matches(&expected, &["first", "x", "y", "last"]));
    assert!(!matches(&expected, &["first", "x"]) && !matches(&expected, &["last"]));
}
