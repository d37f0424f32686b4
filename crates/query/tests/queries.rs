//! Clauses: what a query selects, from where, how it joins, groups and orders; and what is refused.

mod support;

use changefeed_query::{Bound, Condition, Query};
use serde_json::json;
use support::{Items, NOW, bind, bind_with, refusal, rows};

const DOCS: [&str; 5] = [
    r#"{"id":"1","k":"a","v":1.50,"tags":["x","y"],"_rid":"r1"}"#,
    r#"{"id":"2","k":"b","v":20,"tags":["y"],"sub":[{"n":1},{"n":2}]}"#,
    r#"{"id":"3","k":"a","v":"s","tags":[]}"#,
    r#"{ "id" : "4", "k":"c" }"#,
    r#"{"id":"5","k":null,"v":3,"tags":["x"],"sub":[{"n":3}]}"#,
];

/// One case a line: a query over [`DOCS`] and its rows.
#[track_caller]
fn check(cases: &str) {
    for case in cases.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let Some((query, expected)) = case.split_once("=>").map(|(a, b)| (a.trim(), b.trim())) else {
            panic!("no arrow: {case}")
        };
        assert_eq!(rows(query, &DOCS).join(" "), expected, "{query}");
    }
}

#[test]
fn projections() {
    check(
        r##"
        SELECT * FROM c WHERE c.id = '4' => { "id" : "4", "k":"c" }
        SELECT VALUE c FROM c WHERE c.id = '4' => { "id" : "4", "k":"c" }
        SELECT c FROM c WHERE c.id = '4' => {"c":{ "id" : "4", "k":"c" }}
        SELECT c.v FROM c => {"v":1.50} {"v":20} {"v":"s"} {} {"v":3}
        SELECT VALUE c.v FROM c => 1.50 20 "s" 3
        SELECT VALUE undefined FROM c =>
        SELECT c.id AS name, c["v"] FROM c WHERE c.v = 1.5 => {"name":"1","v":1.50}
        SELECT c.id name FROM c WHERE c.v = 1.5 => {"name":"1"}
        SELECT 1, c.tags[0], 2 AS b, 3 FROM c WHERE c.id = '1' => {"$1":1,"$2":"x","b":2,"$3":3}
        SELECT VALUE {"id": c.id, "m": c.missing} FROM c WHERE c.id = '1' => {"id":"1"}
        SELECT VALUE 1 => 1
        SELECT 1 AS a, 'b' AS b => {"a":1,"b":"b"}
        SELECT VALUE root.id FROM root WHERE root.v = 20 => "2"
        select value r.id from root as r where r.v = 20 => "2"
        SELECT VALUE r.id FROM Families r WHERE r.v = 20 => "2"
        SELECT TOP 2 VALUE c.id FROM c => "1" "2"
        SELECT TOP 0 VALUE c.id FROM c =>
        SELECT VALUE c.id FROM c OFFSET 1 LIMIT 2 => "2" "3"
        SELECT VALUE c.id FROM c OFFSET 4 LIMIT 9 => "5"
        SELECT VALUE c.id FROM c OFFSET 9 LIMIT 9 =>
        SELECT value.id FROM value WHERE value.id = '1' => {"id":"1"}
        "##,
    );
}

