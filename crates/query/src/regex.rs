//! RegexMatch: a small backtracking matcher with a budget, so that no pattern can hold up a query.

/// Steps for one match; patterns that need more are given up as undefined.
const STEPS: usize = 200_000;
/// Groups inside groups: the matcher is recursive.
const MAX_DEPTH: usize = 32;
/// The most repetitions that `{n,m}` may ask for.
const MAX_REPEAT: usize = 1000;
/// How deep the matcher may descend: each repetition of a group costs a few frames of the stack.
const MAX_FRAMES: usize = 500;
/// Longer patterns are not matched.
const MAX_PATTERN: usize = 1000;

/// What the fourth argument of RegexMatch can switch on.
#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    many_lines: bool,
    dot_all: bool,
    ignore_case: bool,
    ignore_blank: bool,
}

#[derive(Debug)]
enum Node {
    Char(char),
    Any,
    Set(Vec<(char, char)>, bool),
    Start,
    End,
    WordEdge(bool),
    Group(Vec<Vec<Node>>),
    Repeat { node: Box<Node>, least: usize, most: usize, greedy: bool },
}

/// Whether `pattern` matches somewhere in `text`; none if it is no pattern this matcher knows, or takes too long.
pub(crate) fn matches(text: &str, pattern: &str, modifiers: &str) -> Option<bool> {
    let mut flags = Flags::default();
    for modifier in modifiers.chars() {
        match modifier {
            'm' => flags.many_lines = true,
            's' => flags.dot_all = true,
            'i' => flags.ignore_case = true,
            'x' => flags.ignore_blank = true,
            _ => return None,
        }
    }
    if pattern.chars().count() > MAX_PATTERN {
        return None;
    }
    let mut parser = Parser { chars: pattern.chars().collect(), at: 0, depth: 0, flags };
    let alternatives = parser.alternatives()?;
    if parser.at < parser.chars.len() {
        return None;
    }
    let text: Vec<char> = text.chars().collect();
    let mut matcher = Matcher { text: &text, flags, steps: STEPS, depth: 0 };
    for start in 0..=text.len() {
        for nodes in &alternatives {
            if matcher.run(nodes, start, &mut |_, _| Some(true))? {
                return Some(true);
            }
        }
    }
    Some(false)
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    flags: Flags,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        self.at += usize::from(found);
        found
    }

    fn alternatives(&mut self) -> Option<Vec<Vec<Node>>> {
        let mut all = vec![self.sequence()?];
        while self.take('|') {
            all.push(self.sequence()?);
        }
        Some(all)
    }

    fn sequence(&mut self) -> Option<Vec<Node>> {
        let mut nodes = Vec::new();
        while let Some(c) = self.peek().filter(|c| !matches!(c, '|' | ')')) {
            self.at += 1;
            if self.flags.ignore_blank && c.is_whitespace() {
                continue;
            }
            let node = self.atom(c)?;
            nodes.push(self.repeated(node)?);
        }
        Some(nodes)
    }

    fn atom(&mut self, c: char) -> Option<Node> {
        Some(match c {
            '.' => Node::Any,
            '^' => Node::Start,
            '$' => Node::End,
            '[' => self.set()?,
            '(' => {
                if self.take('?') && !self.take(':') {
                    return None;
                }
                self.depth += 1;
                let inner = (self.depth <= MAX_DEPTH).then(|| self.alternatives())??;
                self.depth -= 1;
                if !self.take(')') {
                    return None;
                }
                Node::Group(inner)
            }
            '\\' => {
                let escaped = self.peek()?;
                self.at += 1;
                match escaped {
                    'b' => Node::WordEdge(true),
                    'B' => Node::WordEdge(false),
                    other => match class(other) {
                        Some((ranges, negated)) => Node::Set(ranges, negated),
                        None => Node::Char(escape(other)?),
                    },
                }
            }
            '*' | '+' | '?' => return None,
            other => Node::Char(other),
        })
    }

    fn repeated(&mut self, node: Node) -> Option<Node> {
        let (least, most) = match self.peek() {
            Some('*') => (0, usize::MAX),
            Some('+') => (1, usize::MAX),
            Some('?') => (0, 1),
            Some('{') => match self.bounds() {
                Some(bounds) => bounds,
                None => return Some(node),
            },
            _ => return Some(node),
        };
        self.at += 1;
        let greedy = !self.take('?');
        if least > MAX_REPEAT || (most > MAX_REPEAT && most != usize::MAX) || most < least {
            return None;
        }
        Some(Node::Repeat { node: Box::new(node), least, most, greedy })
    }

    /// `{2}`, `{2,}` or `{2,5}`, left at its closing brace; anything else is text.
    fn bounds(&mut self) -> Option<(usize, usize)> {
        let length = self.chars[self.at..].iter().position(|c| *c == '}')?;
        let inner: String = self.chars[self.at + 1..self.at + length].iter().collect();
        let (least, most) = match inner.split_once(',') {
            None => (inner.parse().ok()?, inner.parse().ok()?),
            Some((least, "")) => (least.parse().ok()?, usize::MAX),
            Some((least, most)) => (least.parse().ok()?, most.parse().ok()?),
        };
        self.at += length;
        Some((least, most))
    }

    fn set(&mut self) -> Option<Node> {
        let negated = self.take('^');
        let mut ranges = Vec::new();
        let mut first = true;
        loop {
            let c = self.peek()?;
            self.at += 1;
            if c == ']' && !first {
                return Some(Node::Set(ranges, negated));
            }
            first = false;
            let low = if c == '\\' {
                let escaped = self.peek()?;
                self.at += 1;
                match class(escaped) {
                    Some((inner, false)) => {
                        ranges.extend(inner);
                        continue;
                    }
                    Some(_) => return None,
                    None => escape(escaped)?,
                }
            } else {
                c
            };
            let is_range =
                self.peek() == Some('-') && self.chars.get(self.at + 1).is_some_and(|c| !matches!(c, ']' | '\\'));
            if is_range {
                ranges.push((low, self.chars[self.at + 1]));
                self.at += 2;
            } else {
                ranges.push((low, low));
            }
        }
    }
}

