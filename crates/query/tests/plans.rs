//! Plans as SDKs read them, and rewritten queries that give the rows SDKs merge.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use changefeed_query::Query;
use serde_json::{Value, json};
use support::{Items, bind, bind_with};

fn info(query: &str) -> Value {
    serde_json::to_value(bind(query).plan(None).unwrap()).unwrap()["queryInfo"].take()
}

/// The members that differ from those of the plainest plan.
fn interesting(query: &str) -> Value {
    let plain = info("SELECT * FROM c");
    let mut found = info(query);
    found.as_object_mut().unwrap().retain(|name, value| plain[name] != *value);
    found
}

#[test]
fn the_plainest_plan_has_every_member() {
    let plan = serde_json::to_value(bind("SELECT * FROM c").plan(None).unwrap()).unwrap();
    let expected = json!({
        "partitionedQueryExecutionInfoVersion": 2,
        "queryInfo": {
            "distinctType": "None", "top": null, "offset": null, "limit": null, "orderBy": [], "orderByExpressions": [],
            "groupByExpressions": [], "groupByAliases": [], "aggregates": [], "groupByAliasToAggregateType": {},
            "rewrittenQuery": "", "hasSelectValue": false, "dCountInfo": null, "hasNonStreamingOrderBy": false
        },
        "queryRanges": [{"min": "", "max": "FF", "isMinInclusive": true, "isMaxInclusive": false}]
    });
    assert_eq!(plan, expected);
}

