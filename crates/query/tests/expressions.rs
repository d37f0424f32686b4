//! Every operator and function, with the undefined in all of them.

mod support;

use support::value;

const BODY: &str = r#"{"id":"a","n":5,"neg":-2.5,"s":"Hello","t":true,"f":false,"z":null,
 "arr":[1,2,3,"x",null],"obj":{"k":1,"l":{"m":"deep"}},"a b":7,"tags":["red","blue"],
 "people":[{"name":"Ann","age":30},{"name":"Bob","age":40}],"uni":"añ😀b"}"#;

/// One case a line: an expression over [`BODY`] and what it is worth.
#[track_caller]
fn check(cases: &str) {
    for case in cases.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let Some((expr, expected)) = case.split_once("=>").map(|(a, b)| (a.trim(), b.trim())) else {
            panic!("no arrow: {case}")
        };
        assert_eq!(value(expr, BODY), expected, "{expr}");
    }
}

#[test]
fn literals_and_members() {
    check(
        r##"
        1 => 1
        1.50 => 1.5
        1e3 => 1000
        'it\'s' => "it's"
        "q\"\u00e9\n" => "q\"é\n"
        TRUE => true
        null => null
        undefined => undefined
        [1, 'a', undefined, null] => [1,"a",null]
        {"a": 1, b: undefined, 'c': {}} => {"a":1,"c":{}}
        c.n => 5
        c['n'] => 5
        c["a b"] => 7
        c.arr[1] => 2
        c.arr[9] => undefined
        c.arr[-1] => undefined
        c.arr[0.5] => undefined
        c.arr['length'] => undefined
        c.missing => undefined
        c.missing.deeper => undefined
        c.N => undefined
        c.obj.l.m => "deep"
        c.s.x => undefined
        c[c.s = 'Hello' ? 'n' : 's'] => 5
        [10, 20][1] => 20
        {"x": 3}.x => 3
        c.order => undefined
        c.neg => -2.5
        -c.neg => 2.5
        +c.n => 5
        - - 3 => 3
        "##,
    );
}

#[test]
fn comparisons() {
    check(
        r##"
        1 = 1.0 => true
        1 = '1' => false
        1 != '1' => true
        1 <> 2 => true
        null = null => true
        c.z = null => true
        c.missing = null => undefined
        c.missing != null => undefined
        c.s != null => true
        undefined = undefined => undefined
        'a' < 'b' => true
        'a' < 1 => undefined
        null < 1 => undefined
        false < true => true
        null <= null => true
        null < null => false
        [1] < [2] => undefined
        [1, {"a": 2}] = [1, {"a": 2.0}] => true
        c.obj = {"l": {"m": "deep"}, "k": 1} => true
        c.obj != {"k": 1} => true
        2 >= 2 => true
        3 <= 2 => false
        'B' < 'a' => true
        "##,
    );
}

#[test]
fn logic_has_three_values() {
    check(
        r##"
        true AND undefined => undefined
        false AND undefined => false
        undefined AND false => false
        true OR undefined => true
        undefined OR false => undefined
        NOT undefined => undefined
        NOT true => false
        NOT 1 => undefined
        true AND 1 => undefined
        1 OR true => true
        null AND false => false
        NOT c.n = 5 => false
        NOT c.n = 5 OR true => true
        true OR true AND false => true
        (true OR true) AND false => false
        true AND true AND true => true
        NOT NOT true => true
        c.missing ?? 'd' => "d"
        c.z ?? 'd' => null
        undefined ?? undefined ?? 3 => 3
        c.t ? 1 : 2 => 1
        c.f ? 1 : 2 => 2
        c.missing ? 1 : 2 => 2
        1 ? 1 : 2 => 2
        c.f ? 1 : c.t ? 2 : 3 => 2
        "##,
    );
}

#[test]
fn arithmetic_and_bits() {
    check(
        r##"
        1 + 2 * 3 => 7
        (1 + 2) * 3 => 9
        7 / 2 => 3.5
        7 % 4 => 3
        -7 % 4 => -3
        10 - 2 - 3 => 5
        1 / 0 => undefined
        0 / 0 => undefined
        1 + 'a' => undefined
        c.n + c.missing => undefined
        null + 1 => undefined
        6 & 3 => 2
        6 | 3 => 7
        6 ^ 3 => 5
        ~5 => -6
        1 << 4 => 16
        -16 >> 2 => -4
        1.5 & 1 => undefined
        1 << 64 => undefined
        1 << -1 => undefined
        'a' || 'b' || 'c' => "abc"
        'a' || 1 => undefined
        'a' || 'b' = 'ab' => true
        1 + 1 = 2 AND 2 < 3 => true
        1e308 * 10 => undefined
        0.1 + 0.2 => 0.30000000000000004
        "##,
    );
}

