//! Damaged queries are refused or run; none makes the crate panic, and rows are always JSON.

use changefeed_query::exercise;

const CORPUS: [&str; 24] = [
    "SELECT * FROM c WHERE STARTSWITH(c.id, @p)",
    "SELECT TOP @Top * FROM c WHERE STARTSWITH(c.id, 'x') AND c.ContinuationToken <> null",
    "SELECT VALUE {\"_rid\": c._rid, \"orderByItems\": [{\"item\": c.n}], \"payload\": c} FROM c WHERE true ORDER BY c.n DESC",
    "SELECT c._rid, [{\"item\": c.n}] AS orderByItems, c AS payload FROM c WHERE (true) ORDER BY c.n ASC, c.s DESC",
    "SELECT VALUE [{\"item\": COUNT(1)}] FROM c",
    "SELECT c.b, COUNT(1) AS k, SUM(c.n) AS s, MIN(c.n), MAX(c.s), AVG(c.n) FROM c GROUP BY c.b OFFSET 1 LIMIT 2",
    "SELECT DISTINCT VALUE c.b FROM c",
    "SELECT DISTINCT c.b, c.n FROM c ORDER BY c.b, c.n",
    "SELECT c.id, t FROM c JOIN t IN c.l WHERE IS_NUMBER(t) AND t > 1",
    "SELECT VALUE x FROM c JOIN (SELECT VALUE t FROM t IN c.l WHERE t != null) AS x",
    "SELECT VALUE ARRAY(SELECT DISTINCT VALUE t FROM t IN c.l ORDER BY t DESC) FROM c",
    "SELECT VALUE (SELECT VALUE COUNT(t) FROM t IN c.l) FROM c WHERE EXISTS(SELECT VALUE 1 FROM t IN c.l)",
    "SELECT c.n + 1 * 2 - 3 / 4 % 5, c.s || 'x', c.n & 1 | 2 ^ 3, ~c.n, c.n << 2 >> 1, -c.n FROM c",
    "SELECT c.n BETWEEN 1 AND 2, c.n NOT IN (1, 2, @x), c.s LIKE 'a%[b-d]_' ESCAPE '!', c.b ? 1 : 2, c.x ?? 'd' FROM c",
    "SELECT VALUE CONCAT(LOWER(c.s), UPPER(c.s), LEFT(c.s, 1), RIGHT(c.s, 1), SUBSTRING(c.s, 0, 1), REPLACE(c.s, 'a', 'bb')) FROM c",
    "SELECT VALUE [INDEX_OF(c.s, 'a'), REVERSE(c.s), REPLICATE(c.s, 3), TRIM(c.s), ToString(c), StringToNumber('1')] FROM c",
    "SELECT VALUE [ABS(c.n), ROUND(c.n), POWER(c.n, 2), LOG(c.n, 2), SIN(c.n), NumberBin(c.n, 5), IntDiv(7, c.n)] FROM c",
    "SELECT VALUE [ARRAY_CONTAINS(c.l, {\"y\": 1}, true), ARRAY_SLICE(c.l, -2, 1), SetUnion(c.l, [1]), ObjectToArray(c.o)] FROM c",
    "SELECT VALUE [DateTimeAdd('mm', c.n, '2024-01-31T00:00:00Z'), DateTimePart('ns', GetCurrentDateTime()), GetCurrentTicks()] FROM c",
    "SELECT VALUE [TicksToDateTime(c.n), TimestampToDateTime(c.n), DateTimeFromParts(2024, 2, 29, 1, 2, 3, 4)] FROM c",
    "SELECT VALUE c.l[0].y[c.n]['z'] FROM c WHERE NOT (c.id = '1' OR c.id IN ('2')) AND c['o']['x'] = null",
    "SELECT TOP 3 VALUE c.id FROM root AS c ORDER BY c.s -- comment\n",
    "SELECT VALUE \"\\u00e9\\ud83d\\ude00\\n\" /* x */ FROM c OFFSET @a LIMIT 5",
    "SELECT 1e5, .5, 0x1F, 'it''s', undefined, null, TRUE AS t",
];