#[test]
fn plans_of_each_kind() {
    let filter = "({documentdb-formattableorderbyquery-filter})";
    let cases = [
        ("SELECT VALUE c.a FROM c", json!({"hasSelectValue": true})),
        ("SELECT TOP 5 * FROM c WHERE c.a = 1", json!({"top": 5})),
        (
            "SELECT * FROM c ORDER BY c.v DESC",
            json!({"orderBy": ["Descending"], "orderByExpressions": ["c.v"], "rewrittenQuery":
                format!("SELECT c._rid, [{{\"item\": c.v}}] AS orderByItems, c AS payload\nFROM c\nWHERE {filter}\nORDER BY c.v DESC")}),
        ),
        (
            "SELECT TOP 3 r.a, r[\"b c\"] AS x FROM root r WHERE r.z > 1 OR r.y ORDER BY r.v, r[\"b c\"] DESC",
            json!({"top": 3, "orderBy": ["Ascending", "Descending"], "orderByExpressions": ["r.v", "r[\"b c\"]"], "rewrittenQuery":
                format!("SELECT TOP 3 r._rid, [{{\"item\": r.v}}, {{\"item\": r[\"b c\"]}}] AS orderByItems, {{\"a\": r.a, \"x\": r[\"b c\"]}} AS payload\n\
                FROM root AS r\nWHERE (((r.z > 1) OR r.y)) AND {filter}\nORDER BY r.v ASC, r[\"b c\"] DESC")}),
        ),
        (
            "SELECT VALUE t FROM c JOIN t IN c.tags ORDER BY c.v OFFSET 2 LIMIT 3",
            json!({"offset": 2, "limit": 3, "hasSelectValue": true, "orderBy": ["Ascending"], "orderByExpressions": ["c.v"], "rewrittenQuery":
                format!("SELECT TOP 5 c._rid, [{{\"item\": c.v}}] AS orderByItems, t AS payload\nFROM c JOIN t IN c.tags\nWHERE {filter}\nORDER BY c.v ASC")}),
        ),
        (
            "SELECT c.a FROM c WHERE c.b OFFSET 10 LIMIT 5",
            json!({"offset": 10, "limit": 5, "rewrittenQuery": "SELECT TOP 15 c.a FROM c WHERE c.b"}),
        ),
        ("SELECT DISTINCT VALUE c.a FROM c", json!({"distinctType": "Unordered", "hasSelectValue": true})),
        (
            "SELECT DISTINCT TOP 4 VALUE c.a FROM c",
            json!({"distinctType": "Unordered", "top": 4, "hasSelectValue": true, "rewrittenQuery": "SELECT DISTINCT VALUE c.a FROM c"}),
        ),
        (
            "SELECT DISTINCT VALUE c.a FROM c ORDER BY c.a",
            json!({"distinctType": "Ordered", "hasSelectValue": true, "orderBy": ["Ascending"], "orderByExpressions": ["c.a"], "rewrittenQuery":
                format!("SELECT c._rid, [{{\"item\": c.a}}] AS orderByItems, c.a AS payload\nFROM c\nWHERE {filter}\nORDER BY c.a ASC")}),
        ),
        (
            "SELECT VALUE COUNT(1) FROM c WHERE c.a = @a",
            json!({"aggregates": ["Count"], "hasSelectValue": true, "rewrittenQuery": "SELECT VALUE [{\"item\": COUNT(1)}]\nFROM c\nWHERE (c.a = @a)"}),
        ),
        (
            "SELECT VALUE AVG(c.v) FROM c",
            json!({"aggregates": ["Average"], "hasSelectValue": true, "rewrittenQuery":
                "SELECT VALUE [{\"item\": {\"sum\": SUM(c.v), \"count\": COUNT(c.v)}}]\nFROM c"}),
        ),
        (
            "SELECT VALUE MIN(c.v) FROM c",
            json!({"aggregates": ["Min"], "hasSelectValue": true, "rewrittenQuery":
                "SELECT VALUE [{\"item\": MIN(c.v), \"item2\": {\"min\": MIN(c.v), \"count\": COUNT(c.v)}}]\nFROM c"}),
        ),
        (
            "SELECT COUNT(1) AS n, SUM(c.v) AS s FROM c",
            json!({"groupByAliases": ["n", "s"], "groupByAliasToAggregateType": {"n": "Count", "s": "Sum"}, "rewrittenQuery":
                "SELECT {\"n\": {\"item\": COUNT(1)}, \"s\": {\"item\": SUM(c.v)}} AS payload\nFROM c"}),
        ),
        (
            "SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k",
            json!({"groupByExpressions": ["c.k"], "groupByAliases": ["k", "n"], "groupByAliasToAggregateType": {"k": null, "n": "Count"}, "rewrittenQuery":
                "SELECT [{\"item\": c.k}] AS groupByItems, {\"k\": c.k, \"n\": {\"item\": COUNT(1)}} AS payload\nFROM c\nGROUP BY c.k"}),
        ),
        (
            "SELECT VALUE MAX(c.v) FROM c GROUP BY c.k, c.l",
            json!({"groupByExpressions": ["c.k", "c.l"], "aggregates": ["Max"], "hasSelectValue": true, "rewrittenQuery":
                "SELECT [{\"item\": c.k}, {\"item\": c.l}] AS groupByItems, [{\"item\": MAX(c.v), \"item2\": {\"max\": MAX(c.v), \"count\": COUNT(c.v)}}] AS payload\nFROM c\nGROUP BY c.k, c.l"}),
        ),
    ];
    for (query, expected) in cases {
        let bound = bind_with(query, json!({"@a": 1}));
        let plan = serde_json::to_value(bound.plan(None).unwrap()).unwrap();
        let plain = info("SELECT * FROM c");
        let mut found = plan["queryInfo"].clone();
        found.as_object_mut().unwrap().retain(|name, value| plain[name] != *value);
        assert_eq!(found, expected, "{query}");
        let rewritten = found["rewrittenQuery"].as_str().unwrap_or(query).replace(&filter[1..filter.len() - 1], "true");
        Query::parse(&rewritten).unwrap_or_else(|e| panic!("{rewritten}: {e}"));
    }
    assert_eq!(interesting("SELECT * FROM c"), json!({}));
}

#[test]
fn what_an_sdk_cannot_merge_has_no_plan() {
    for query in [
        "SELECT VALUE COUNT(1) + 1 FROM c",
        "SELECT VALUE {\"n\": COUNT(1)} FROM c",
        "SELECT ABS(SUM(c.v)) AS s FROM c GROUP BY c.k",
        "SELECT VALUE t FROM t IN c.tags ORDER BY t",
    ] {
        assert!(bind(query).plan(None).is_err(), "{query}");
    }
}