#[test]
fn inputs_and_joins() {
    check(
        r##"
        SELECT VALUE t FROM t IN c.tags => "x" "y" "y" "x"
        SELECT VALUE t FROM c JOIN t IN c.tags => "x" "y" "y" "x"
        SELECT c.id, t FROM c JOIN t IN c.tags WHERE t = 'x' => {"id":"1","t":"x"} {"id":"5","t":"x"}
        SELECT VALUE [t, s.n] FROM c JOIN t IN c.tags JOIN s IN c.sub => ["y",1] ["y",2] ["x",3]
        SELECT VALUE s FROM c.sub s => [{"n":1},{"n":2}] [{"n":3}]
        SELECT VALUE sub FROM c.sub => [{"n":1},{"n":2}] [{"n":3}]
        SELECT VALUE x.n FROM x IN c["sub"] => 1 2 3
        SELECT VALUE c.sub[0].n FROM c => 1 3
        SELECT VALUE x FROM c JOIN (SELECT VALUE s.n * 10 FROM s IN c.sub) AS x => 10 20 30
        SELECT VALUE x FROM c JOIN x IN (SELECT VALUE c.tags) => "x" "y" "y" "x"
        SELECT c.id FROM c JOIN (SELECT VALUE s FROM s IN c.sub WHERE s.n > 1) => {"id":"2"} {"id":"5"}
        SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE s FROM s IN c.sub WHERE s.n = 3) => "5"
        SELECT c.id, ARRAY(SELECT VALUE s.n FROM s IN c.sub) AS ns FROM c WHERE IS_DEFINED(c.sub) => {"id":"2","ns":[1,2]} {"id":"5","ns":[3]}
        SELECT * FROM t IN c.tags => "x" "y" "y" "x"
        SELECT VALUE x.id FROM (SELECT c.id, c.v FROM c WHERE c.v > 2) AS x WHERE x.v < 10 => "5"
        SELECT VALUE [x, y] FROM (SELECT VALUE c.k FROM c) AS x JOIN (SELECT VALUE 1) AS y WHERE x = 'b' => ["b",1]
        SELECT VALUE COUNT(1) FROM (SELECT VALUE t FROM c JOIN t IN c.tags) => 4
        SELECT VALUE a + 1 FROM (SELECT VALUE 1) AS a => 2
        SELECT VALUE COUNT(1) FROM x IN (SELECT VALUE [1, 2, 3]) WHERE x > 1 => 2
        SELECT DISTINCT VALUE x FROM x IN (SELECT VALUE [2, 1, 2]) ORDER BY x => 1 2
        "##,
    );
}

#[test]
fn order() {
    check(
        r##"
        SELECT VALUE c.id FROM c ORDER BY c.v => "4" "1" "5" "2" "3"
        SELECT VALUE c.id FROM c ORDER BY c.v DESC => "3" "2" "5" "1" "4"
        SELECT VALUE c.id FROM c ORDER BY c.k, c.id DESC => "5" "3" "1" "2" "4"
        SELECT VALUE c.id FROM c ORDER BY c.k ASC => "5" "1" "3" "2" "4"
        SELECT VALUE c.id FROM c ORDER BY c.k DESC => "4" "2" "3" "1" "5"
        SELECT TOP 2 VALUE c.id FROM c ORDER BY c.v DESC => "3" "2"
        SELECT VALUE c.id FROM c ORDER BY c.v OFFSET 1 LIMIT 2 => "1" "5"
        SELECT VALUE t FROM c JOIN t IN c.tags ORDER BY t DESC => "y" "y" "x" "x"
        SELECT VALUE c.id FROM c WHERE c.k = 'a' ORDER BY LENGTH(c.id), c.id DESC => "3" "1"
        "##,
    );
}

#[test]
fn every_type_has_its_place_in_the_order() {
    let docs = [
        "{\"v\":{}}",
        "{\"v\":[]}",
        "{\"v\":\"\"}",
        "{\"v\":0}",
        "{\"v\":true}",
        "{\"v\":false}",
        "{\"v\":null}",
        "{}",
    ];
    let ascending = rows("SELECT VALUE c FROM c ORDER BY c.v", &docs);
    let descending = rows("SELECT VALUE c FROM c ORDER BY c.v DESC", &docs);
    assert!(ascending.iter().eq(docs.iter().rev()), "{ascending:?}");
    assert!(descending.iter().eq(docs.iter()), "{descending:?}");
}