#[test]
fn membership() {
    check(
        r##"
        c.n IN (1, 5) => true
        c.n NOT IN (1, 5) => false
        c.n IN (1, 2) => false
        c.missing IN (1) => undefined
        c.missing NOT IN (1) => undefined
        c.z IN (null) => true
        'a' IN (1, 'a') => true
        c.n IN (undefined, 5) => true
        c.n IN (undefined, 4) => undefined
        c.n BETWEEN 1 AND 5 => true
        c.n BETWEEN 6 AND 9 => false
        c.n NOT BETWEEN 6 AND 9 => true
        c.s BETWEEN 1 AND 2 => undefined
        c.n BETWEEN 1 AND 5 AND true => true
        c.n BETWEEN 2 + 2 AND 2 * 3 => true
        c.s LIKE 'H%o' => true
        c.s LIKE 'h%' => false
        c.s NOT LIKE 'h%' => true
        c.n LIKE '5' => undefined
        '50%' LIKE '50!%' ESCAPE '!' => true
        c.s LIKE '_ell_' => true
        NOT c.n IN (5) => false
        "##,
    );
}

#[test]
fn strings() {
    check(
        r##"
        STARTSWITH(c.s, 'He') => true
        startswith(c.s, 'he') => false
        STARTSWITH(c.s, 'he', true) => true
        STARTSWITH(c.n, 'a') => undefined
        STARTSWITH(c.missing, 'a') => undefined
        STARTSWITH(c.s, 'he', 1) => undefined
        ENDSWITH(c.s, 'lo') => true
        RegexMatch(c.s, '^h.*o$') => false
        RegexMatch(c.s, '^h.*o$', 'i') => true
        RegexMatch(c.n, '5') => undefined
        RegexMatch(c.s, '(') => undefined
        CONTAINS(c.s, 'ELL', true) => true
        CONTAINS(c.s, '') => true
        StringEquals(c.s, 'HELLO', true) => true
        STRINGEQUALS(c.s, 'HELLO') => false
        CONCAT('a', 'b', 'c') => "abc"
        CONCAT('a', 1) => undefined
        LENGTH(c.uni) => 4
        LENGTH(1) => undefined
        LOWER(c.s) => "hello"
        UPPER(c.s) => "HELLO"
        LTRIM('  a ') => "a "
        RTRIM('  a ') => "  a"
        TRIM('  a ') => "a"
        TRIM('xxaxx', 'x') => "a"
        LEFT(c.s, 2) => "He"
        LEFT(c.s, 99) => "Hello"
        LEFT(c.s, -1) => ""
        RIGHT(c.s, 2) => "lo"
        SUBSTRING(c.s, 1, 2) => "el"
        SUBSTRING(c.s, 9, 2) => ""
        SUBSTRING(c.s, -1, 2) => "H"
        SUBSTRING(c.s, 'a', 2) => undefined
        INDEX_OF(c.s, 'l') => 2
        INDEX_OF(c.s, 'z') => -1
        INDEX_OF(c.s, 'l', 3) => 3
        INDEX_OF(c.uni, 'b') => 3
        INDEX_OF(c.s, 'H', 99) => -1
        REPLACE(c.s, 'l', 'L') => "HeLLo"
        REPLACE(c.s, '', 'x') => "Hello"
        REVERSE(c.uni) => "b😀ña"
        REPLICATE('ab', 3) => "ababab"
        REPLICATE('ab', -1) => undefined
        REPLICATE('ab', 100000000000) => undefined
        ToString(1.0) => "1"
        ToString(true) => "true"
        ToString(c.obj.l) => "{\"m\":\"deep\"}"
        ToString(undefined) => undefined
        ToString('a') => "a"
        StringToNumber(' 12.5 ') => 12.5
        StringToNumber('abc') => undefined
        StringToNumber('true') => undefined
        StringToBoolean('true') => true
        StringToBoolean('TRUE') => undefined
        StringToNull('null') => null
        StringToArray('[1, 2]') => [1, 2]
        StringToArray('[1,') => undefined
        StringToObject('{"a":1}') => {"a":1}
        StringToObject('[]') => undefined
        StringSplit('a,b', ',') => ["a","b"]
        StringJoin(c.tags, '-') => "red-blue"
        "##,
    );
}

