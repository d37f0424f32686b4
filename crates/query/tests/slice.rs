//! The queries that change feed processors and SDKs send, from end to end.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use changefeed_query::{Bound, Flow, Query, Row};

fn items(n: usize) -> Vec<(String, String, String)> {
    (0..n)
        .map(|i| {
            let body =
                format!(r#"{{"id":"lease..{i}","v":{},"ContinuationToken":{}}}"#, i % 3, ["null", "\"7\""][i % 2]);
            (format!("{i:04}"), format!("rid{i:04}"), body)
        })
        .collect()
}

fn all(query: &str, parameters: &[(&str, serde_json::Value)], page: usize) -> Vec<String> {
    let parameters: Vec<_> = parameters.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
    let bound = Query::parse(query).unwrap().bind(&parameters).unwrap();
    let items = items(10);
    let mut continuation: Option<String> = None;
    let mut rows = Vec::new();
    loop {
        let mut run = bound.start(continuation.as_deref(), page, 0).unwrap();
        let after = run.begin_after().map(str::to_owned);
        let mut left = items.iter().filter(|(p, ..)| after.as_ref().is_none_or(|a| p > a)).peekable();
        while let Some((position, rid, body)) = left.next_if(|_| run.wants_more()) {
            let flow = run.push(Row { position, rid, body: body.as_bytes() }).unwrap();
            if flow == Flow::Done {
                break;
            }
        }
        let page = run.finish(left.peek().is_none()).unwrap();
        rows.extend(page.rows.into_iter().map(|row| String::from_utf8(row).unwrap()));
        continuation = page.continuation;
        if continuation.is_none() {
            return rows;
        }
    }
}

#[test]
fn lease_queries_find_their_leases() {
    let found = all("SELECT * FROM c WHERE STARTSWITH(c.id, @p)", &[("@p", "lease..".into())], 3);
    assert_eq!(found.len(), 10);
    assert_eq!(found[0], r#"{"id":"lease..0","v":0,"ContinuationToken":null}"#);
    let cross = "SELECT TOP @Top * FROM c WHERE STARTSWITH(c.id, @p) AND c.ContinuationToken <> null";
    let found = all(cross, &[("@p", "lease..".into()), ("@Top", 1.into())], 100);
    assert_eq!(found, [r#"{"id":"lease..1","v":1,"ContinuationToken":"7"}"#]);
}

#[test]
fn counts_orders_and_limits_do_not_depend_on_the_page() {
    for page in [1, 2, 3, 100] {
        assert_eq!(all("SELECT VALUE COUNT(1) FROM c", &[], page), ["10"]);
        assert_eq!(
            all("SELECT VALUE c.v FROM c ORDER BY c.v DESC OFFSET 2 LIMIT 5", &[], page),
            ["2", "1", "1", "1", "0"]
        );
        let rewritten = r#"SELECT VALUE {"_rid": c.id, "orderByItems": [{"item": c.v}], "payload": c.id} FROM c WHERE true ORDER BY c.v DESC"#;
        let rows = all(rewritten, &[], page);
        assert_eq!(rows[0], r#"{"_rid":"lease..8","orderByItems":[{"item":2}],"payload":"lease..8"}"#);
        assert_eq!(rows.len(), 10);
    }
}

#[test]
fn the_plan_of_a_lease_query_is_what_java_reads() {
    let body = br#"{"query":"SELECT TOP @Top * FROM c WHERE STARTSWITH(c.id, @p)","parameters":[{"name":"@Top","value":1},{"name":"@p","value":"x.."}]}"#;
    let bound = Bound::from_body(body).unwrap();
    assert_eq!(bound.hints(&["/id"]).id_prefix.as_deref(), Some("x.."));
    let plan = serde_json::to_value(bound.plan(None).unwrap()).unwrap();
    let expected = serde_json::json!({
        "partitionedQueryExecutionInfoVersion": 2,
        "queryInfo": {
            "distinctType": "None", "top": 1, "offset": null, "limit": null, "orderBy": [], "orderByExpressions": [],
            "groupByExpressions": [], "groupByAliases": [], "aggregates": [], "groupByAliasToAggregateType": {},
            "rewrittenQuery": "", "hasSelectValue": false, "dCountInfo": null, "hasNonStreamingOrderBy": false
        },
        "queryRanges": [{"min": "", "max": "FF", "isMinInclusive": true, "isMaxInclusive": false}]
    });
    assert_eq!(plan, expected);
}
