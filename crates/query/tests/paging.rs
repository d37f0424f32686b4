//! Pages of every size give what one big page gives, and items that come and go between pages neither repeat nor hide
//! others.

mod support;

use std::collections::BTreeMap;

use changefeed_query::Bound;
use serde_json::json;
use support::{Items, NOW, bind, bind_with, rid};

const QUERIES: [&str; 26] = [
    "SELECT * FROM c",
    "SELECT VALUE c.id FROM c WHERE c.n % 3 = 0",
    "SELECT VALUE c.maybe FROM c",
    "SELECT TOP 7 VALUE c.id FROM c",
    "SELECT VALUE c.id FROM c OFFSET 5 LIMIT 11",
    "SELECT VALUE c.id FROM c WHERE c.n > 10 OFFSET 3 LIMIT 4",
    "SELECT c.id, t FROM c JOIN t IN c.tags",
    "SELECT VALUE [c.id, t, u] FROM c JOIN t IN c.tags JOIN u IN c.tags WHERE t != u",
    "SELECT TOP 9 c.id, t FROM c JOIN t IN c.tags",
    "SELECT VALUE t FROM t IN c.tags OFFSET 4 LIMIT 9",
    "SELECT VALUE c.id FROM c ORDER BY c.n",
    "SELECT VALUE c.id FROM c ORDER BY c.group DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.group, c.n DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.mixed",
    "SELECT VALUE c.id FROM c ORDER BY c.mixed DESC, c.group",
    "SELECT TOP 8 VALUE c.id FROM c ORDER BY c.group DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.group OFFSET 6 LIMIT 13",
    "SELECT VALUE [c.id, t] FROM c JOIN t IN c.tags ORDER BY t",
    "SELECT VALUE c.maybe FROM c ORDER BY c.n DESC",
    "SELECT DISTINCT VALUE c.group FROM c",
    "SELECT DISTINCT c.group, c.mixed FROM c",
    "SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags ORDER BY t DESC",
    "SELECT DISTINCT VALUE c.group FROM c OFFSET 1 LIMIT 2",
    "SELECT c.group, COUNT(1) AS n, SUM(c.n) AS s, MAX(c.mixed) AS m FROM c GROUP BY c.group",
    "SELECT c.mixed, COUNT(1) AS n FROM c GROUP BY c.mixed OFFSET 2 LIMIT 3",
    "SELECT COUNT(1) AS n, AVG(c.n) AS a FROM c",
];

fn body(n: usize) -> String {
    let mixed = ["null", "true", "3", "\"s\"", "[1]", "{\"a\":1}", "-1.5"];
    let mut item = format!("{{\"id\":\"{n:03}\",\"n\":{n},\"group\":\"g{}\"", n % 4);
    if !n.is_multiple_of(5) {
        item += &format!(",\"mixed\":{}", mixed[n % 7]);
    }
    if n % 3 == 1 {
        item += &format!(",\"maybe\":{n}.0");
    }
    if n.is_multiple_of(2) {
        let tags: Vec<String> = (0..n % 6).map(|t| format!("\"t{t}\"")).collect();
        item += &format!(",\"tags\":[{}]", tags.join(","));
    }
    item + "}"
}

fn items(numbers: impl Iterator<Item = usize>) -> Items {
    let mut items = Items::default();
    for n in numbers {
        // Rids run against the listing, so that ties show which of the two decides.
        items.0.insert(format!("p{n:05}"), (rid(10_000 - n as u64), body(n)));
    }
    items
}

#[test]
fn pages_of_every_size_give_the_same_rows_in_the_same_order() {
    let items = items(0..40);
    for query in QUERIES {
        let bound = bind(query);
        let whole = items.pages(&bound, usize::MAX).unwrap();
        assert!(!whole.is_empty(), "{query}");
        for size in [1, 2, 3, 5, 7, 13, 39, 40, 41, 1000] {
            assert_eq!(items.pages(&bound, size).unwrap(), whole, "{query} in pages of {size}");
        }
    }
}