#[test]
fn aggregates() {
    check(
        r##"
        SELECT VALUE COUNT(1) FROM c => 5
        SELECT VALUE COUNT(c.v) FROM c => 4
        SELECT COUNT(1) AS n, MIN(c.v) AS low, MAX(c.v) AS high FROM c => {"n":5,"low":1.5,"high":"s"}
        SELECT VALUE SUM(c.v) FROM c =>
        SELECT SUM(c.v), AVG(c.v) FROM c => {}
        SELECT VALUE SUM(c.v) FROM c WHERE IS_NUMBER(c.v) => 24.5
        SELECT VALUE AVG(c.v) FROM c WHERE c.v > 2 => 11.5
        SELECT VALUE COUNT(1) FROM c WHERE false => 0
        SELECT VALUE MAX(c.v) FROM c WHERE false =>
        SELECT COUNT(1), AVG(c.v), SUM(c.v) FROM c WHERE false => {"$1":0,"$3":0}
        SELECT VALUE MIN(c.tags) FROM c =>
        SELECT VALUE {"n": COUNT(1), "twice": COUNT(1) * 2} FROM c => {"n":5,"twice":10}
        SELECT VALUE [{"item": COUNT(1)}] FROM c => [{"item":5}]
        SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags => 4
        SELECT VALUE MAX(c.k) FROM c => "c"
        SELECT VALUE MIN(c.k) FROM c => null
        SELECT TOP 1 VALUE COUNT(1) FROM c => 5
        SELECT DISTINCT VALUE COUNT(1) FROM c => 5
        "##,
    );
}

#[test]
fn groups_and_distinct() {
    check(
        r##"
        SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k => {"k":null,"n":1} {"k":"a","n":2} {"k":"b","n":1} {"k":"c","n":1}
        SELECT VALUE c.k FROM c GROUP BY c.k => null "a" "b" "c"
        SELECT VALUE COUNT(1) FROM c GROUP BY c.k => 1 2 1 1
        SELECT COUNT(1) AS n, c.v AS v FROM c GROUP BY c.v => {"n":1} {"n":1,"v":1.5} {"n":1,"v":3} {"n":1,"v":20} {"n":1,"v":"s"}
        SELECT UPPER(c.k) AS u, MAX(c.id) AS m FROM c GROUP BY UPPER(c.k) => {"m":"5"} {"u":"A","m":"3"} {"u":"B","m":"2"} {"u":"C","m":"4"}
        SELECT t, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY t => {"t":"x","n":2} {"t":"y","n":2}
        SELECT c.k, IS_DEFINED(c.sub) AS s, COUNT(1) AS n FROM c GROUP BY c.k, IS_DEFINED(c.sub) OFFSET 1 LIMIT 2 => {"k":"a","s":false,"n":2} {"k":"b","s":true,"n":1}
        SELECT c.k || '!' AS k FROM c GROUP BY c.k => {} {"k":"a!"} {"k":"b!"} {"k":"c!"}
        SELECT DISTINCT VALUE c.k FROM c => null "a" "b" "c"
        SELECT DISTINCT c.k FROM c => {"k":null} {"k":"a"} {"k":"b"} {"k":"c"}
        SELECT DISTINCT TOP 2 VALUE c.k FROM c => null "a"
        SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags => "x" "y"
        SELECT DISTINCT VALUE c.k FROM c ORDER BY c.k DESC => "c" "b" "a" null
        "##,
    );
}

