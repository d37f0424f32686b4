//! Every marker of the format, there and back, and everything that is refused.

use std::fmt::Write as _;

use super::*;

/// Every kind of marker: the buffer without its preamble, and the text.
const VALUES: &[(&str, &str)] = &[
    // The example of a captured request.
    ("ed 0d 03 82 69 64 81 31 82 70 6b 81 61 81 76 02", r#"{"id":"1","pk":"a","v":2}"#),
    // Integers within the marker, null and booleans.
    ("00", "0"),
    ("11", "17"),
    ("1f", "31"),
    ("d0", "null"),
    ("d1", "false"),
    ("d2", "true"),
    // Numbers of fixed size.
    ("c7 ff ff ff ff ff ff ff ff", "18446744073709551615"),
    ("c7 07 00 00 00 00 00 00 00", "7"),
    ("c8 ff", "255"),
    ("c9 00 80", "-32768"),
    ("ca ff ff ff 7f", "2147483647"),
    ("cb 00 00 00 00 00 00 00 80", "-9223372036854775808"),
    ("cc 00 00 00 00 00 00 00 40", "2"),
    ("cc 9a 99 99 99 99 99 b9 3f", "0.1"),
    ("cd 00 00 20 40", "2.5"),
    ("ce 00 00 00 00 00 00 f0 bf", "-1"),
    ("cf 00 3e", "1.5"),
    ("d7 80", "128"),
    ("d8 80", "-128"),
    ("d9 ff ff", "-1"),
    ("da 00 00 00 80", "-2147483648"),
    ("db ff ff ff ff ff ff ff 7f", "9223372036854775807"),
    ("dc ff ff ff ff", "4294967295"),
    // Well-known strings.
    ("20", r#""$s""#),
    ("24", r#""_etag""#),
    ("2c", r#""id""#),
    ("3f", r#""_id""#),
    // Strings with a length.
    ("80", r#""""#),
    ("83 c3 a9 21", r#""é!""#),
    ("85 22 5c 0a 01 7f", "\"\\\"\\\\\\n\\u0001\u{7f}\""),
    ("84 08 0c 0d 09", r#""\b\f\r\t""#),
    ("c0 02 68 6f", r#""ho""#),
    ("c1 02 00 68 6f", r#""ho""#),
    ("c2 02 00 00 00 68 6f", r#""ho""#),
    // Base64: with padding, without, URL-safe, long count.
    ("71 01 00 01 02 03", r#""AQID""#),
    ("71 02 01 01 02 03 04 05", r#""AQIDBAU=""#),
    ("71 01 02 ff", r#""/w==""#),
    ("71 01 fe 01 02", r#""AQI""#),
    ("71 01 ff 01 02 03", r#""AQID""#),
    ("71 00 00", r#""""#),
    ("72 01 00 fd ff", r#""/w""#),
    ("73 01 02 ff", r#""_w==""#),
    ("74 01 00 00 ff ff ff", r#""____""#),
    // GUIDs as text: the low half of a byte is the first digit.
    ("75 10 32 54 76 98 ba dc fe 10 32 54 76 98 ba dc fe", r#""01234567-89ab-cdef-0123-456789abcdef""#),
    ("76 10 32 54 76 98 ba dc fe 10 32 54 76 98 ba dc fe", r#""01234567-89AB-CDEF-0123-456789ABCDEF""#),
    ("77 10 32 54 76 98 ba dc fe 10 32 54 76 98 ba dc fe", r#""\"01234567-89ab-cdef-0123-456789abcdef\"""#),
    // Packed strings: from a table, from a base character, plain seven bits.
    ("78 04 ed 0c", r#""dec0""#),
    ("78 03 ed 0c", r#""dec""#),
    ("79 04 ed 0c", r#""DEC0""#),
    ("7a 0a 13 73 2c c2 12", r#""2026-11-10""#),
    ("7b 03 41 10 02", r#""ABC""#),
    ("7c 08 41 20 88 41 8a 39", r#""ABCDEFGH""#),
    ("7d 04 30 40 20 0c", r#""0123""#),
    ("7e 03 61 f1 18", r#""abc""#),
    ("7f 03 00 61 f1 18", r#""abc""#),
    // A GUID and bytes as values.
    ("d3 67 45 23 01 ab 89 ef cd 01 23 45 67 89 ab cd ef", r#""01234567-89ab-cdef-0123-456789abcdef""#),
    ("dd 01 ff", r#""/w==""#),
    ("de 03 00 01 02 03", r#""AQID""#),
    ("df 00 00 00 00", r#""""#),
    // Arrays and objects in all shapes.
    ("e0", "[]"),
    ("e1 e1 05", "[[5]]"),
    ("e2 00", "[]"),
    ("e2 02 05 d0", "[5,null]"),
    ("e3 02 00 05 d0", "[5,null]"),
    ("e4 02 00 00 00 05 d0", "[5,null]"),
    ("e5 00 00", "[]"),
    ("e5 02 02 05 d0", "[5,null]"),
    ("e6 02 00 02 00 05 d0", "[5,null]"),
    ("e7 02 00 00 00 02 00 00 00 05 d0", "[5,null]"),
    ("e8", "{}"),
    ("e9 2c e9 35 01", r#"{"id":{"name":1}}"#),
    ("ea 00", "{}"),
    ("ea 04 2c 01 35 02", r#"{"id":1,"name":2}"#),
    ("eb 04 00 2c 01 35 02", r#"{"id":1,"name":2}"#),
    ("ec 04 00 00 00 2c 01 35 02", r#"{"id":1,"name":2}"#),
    ("ed 04 02 2c 01 35 02", r#"{"id":1,"name":2}"#),
    ("ee 04 00 02 00 2c 01 35 02", r#"{"id":1,"name":2}"#),
    ("ef 04 00 00 00 02 00 00 00 2c 01 35 02", r#"{"id":1,"name":2}"#),
    ("ed 04 02 2c 01 2c 02", r#"{"id":1,"id":2}"#),
    // References: offsets count from the preamble; names can be referred to and can refer.
    ("e2 05 82 68 6f c3 03", r#"["ho","ho"]"#),
    ("e2 06 82 68 6f c4 03 00", r#"["ho","ho"]"#),
    ("e2 07 82 68 6f c5 03 00 00", r#"["ho","ho"]"#),
    ("e2 08 82 68 6f c6 03 00 00 00", r#"["ho","ho"]"#),
    ("e2 09 e9 81 61 01 e9 c3 04 c3 04", r#"[{"a":1},{"a":"a"}]"#),
    // Arrays of numbers of one kind.
    ("f0 d7 02 01 ff", "[1,255]"),
    ("f0 d8 02 01 ff", "[1,-1]"),
    ("f0 cf 01 00 3c", "[1]"),
    ("f0 ce 00", "[]"),
    ("f1 d9 02 00 01 00 ff ff", "[1,-1]"),
    ("f1 cd 01 00 00 00 20 40", "[2.5]"),
    ("f2 f0 d8 02 03 01 02 03 04 05 06", "[[1,2],[3,4],[5,6]]"),
    ("f2 f0 d8 00 02", "[[],[]]"),
    ("f3 f1 dc 01 00 02 00 01 00 00 00 ff ff ff ff", "[[1],[4294967295]]"),
    ("e2 06 f0 d7 02 08 09 05", "[[8,9],5]"),
];

/// What must be refused, and why.
const REFUSED: &[(&str, Problem)] = &[
    ("", Problem::Truncated),
    ("00 00", Problem::Trailing),
    ("e2 01 05 05", Problem::Trailing),
    // Markers without meaning.
    ("68", Problem::UnknownMarker(0x68)),
    ("70", Problem::UnknownMarker(0x70)),
    ("d4", Problem::UnknownMarker(0xd4)),
    ("d6", Problem::UnknownMarker(0xd6)),
    ("f4", Problem::UnknownMarker(0xf4)),
    ("ff", Problem::UnknownMarker(0xff)),
    ("40", Problem::UserDictionary),
    ("67 00", Problem::UserDictionary),
    // Lengths and counts that do not fit.
    ("83 61 62", Problem::Truncated),
    ("c0 05 61", Problem::Truncated),
    ("c2 ff ff ff ff 61", Problem::Truncated),
    ("df ff ff ff ff 61", Problem::Truncated),
    ("cb 00", Problem::Truncated),
    ("e1", Problem::Truncated),
    ("e2 03 05", Problem::Truncated),
    ("e2 01 82 61 62", Problem::Truncated),
    ("e2 02 e2 03 05 05 05", Problem::Truncated),
    ("e7 ff ff ff ff 01 00 00 00 05", Problem::Truncated),
    ("e5 02 01 05 05", Problem::WrongCount),
    ("e5 01 02 05", Problem::WrongCount),
    ("e5 00 01", Problem::WrongCount),
    ("e5 01 00 05", Problem::WrongCount),
    ("ed 02 02 2c 05", Problem::WrongCount),
    ("ed 01 01 2c", Problem::Truncated),
    ("f0 d9 02 00 00 00", Problem::Truncated),
    ("f3 f1 db ff ff ff ff 00", Problem::Truncated),
    // Names and arrays of numbers take only certain markers.
    ("e9 05 05", Problem::NotAName),
    ("e9 d3 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 05", Problem::NotAName),
    ("e9 e0 05", Problem::NotAName),
    ("f0 c8 01 05", Problem::UnknownMarker(0xc8)),
    ("f0 05 01 05", Problem::UnknownMarker(0x05)),
    ("f0 2c 00", Problem::UnknownMarker(0x2c)),
    ("f2 f1 d8 00 00 00 00", Problem::UnknownMarker(0xf1)),
    ("f3 f0 d8 00 00", Problem::UnknownMarker(0xf0)),
    // References: to themselves, forward, to another reference, into a string, to no string, to the preamble.
    ("c3 01", Problem::BadReference),
    ("e2 05 c3 05 82 68 6f", Problem::BadReference),
    ("e2 07 82 68 6f c3 03 c3 06", Problem::BadReference),
    ("e2 05 82 2c 6f c3 04", Problem::BadReference),
    ("e2 03 05 c3 03", Problem::BadReference),
    ("e2 03 05 c3 00", Problem::BadReference),
    ("e2 06 05 c6 ff ff ff ff", Problem::BadReference),
    // Text that is none.
    ("81 ff", Problem::NotUtf8),
    ("82 c3 28", Problem::NotUtf8),
    ("83 ed a0 80", Problem::NotUtf8),
    ("82 c0 80", Problem::NotUtf8),
    // Packing.
    ("78 03 ed 1c", Problem::BadPacking),
    ("7e 01 e1", Problem::BadPacking),
    ("7b 01 7f 01", Problem::BadPacking),
    ("7d 01 ff 3f", Problem::BadPacking),
    ("71 01 03 00", Problem::BadPacking),
    ("71 01 fc 00", Problem::BadPacking),
    ("71 00 01", Problem::BadPacking),
    // Numbers that JSON does not have.
    ("cc 00 00 00 00 00 00 f0 7f", Problem::NotFinite),
    ("ce 00 00 00 00 00 00 f8 7f", Problem::NotFinite),
    ("cd 00 00 80 ff", Problem::NotFinite),
    ("cf 00 7c", Problem::NotFinite),
    ("f0 cd 01 00 00 80 7f", Problem::NotFinite),
];

/// A buffer from hexadecimal digits, preamble added.
fn buffer(hex: &str) -> Vec<u8> {
    let bytes = hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap());
    std::iter::once(PREAMBLE).chain(bytes).collect()
}

fn text(bytes: &[u8]) -> Result<String, BinaryJsonError> {
    to_text(bytes).map(|text| String::from_utf8(text).unwrap())
}

/// An error, or text that a JSON parser reads; anything else, a panic above all, fails the test.
fn check_contract(bytes: &[u8]) {
    if let Ok(text) = to_text(bytes) {
        serde_json::from_slice::<serde::de::IgnoredAny>(&text).unwrap_or_else(|error| panic!("{bytes:02x?}: {error}"));
        let text = String::from_utf8(text).unwrap();
        let again = from_text(text.as_bytes()).unwrap_or_else(|error| panic!("{bytes:02x?}: {error}"));
        assert_eq!(self::text(&again).unwrap(), text, "{bytes:02x?}");
    }
}

#[test]
fn every_marker_has_its_text() {
    for (hex, expected) in VALUES {
        assert_eq!(text(&buffer(hex)).as_deref(), Ok(*expected), "{hex}");
        assert!(is_binary(&buffer(hex)));
    }
}

#[test]
fn what_is_malformed_is_refused_with_the_reason() {
    for (hex, problem) in REFUSED {
        assert_eq!(text(&buffer(hex)).unwrap_err().problem(), problem, "{hex}");
    }
    assert_eq!(to_text(b"").unwrap_err().problem(), &Problem::NotBinary);
    assert_eq!(to_text(b"{}").unwrap_err().problem(), &Problem::NotBinary);
    assert!(!is_binary(b"{}"));
}

#[test]
fn errors_say_where_and_what_to_do() {
    let error = text(&buffer("e2 02 05 40")).unwrap_err();
    assert_eq!(error.at(), 5);
    assert_eq!(
        error.to_string(),
        "binary JSON, byte 5: the string is in a user dictionary, which requests do not carry: write it in full"
    );
}

#[test]
fn every_truncation_and_every_changed_byte_gives_an_error_or_valid_json() {
    for hex in VALUES.iter().map(|(hex, _)| hex).chain(REFUSED.iter().map(|(hex, _)| hex)) {
        let whole = buffer(hex);
        for length in 0..whole.len() {
            let cut = &whole[..length];
            check_contract(cut);
            assert!(to_text(cut).is_err() || length > 1, "{hex}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            for byte in 0..=u8::MAX {
                changed[at] = byte;
                check_contract(&changed);
            }
        }
    }
}

#[test]
fn a_valid_buffer_loses_its_meaning_with_its_last_byte() {
    for (hex, _) in VALUES {
        let whole = buffer(hex);
        assert!(to_text(&whole[..whole.len() - 1]).is_err(), "{hex}");
    }
}

#[test]
fn nesting_stops_where_the_text_could_no_longer_be_read() {
    for marker in ["e1", "e9 2c"] {
        for (depth, fits) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false), (100_000, false)] {
            let result = to_text(&buffer(&format!("{} 05", format!("{marker} ").repeat(depth))));
            match result {
                Ok(text) => {
                    assert!(fits, "{depth}");
                    changefeed_query::json::check(&text).unwrap();
                }
                Err(error) => assert!(!fits && error.problem() == &Problem::TooDeep, "{depth}: {error}"),
            }
        }
    }
    for (inner, levels) in [("f0 d7 00", 1), ("f2 f0 d7 00 00", 2)] {
        let nested = |depth| to_text(&buffer(&format!("{} {inner}", "e1 ".repeat(depth))));
        assert!(nested(MAX_DEPTH - levels).is_ok());
        assert_eq!(nested(MAX_DEPTH + 1 - levels).unwrap_err().problem(), &Problem::TooDeep);
    }
}

#[test]
fn references_cannot_blow_up_the_text() {
    // A string of 60 kB and 60 000 references to it: 240 kB that stand for 3.6 GB.
    let mut items = vec![0xc1];
    items.extend_from_slice(&60_000_u16.to_le_bytes());
    items.resize(items.len() + 60_000, b'x');
    for _ in 0..60_000 {
        items.extend_from_slice(&[0xc3, 6]);
    }
    let mut bytes = vec![PREAMBLE, 0xe4];
    bytes.extend_from_slice(&(items.len() as u32).to_le_bytes());
    bytes.append(&mut items);
    let error = to_text(&bytes).unwrap_err();
    assert_eq!(error.problem(), &Problem::TooLarge(MAX_TEXT));
    assert!(error.is_too_large());
}

#[test]
fn empty_arrays_of_numbers_cannot_blow_up_the_text() {
    // Each stands for 65 535 empty arrays in eight bytes.
    let items = "f3 f1 d7 00 00 ff ff ".repeat(30_000);
    let length = (7_u32 * 30_000).to_le_bytes();
    let header = length.iter().fold("e4".to_owned(), |mut header, byte| {
        write!(header, " {byte:02x}").unwrap();
        header
    });
    let error = to_text(&buffer(&format!("{header} {items}"))).unwrap_err();
    assert_eq!(error.problem(), &Problem::TooLarge(MAX_TEXT));
}

#[test]
fn the_limit_is_exact() {
    let bytes = buffer("e5 02 02 05 d0");
    assert_eq!(to_text_within(&bytes, 8).unwrap(), b"[5,null]");
    for limit in 0..8 {
        assert_eq!(to_text_within(&bytes, limit).unwrap_err().problem(), &Problem::TooLarge(limit));
    }
    // Escapes count, too.
    let bytes = buffer("82 00 00");
    assert!(to_text_within(&bytes, 14).is_ok());
    assert!(to_text_within(&bytes, 13).unwrap_err().is_too_large());
}

#[test]
fn text_becomes_what_the_sdk_for_rust_would_send() {
    for (json, hex) in [
        (r#"{"id":"1","pk":"a","v":2}"#, "ed 0d 03 82 69 64 81 31 82 70 6b 81 61 81 76 02"),
        (" [ ] ", "e5 00 00"),
        ("{}", "ed 00 00"),
        ("[null,true,false]", "e5 03 03 d0 d2 d1"),
        ("31", "1f"),
        ("32", "cb 20 00 00 00 00 00 00 00"),
        ("-1", "cb ff ff ff ff ff ff ff ff"),
        ("18446744073709551615", "c7 ff ff ff ff ff ff ff ff"),
        ("2.0", "cc 00 00 00 00 00 00 00 40"),
        ("18446744073709551616", "cc 00 00 00 00 00 00 f0 43"),
        (r#""\u00e9""#, "82 c3 a9"),
        (r#"{"a":1,"a":2}"#, "ed 06 02 81 61 01 81 61 02"),
    ] {
        assert_eq!(from_text(json.as_bytes()).unwrap(), buffer(hex), "{json}");
    }
}

#[test]
fn lengths_take_as_few_bytes_as_they_need() {
    for (length, marker) in [(63, 0xbf), (64, 0xc0), (255, 0xc0), (256, 0xc1), (65_535, 0xc1), (65_536, 0xc2)] {
        let json = serde_json::to_string(&"x".repeat(length)).unwrap();
        let bytes = from_text(json.as_bytes()).unwrap();
        assert_eq!(bytes[1], marker, "{length}");
        assert_eq!(text(&bytes).unwrap(), json);
    }
    for (items, marker) in [(0, 0xe5), (255, 0xe5), (256, 0xe6), (65_535, 0xe6), (65_536, 0xe7)] {
        let json = serde_json::to_string(&vec![7; items]).unwrap();
        let bytes = from_text(json.as_bytes()).unwrap();
        assert_eq!(bytes[1], marker, "{items}");
        assert_eq!(text(&bytes).unwrap(), json);
    }
}

#[test]
fn text_that_is_not_json_is_refused() {
    for text in ["", "{", "[1,]", "1 2", "nul", r#"{"a"}"#, "1e999", r#""\ud800""#, "\u{feff}1"] {
        assert!(matches!(from_text(text.as_bytes()).unwrap_err().problem(), Problem::NotJson(_)), "{text}");
    }
    assert!(from_text(b"\"\xff\"").is_err());
    assert!(from_text("[".repeat(200).as_bytes()).is_err());
}

#[test]
fn generated_json_survives_both_ways() {
    let mut random = Random(fastrand::Rng::with_seed(0x9e37_79b9_7f4a_7c15));
    for _ in 0..2_000 {
        let mut json = String::new();
        generate(&mut random, 0, &mut json);
        let bytes = from_text(json.as_bytes()).unwrap();
        assert_eq!(text(&bytes).unwrap(), json);
        for _ in 0..20 {
            let mut changed = bytes.clone();
            let at = random.below(changed.len());
            changed[at] = random.next() as u8;
            check_contract(&changed);
        }
    }
}

/// The same numbers in every run.
struct Random(fastrand::Rng);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.u64(..) >> 8
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }
}

/// Appends JSON in the form in which [`to_text`] writes it.
fn generate(random: &mut Random, depth: usize, out: &mut String) {
    match random.below(if depth < 6 { 10 } else { 7 }) {
        0 => out.push_str("null"),
        1 => out.push_str("true"),
        2 => write!(out, "{}", random.next() as i64 >> random.below(60)).unwrap(),
        3 => write!(out, "-{}", 1 + random.below(1 << 40)).unwrap(),
        4 => write!(out, "{:?}", random.below(1 << 30) as f64 + 0.125).unwrap(),
        5 | 6 => out.push_str(&generated_string(random)),
        7 => {
            out.push('[');
            for index in 0..random.below(6) {
                out.push_str(if index > 0 { "," } else { "" });
                generate(random, depth + 1, out);
            }
            out.push(']');
        }
        _ => {
            out.push('{');
            for index in 0..random.below(6) {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&generated_string(random));
                out.push(':');
                generate(random, depth + 1, out);
            }
            out.push('}');
        }
    }
}

fn generated_string(random: &mut Random) -> String {
    let longest = if random.below(8) == 0 { 400 } else { 12 };
    let length = random.below(longest);
    let text: String =
        (0..length).filter_map(|_| char::from_u32((random.next() >> random.below(40)) as u32 % 0x11_0000)).collect();
    serde_json::to_string(&text).unwrap()
}
