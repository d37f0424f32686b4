//! Bounds on what a query may take, and where pages end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::cell::Cell;

use changefeed_query::{Bound, Flow, Row};
use serde_json::json;
use support::{Items, NOW, bind, rid, rows};

/// Why a query over one item is refused.
fn refused(query: &str, body: &str) -> String {
    let mut run = bind(query).start(None, 100, NOW).unwrap();
    let pushed = run.push(Row { position: "p", rid: &rid(1), body: body.as_bytes() });
    pushed.map(|_| run.finish(true)).expect_err(query).message
}

#[test]
fn a_row_of_more_than_four_mebibytes_is_refused_before_it_is_made() {
    let body = json!({"id": "1", "b": "x".repeat(1_000_000), "l": vec![0; 300]}).to_string();
    let columns: Vec<_> = (0..2000).map(|n| format!("c.b AS a{n}")).collect();
    let array = vec!["c.b"; 2000].join(",");
    for query in [
        format!("SELECT {} FROM c", columns.join(",")),
        format!("SELECT VALUE [{array}] FROM c"),
        format!("SELECT * FROM c ORDER BY [{array}]"),
        format!("SELECT DISTINCT VALUE [{array}] FROM c"),
        format!("SELECT COUNT(1) FROM c GROUP BY [{array}]"),
        format!("SELECT VALUE ARRAY_LENGTH(SetUnion([{array}], [])) FROM c"),
    ] {
        assert!(refused(&query, &body).contains("4 MiB"), "{query:.60}: {}", refused(&query, &body));
    }
    assert_eq!(rows("SELECT c.b AS x, c.b AS y, c.b AS z FROM c", &[&body]).len(), 1);
}

#[test]
fn copies_of_text_are_bounded() {
    let body = json!({"id": "1", "b": format!("\n{}", "x".repeat(1_000_000)), "l": vec![0; 300]}).to_string();
    for query in [
        format!("SELECT VALUE ARRAY_LENGTH(ARRAY(SELECT VALUE c.b FROM x IN c.l)) FROM c WHERE {}", "true"),
        "SELECT * FROM c WHERE EXISTS(SELECT VALUE x FROM x IN c.l ORDER BY c.b)".to_owned(),
        format!("SELECT * FROM c WHERE {}false", "CONTAINS(c.b, 'y') OR ".repeat(100)),
    ] {
        let why = refused(&query, &body);
        assert!(why.contains("64 MiB") || why.contains("4 MiB"), "{query:.60}: {why}");
    }
    let ten = format!("SELECT VALUE c.id FROM c WHERE {}true", "CONTAINS(c.b, 'y') OR ".repeat(10));
    assert_eq!(rows(&ten, &[&body]).len(), 1);
}

#[test]
fn a_caller_can_stop_in_the_middle_of_an_item() {
    let list: Vec<_> = (0..490).collect();
    let body = json!({"id": "1", "x": list}).to_string();
    let bound = bind("SELECT VALUE COUNT(1) FROM c JOIN a IN c.x JOIN b IN c.x WHERE a = b");
    let mut run = bound.start(None, 100, NOW).unwrap();
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() == 5
    };
    let row = Row { position: "p", rid: &rid(1), body: body.as_bytes() };
    assert!(run.push_until(row, &stop).unwrap_err().message.contains("too long"));
    assert_eq!(asked.get(), 5, "nothing is evaluated after the caller has stopped it");
    assert_eq!(run_count(&bound, &body), "490");
}

fn run_count(bound: &Bound, body: &str) -> String {
    Items::of(&[body]).pages(bound, 10).unwrap().join(",")
}