#[test]
fn parameters_can_be_any_json() {
    let items = Items::of(&DOCS);
    let cases = [
        ("SELECT VALUE c.id FROM c WHERE c.k = @k", json!({"@k": "b"}), "\"2\""),
        ("SELECT VALUE c.id FROM c WHERE c.tags = @t", json!({"@t": ["x"]}), "\"5\""),
        ("SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@ids, c.id)", json!({"@ids": ["1", "4"]}), "\"1\" \"4\""),
        ("SELECT VALUE c[@name] FROM c WHERE c.id = '1'", json!({"@name": "k"}), "\"a\""),
        ("SELECT VALUE @o.a[1] FROM c WHERE c.id = '1'", json!({"@o": {"a": [1, {"b": 2.50}]}}), "{\"b\":2.5}"),
        ("SELECT TOP @n VALUE c.id FROM c", json!({"@n": 1}), "\"1\""),
        ("SELECT VALUE c.id FROM c OFFSET @a LIMIT @b", json!({"@a": 1, "@b": 1, "@unused": 0}), "\"2\""),
        ("SELECT VALUE c.id FROM c WHERE c.k = @k", json!({"@k": null}), "\"5\""),
        ("SELECT VALUE c.id FROM c WHERE c.k IN (@a, @b)", json!({"@a": "b", "@b": "c"}), "\"2\" \"4\""),
    ];
    for (query, parameters, expected) in cases {
        let found = items.pages(&bind_with(query, parameters), 100).unwrap();
        assert_eq!(found.join(" "), expected, "{query}");
    }
}

#[test]
fn errors_say_what_to_change_and_where() {
    let cases = [
        ("SELECT", 1, 7, "expected an expression, found the end"),
        ("SELECT * FROM c WHERE", 1, 22, "expected an expression"),
        ("SELECT * FROM c WHERE c.a ==", 1, 28, "expected an expression"),
        ("SELECT *\nFROM c\nWHERE x = 1", 3, 7, "'x' is not an alias"),
        ("SELECT * FROM c JOIN t IN d.tags", 1, 27, "'d' is not an alias"),
        ("SELECT foo(1)", 1, 8, "function foo does not exist"),
        ("SELECT ST_DISTANCE(1, 2)", 1, 8, "ST_DISTANCE is not supported: spatial"),
        ("SELECT VectorDistance(1, 2)", 1, 8, "VectorDistance is not supported: vector"),
        ("SELECT VALUE udf.f(1)", 1, 14, "user-defined functions"),
        ("SELECT LENGTH(1, 2)", 1, 8, "LENGTH takes 1 argument, not 2"),
        ("SELECT COUNT(1, 2) FROM c", 1, 8, "COUNT takes one argument"),
        ("SELECT * FROM c WHERE COUNT(1) > 1", 1, 23, "COUNT cannot be used in WHERE"),
        ("SELECT VALUE SUM(MAX(c.a)) FROM c", 1, 18, "MAX cannot be used in an aggregate"),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.a, 'b')", 1, 26, "RANK"),
        ("SELECT TOP 1.5 * FROM c", 1, 12, "TOP takes an integer"),
        ("SELECT TOP -1 * FROM c", 1, 12, "expected"),
        ("SELECT TOP 1 * FROM c OFFSET 1 LIMIT 1", 1, 23, "TOP and OFFSET LIMIT"),
        ("SELECT * FROM c OFFSET 1", 1, 25, "expected LIMIT"),
        ("SELECT * FROM c WHERE c.a = @p", 1, 29, "the parameter @p has no value"),
        ("SELECT c.x, COUNT(1) FROM c", 1, 8, "'c' is used outside of an aggregate"),
        ("SELECT c.x FROM c GROUP BY c.y", 1, 8, "add the expression to GROUP BY"),
        ("SELECT * FROM c GROUP BY c.y", 0, 0, "SELECT * cannot be used with GROUP BY"),
        ("SELECT c.y FROM c GROUP BY c.y ORDER BY c.y", 0, 0, "ORDER BY cannot be used with GROUP BY"),
        ("SELECT *", 0, 0, "needs a FROM clause"),
        ("SELECT * FROM c JOIN t IN c.tags", 0, 0, "one input"),
        ("SELECT VALUE t FROM c JOIN c IN c.tags", 0, 0, "'c' is used twice"),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.k FROM c)", 0, 0, "need all items at once"),
        ("SELECT VALUE 1 FROM c WHERE EXISTS(SELECT VALUE d FROM d)", 1, 56, "'d' is not an alias"),
        ("SELECT * FROM c WHERE c.a IN ()", 1, 31, "expected an expression"),
        ("SELECT * FROM c extra words", 1, 23, "expected the end of the query"),
        ("SELECT * FROM c; DROP", 1, 16, "unexpected character ';'"),
        ("SELECT VALUE c.a LIKE 'x' ESCAPE 'ab' FROM c", 1, 34, "one character"),
        ("UPDATE c", 1, 1, "expected SELECT, found 'UPDATE'"),
        ("", 1, 1, "expected SELECT, found the end"),
    ];
    for (query, line, column, part) in cases {
        let error = refusal(query);
        assert!(error.message.contains(part), "{query}: {error}");
        assert_eq!((error.line, error.column), (line, column), "{query}: {error}");
    }
}