fn class(c: char) -> Option<(Vec<(char, char)>, bool)> {
    let ranges = match c.to_ascii_lowercase() {
        'd' => vec![('0', '9')],
        'w' => vec![('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')],
        's' => vec![(' ', ' '), ('\t', '\r'), ('\u{a0}', '\u{a0}')],
        _ => return None,
    };
    Some((ranges, c.is_ascii_uppercase()))
}

/// What an escaped character stands for; letters that mean more than this matcher knows are refused.
fn escape(c: char) -> Option<char> {
    match c {
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'f' => Some('\u{c}'),
        'v' => Some('\u{b}'),
        '0' => Some('\0'),
        c if c.is_alphanumeric() => None,
        c => Some(c),
    }
}

struct Matcher<'t> {
    text: &'t [char],
    flags: Flags,
    steps: usize,
    depth: usize,
}

/// What to match after a sequence.
type Then<'n, 't> = &'n mut dyn FnMut(&mut Matcher<'t>, usize) -> Option<bool>;

impl<'t> Matcher<'t> {
    /// Matches the nodes at `at`, then whatever follows; none when the budget is used up.
    fn run(&mut self, nodes: &[Node], at: usize, then: Then<'_, 't>) -> Option<bool> {
        if self.depth == MAX_FRAMES {
            return None;
        }
        self.depth += 1;
        let found = self.sequence(nodes, at, then);
        self.depth -= 1;
        found
    }

    /// Characters are matched in a loop; only groups and repetitions need the stack.
    fn sequence(&mut self, mut nodes: &[Node], mut at: usize, then: Then<'_, 't>) -> Option<bool> {
        loop {
            self.steps = self.steps.checked_sub(1)?;
            let Some((node, rest)) = nodes.split_first() else { return then(self, at) };
            match node {
                Node::Group(alternatives) => {
                    for inner in alternatives {
                        if self.run(inner, at, &mut |m, at| m.run(rest, at, then))? {
                            return Some(true);
                        }
                    }
                    return Some(false);
                }
                Node::Repeat { node, least, most, greedy } => {
                    let bounds = (*least, *most, *greedy);
                    return match **node {
                        Node::Char(_) | Node::Any | Node::Set(..) => self.repeat_single(node, bounds, rest, at, then),
                        _ => self.repeat(node, bounds, 0, rest, at, then),
                    };
                }
                Node::Start | Node::End | Node::WordEdge(_) if !self.holds(node, at) => return Some(false),
                Node::Start | Node::End | Node::WordEdge(_) => {}
                _ if !self.accepts(node, at) => return Some(false),
                _ => at += 1,
            }
            nodes = rest;
        }
    }