#[test]
fn types_and_choices() {
    check(
        r##"
        IS_DEFINED(c.n) => true
        IS_DEFINED(c.missing) => false
        IS_NULL(c.z) => true
        IS_NULL(c.missing) => false
        IS_STRING(c.s) => true
        IS_NUMBER(c.n) => true
        IS_BOOL(c.t) => true
        IS_ARRAY(c.arr) => true
        IS_OBJECT(c.obj) => true
        IS_PRIMITIVE(c.z) => true
        IS_PRIMITIVE(c.arr) => false
        IS_PRIMITIVE(c.missing) => false
        IS_INTEGER(c.n) => true
        IS_INTEGER(c.neg) => false
        IS_FINITE_NUMBER(c.n) => true
        IIF(c.t, 1, 2) => 1
        IIF(c.n, 1, 2) => 2
        CHOOSE(2, 'a', 'b') => "b"
        CHOOSE(0, 'a') => undefined
        CHOOSE(5, 'a') => undefined
        "##,
    );
}

#[test]
fn numbers() {
    check(
        r##"
        ABS(c.neg) => 2.5
        CEILING(1.2) => 2
        FLOOR(-1.2) => -2
        ROUND(2.5) => 3
        ROUND(-2.5) => -3
        TRUNC(-2.7) => -2
        SIGN(c.neg) => -1
        SIGN(0) => 0
        SQRT(16) => 4
        SQRT(-1) => undefined
        SQUARE(3) => 9
        POWER(2, 10) => 1024
        EXP(0) => 1
        LOG(1) => 0
        LOG(8, 2) => 3
        LOG(0) => undefined
        LOG10(1000) => 3
        SIN(0) => 0
        COS(0) => 1
        TAN(0) => 0
        COT(0) => undefined
        ASIN(0) => 0
        ACOS(1) => 0
        ATAN(0) => 0
        ATN2(0, 1) => 0
        DEGREES(PI()) => 180
        RADIANS(180) = PI() => true
        ABS('a') => undefined
        NumberBin(37, 10) => 30
        NumberBin(3.7) => 3
        IntAdd(2, 3) => 5
        IntSub(2, 3) => -1
        IntMul(2, 3) => 6
        IntDiv(7, 2) => 3
        IntDiv(7, 0) => undefined
        IntMod(7, 4) => 3
        IntBitAnd(6, 3) => 2
        IntBitOr(6, 3) => 7
        IntBitXor(6, 3) => 5
        IntBitNot(0) => -1
        IntBitLeftShift(1, 4) => 16
        IntBitRightShift(16, 4) => 1
        IntBitLeftShift(1, 64) => undefined
        IntAdd(1.5, 1) => undefined
        "##,
    );
}

#[test]
fn arrays_and_objects() {
    check(
        r##"
        ARRAY_CONTAINS(c.arr, 2) => true
        ARRAY_CONTAINS(c.arr, '2') => false
        ARRAY_CONTAINS(c.arr, null) => true
        ARRAY_CONTAINS(c.missing, 1) => undefined
        ARRAY_CONTAINS(c.arr, c.missing) => undefined
        ARRAY_CONTAINS(c.people, {"name": "Ann"}) => false
        ARRAY_CONTAINS(c.people, {"name": "Ann"}, true) => true
        ARRAY_CONTAINS(c.people, {"name": "Cid"}, true) => false
        ARRAY_CONTAINS_ANY(c.tags, 'green', 'red') => true
        ARRAY_CONTAINS_ANY(c.tags, 'green') => false
        ARRAY_CONTAINS_ALL(c.tags, 'blue', 'red') => true
        ARRAY_CONTAINS_ALL(c.tags, 'blue', 'green') => false
        ARRAY_LENGTH(c.arr) => 5
        ARRAY_LENGTH(c.s) => undefined
        ARRAY_SLICE(c.arr, 1, 2) => [2,3]
        ARRAY_SLICE(c.arr, -2) => ["x",null]
        ARRAY_SLICE(c.arr, 9) => []
        ARRAY_CONCAT(c.tags, [1], []) => ["red","blue",1]
        ARRAY_CONCAT(c.tags, 1) => undefined
        SetIntersect([1, 2, 2, 3], [2, 3, 4]) => [2,3]
        SetUnion([1, 2, 2], [2, 3]) => [1,2,3]
        SetDifference([1, 2, 3], [2]) => [1,3]
        ObjectToArray({"a": 1}) => [{"k":"a","v":1}]
        ObjectToArray({"a": 1}, 'name', 'value') => [{"name":"a","value":1}]
        ObjectToArray(c.arr) => undefined
        "##,
    );
}