#[test]
fn an_exactly_full_last_page_carries_no_continuation() {
    let bodies: Vec<_> = (0..6).map(|n| json!({"id": n.to_string(), "n": n}).to_string()).collect();
    let bodies: Vec<_> = bodies.iter().map(String::as_str).collect();
    let items = Items::of(&bodies);
    for (query, first) in [
        ("SELECT * FROM c", 6),
        ("SELECT * FROM c WHERE c.n < 4", 4),
        ("SELECT * FROM c ORDER BY c.n", 6),
        ("SELECT DISTINCT VALUE c.n FROM c", 6),
        ("SELECT c.n FROM c GROUP BY c.n", 6),
    ] {
        let (rows, next) = items.page(&bind(query), None, first).unwrap();
        assert_eq!((rows.len(), next), (first, None), "{query}");
        let (rows, next) = items.page(&bind(query), None, first - 1).unwrap();
        assert_eq!((rows.len(), next.is_some()), (first - 1, true), "{query}");
        let (rows, next) = items.page(&bind(query), next.as_deref(), 1).unwrap();
        assert_eq!((rows.len(), next), (1, None), "{query}");
    }
}

#[test]
fn distinct_rows_that_are_sorted_by_something_else_come_once_each() {
    let bodies = [(1, "b"), (2, "a"), (3, "b"), (4, "c"), (5, "a"), (6, "c"), (7, "d")];
    let bodies: Vec<_> = bodies.iter().map(|(n, v)| json!({"id": n.to_string(), "n": n, "v": v}).to_string()).collect();
    for backwards in [false, true] {
        let mut listed: Vec<_> = bodies.iter().map(String::as_str).collect();
        if backwards {
            listed.reverse();
        }
        let items = Items::of(&listed);
        for size in [1, 2, 3, 100] {
            let all = |query: &str| items.pages(&bind(query), size).unwrap().join("");
            assert_eq!(all("SELECT DISTINCT VALUE c.v FROM c ORDER BY c.n"), r#""b""a""c""d""#, "{size}");
            assert_eq!(all("SELECT DISTINCT VALUE c.v FROM c ORDER BY c.n DESC"), r#""d""c""a""b""#, "{size}");
            assert_eq!(all("SELECT DISTINCT VALUE c.v FROM c ORDER BY c.v"), r#""a""b""c""d""#, "{size}");
        }
    }
}

#[test]
fn a_sorted_query_resumes_under_another_filter() {
    let bodies: Vec<_> = (0..9).map(|n| json!({"id": n.to_string(), "n": n}).to_string()).collect();
    let items = Items::of(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let query = |filter: &str| bind(&format!("SELECT VALUE c.n FROM c WHERE ({filter}) ORDER BY c.n"));
    let (_, next) = items.page(&query("true"), None, 3).unwrap();
    let (rows, _) = items.page(&query("c.n >= 2"), next.as_deref(), 3).unwrap();
    assert_eq!(rows.join(""), "345");
    let other = bind("SELECT VALUE c.n FROM c WHERE (true) ORDER BY c.id").start(next.as_deref(), 3, NOW);
    assert!(other.unwrap_err().message.contains("another query"));
}

#[test]
fn rows_that_are_sorted_already_make_the_next_pages_without_items() {
    let bodies: Vec<_> = (0..40).map(|n| json!({"id": n.to_string(), "n": 100 - n}).to_string()).collect();
    let items = Items::of(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let bound = bind("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 2 LIMIT 30");
    let whole = items.pages(&bound, 7).unwrap();
    let mut run = bound.start(None, 7, NOW).unwrap();
    for (position, (rid, body)) in &items.0 {
        assert_eq!(run.push(Row { position, rid, body: body.as_bytes() }).unwrap(), Flow::More);
    }
    let mut page = run.finish(true).unwrap();
    let mut found = std::mem::take(&mut page.rows);
    while let Some(mut ahead) = page.ahead.take() {
        assert_eq!(ahead.origin().unwrap(), page.continuation.unwrap());
        ahead.set_max_items(5);
        assert!(ahead.is_of(&bound) && !ahead.wants_more() && ahead.bytes() > 0);
        page = ahead.finish(true).unwrap();
        found.append(&mut page.rows);
    }
    assert_eq!(page.continuation, None);
    assert_eq!(found.iter().map(|row| String::from_utf8_lossy(row)).collect::<Vec<_>>(), whole);
}