#[test]
fn bodies_are_read_strictly() {
    let bound = Bound::from_body(br#"{"query":"SELECT VALUE @a","parameters":[{"name":"@a","value":null}]}"#).unwrap();
    assert_eq!(Items::default().pages(&bound, 10).unwrap(), ["null"]);
    let undefined = Bound::from_body(br#"{"query":"SELECT VALUE @a","parameters":[{"name":"@a"}]}"#).unwrap();
    assert!(Items::default().pages(&undefined, 10).unwrap().is_empty());
    assert!(Bound::from_body(br#"{"query":"SELECT VALUE 1","parameters":null,"other":1}"#).is_ok());
    let deep = format!(
        r#"{{"query":"SELECT VALUE @a","parameters":[{{"name":"@a","value":{}1{}}}]}}"#,
        "[".repeat(300),
        "]".repeat(300)
    );
    let cases: [(&[u8], &str); 7] = [
        (b"", "must be"),
        (b"[]", "must be"),
        (b"{}", "query"),
        (br#"{"query":1}"#, "string"),
        (br#"{"query":"SELECT VALUE 1","parameters":[{"name":"a","value":1}]}"#, "must start with @"),
        (
            br#"{"query":"SELECT VALUE 1","parameters":[{"name":"@a","value":1},{"name":"@a","value":1}]}"#,
            "given twice",
        ),
        (deep.as_bytes(), "recursion"),
    ];
    for (body, part) in cases {
        let error = Bound::from_body(body).unwrap_err();
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn conditions_of_patches() {
    let item = br#"{"id":"1","x":1,"tags":["a"]}"#;
    let cases = [
        ("from c where c.x = 1", true),
        ("FROM c WHERE c.x = 2", false),
        ("from c where c.missing = 2", false),
        ("from root r where NOT IS_DEFINED(r.y)", true),
        ("from c where ARRAY_CONTAINS(c.tags, 'a')", true),
        ("from c where EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'b')", false),
    ];
    for (text, expected) in cases {
        assert_eq!(Condition::parse(text).unwrap().holds(item, NOW, &|| false).unwrap(), expected, "{text}");
    }
    for text in
        ["c.x = 1", "from c", "from c where", "from c where c.x = @p", "from c where d.x = 1", "select * from c"]
    {
        assert!(Condition::parse(text).is_err(), "{text}");
    }
    assert!(Condition::parse("from c where true").unwrap().holds(b"{", NOW, &|| false).is_err());
}

#[test]
fn hints_are_sound() {
    let cases = [
        ("SELECT * FROM c WHERE c.id = 'a'", json!({"ids": ["a"]})),
        ("SELECT * FROM c WHERE 'a' = c.id AND c.pk = 1", json!({"ids": ["a"], "pk": [1]})),
        ("SELECT * FROM c WHERE c.id IN ('a', 'b', 1)", json!({"ids": ["a", "b"]})),
        ("SELECT * FROM c WHERE c.id = 'a' OR c.id = 'b'", json!({"ids": ["a", "b"]})),
        ("SELECT * FROM c WHERE c.id = 'a' OR c.x = 'b'", json!({})),
        ("SELECT * FROM c WHERE c.id = 'a' AND c.id = 'b'", json!({"ids": []})),
        ("SELECT * FROM c WHERE STARTSWITH(c.id, 'p')", json!({"prefix": "p"})),
        ("SELECT * FROM c WHERE STARTSWITH(c.id, 'p', false) AND c.x", json!({"prefix": "p"})),
        ("SELECT * FROM c WHERE STARTSWITH(c.id, 'p', true)", json!({})),
        ("SELECT * FROM c WHERE NOT STARTSWITH(c.id, 'p')", json!({})),
        ("SELECT * FROM c WHERE c.id NOT IN ('a')", json!({})),
        ("SELECT * FROM c WHERE c.id != 'a'", json!({})),
        ("SELECT * FROM c WHERE c['pk'] = 'x'", json!({"pk": ["x"]})),
        ("SELECT * FROM c WHERE c.pk = null", json!({"pk": [null]})),
        ("SELECT * FROM c WHERE c.pk = undefined", json!({})),
        ("SELECT * FROM c WHERE c.pk = 'x' OR true", json!({})),
        ("SELECT VALUE t FROM c JOIN t IN c.t WHERE c.pk = 'x'", json!({"pk": ["x"]})),
        ("SELECT VALUE t FROM c JOIN t IN c.t WHERE t.pk = 'x'", json!({})),
        ("SELECT * FROM id IN c.list WHERE id.id = 'x'", json!({})),
        ("SELECT * FROM c.sub c WHERE c.id = 'x'", json!({})),
        ("SELECT VALUE 1 WHERE true", json!({})),
    ];
    for (query, expected) in cases {
        let hints = bind(query).hints(&["/pk"]);
        let mut found = json!({});
        if let Some(ids) = hints.ids {
            found["ids"] = json!(ids);
        }
        if let Some(prefix) = hints.id_prefix {
            found["prefix"] = json!(prefix);
        }
        if let Some(key) = hints.partition_key {
            found["pk"] = json!(key);
        }
        assert_eq!(found, expected, "{query}");
    }
    let nested = bind("SELECT * FROM c WHERE c.a.b = 1 AND c.k = 2.5");
    assert_eq!(nested.hints(&["/a/b", "/k"]).partition_key, Some(vec![json!(1), json!(2.5)]));
    assert_eq!(nested.hints(&["/a/b", "/z"]).partition_key, None);
}

#[test]
fn deep_and_long_texts_are_refused_without_harm() {
    let deep = [
        "SELECT VALUE ".to_owned() + &"(".repeat(200_000),
        "SELECT VALUE ".to_owned() + &"NOT ".repeat(100_000) + "true",
        "SELECT VALUE ".to_owned() + &"- ".repeat(100_000) + "1",
        "SELECT VALUE ".to_owned() + &"[".repeat(200_000),
        "SELECT VALUE ".to_owned() + &"{\"a\":".repeat(80_000),
        "SELECT VALUE c".to_owned() + &".a".repeat(100_000) + " FROM c",
        "SELECT VALUE 1".to_owned() + &"+1".repeat(100_000),
        "SELECT VALUE ".to_owned() + &"true ? 1 : ".repeat(40_000) + "1",
        "SELECT VALUE ".to_owned() + &"ABS(".repeat(100_000) + "1",
        "SELECT VALUE ".to_owned() + &"(SELECT VALUE ".repeat(30_000) + "1",
        "SELECT VALUE ".to_owned() + &"EXISTS(SELECT VALUE 1+".repeat(20_000) + "1",
        "SELECT * FROM ".to_owned() + &"(SELECT * FROM ".repeat(30_000),
        "SELECT VALUE 1".to_owned() + &" ?? 1".repeat(90_000),
        "SELECT VALUE ".to_owned() + &"((1+1)+".repeat(60_000),
    ];
    for text in deep {
        let error = Query::parse(&text).unwrap_err();
        assert!(error.message.contains("nest") || error.message.contains("deeper"), "{}: {error}", &text[..40]);
    }
    let long = format!("SELECT VALUE '{}'", "x".repeat(512 * 1024));
    assert!(Query::parse(&long).unwrap_err().message.contains("parameters"));
    // Wide is fine.
    let wide = "SELECT VALUE COUNT(1) FROM c WHERE c.id = '0'".to_owned() + &" OR c.id = '1'".repeat(20_000);
    assert_eq!(rows(&wide, &DOCS), ["1"]);
    let nested = format!("SELECT VALUE {}1{}", "(".repeat(120), ")".repeat(120));
    assert_eq!(rows(&nested, &[]), ["1"]);
}

#[test]
fn the_deepest_query_that_is_allowed_runs_on_a_small_stack() {
    let levels = "(SELECT VALUE 1 + ".repeat(16);
    let nested = format!("SELECT VALUE {levels}{}1{}", "ABS(".repeat(60), ")".repeat(76));
    let deep_item = format!("{{\"id\":{}1{}}}", "[".repeat(127), "]".repeat(127));
    let work = move || {
        assert_eq!(rows(&nested, &[]).len(), 1);
        let compare = "SELECT VALUE c.id = c.id FROM c ORDER BY c.id";
        assert_eq!(rows(compare, &[&deep_item]), ["true"]);
    };
    std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(work).unwrap().join().unwrap();
}

#[test]
fn runaway_joins_are_stopped() {
    let list: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let body = format!("{{\"l\":[{}]}}", list.join(","));
    let bound = bind("SELECT VALUE COUNT(1) FROM c JOIN a IN c.l JOIN b IN c.l JOIN d IN c.l JOIN e IN c.l");
    let error = Items::of(&[&body]).pages(&bound, 10).unwrap_err();
    assert!(error.message.contains("250000 values"), "{error}");
}

#[test]
fn values_that_multiply_are_stopped() {
    // Each level uses the one below many times: a hundred to the power of the levels.
    let copies = |name: &str| vec![name; 100].join(",");
    for shape in ["[@]", "ARRAY_CONCAT(@)", "{\"a\":[@]}"] {
        let mut query = "(SELECT VALUE [1] FROM c)".to_owned();
        for level in 0..8 {
            let alias = format!("a{level}");
            query = format!("(SELECT VALUE {} FROM {query} AS {alias})", shape.replace('@', &copies(&alias)));
        }
        let bound = bind(&format!("SELECT VALUE 1 FROM {query} AS x"));
        let error = Items::of(&["{}"]).pages(&bound, 10).unwrap_err();
        assert!(error.message.contains("250000 values"), "{shape}: {error}");
        let constant = bind(&format!("SELECT VALUE 1 FROM {} AS x", query.replace(" FROM c)", ")")));
        assert!(!constant.reads_items());
        assert!(Items::default().pages(&constant, 10).unwrap_err().message.contains("250000 values"));
    }
}

#[test]
fn items_that_are_not_json_are_named() {
    let error = Items::of(&["{}", "{\"a\":"]).pages(&bind("SELECT * FROM c"), 10).unwrap_err();
    assert!(error.message.contains("p00001"), "{error}");
}

#[test]
fn a_parameter_is_the_very_number_that_was_sent() {
    let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..2_000 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = f64::from_bits(bits);
        if !number.is_finite() {
            continue;
        }
        let items = Items::of(&[&format!(r#"{{"id":"1","v":{number:e}}}"#)]);
        let query = r#"{"query":"SELECT VALUE c.id FROM c WHERE c.v = @v","parameters":[{"name":"@v","value":#}]}"#;
        let bound = Bound::from_body(query.replace('#', &format!("{number:e}")).as_bytes()).unwrap();
        assert_eq!(items.pages(&bound, 10).unwrap(), [r#""1""#], "{number:e}");
    }
}
