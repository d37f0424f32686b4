//! Values as bytes whose order is the order of the values: undefined < null < false < true < number < string <
//! array < object. One byte comparison then sorts rows, finds duplicates and resumes after a cursor.

use crate::value::Value;

/// The end of a string, an array or an object; sorts before every type.
const END: u8 = 0;

/// Appends the key of `value`. Every key ends by itself, so keys can be put one after the other.
pub(crate) fn encode(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Undefined => out.push(1),
        Value::Null => out.push(2),
        Value::Bool(false) => out.push(3),
        Value::Bool(true) => out.push(4),
        Value::Number(n, _) => {
            out.push(5);
            // -0 and 0 are one number.
            let bits = if *n == 0.0 { 0 } else { n.to_bits() };
            let ordered = if bits >> 63 == 1 { !bits } else { bits | (1 << 63) };
            out.extend_from_slice(&ordered.to_be_bytes());
        }
        Value::Text(text, _) => {
            out.push(6);
            encode_text(text, out);
        }
        Value::Array(_) | Value::RawArray(_) => {
            out.push(7);
            for element in value.elements().unwrap_or_default() {
                encode(&element, out);
            }
            out.push(END);
        }
        Value::Object(_) | Value::RawObject(_) => {
            out.push(8);
            let mut members = value.members().unwrap_or_default();
            members.retain(|(_, value)| value.is_defined());
            members.sort_by(|a, b| a.0.cmp(&b.0));
            for (name, value) in members {
                out.push(1);
                encode_text(&name, out);
                encode(&value, out);
            }
            out.push(END);
        }
    }
}

/// The key of one value.
pub(crate) fn key_of(value: &Value<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    encode(value, &mut key);
    key
}

/// Zero bytes are doubled with 0xff, so that the end (two zeros) sorts before any continuation.
pub(crate) fn encode_text(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// Longest key of a distinct row or a group that is kept in full.
const LONG: usize = 512;

/// A short key for distinct rows and groups: long ones keep their beginning and a hash of the whole.
pub(crate) fn shorten(mut key: Vec<u8>) -> Vec<u8> {
    if key.len() > LONG {
        let hash = fnv1a_128(&key);
        key.truncate(LONG);
        key.extend_from_slice(&hash.to_be_bytes());
    }
    key
}

/// FNV-1a of 128 bits, as `changefeed_core::stable_hash`, which this crate does not depend on. Continuations hold it, so
/// the outputs never change.
pub(crate) fn fnv1a_128(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&if text.is_empty() { Value::Undefined } else { Value::raw(text) }, &mut out);
        out
    }

    #[test]
    fn the_hash_agrees_with_published_values() {
        assert_eq!(fnv1a_128(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a_128(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn keys_sort_as_values_do() {
        let sorted = [
            "",
            "null",
            "false",
            "true",
            "-1e300",
            "-2",
            "-1.5",
            "0",
            "0.1",
            "1",
            "2",
            "10",
            "1e300",
            "\"\"",
            "\"\\u0000\"",
            "\"\\u0000a\"",
            "\"a\"",
            "\"a\\u0000\"",
            "\"aa\"",
            "\"b\"",
            "\"é\"",
            "[]",
            "[1]",
            "[1,2]",
            "[2]",
            "[[]]",
            "{}",
            "{\"a\":1}",
            "{\"a\":1,\"b\":1}",
            "{\"a\":2}",
            "{\"b\":0}",
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(key(a).cmp(&key(b)), i.cmp(&j), "{a} {b}");
            }
        }
        assert_eq!(key("-0"), key("0"));
        assert_eq!(key("{\"b\":1,\"a\":2}"), key("{\"a\":2.0,\"b\":1}"));
    }

    #[test]
    fn long_keys_stay_short_and_different() {
        let a = shorten(key(&format!("\"{}a\"", "x".repeat(5000))));
        let b = shorten(key(&format!("\"{}b\"", "x".repeat(5000))));
        assert_eq!(a.len(), 528);
        assert_ne!(a, b);
    }
}