/// A small deterministic generator: tests repeat.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

#[test]
fn items_that_come_and_go_between_pages_neither_repeat_nor_hide_others() {
    let queries = [
        "SELECT VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c WHERE c.n % 2 = 0",
        "SELECT VALUE c.id FROM c ORDER BY c.group",
        "SELECT VALUE c.id FROM c ORDER BY c.group DESC, c.mixed",
        "SELECT VALUE c.id FROM c ORDER BY c.mixed DESC",
        "SELECT DISTINCT VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c GROUP BY c.id",
    ];
    for (seed, query) in queries.iter().enumerate() {
        for size in [1, 2, 3, 7] {
            let bound = bind(query);
            let mut dice = Dice(seed as u64 * 100 + size as u64);
            // Even numbers below 80 stay throughout, the others come and go.
            let mut items = items((0..80).filter(|n| n % 4 != 3));
            let stays = |id: &str| id.trim_matches('"').parse::<usize>().unwrap() % 4 < 2;
            let expected: Vec<String> = items.pages(&bound, 1000).unwrap().into_iter().filter(|id| stays(id)).collect();
            let mut seen: BTreeMap<String, usize> = BTreeMap::new();
            let mut kept = Vec::new();
            let mut continuation: Option<String> = None;
            for page in 0.. {
                assert!(page < 1000, "{query} does not end");
                let (rows, next) = items.page(&bound, continuation.as_deref(), size).unwrap();
                for row in rows {
                    *seen.entry(row.clone()).or_default() += 1;
                    if stays(&row) {
                        kept.push(row);
                    }
                }
                continuation = next;
                if continuation.is_none() {
                    break;
                }
                for _ in 0..3 {
                    let n = dice.roll(20) * 4 + 2 + dice.roll(2);
                    if items.0.remove(&format!("p{n:05}")).is_none() {
                        items.0.insert(format!("p{n:05}"), (rid(10_000 - n as u64), body(n)));
                    }
                }
            }
            assert_eq!(kept, expected, "{query} in pages of {size}");
            assert!(seen.values().all(|times| *times == 1), "{query} in pages of {size}: {seen:?}");
        }
    }
}

#[test]
fn an_item_with_many_rows_is_continued_inside() {
    let tags: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let items = Items::of(&[&format!("{{\"id\":\"a\",\"l\":[{}]}}", tags.join(",")), "{\"id\":\"b\",\"l\":[10]}"]);
    let bound = bind("SELECT VALUE x FROM c JOIN x IN c.l");
    let (rows, next) = items.page(&bound, None, 4).unwrap();
    assert_eq!(rows.len(), 4);
    // The same item again, though it is at the end of what was read.
    let mut gone = items.clone();
    gone.0.pop_last();
    let (rows, _) = gone.page(&bound, next.as_deref(), 100).unwrap();
    assert_eq!(rows, ["4", "5", "6", "7", "8", "9"]);
    // The item is gone: the next one is not skipped.
    gone.0.clear();
    gone.put(1, "{\"id\":\"b\",\"l\":[10,11]}");
    let (rows, next) = gone.page(&bound, next.as_deref(), 100).unwrap();
    assert_eq!((rows.join(" "), next), ("10 11".to_owned(), None));
}

#[test]
fn a_query_ends_although_the_item_that_it_stopped_at_is_gone() {
    for (query, bodies) in [
        ("SELECT VALUE c.n FROM c", ["{\"n\":1}", "{\"n\":2}"]),
        ("SELECT VALUE x FROM c JOIN x IN c.l", ["{\"l\":[1]}", "{\"l\":[2,3]}"]),
        ("SELECT VALUE x FROM c JOIN x IN c.l", ["{\"l\":[]}", "{\"l\":[1,2]}"]),
    ] {
        let (bound, mut items) = (bind(query), Items::of(&bodies));
        let (rows, next) = items.page(&bound, None, 1).unwrap();
        assert!(rows.len() == 1 && next.is_some(), "{query}");
        items.0.pop_last();
        assert_eq!(items.page(&bound, next.as_deref(), 1).unwrap(), (Vec::new(), None), "{query}");
    }
}