/// Pieces that meet the grammar in odd places.
const PIECES: [&str; 32] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    "'",
    "\"",
    "\\",
    "@",
    "-",
    "--",
    "/*",
    "*",
    "?",
    "??",
    ":",
    "NOT ",
    " IN ",
    " AND ",
    "SELECT ",
    "VALUE ",
    " FROM c ",
    " ORDER BY ",
    "1e999",
    "9223372036854775807",
    "\u{1F600}",
    "\0",
    "undefined",
    "COUNT(",
];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }

    /// A place between two characters.
    fn place(&mut self, text: &str) -> usize {
        let mut at = self.roll(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    fn damage(&mut self, text: &mut String) {
        let (a, b) = (self.place(text), self.place(text));
        let (from, to) = (a.min(b), a.max(b));
        match self.roll(8) {
            0 => text.insert_str(from, PIECES[self.roll(PIECES.len())]),
            1 if to - from < 9 => text.replace_range(from..to, ""),
            2 => text.truncate(from),
            3 => {
                let copy = text[from..to].to_owned();
                text.insert_str(from, &copy);
            }
            4 => {
                let other = CORPUS[self.roll(CORPUS.len())];
                let (x, y) = (self.place(other), self.place(other));
                text.insert_str(from, &other[x.min(y)..x.max(y)]);
            }
            5 | 6 => {
                // A word of another query in place of one of this: often still a query.
                let other: Vec<&str> = CORPUS[self.roll(CORPUS.len())].split(' ').collect();
                let mut words: Vec<&str> = text.split(' ').collect();
                let at = self.roll(words.len());
                words[at] = other[self.roll(other.len())];
                *text = words.join(" ");
            }
            _ => {
                let mut words: Vec<&str> = text.split(' ').collect();
                let (x, y) = (self.roll(words.len()), self.roll(words.len()));
                words.swap(x, y);
                *text = words.join(" ");
            }
        }
        if text.len() > 4000 {
            text.clear();
        }
    }
}

fn try_one(text: &str, max_items: usize) -> bool {
    match exercise(text, max_items) {
        Ok(rows) => {
            for row in rows {
                let parsed = serde_json::from_slice::<serde_json::Value>(&row);
                let shown = String::from_utf8_lossy(&row);
                // A document may hold numbers that serde_json cannot.
                assert!(parsed.is_ok() || shown.contains("e999"), "{text}: {shown}");
            }
            true
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            false
        }
    }
}

#[test]
fn the_corpus_itself_runs() {
    let refused: Vec<_> = CORPUS.iter().filter(|text| !try_one(text, 2)).collect();
    // Doubled quotes are no escape in this language.
    assert_eq!(refused, [CORPUS.last().unwrap()]);
}

#[test]
fn damaged_queries_never_panic() {
    let mut dice = Dice(0x5eed);
    let mut ran = 0;
    for round in 0..20_000 {
        let mut text = CORPUS[dice.roll(CORPUS.len())].to_owned();
        for _ in 0..=dice.roll(3) {
            dice.damage(&mut text);
        }
        ran += usize::from(try_one(&text, 1 + round % 4));
    }
    // Enough must survive to reach evaluation, or the test says little.
    assert!(ran > 500, "{ran}");
}

/// Expressions that are right by construction.
fn expression(dice: &mut Dice, depth: usize) -> String {
    const LEAVES: [&str; 16] = [
        "c.id",
        "c.n",
        "c.s",
        "c.l",
        "c.o",
        "c.b",
        "c.missing",
        "c.l[0]",
        "c.o.x",
        "1",
        "-2.5",
        "'a'",
        "true",
        "null",
        "undefined",
        "@p",
    ];
    const BINARY: [&str; 17] =
        ["=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "&", "|", "^", "<<", "AND"];
    const CALLS: [(&str, usize); 20] = [
        ("LENGTH", 1),
        ("LOWER", 1),
        ("REVERSE", 1),
        ("ToString", 1),
        ("ABS", 1),
        ("FLOOR", 1),
        ("ARRAY_LENGTH", 1),
        ("IS_DEFINED", 1),
        ("IS_NUMBER", 1),
        ("ObjectToArray", 1),
        ("STARTSWITH", 2),
        ("CONTAINS", 2),
        ("CONCAT", 2),
        ("POWER", 2),
        ("ARRAY_CONTAINS", 2),
        ("SetUnion", 2),
        ("ARRAY_CONCAT", 2),
        ("SUBSTRING", 3),
        ("REPLACE", 3),
        ("IIF", 3),
    ];
    if depth == 0 {
        return LEAVES[dice.roll(LEAVES.len())].to_owned();
    }
    let choice = dice.roll(12);
    let mut sub = || expression(dice, depth - 1);
    match choice {
        0..=2 => {
            let (a, b) = (sub(), sub());
            format!("({a} {} {b})", BINARY[dice.roll(BINARY.len())])
        }
        3 => format!("({} OR {})", sub(), sub()),
        4 => format!("(NOT {})", sub()),
        5 => format!("({} IN ({}, {}))", sub(), sub(), sub()),
        6 => format!("({} BETWEEN {} AND {})", sub(), sub(), sub()),
        7 => format!("({} ? {} : {})", sub(), sub(), sub()),
        8 => format!("[{}, {{\"m\": {}}}]", sub(), sub()),
        9 => format!("({} ?? {})[{}]", sub(), sub(), sub()),
        10 => format!("ARRAY(SELECT VALUE [x, {}] FROM x IN c.l WHERE {} ORDER BY x)", sub(), sub()),
        _ => {
            let (name, count) = CALLS[dice.roll(CALLS.len())];
            let arguments: Vec<String> = (0..count).map(|_| expression(dice, depth - 1)).collect();
            format!("{name}({})", arguments.join(", "))
        }
    }
}

fn query(dice: &mut Dice) -> String {
    let expr = |dice: &mut Dice| {
        let depth = dice.roll(4);
        expression(dice, depth)
    };
    let filter = if dice.roll(2) == 0 { String::new() } else { format!(" WHERE {}", expr(dice)) };
    let join = if dice.roll(4) == 0 { " JOIN t IN c.l" } else { "" };
    let window = ["", "", " OFFSET 1 LIMIT 3"][dice.roll(3)];
    let top = if window.is_empty() && dice.roll(3) == 0 { "TOP 4 " } else { "" };
    let value = expr(dice);
    match dice.roll(6) {
        0 | 1 => format!("SELECT {top}VALUE {value} FROM c{join}{filter}{window}"),
        2 => format!("SELECT {top}{value} AS a, {} FROM c{join}{filter}{window}", expr(dice)),
        3 => format!(
            "SELECT {top}VALUE [c.id, {value}] FROM c{join}{filter} ORDER BY {}, {} DESC{window}",
            expr(dice),
            expr(dice)
        ),
        4 => format!("SELECT DISTINCT {top}VALUE {value} FROM c{join}{filter}{window}"),
        _ => format!(
            "SELECT {top}{value} AS k, COUNT(1) AS n, MAX({}) AS m FROM c{join}{filter} GROUP BY {value}{window}",
            expr(dice)
        ),
    }
}

#[test]
fn random_queries_give_the_same_rows_in_pages_of_any_size() {
    let mut dice = Dice(7);
    let mut rows = 0;
    for _ in 0..2_000 {
        let text = query(&mut dice);
        match exercise(&text, 1000) {
            Ok(whole) => {
                rows += whole.len();
                for size in [1, 3] {
                    assert_eq!(exercise(&text, size).as_ref(), Ok(&whole), "{text} in pages of {size}");
                }
            }
            // A constant is no group key: its value is put in place of the key.
            Err(error) => panic!("{text}: {error}"),
        }
    }
    assert!(rows > 2_000, "{rows}");
}