#[test]
fn dates() {
    check(
        r##"
        GetCurrentTimestamp() => 1709210096789
        GetCurrentTicks() => 17092100967890000
        GetCurrentDateTime() => "2024-02-29T12:34:56.7890000Z"
        DateTimeAdd('mm', 1, '2024-01-31T00:00:00Z') => "2024-02-29T00:00:00.0000000Z"
        DateTimeAdd('yyyy', -1, '2024-02-29') => "2023-02-28T00:00:00.0000000Z"
        DateTimeAdd('hh', 25, '2024-02-28T23:30:00.1230000Z') => "2024-03-01T00:30:00.1230000Z"
        DateTimeAdd('ns', 250, '2024-01-01') => "2024-01-01T00:00:00.0000002Z"
        DateTimeAdd('weeks', 1, '2024-01-01') => undefined
        DateTimeAdd('dd', 1, 'tomorrow') => undefined
        DateTimeAdd('yyyy', 9000, '2024-01-01') => undefined
        DateTimeDiff('yyyy', '2023-12-31T23:59:59Z', '2024-01-01T00:00:00Z') => 1
        DateTimeDiff('mi', '2024-01-01T00:00:59Z', '2024-01-01T00:01:00Z') => 1
        DateTimeDiff('dd', '2024-03-01', '2024-02-01') => -29
        DateTimePart('mm', '2024-05-06T07:08:09.1234567Z') => 5
        DateTimePart('hh', '2024-05-06T07:08:09.1234567Z') => 7
        DateTimePart('mi', '2024-05-06T07:08:09.1234567Z') => 8
        DateTimePart('ms', '2024-05-06T07:08:09.1234567Z') => 123
        DateTimePart('mcs', '2024-05-06T07:08:09.1234567Z') => 123456
        DateTimePart('ns', '2024-05-06T07:08:09.1234567Z') => 123456700
        DateTimeFromParts(2024, 2, 29) => "2024-02-29T00:00:00.0000000Z"
        DateTimeFromParts(2023, 2, 29) => undefined
        DateTimeToTimestamp('1970-01-01T00:00:01.5Z') => 1500
        DateTimeToTicks('1969-12-31T23:59:59Z') => -10000000
        TicksToDateTime(15943368134575530) => "2020-07-09T23:20:13.4575530Z"
        TimestampToDateTime(1594227912345) => "2020-07-08T17:05:12.3450000Z"
        DateTimeToTicks('2024-13-01') => undefined
        DateTimeToTicks('2024-01-01T00:00') => undefined
        "##,
    );
}

#[test]
fn subqueries_in_expressions() {
    check(
        r##"
        EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'red') => true
        EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'x') => false
        EXISTS(SELECT VALUE t FROM t IN c.missing) => false
        ARRAY(SELECT VALUE p.name FROM p IN c.people WHERE p.age > 30) => ["Bob"]
        ARRAY(SELECT p.name, p.age * 2 AS d FROM p IN c.people) => [{"name":"Ann","d":60},{"name":"Bob","d":80}]
        (SELECT VALUE COUNT(1) FROM p IN c.people) => 2
        (SELECT VALUE MAX(p.age) FROM p IN c.people) => 40
        (SELECT VALUE 1) => 1
        (SELECT VALUE p.age FROM p IN c.people) => undefined
        ARRAY(SELECT VALUE p.age FROM p IN c.people ORDER BY p.age DESC) => [40,30]
        ARRAY(SELECT TOP 1 VALUE t FROM t IN c.tags) => ["red"]
        ARRAY(SELECT VALUE t FROM t IN c.tags OFFSET 1 LIMIT 5) => ["blue"]
        ARRAY(SELECT p.age > 35 AS old, COUNT(1) AS n FROM p IN c.people GROUP BY p.age > 35) => [{"old":false,"n":1},{"old":true,"n":1}]
        (SELECT VALUE a.x + 1 FROM (SELECT VALUE {"x": c.n}) AS a) => 6
        "##,
    );
}
