//! One call that takes a query through everything the crate does, for fuzzers and mutation tests.

use crate::error::SqlError;
use crate::query::Query;
use crate::row::Row;
use crate::run::Flow;

/// Items that hold every type, missing members, nesting and text that needs escapes.
const ITEMS: [&str; 6] = [
    r#"{"id":"1","n":1,"s":"a","l":[1,2,3],"o":{"x":null},"b":true}"#,
    r#"{"id":"2","n":-2.5,"s":"B\u00e9\n","l":[],"o":{},"b":false}"#,
    r#"{"id":"3","n":1e300,"l":["x",[1],{"y":[{"z":1}]}],"b":null}"#,
    r#"{"id":"4"}"#,
    r#"{"id":"5","n":"five","s":5,"l":{"0":1},"o":[],"b":"true"}"#,
    r#"{"id":"6","n":0,"s":"","l":[null,null],"o":{"x":{"x":{"x":1}}},"b":true}"#,
];

/// Pages that are fetched at most: joins can make thousands of rows of the few items.
const PAGES: usize = 500;

/// Parses, binds (every parameter is 2), plans and runs `text` over a few fixed items in pages of `max_items`; returns
/// the rows.
///
/// # Errors
/// Whatever is wrong with the query. It never panics, whatever the text.
#[doc(hidden)]
pub fn exercise(text: &str, max_items: usize) -> Result<Vec<Vec<u8>>, SqlError> {
    let query = Query::parse(text)?;
    let names = text.split('@').skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$').unwrap_or(rest.len());
        format!("@{}", &rest[..end])
    });
    let names: std::collections::BTreeSet<String> = names.collect();
    let parameters: Vec<_> = names.into_iter().map(|name| (name, serde_json::Value::from(2))).collect();
    let bound = query.bind(&parameters)?;
    if let Ok(plan) = bound.plan(None) {
        // The rewritten query must be valid, too.
        let rewritten = plan.query_info.rewritten_query.replace("{documentdb-formattableorderbyquery-filter}", "true");
        if !rewritten.is_empty() {
            Query::parse(&rewritten)?;
        }
    }
    let _ = bound.hints(&["/id", "/o/x"]);
    let mut rows = Vec::new();
    let mut continuation: Option<String> = None;
    for _ in 0..PAGES {
        let mut run = bound.start(continuation.as_deref(), max_items, 1_700_000_000_000)?;
        let first = run.begin_after().and_then(|position| position.parse::<usize>().ok()).map_or(0, |at| at + 1);
        let mut next = first;
        while next < ITEMS.len() && run.wants_more() {
            let position = next.to_string();
            let flow = run.push(Row { position: &position, rid: &position, body: ITEMS[next].as_bytes() })?;
            next += 1;
            if flow == Flow::Done {
                break;
            }
        }
        let page = run.finish(next >= ITEMS.len())?;
        rows.extend(page.rows);
        continuation = page.continuation;
        if continuation.is_none() {
            break;
        }
    }
    Ok(rows)
}
