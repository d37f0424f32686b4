//! RegexMatch, with the `regex` crate: matching takes time in proportion to the text, whatever the pattern.

use std::cell::RefCell;

use regex::{Regex, RegexBuilder};

/// Longer patterns are undefined.
const MAX_PATTERN: usize = 1000;
/// Bytes of a compiled pattern: a match may take as many steps for each character as the pattern has states.
const MAX_COMPILED: usize = 1 << 20;
/// Compiled patterns that each thread keeps: a query asks for the same few patterns with every item.
const KEPT: usize = 8;

thread_local! {
    /// The patterns that this thread used last, newest first.
    static RECENT: RefCell<Vec<Compiled>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
struct Compiled {
    pattern: String,
    modifiers: String,
    /// None if it is no valid pattern.
    regex: Option<Regex>,
}

/// Returns whether `pattern` matches somewhere in `text`; `None` if the pattern or the modifiers are not valid.
pub(crate) fn matches(text: &str, pattern: &str, modifiers: &str) -> Option<bool> {
    RECENT.with_borrow_mut(|recent| {
        match recent.iter().position(|kept| kept.pattern == pattern && kept.modifiers == modifiers) {
            Some(at) => recent[..=at].rotate_right(1),
            None => {
                recent.truncate(KEPT - 1);
                let regex = compile(pattern, modifiers);
                recent.insert(0, Compiled { pattern: pattern.to_owned(), modifiers: modifiers.to_owned(), regex });
            }
        }
        Some(recent.first()?.regex.as_ref()?.is_match(text))
    })
}

fn compile(pattern: &str, modifiers: &str) -> Option<Regex> {
    if pattern.chars().count() > MAX_PATTERN {
        return None;
    }
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(MAX_COMPILED);
    for modifier in modifiers.chars() {
        match modifier {
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'i' => builder.case_insensitive(true),
            'x' => builder.ignore_whitespace(true),
            _ => return None,
        };
    }
    builder.build().ok()
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_expected() {
        let cases = "abcd|ABC||false
            abcd|ABC|i|true
            abcd|^b||false
            abcd|bc$||false
            abcd|cd$||true
            a1b22|[0-9]{2}||true
            a1b2|[0-9]{2}||false
            foobar|^(foo¦bar)+$||true
            foobaz|^(foo¦bar)+$||false
            foo.bar|o\\.b||true
            user@example.com|^[\\w.+-]+@\\w+\\.\\w{2,}$||true
            user@example|^[\\w.+-]+@\\w+\\.\\w{2,}$||false
            a b|a\\sb||true
            a b|a b|x|false
            aaa|^a{2,3}?a$||true
            aaaa|^a{2,3}$||false
            xyz|[^x]||true
            xxx|[^x]||false
            the cat|\\bcat\\b||true
            concat|\\bcat\\b||false
            ab|(?:a)(b)||true
            aXbX|^(a.*?X)(b.*X)$||true
            é|^.$||true
            |^$||true";
        for case in cases.lines().map(str::trim_start) {
            let fields: Vec<String> = case.split('|').map(|field| field.replace('¦', "|")).collect();
            let found = matches(&fields[0], &fields[1], &fields[2]);
            assert_eq!(found, Some(fields[3] == "true"), "{case}");
        }
        assert_eq!(matches("a\nb", "^b", ""), Some(false));
        assert_eq!(matches("a\nb", "^b", "m"), Some(true));
        assert_eq!(matches("a\nb", "a.b", "s"), Some(true));
    }

    #[test]
    fn bad_and_large_patterns_are_undefined() {
        for bad in ["(", ")", "[a", "*a", "a{3,2}", "(?=a)", "\\1", "(a{1000}){1000}", "x{a}"] {
            assert_eq!(matches("aaa", bad, ""), None, "{bad}");
        }
        assert_eq!(matches("a", "a", "q"), None);
        assert_eq!(matches("aaa", &"(".repeat(100), ""), None);
        assert_eq!(matches("aaa", &"a".repeat(1001), ""), None);
    }

    #[test]
    fn patterns_that_backtrack_elsewhere_are_matched() {
        assert_eq!(matches(&"a".repeat(40), "^(a+)+$b", ""), Some(false));
        assert_eq!(matches(&"ab".repeat(100_000), "^(ab)*$", ""), Some(true));
        assert_eq!(matches(&"a".repeat(100_000), &format!("({})*b", "a".repeat(900)), ""), Some(false));
        assert_eq!(matches("", &"(a*)*".repeat(10), ""), Some(true));
    }

    #[test]
    fn a_pattern_that_was_used_before_gives_the_same_result() {
        for round in 0..3 {
            for n in 0..2 * super::KEPT {
                assert_eq!(matches(&format!("{n}"), &format!("^{n}$"), ""), Some(true), "round {round}");
                assert_eq!(matches("x", &format!("^{n}$"), ""), Some(false), "round {round}");
                assert_eq!(matches("A", "a", "i"), Some(true));
                assert_eq!(matches("A", "a", ""), Some(false));
            }
        }
    }
}