#[test]
fn rows_of_the_last_item_are_not_lost() {
    let items = Items::of(&["{\"l\":[1,2,3,4,5]}"]);
    for size in 1..7 {
        assert_eq!(items.pages(&bind("SELECT VALUE x FROM c JOIN x IN c.l"), size).unwrap().len(), 5, "{size}");
    }
}

#[test]
fn rows_that_only_the_last_item_pushes_out_are_not_forgotten() {
    // The listing runs against the order, so that each item takes the place of the one before.
    let items = Items::of(&["{\"k\":\"c\"}", "{\"k\":\"b\"}", "{\"k\":\"a\"}"]);
    let queries = [
        "SELECT VALUE c.k FROM c ORDER BY c.k",
        "SELECT DISTINCT VALUE c.k FROM c",
        "SELECT VALUE c.k FROM c GROUP BY c.k",
    ];
    for query in queries {
        for size in [1, 2] {
            assert_eq!(items.pages(&bind(query), size).unwrap().join(""), "\"a\"\"b\"\"c\"", "{query}");
        }
    }
}

#[test]
fn a_caller_may_read_few_items_for_each_page() {
    let items = items(0..40);
    for query in QUERIES.iter().take(10) {
        let bound = bind(query);
        let whole = items.pages(&bound, 1000).unwrap();
        for few in [1, 3] {
            let mut found = Vec::new();
            let mut continuation: Option<String> = None;
            loop {
                let mut run = bound.start(continuation.as_deref(), 2, NOW).unwrap();
                let after = run.begin_after().map(str::to_owned);
                let mut left = items.0.iter().filter(|(p, _)| after.as_ref().is_none_or(|a| *p > a)).peekable();
                for _ in 0..few {
                    if let Some((position, (rid, body))) = left.next_if(|_| run.wants_more()) {
                        run.push(changefeed_query::Row { position, rid, body: body.as_bytes() }).unwrap();
                    }
                }
                let page = run.finish(left.peek().is_none()).unwrap();
                found.extend(page.rows.into_iter().map(|row| String::from_utf8(row).unwrap()));
                continuation = page.continuation;
                if continuation.is_none() {
                    break;
                }
            }
            assert_eq!(found, whole, "{query}, {few} items a page");
        }
    }
}

#[test]
fn large_rows_cut_pages_at_about_three_mebibytes() {
    let mut items = Items::default();
    for n in 0..10 {
        items.put(n, &format!("{{\"id\":\"{n:02}\",\"pad\":\"{}\"}}", "x".repeat(500_000)));
    }
    let queries = [
        "SELECT * FROM c",
        "SELECT * FROM c ORDER BY c.id DESC",
        "SELECT DISTINCT * FROM c",
        "SELECT c.pad, c.id FROM c GROUP BY c.pad, c.id",
    ];
    for query in queries {
        let bound = bind(query);
        let (rows, next) = items.page(&bound, None, usize::MAX).unwrap();
        assert_eq!(rows.len(), 7, "{query}");
        assert!(next.is_some());
        assert_eq!(items.pages(&bound, usize::MAX).unwrap().len(), 10, "{query}");
    }
    let skipping = bind("SELECT VALUE c FROM c ORDER BY c.id OFFSET 8 LIMIT 3");
    assert_eq!(items.pages(&skipping, usize::MAX).unwrap().len(), 2);
}

