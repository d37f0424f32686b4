//! What patches do, operation by operation, and what they refuse.

use super::*;

const ITEM: &str = r#"{"id":"1","pk":"a","n":5,"big":123456789012345678901234567890,"f":1.50,"tags":["x","y"],"o":{"z":1,"a":{"b":null}},"a/b~":0}"#;

/// Applies operations to an item whose partition key is at `/pk` and `/o/key`.
fn apply(item: &str, operations: &str) -> Result<String, PatchError> {
    let patch = Patch::parse(format!(r#"{{"operations":[{operations}]}}"#).as_bytes())?;
    let body = patch.apply(item.as_bytes(), &["/pk", "/o/key"])?;
    Ok(String::from_utf8(body).unwrap())
}

#[test]
fn operations_do_what_cosmos_db_does() {
    for (item, operations, expected) in [
        // add: creates, replaces in place, inserts into arrays.
        (r#"{"a":1}"#, r#"{"op":"add","path":"/b","value":{"c":[]}}"#, r#"{"a":1,"b":{"c":[]}}"#),
        (r#"{"a":1,"b":2}"#, r#"{"op":"add","path":"/a","value":null}"#, r#"{"a":null,"b":2}"#),
        (r#"{"a":[1,2]}"#, r#"{"op":"add","path":"/a/0","value":0}"#, r#"{"a":[0,1,2]}"#),
        (r#"{"a":[1,2]}"#, r#"{"op":"add","path":"/a/2","value":3}"#, r#"{"a":[1,2,3]}"#),
        (r#"{"a":[1,2]}"#, r#"{"op":"add","path":"/a/-","value":3}"#, r#"{"a":[1,2,3]}"#),
        (r#"{"a":[]}"#, r#"{"op":"add","path":"/a/0","value":3}"#, r#"{"a":[3]}"#),
        (r#"{"a":[{"b":[1]}]}"#, r#"{"op":"add","path":"/a/0/b/1","value":2}"#, r#"{"a":[{"b":[1,2]}]}"#),
        // A number can be a member's name, and so can a minus.
        (r#"{"a":{}}"#, r#"{"op":"add","path":"/a/0","value":1}"#, r#"{"a":{"0":1}}"#),
        (r#"{"a":{}}"#, r#"{"op":"add","path":"/a/-","value":1}"#, r#"{"a":{"-":1}}"#),
        // set: replaces in arrays.
        (r#"{"a":1}"#, r#"{"op":"set","path":"/b","value":2}"#, r#"{"a":1,"b":2}"#),
        (r#"{"a":1}"#, r#"{"op":"set","path":"/a","value":2}"#, r#"{"a":2}"#),
        (r#"{"a":[1,2]}"#, r#"{"op":"set","path":"/a/0","value":0}"#, r#"{"a":[0,2]}"#),
        (r#"{"a":[1,2]}"#, r#"{"op":"set","path":"/a/-","value":0}"#, r#"{"a":[1,2,0]}"#),
        (r#"{"a":[1,2]}"#, r#"{"op":"set","path":"/a/2","value":0}"#, r#"{"a":[1,2,0]}"#),
        // replace and remove.
        (r#"{"a":1,"b":2}"#, r#"{"op":"replace","path":"/a","value":[]}"#, r#"{"a":[],"b":2}"#),
        (r#"{"a":[1,2]}"#, r#"{"op":"replace","path":"/a/1","value":7}"#, r#"{"a":[1,7]}"#),
        (r#"{"a":1,"b":2}"#, r#"{"op":"remove","path":"/a"}"#, r#"{"b":2}"#),
        (r#"{"a":[1,2,3]}"#, r#"{"op":"remove","path":"/a/1"}"#, r#"{"a":[1,3]}"#),
        (r#"{"a":1,"a":2,"b":3}"#, r#"{"op":"remove","path":"/a"}"#, r#"{"b":3}"#),
        (r#"{"a":1,"a":2}"#, r#"{"op":"set","path":"/a","value":3}"#, r#"{"a":1,"a":3}"#),
        // incr.
        (r#"{"a":1}"#, r#"{"op":"incr","path":"/a","value":2}"#, r#"{"a":3}"#),
        (r#"{"a":1}"#, r#"{"op":"incr","path":"/a","value":-2}"#, r#"{"a":-1}"#),
        (r#"{"a":1}"#, r#"{"op":"incr","path":"/a","value":0.5}"#, r#"{"a":1.5}"#),
        (r#"{"a":1}"#, r#"{"op":"incr","path":"/b","value":2.50}"#, r#"{"a":1,"b":2.50}"#),
        (r#"{"a":[1]}"#, r#"{"op":"incr","path":"/a/0","value":2}"#, r#"{"a":[3]}"#),
        (r#"{"a":9223372036854775807}"#, r#"{"op":"incr","path":"/a","value":1}"#, r#"{"a":9223372036854775808}"#),
        (r#"{"a":18446744073709551615}"#, r#"{"op":"incr","path":"/a","value":1}"#, r#"{"a":1.8446744073709552e19}"#),
        // move.
        (r#"{"a":1,"b":2}"#, r#"{"op":"move","from":"/a","path":"/c"}"#, r#"{"b":2,"c":1}"#),
        (r#"{"a":1,"b":2}"#, r#"{"op":"move","from":"/a","path":"/b"}"#, r#"{"b":1}"#),
        (r#"{"a":1,"b":2}"#, r#"{"op":"move","from":"/a","path":"/a"}"#, r#"{"a":1,"b":2}"#),
        (r#"{"a":[1,2,3]}"#, r#"{"op":"move","from":"/a/0","path":"/a/2"}"#, r#"{"a":[2,3,1]}"#),
        (r#"{"a":[1,2],"b":[]}"#, r#"{"op":"move","from":"/a/0","path":"/b/-"}"#, r#"{"a":[2],"b":[1]}"#),
        (r#"{"a":{"b":{"c":1}}}"#, r#"{"op":"move","from":"/a/b/c","path":"/a/b"}"#, r#"{"a":{"b":1}}"#),
        (r#"{"a":1,"ab":{}}"#, r#"{"op":"move","from":"/a","path":"/ab/a"}"#, r#"{"ab":{"a":1}}"#),
        // Several, each on the result of those before it.
        (
            r#"{"a":1}"#,
            r#"{"op":"add","path":"/b","value":[]},{"op":"add","path":"/b/-","value":1},{"op":"incr","path":"/b/0","value":1},{"op":"remove","path":"/a"}"#,
            r#"{"b":[2]}"#,
        ),
        // Names with escapes, in the path and in the item.
        (r#"{"a/b":1}"#, r#"{"op":"set","path":"/a~1b","value":2}"#, r#"{"a/b":2}"#),
        (r#"{"a~1":1}"#, r#"{"op":"remove","path":"/a~01"}"#, r#"{}"#),
        (r#"{"\u0061":1}"#, r#"{"op":"set","path":"/a","value":2}"#, r#"{"\u0061":2}"#),
        (r#"{}"#, r#"{"op":"set","path":"/\"é\n","value":2}"#, r#"{"\"é\n":2}"#),
        // The key may be written again from above, as long as it stays what it is.
        (r#"{"o":{"key":7,"x":1}}"#, r#"{"op":"set","path":"/o","value":{"x":2,"key":7}}"#, r#"{"o":{"x":2,"key":7}}"#),
        (r#"{"o":{"key":7}}"#, r#"{"op":"set","path":"/o/x","value":1}"#, r#"{"o":{"key":7,"x":1}}"#),
        // Members that only look like those of the server.
        (r#"{"o":{}}"#, r#"{"op":"set","path":"/o/id","value":1}"#, r#"{"o":{"id":1}}"#),
        (r#"{}"#, r#"{"op":"set","path":"/ttl","value":60}"#, r#"{"ttl":60}"#),
    ] {
        assert_eq!(apply(item, operations).as_deref(), Ok(expected), "{item} {operations}");
    }
}

#[test]
fn what_is_not_touched_keeps_its_order_and_its_text() {
    assert_eq!(
        apply(ITEM, r#"{"op":"set","path":"/new","value": {"q" : 1e400} }"#).unwrap(),
        format!(r#"{},"new":{{"q":1e400}}}}"#, &ITEM[..ITEM.len() - 1])
    );
    assert_eq!(apply(ITEM, r#"{"op":"incr","path":"/n","value":1}"#).unwrap(), ITEM.replace("\"n\":5", "\"n\":6"));
}

#[test]
fn operations_that_cannot_be_performed_say_why() {
    for (operations, message) in [
        (
            r#"{"op":"add","path":"/x/y","value":1}"#,
            r#"operation 0, add /x/y: there is no member "x": create the parent of the path first"#,
        ),
        (r#"{"op":"add","path":"/tags/3","value":1}"#, "operation 0, add /tags/3: the array ends before 3"),
        (
            r#"{"op":"add","path":"/tags/99999999999999999999","value":1}"#,
            "operation 0, add /tags/99999999999999999999: the array ends before 99999999999999999999",
        ),
        (
            r#"{"op":"add","path":"/tags/01","value":1}"#,
            r#"operation 0, add /tags/01: an array has no member "01": give an index, or - for its end"#,
        ),
        (
            r#"{"op":"add","path":"/tags/x","value":1}"#,
            r#"operation 0, add /tags/x: an array has no member "x": give an index, or - for its end"#,
        ),
        (
            r#"{"op":"add","path":"/n/x","value":1}"#,
            r#"operation 0, add /n/x: there can be no "x" in a string, number, boolean or null"#,
        ),
        (r#"{"op":"set","path":"/tags/3","value":1}"#, "operation 0, set /tags/3: the array ends before 3"),
        (
            r#"{"op":"replace","path":"/x","value":1}"#,
            r#"operation 0, replace /x: there is no member "x": use set to create it"#,
        ),
        (
            r#"{"op":"replace","path":"/tags/2","value":1}"#,
            "operation 0, replace /tags/2: the array ends before 2: use set to create it",
        ),
        (
            r#"{"op":"replace","path":"/tags/-","value":1}"#,
            "operation 0, replace /tags/-: the array ends before -: use set to create it",
        ),
        (r#"{"op":"remove","path":"/x"}"#, r#"operation 0, remove /x: there is no member "x""#),
        (r#"{"op":"remove","path":"/tags/2"}"#, "operation 0, remove /tags/2: the array ends before 2"),
        (
            r#"{"op":"incr","path":"/tags","value":1}"#,
            "operation 0, incr /tags: it is not a number: only a number can be incremented",
        ),
        (
            r#"{"op":"incr","path":"/tags/0","value":1}"#,
            "operation 0, incr /tags/0: it is not a number: only a number can be incremented",
        ),
        (r#"{"op":"incr","path":"/tags/2","value":1}"#, "operation 0, incr /tags/2: the array ends before 2"),
        (
            r#"{"op":"set","path":"/n","value":1e308},{"op":"incr","path":"/n","value":1e308}"#,
            "operation 1, incr /n: the sum is too large for a number",
        ),
        (r#"{"op":"move","from":"/x","path":"/y"}"#, r#"operation 0, move /y: from /x: there is no member "x""#),
        (r#"{"op":"move","from":"/x","path":"/x"}"#, r#"operation 0, move /x: there is no member "x""#),
        (
            r#"{"op":"remove","path":"/n"},{"op":"remove","path":"/n"}"#,
            r#"operation 1, remove /n: there is no member "n""#,
        ),
        // The partition key: itself, within, from and from above.
        (
            r#"{"op":"set","path":"/pk","value":"a"}"#,
            "operation 0, set /pk: it is the partition key: delete the item and create it under its new key",
        ),
        (
            r#"{"op":"set","path":"/o/key/x","value":1}"#,
            "operation 0, set /o/key/x: it is the partition key: delete the item and create it under its new key",
        ),
        (
            r#"{"op":"move","from":"/pk","path":"/x"}"#,
            "operation 0, move /x: it is the partition key: delete the item and create it under its new key",
        ),
        (
            r#"{"op":"set","path":"/o","value":{"key":1}}"#,
            "the patch changes the partition key at /o/key: delete the item and create it under its new key",
        ),
    ] {
        assert_eq!(apply(ITEM, operations).unwrap_err().to_string(), message, "{operations}");
    }
}

#[test]
fn a_key_in_quotes_is_protected_too() {
    let patch = Patch::parse(br#"[{"op":"set","path":"/a~1b","value":1}]"#).unwrap();
    assert!(patch.apply(br#"{"a/b":1}"#, &["/\"a/b\""]).is_err());
    assert!(patch.apply(br#"{"a/b":1}"#, &["/a/b"]).is_ok());
    assert!(patch.apply(br#"{"a/b":1}"#, &[] as &[&str]).is_ok());
}

#[test]
fn patches_that_make_no_sense_are_refused_with_the_reason() {
    let many = |count: usize| format!("[{}]", vec![r#"{"op":"remove","path":"/a"}"#; count].join(","));
    assert!(Patch::parse(many(10).as_bytes()).is_ok());
    assert_eq!(
        Patch::parse(many(11).as_bytes()).unwrap_err().to_string(),
        "the patch has 11 operations: send at most 10 at once"
    );
    for (body, message) in [
        (r#"{"operations":[]}"#, "the patch has no operation: send at least one"),
        (r#"[]"#, "the patch has no operation: send at least one"),
        (r#"{}"#, "the body is not a patch: missing field `operations`"),
        ("", "the body is not a patch: EOF"),
        ("5", "the body is not a patch: invalid type"),
        (r#"{"operations":[],"conditions":"x"}"#, "the body is not a patch: unknown field `conditions`"),
        (r#"{"operations":[],"condition":5}"#, "the body is not a patch: invalid type"),
        (r#"[{"op":"copy","path":"/a"}]"#, "the body is not a patch: unknown variant `copy`, expected one of `add`"),
        (r#"[{"op":"Add","path":"/a"}]"#, "the body is not a patch: unknown variant `Add`"),
        (r#"[{"path":"/a"}]"#, "the body is not a patch: missing field `op`"),
        (r#"[{"op":"add","value":1}]"#, "the body is not a patch: missing field `path`"),
        (r#"[{"op":"add","path":"/a","vaule":1}]"#, "the body is not a patch: unknown field `vaule`"),
        (r#"[{"op":"add","op":"add","path":"/a","value":1}]"#, "the body is not a patch: duplicate field `op`"),
        (r#"[{"op":"add","path":"/a"}]"#, "operation 0, add: value is missing"),
        (r#"[{"op":"set","path":"/a"}]"#, "operation 0, set: value is missing"),
        (r#"[{"op":"replace","path":"/a"}]"#, "operation 0, replace: value is missing"),
        (r#"[{"op":"incr","path":"/a"}]"#, "operation 0, incr: value is missing"),
        (r#"[{"op":"incr","path":"/a","value":"1"}]"#, "operation 0, incr: value is not a number"),
        (r#"[{"op":"incr","path":"/a","value":1e999}]"#, "operation 0, incr: value is not a number"),
        (r#"[{"op":"add","path":"/a","value":{"\ud83d":1}}]"#, "operation 0, add: value: "),
        (r#"[{"op":"add","path":"/a","value":["\udc00"]}]"#, "operation 0, add: value: "),
        (r#"[{"op":"move","path":"/a"}]"#, "operation 0, move: from is missing"),
        (r#"[{"op":"move","path":"/a/b","from":"/a"}]"#, "operation 0, move: path /a/b lies within from /a"),
        (r#"[{"op":"remove","path":"a"}]"#, r#"operation 0, remove: path "a" does not start with /"#),
        (r#"[{"op":"remove","path":""}]"#, r#"operation 0, remove: path "" does not start with /"#),
        (r#"[{"op":"remove","path":"/"}]"#, r#"operation 0, remove: path "/" has an empty name"#),
        (r#"[{"op":"remove","path":"/~"}]"#, r#"operation 0, remove: path "/~" has a ~ that is not written as ~0"#),
        (r#"[{"op":"remove","path":"/id"}]"#, "operation 0, remove: path /id cannot be changed by a patch"),
        (r#"[{"op":"set","path":"/_etag","value":1}]"#, "operation 0, set: path /_etag cannot be changed by a patch"),
        (r#"[{"op":"set","path":"/_ts/a","value":1}]"#, "operation 0, set: path /_ts/a cannot be changed by a patch"),
        (r#"[{"op":"move","path":"/a","from":"/id"}]"#, "operation 0, move: from /id cannot be changed by a patch"),
    ] {
        let error = Patch::parse(body.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(message), "{body}: {error}");
    }
    assert!(Patch::parse(b"[{\"op\":\"add\",\"path\":\"/a\",\"value\":\"\xff\"}]").is_err());
}

#[test]
fn conditions_are_passed_on() {
    let operations = r#""operations":[{"op":"remove","path":"/a"}]"#;
    for (condition, expected) in
        [("", None), (r#","condition":null"#, None), (r#","condition":"from c"#, Some("from c"))]
    {
        let close = if expected.is_some() { "\"}" } else { "}" };
        let patch = Patch::parse(format!("{{{operations}{condition}{close}").as_bytes()).unwrap();
        assert_eq!(patch.condition(), expected);
    }
}

#[test]
fn the_result_is_never_nested_deeper_than_items_may_be() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let depth = changefeed_query::json::MAX_DEPTH;
    let set = |levels| apply("{}", &format!(r#"{{"op":"set","path":"/a","value":{}}}"#, nested(levels)));
    changefeed_query::json::check(set(depth - 1).unwrap_or_else(|error| panic!("{error}")).as_bytes()).unwrap();
    assert!(set(depth).is_err());
    assert!(set(depth + 1).is_err());
    assert!(set(100_000).is_err());
}

#[test]
fn items_that_are_none_are_refused() {
    for item in ["", "[]", "5", "{", "{}{}"] {
        assert!(apply(item, r#"{"op":"set","path":"/a","value":1}"#).is_err(), "{item}");
    }
}

/// Whatever the bytes are, there is an error or an item that parses.
#[test]
fn changed_bytes_never_panic() {
    let patch = br#"{"operations":[{"op":"move","from":"/o/a","path":"/tags/1"},{"op":"incr","path":"/n","value":-1.5},{"op":"set","path":"/a~1b~0","value":{"x":[null]}}],"condition":"from c"}"#;
    let valid = Patch::parse(patch).unwrap();
    let check = |patch: &Patch, item: &[u8]| {
        if let Ok(result) = patch.apply(item, &["/pk"]) {
            serde_json::from_slice::<serde::de::IgnoredAny>(&result).unwrap();
            String::from_utf8(result).unwrap();
        }
    };
    check(&valid, ITEM.as_bytes());
    for at in 0..patch.len() {
        let mut changed = *patch;
        for byte in 0..=u8::MAX {
            changed[at] = byte;
            if let Ok(patch) = Patch::parse(&changed) {
                check(&patch, ITEM.as_bytes());
            }
        }
        assert!(Patch::parse(&patch[..at]).is_err());
    }
    for at in 0..ITEM.len() {
        let mut changed = ITEM.as_bytes().to_vec();
        for byte in 0..=u8::MAX {
            changed[at] = byte;
            check(&valid, &changed);
        }
        check(&valid, &ITEM.as_bytes()[..at]);
    }
}