#[test]
fn plans_are_refused_to_sdks_that_lack_a_feature() {
    let python = "Aggregate,CompositeAggregate,Distinct,MultipleOrderBy,OffsetAndLimit,OrderBy,Top,NonStreamingOrderBy";
    let java = "Aggregate, CompositeAggregate, MultipleOrderBy, MultipleAggregates, OrderBy, OffsetAndLimit, Distinct, \
                GroupBy, Top, DCount, NonValueAggregate, NonStreamingOrderBy";
    let cases = [
        ("SELECT * FROM c WHERE c.a = 1", ""),
        ("SELECT VALUE COUNT(1) FROM c", "Aggregate"),
        ("SELECT COUNT(1) AS n, MAX(c.a) AS m FROM c", "NonValueAggregate MultipleAggregates"),
        ("SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k", "GroupBy"),
        ("SELECT DISTINCT TOP 1 c.a FROM c ORDER BY c.a", "Distinct OrderBy Top"),
        ("SELECT * FROM c ORDER BY c.a, c.b OFFSET 1 LIMIT 1", "MultipleOrderBy OffsetAndLimit"),
    ];
    for (query, features) in cases {
        let bound = bind(query);
        assert_eq!(bound.features().join(" "), features, "{query}");
        assert!(bound.plan(Some(java)).is_ok(), "{query}");
        assert_eq!(bound.plan(Some("")).is_ok(), features.is_empty(), "{query}");
    }
    let error = bind("SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k").plan(Some(python)).unwrap_err();
    for words in ["unsupported features", "Upgrade your SDK", "GroupBy"] {
        assert!(error.message.contains(words), "{error}");
    }
}

fn two_ranges() -> [Items; 2] {
    let bodies = |start: usize| -> Vec<String> {
        let body = |n: usize| {
            let v = [n.to_string(), "null".to_owned(), format!("\"s{n}\""), String::new()][n % 4].clone();
            let v = if v.is_empty() { String::new() } else { format!(",\"v\":{v}") };
            format!("{{\"id\":\"{n}\",\"k\":\"k{}\",\"n\":{n}{v},\"_rid\":\"{}\"}}", n % 3, support::rid(n as u64))
        };
        (start..start + 10).map(body).collect()
    };
    [0, 100].map(|start| {
        let mut items = Items::default();
        for (index, body) in bodies(start).iter().enumerate() {
            items.put(start + index, body);
        }
        items
    })
}

/// The rows that an SDK gets from each range.
fn rows_of_ranges(query: &str, filter: &str) -> Vec<Vec<Value>> {
    let plan = bind(query).plan(None).unwrap();
    let rewritten = match plan.query_info.rewritten_query.as_str() {
        "" => query.to_owned(),
        text => text.replace("{documentdb-formattableorderbyquery-filter}", filter),
    };
    let bound = bind(&rewritten);
    let parse = |row: &String| serde_json::from_str(row).unwrap();
    two_ranges().iter().map(|items| items.pages(&bound, 3).unwrap().iter().map(parse).collect()).collect()
}

#[test]
fn ordered_rows_of_ranges_are_envelopes_in_order() {
    let ranges = rows_of_ranges("SELECT VALUE c.id FROM c WHERE c.n != 5 ORDER BY c.v DESC", "true");
    for rows in &ranges {
        assert_eq!(rows.len(), if rows[0]["payload"] == "6" { 9 } else { 10 });
        assert!(rows.iter().all(|row| row["_rid"].is_string() && row["orderByItems"].as_array().unwrap().len() == 1));
    }
    // An undefined sort value is an item without "item", as the service writes it.
    assert_eq!(ranges[0].last().unwrap()["orderByItems"], json!([{}]));
    let whole: Vec<_> = ranges[0].iter().map(|row| row["payload"].as_str().unwrap()).collect();
    assert_eq!(whole, ["6", "2", "8", "4", "0", "9", "1", "7", "3"]);
}