#[test]
fn continuations_belong_to_their_query_and_parameters() {
    let items = items(0..10);
    let first = bind_with("SELECT * FROM c WHERE c.n >= @n", json!({"@n": 1}));
    let (_, next) = items.page(&first, None, 2).unwrap();
    let next = next.unwrap();
    assert!(next.len() < 200 && next.bytes().all(|b| b.is_ascii_graphic()), "{next}");
    let others = [
        bind_with("SELECT * FROM c WHERE c.n >= @n", json!({"@n": 2})),
        bind_with("SELECT * FROM c WHERE c.n > @n", json!({"@n": 1})),
    ];
    for other in others {
        let error = other.start(Some(&next), 2, NOW).unwrap_err();
        assert!(error.message.contains("another query"), "{error}");
    }
    let again = bind_with("SELECT * FROM c WHERE c.n >= @n", json!({"@n": 1}));
    assert!(again.start(Some(&next), 2, NOW).is_ok());
    // An SDK may send an empty one with its first request.
    assert!(again.start(Some(""), 2, NOW).unwrap().begin_after().is_none());
    for at in 0..next.len() {
        let mut damaged = next.clone().into_bytes();
        damaged[at] ^= 1;
        let _ = again.start(Some(&String::from_utf8(damaged).unwrap()), 2, NOW);
        let _ = again.start(Some(&next[..at]), 2, NOW);
    }
}

#[test]
fn a_sort_key_too_long_for_a_continuation_is_explained() {
    let long = |c: char| format!("{{\"k\":\"{}\"}}", c.to_string().repeat(9000));
    let items = Items::of(&[&long('a'), &long('b')]);
    let bound = bind("SELECT * FROM c ORDER BY c.k");
    assert!(items.page(&bound, None, 1).unwrap_err().message.contains("shorter value"));
    assert_eq!(items.pages(&bound, 2).unwrap().len(), 2);
    assert_eq!(items.pages(&bind("SELECT DISTINCT VALUE c.k FROM c"), 1).unwrap().len(), 2);
}

#[test]
fn streaming_pages_may_end_early_but_sorted_ones_need_every_item() {
    let items = items(0..10);
    let push = |bound: &Bound, at_end| {
        let mut run = bound.start(None, 100, NOW).unwrap();
        let (position, (rid, body)) = items.0.iter().next().unwrap();
        run.push(changefeed_query::Row { position, rid, body: body.as_bytes() }).unwrap();
        run.finish(at_end)
    };
    let page = push(&bind("SELECT * FROM c"), false).unwrap();
    assert_eq!((page.rows.len(), page.continuation.is_some()), (1, true));
    for query in ["SELECT * FROM c ORDER BY c.n", "SELECT VALUE COUNT(1) FROM c", "SELECT DISTINCT c.n FROM c"] {
        assert!(push(&bind(query), false).unwrap_err().message.contains("every item"), "{query}");
        assert!(push(&bind(query), true).is_ok());
    }
}

#[test]
fn an_sdk_resumes_an_ordered_query_at_the_row_it_names() {
    let items = items(0..12);
    let query = "SELECT VALUE c.id FROM c ORDER BY c.group DESC";
    let whole = items.pages(&bind(query), 100).unwrap();
    let resumed = |filter: serde_json::Value| {
        let body = json!({"query": query, "parameters": [], "resumeFilter": filter}).to_string();
        items.pages(&Bound::from_body(body.as_bytes()).unwrap(), 2).unwrap()
    };
    for (at, id) in whole.iter().enumerate() {
        let n: usize = id.trim_matches('"').parse().unwrap();
        let value = format!("g{}", n % 4);
        let rid = rid(10_000 - n as u64);
        assert_eq!(resumed(json!({"value": [value], "rid": rid, "exclude": false})), whole[at..], "{id}");
        assert_eq!(resumed(json!({"value": [value], "rid": rid, "exclude": true})), whole[at + 1..], "{id}");
    }
    assert_eq!(resumed(json!({"value": ["g1"], "exclude": false})), whole[6..]);
    assert_eq!(resumed(json!({"value": ["g1"], "exclude": true})), whole[9..]);
    assert_eq!(resumed(json!({"value": [[]], "exclude": false})), [""; 0]);
    for bad in [json!({"value": []}), json!({"value": [{}]}), json!({"value": [1, 2]}), json!({"valu": [1]})] {
        let body = json!({"query": query, "resumeFilter": bad}).to_string();
        assert!(Bound::from_body(body.as_bytes()).is_err(), "{bad}");
    }
}