    /// Repetition of one character: no recursion, however long.
    fn repeat_single(
        &mut self,
        node: &Node,
        (least, most, greedy): (usize, usize, bool),
        rest: &[Node],
        at: usize,
        then: Then<'_, 't>,
    ) -> Option<bool> {
        let mut longest = 0;
        while longest < most && self.accepts(node, at + longest) {
            self.steps = self.steps.checked_sub(1)?;
            longest += 1;
        }
        let Some(extra) = longest.checked_sub(least) else { return Some(false) };
        for step in 0..=extra {
            let count = if greedy { longest - step } else { least + step };
            if self.run(rest, at + count, then)? {
                return Some(true);
            }
        }
        Some(false)
    }

    fn repeat(
        &mut self,
        node: &Node,
        bounds: (usize, usize, bool),
        count: usize,
        rest: &[Node],
        at: usize,
        then: Then<'_, 't>,
    ) -> Option<bool> {
        let (least, most, greedy) = bounds;
        if !greedy && count >= least && self.run(rest, at, then)? {
            return Some(true);
        }
        if count < most {
            let once = self.run(std::slice::from_ref(node), at, &mut |m, next| {
                // A repetition that matches nothing would go on for ever.
                if next == at && count >= least {
                    Some(false)
                } else {
                    m.repeat(node, bounds, count + 1, rest, next, then)
                }
            })?;
            if once {
                return Some(true);
            }
        }
        if greedy && count >= least { self.run(rest, at, then) } else { Some(false) }
    }

    fn accepts(&self, node: &Node, at: usize) -> bool {
        let Some(&c) = self.text.get(at) else { return false };
        let within = |c: char| match node {
            Node::Char(own) => *own == c,
            Node::Any => self.flags.dot_all || c != '\n',
            Node::Set(ranges, negated) => ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated,
            _ => false,
        };
        within(c) || (self.flags.ignore_case && (c.to_lowercase().any(within) || c.to_uppercase().any(within)))
    }

    fn holds(&self, node: &Node, at: usize) -> bool {
        let word =
            |at: Option<usize>| at.and_then(|at| self.text.get(at)).is_some_and(|c| c.is_alphanumeric() || *c == '_');
        let many = self.flags.many_lines;
        match node {
            Node::Start => at == 0 || (many && self.text.get(at - 1) == Some(&'\n')),
            Node::End => at == self.text.len() || (many && self.text.get(at) == Some(&'\n')),
            Node::WordEdge(edge) => (word(at.checked_sub(1)) != word(Some(at))) == *edge,
            _ => false,
        }
    }
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
            x{2}|x{a}||false
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
    fn bad_and_endless_patterns_are_undefined() {
        for bad in ["(", ")", "[a", "*a", "a{3,2}", "(?=a)", "\\1", "\\p{L}", "a{5000}"] {
            assert_eq!(matches("aaa", bad, ""), None, "{bad}");
        }
        assert_eq!(matches("a", "a", "q"), None);
        assert_eq!(matches(&"a".repeat(40), "^(a+)+$b", ""), None);
        assert_eq!(matches("aaa", &"(".repeat(100), ""), None);
        assert_eq!(matches(&"ab".repeat(100_000), "^(ab)*$", ""), None);
        assert_eq!(matches(&"ab".repeat(50), "^(ab)*$", ""), Some(true));
        assert_eq!(matches(&"a".repeat(100_000), &format!("({})*b", "a".repeat(900)), ""), None);
        assert_eq!(matches("", &"(a*)*".repeat(10), ""), Some(true));
        assert_eq!(matches(&"a".repeat(50_000), "^a*$", ""), Some(true));
    }
}