#[test]
fn filters_that_sdks_write_on_resume_select_the_rest() {
    let query = "SELECT VALUE c.id FROM c ORDER BY c.v";
    let rest = |filter: &str| -> Vec<String> {
        rows_of_ranges(query, filter)[0].iter().map(|row| row["payload"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(rest("true"), ["3", "7", "1", "5", "9", "0", "4", "8", "2", "6"]);
    // Java, after a number, after undefined; JavaScript, after a string with a quote; .NET, with type tests.
    assert_eq!(rest("c.v > 4"), ["8"]);
    assert_eq!(rest("c.v >= 4"), ["4", "8"]);
    assert_eq!(rest("IS_DEFINED(c.v)"), ["1", "5", "9", "0", "4", "8", "2", "6"]);
    assert_eq!(rest("NOT IS_DEFINED(c.v)"), ["3", "7"]);
    assert_eq!(rest("(c.v >= 's2\\u0027')"), ["6"]);
    assert_eq!(rest("( c.v > 4 OR IS_STRING(c.v) OR IS_ARRAY(c.v) OR IS_OBJECT(c.v) )"), ["8", "2", "6"]);
    assert_eq!(rest(&format!("(c.v < 5 OR (c.v = 8 AND c._rid > \"{}\"))", "A")), ["0", "4", "8"]);
    assert_eq!(rest("false"), [""; 0]);
}

#[test]
fn partial_aggregates_merge_to_the_whole() {
    let sum = |query: &str, part: &dyn Fn(&Value) -> f64| -> f64 {
        rows_of_ranges(query, "true").iter().flatten().map(part).sum()
    };
    let whole: f64 = (0..10).chain(100..110).map(f64::from).sum();
    assert_eq!(sum("SELECT VALUE COUNT(1) FROM c", &|row| row[0]["item"].as_f64().unwrap()), 20.0);
    assert_eq!(sum("SELECT VALUE SUM(c.n) FROM c", &|row| row[0]["item"].as_f64().unwrap()), whole);
    assert_eq!(sum("SELECT VALUE AVG(c.n) FROM c", &|row| row[0]["item"]["sum"].as_f64().unwrap()), whole);
    assert_eq!(sum("SELECT VALUE AVG(c.n) FROM c", &|row| row[0]["item"]["count"].as_f64().unwrap()), 20.0);
    assert_eq!(sum("SELECT COUNT(1) AS n FROM c", &|row| row["payload"]["n"]["item"].as_f64().unwrap()), 20.0);
    let empty = &rows_of_ranges("SELECT VALUE MIN(c.n) FROM c WHERE c.n > 50", "true")[0];
    assert_eq!(empty[0], json!([{"item2": {"count": 0}}]));
    let groups = rows_of_ranges("SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k", "true");
    assert_eq!(groups[0][0], json!({"groupByItems": [{"item": "k0"}], "payload": {"k": "k0", "n": {"item": 4}}}));
    assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), 6);
}

#[test]
fn rewritten_queries_mean_what_the_original_means() {
    // Printed and parsed again, every construct gives the same rows.
    let items = &two_ranges()[0];
    let cases = [
        "SELECT c.id, -c.n AS m, NOT c.b AS b, ~c.n AS i FROM c OFFSET 0 LIMIT 99",
        "SELECT VALUE c.n + 2 * 3 - -1 FROM c WHERE c.n IN (1, 2) OR c.n NOT BETWEEN 2 AND 8 OFFSET 0 LIMIT 99",
        "SELECT VALUE c.id FROM c WHERE c.id LIKE '%1' ESCAPE '!' AND c.id NOT LIKE '_0' OFFSET 0 LIMIT 99",
        "SELECT VALUE c.v ?? (c.n > 5 ? 'big' : \"sm\\\"all\\n\") FROM c OFFSET 0 LIMIT 99",
        "SELECT VALUE {\"a b\": c['order'], x: [c.n, undefined, null, 1e300, 0.1]} FROM c OFFSET 0 LIMIT 99",
        "SELECT c[\"id\"], ARRAY(SELECT VALUE x FROM x IN c.l WHERE x > 1 ORDER BY x DESC) AS l FROM c WHERE NOT EXISTS(SELECT VALUE 1 FROM x IN c.l) OFFSET 0 LIMIT 99",
        "SELECT VALUE x.y FROM c JOIN (SELECT DISTINCT VALUE {\"y\": c.n & 3}) AS x JOIN (SELECT TOP 1 VALUE 1) OFFSET 0 LIMIT 99",
        "SELECT VALUE (SELECT VALUE COUNT(1) FROM x IN c.l GROUP BY x) FROM root AS c OFFSET 0 LIMIT 99",
        "SELECT VALUE c.id || '-' || c.k FROM c WHERE c.n << 1 > 6 AND c.n % 2 = 0 OFFSET 0 LIMIT 99",
    ];
    for query in cases {
        let bound = bind(query);
        let rewritten = bound.plan(None).unwrap().query_info.rewritten_query;
        assert_eq!(items.pages(&bind(&rewritten), 4).unwrap(), items.pages(&bound, 4).unwrap(), "{query}\n{rewritten}");
    }
}
