//! LIKE: `%` any text, `_` one character, `[a-c]` and `[^a-c]` one of a set.

enum Part {
    Any,
    One,
    Char(char),
    Set { ranges: Vec<(char, char)>, negated: bool },
}

/// Returns `true` if the whole of `text` matches `pattern`. Time is bounded by the product of their lengths.
pub(crate) fn matches(text: &str, pattern: &str, escape: Option<char>) -> bool {
    let parts = parts(pattern, escape);
    let text: Vec<char> = text.chars().collect();
    let (mut t, mut p) = (0, 0);
    // The position to resume from after a mismatch: the last % and how much of the text it covers.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match parts.get(p) {
            Some(Part::Any) => {
                retry = Some((p, t));
                p += 1;
            }
            Some(part) if part.accepts(text[t]) => {
                t += 1;
                p += 1;
            }
            _ => match retry {
                Some((any, covered)) => {
                    retry = Some((any, covered + 1));
                    p = any + 1;
                    t = covered + 1;
                }
                None => return false,
            },
        }
    }
    parts[p.min(parts.len())..].iter().all(|part| matches!(part, Part::Any))
}

impl Part {
    fn accepts(&self, c: char) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Char(own) => *own == c,
            Self::Set { ranges, negated } => ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated,
        }
    }
}

fn parts(pattern: &str, escape: Option<char>) -> Vec<Part> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        at += 1;
        found.push(match c {
            c if Some(c) == escape => {
                at += 1;
                Part::Char(chars.get(at - 1).copied().unwrap_or(c))
            }
            '%' => Part::Any,
            '_' => Part::One,
            '[' => match chars[at..].iter().position(|c| *c == ']').filter(|len| *len > 0) {
                Some(len) => {
                    let set = set(&chars[at..at + len]);
                    at += len + 1;
                    set
                }
                None => Part::Char('['),
            },
            c => Part::Char(c),
        });
    }
    found
}

fn set(mut chars: &[char]) -> Part {
    let negated = chars.first() == Some(&'^') && chars.len() > 1;
    if negated {
        chars = &chars[1..];
    }
    let mut ranges = Vec::new();
    while let [first, rest @ ..] = chars {
        match rest {
            ['-', last, after @ ..] => {
                ranges.push((*first, *last));
                chars = after;
            }
            _ => {
                ranges.push((*first, *first));
                chars = rest;
            }
        }
    }
    Part::Set { ranges, negated }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        let cases = [
            ("fruit bowl", "%fruit%", true),
            ("fruit", "fruit", true),
            ("fruit", "fru", false),
            ("fruit", "f_uit", true),
            ("fruit", "%t", true),
            ("fruit", "t%", false),
            ("", "", true),
            ("", "%", true),
            ("a", "", false),
            ("b", "[a-c]", true),
            ("d", "[a-c]", false),
            ("d", "[^a-c]", true),
            ("-", "[a-]", true),
            ("[", "[", true),
            ("aXbXc", "a%b%c", true),
            ("aXbX", "a%b%c", false),
            ("ééa", "é_a", true),
            ("%", "[%]", true),
        ];
        for (text, pattern, expected) in cases {
            assert_eq!(matches(text, pattern, None), expected, "{text} LIKE {pattern}");
        }
        assert!(matches("50%", "50!%", Some('!')));
        assert!(!matches("500", "50!%", Some('!')));
        let long = "a".repeat(5000);
        assert!(!matches(&long, &("%a".repeat(200) + "b"), None));
    }
}
