//! A query over a few items: it is refused or answered, in pages of one the same as in one page.
#![no_main]

use changefeed_query::{Bound, Flow, Query, Row, SqlError};
use libfuzzer_sys::fuzz_target;

const ITEMS: [(&str, &str); 4] = [
    ("a", r#"{"id":"a","pk":1,"n":3,"s":"text","list":[1,"x",{"y":null}],"_rid":"a"}"#),
    ("b", r#"{"id":"b","pk":1,"n":-0.5,"s":"","deep":{"er":{"n":1}},"_rid":"b"}"#),
    ("c", r#"{"id":"c","pk":2,"n":null,"s":"text","list":[],"_rid":"c"}"#),
    ("d", r#"{"id":"d","pk":2,"t":true,"_rid":"d"}"#),
];

/// All rows, in pages of `size`. A query can ask for more work than a run of this program has time for.
fn rows(bound: &Bound, size: usize) -> Result<Vec<Vec<u8>>, SqlError> {
    let (mut rows, mut continuation) = (Vec::new(), None::<String>);
    for _ in 0..200 {
        let mut run = bound.start(continuation.as_deref(), size, 0)?;
        let after = run.begin_after().map(str::to_owned);
        let mut at_end = true;
        for (position, body) in ITEMS.iter().filter(|(position, _)| after.as_deref().is_none_or(|after| *position > after)) {
            if !run.wants_more() || run.push(Row { position, rid: position, body: body.as_bytes() })? == Flow::Done {
                at_end = *position == "d";
                break;
            }
        }
        let page = run.finish(at_end)?;
        rows.extend(page.rows);
        match page.continuation {
            Some(next) => continuation = Some(next),
            None => return Ok(rows),
        }
    }
    Ok(rows)
}

fuzz_target!(|text: &str| {
    let Ok(query) = Query::parse(text) else { return };
    let Ok(bound) = query.bind(&[("@p".to_owned(), serde_json::json!({"a": [1, "x"]})), ("@n".to_owned(), 2.into())])
    else {
        return;
    };
    drop(bound.plan(None));
    drop(bound.hints(&["/pk"]));
    let (Ok(whole), Ok(pieces)) = (rows(&bound, 1000), rows(&bound, 1)) else { return };
    for row in &whole {
        serde_json::from_slice::<&serde_json::value::RawValue>(row).expect("a row is JSON");
    }
    if pieces.len() < 200 {
        assert_eq!(whole, pieces, "pages of one give the same rows");
    }
});
