//! From a partition key value to the bytes of its effective partition key. Must agree with the service bit by bit.

use std::borrow::Cow;

use super::value::PartitionKeyValue;
use crate::murmur3::{murmur3_x64_128, murmur3_x86_32};

const UNDEFINED: u8 = 0;
const NULL: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
const NUMBER: u8 = 5;
const STRING: u8 = 8;

/// Bytes of one version 2 hash.
pub(super) const HASH_LEN: usize = 16;
/// Version 2 hashes stay below this: their two top bits are cleared, so that `FF` is behind all of them.
pub(super) const HASH_LIMIT: u128 = 1 << 126;

/// Version 1 looks at this many UTF-16 units of a string.
const V1_MAX_UNITS: usize = 100;
/// Version 1 keeps this many bytes of a string with an end mark; of a longer one a byte more and no mark.
const V1_MAX_BYTES: usize = 100;

/// Version 2: the 128-bit hash, most significant byte first. Hierarchical keys are one such hash per level.
pub(super) fn version2(value: &PartitionKeyValue) -> [u8; HASH_LEN] {
    let (h1, h2) = match value {
        PartitionKeyValue::String(text) => hash_with_frame(text.as_bytes(), 0xFF, murmur3_x64_128),
        other => murmur3_x64_128(fixed(other).as_slice()),
    };
    // The service reverses the little-endian bytes of the hash: the second half comes first.
    let word = u128::from(h2) << 64 | u128::from(h1);
    (word & (HASH_LIMIT - 1)).to_be_bytes()
}

/// Version 1: the 32-bit hash as a number, then the value itself, both in an encoding that keeps their order.
pub(super) fn version1(value: &PartitionKeyValue) -> Vec<u8> {
    match value {
        PartitionKeyValue::String(text) => {
            let text = first_units(text);
            let mut bytes = version1_hash(hash_with_frame(&text, 0, murmur3_x86_32));
            bytes.push(STRING);
            let is_short = text.len() <= V1_MAX_BYTES;
            // No byte of UTF-8 is FF, so nothing wraps and only the end mark is zero.
            bytes.extend(text.iter().take(V1_MAX_BYTES + 1).map(|byte| byte.wrapping_add(1)));
            if is_short {
                bytes.push(0);
            }
            bytes
        }
        other => {
            let form = fixed(other);
            let mut bytes = version1_hash(murmur3_x86_32(form.as_slice()));
            match other {
                PartitionKeyValue::Number(number) => push_ordered(&mut bytes, number.get()),
                _ => bytes.extend_from_slice(form.as_slice()),
            }
            bytes
        }
    }
}

/// The beginning of all version 1 keys with this hash: grows with the hash.
pub(super) fn version1_hash(hash: u32) -> Vec<u8> {
    // A short key fits without growing: at most 9 bytes of hash, the value behind it.
    let mut bytes = Vec::with_capacity(48);
    push_ordered(&mut bytes, hash.into());
    bytes
}

/// The form for hashing of a value that is not a string: a type byte, and 8 more for a number.
struct Fixed {
    bytes: [u8; 9],
    len: usize,
}

impl Fixed {
    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

fn fixed(value: &PartitionKeyValue) -> Fixed {
    let tag = |tag| Fixed { bytes: [tag, 0, 0, 0, 0, 0, 0, 0, 0], len: 1 };
    match value {
        PartitionKeyValue::Undefined => tag(UNDEFINED),
        PartitionKeyValue::Null => tag(NULL),
        PartitionKeyValue::Bool(false) => tag(FALSE),
        PartitionKeyValue::Bool(true) => tag(TRUE),
        PartitionKeyValue::Number(number) => {
            let [a, b, c, d, e, f, g, h] = number.get().to_le_bytes();
            Fixed { bytes: [NUMBER, a, b, c, d, e, f, g, h], len: 9 }
        }
        PartitionKeyValue::String(_) => tag(STRING),
    }
}

/// Hashes type byte, text and end byte; without allocating for keys of everyday length.
fn hash_with_frame<H>(text: &[u8], end: u8, hash: impl Fn(&[u8]) -> H) -> H {
    let mut buffer = [0; 128];
    if let Some(framed) = buffer.get_mut(..text.len() + 2)
        && let [first, middle @ .., last] = framed
    {
        *first = STRING;
        middle.copy_from_slice(text);
        *last = end;
        return hash(framed);
    }
    let mut framed = Vec::with_capacity(text.len() + 2);
    framed.push(STRING);
    framed.extend_from_slice(text);
    framed.push(end);
    hash(&framed)
}

/// The first 100 UTF-16 units as UTF-8. A surrogate pair cut in two leaves U+FFFD, as in the service.
fn first_units(text: &str) -> Cow<'_, [u8]> {
    if text.len() <= V1_MAX_UNITS {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut units = 0;
    for (offset, c) in text.char_indices() {
        if units == V1_MAX_UNITS {
            return Cow::Borrowed(text.as_bytes().get(..offset).unwrap_or_default());
        }
        units += c.len_utf16();
        if units > V1_MAX_UNITS {
            let kept = text.as_bytes().get(..offset).unwrap_or_default();
            return Cow::Owned([kept, "\u{FFFD}".as_bytes()].concat());
        }
    }
    Cow::Borrowed(text.as_bytes())
}

/// A number whose bytes sort like its value: 8 bits, then groups of 7, each followed by whether another one comes.
fn push_ordered(bytes: &mut Vec<u8>, number: f64) {
    const SIGN: u64 = 1 << 63;
    let bits = number.to_bits();
    let mut payload = if bits < SIGN { bits ^ SIGN } else { bits.wrapping_neg() };
    bytes.extend([NUMBER, (payload >> 56) as u8]);
    payload <<= 8;
    loop {
        let group = (payload >> 56) as u8 & 0xFE;
        payload <<= 7;
        if payload == 0 {
            bytes.push(group);
            return;
        }
        bytes.push(group | 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition_key::PartitionKey;

    fn hex(bytes: &[u8]) -> String {
        crate::epk::Epk::from_bytes(bytes).to_string()
    }

    fn value(json: &str) -> PartitionKeyValue {
        format!("[{json}]").parse::<PartitionKey>().unwrap().values()[0].clone()
    }

    /// Value, version 2, version 1: agreed by Python, JavaScript, Java and .NET.
    const VECTORS: &[(&str, &str, &str)] = &[
        (r#""""#, "32E9366E637A71B4E710384B2F4970A0", "05C1CF33970FF80800"),
        (r#""a""#, "3A5381E1114EB8D3FCC90795045B49B7", "05C1D78593652C086200"),
        (r#""abc""#, "2424691CC38A7EEF2A65ADE404E1F528", "05C1ED155F4F7C0862636400"),
        (r#""partitionKey""#, "013AEFCF77FA271571CF665A58C933F1", "05C1E1B3D9CD2608716273756A756A706F4C667A00"),
        (r#""é✓""#, "3D7BDA7EFB419009B71986BEE0F40504", "05C1D3B5CFEB0C08C4AAE39D9400"),
        ("null", "378867E4430E67857ACE5C908374FE16", "05C1ED45D7475601"),
        ("{}", "11622DAA78F835834610ABE56EFF5CB5", "05C1D529E345DC00"),
        ("true", "0E711127C5B5A8E4726AC6DD306A3E59", "05C1D7C5A903D803"),
        ("false", "2FE1BE91E90A3439635E0E9E37361EF2", "05C1DB857D857C02"),
        ("0", "155B95BEDAC4B1E9EC1CDC9BB0DDDE58", "05C1BF6DA11560058000"),
        ("-0.0", "155B95BEDAC4B1E9EC1CDC9BB0DDDE58", "05C1BF6DA11560058000"),
        ("1", "20CD98B339BA78A5D0CF6953B87070B0", "05C1ED172B6B2605BFF0"),
        ("-1", "19938E7A936C1C5B9E3AE842BBC16839", "05C1D1A5BDDF9C054010"),
        ("5.5", "0E2EE47829D1AF775EEFB6540FD1D0ED", "05C1D7A771716C05C016"),
        ("12345", "1F78AD17D3C4219C477E69E93A0EB873", "05C1C7F987C51005C0C90F20"),
        ("2147483647", "2D9349D64712AEB5EB1406E2F0BE2725", "05C1E1F503DFB205C1DFFFFFFFFC"),
        ("1e300", "1234CB21048B20039B22F11DBB13CD7B", "05C1AB5FCFAF8005FE37F30F918103D738"),
        ("1099511627776", "2D3BCED3EFD25BAD679513A12CEAAA46", "05C19FFD2B9B8005C270"),
    ];

    #[test]
    fn values_are_placed_where_every_sdk_places_them() {
        for (json, v2, v1) in VECTORS {
            assert_eq!(hex(&version2(&value(json))), *v2, "{json}");
            assert_eq!(hex(&version1(&value(json))), *v1, "{json}");
        }
    }

    #[test]
    fn version_2_hashes_long_strings_whole() {
        let v2 = |len: usize| hex(&version2(&"a".repeat(len).into()));
        assert_eq!(v2(100), "0DBD7D229437BB665DE6417747994D57");
        assert_eq!(v2(101), "08042541D30C8BF90D7092B1519AE0BC");
        assert_eq!(v2(1024), "332BDF5512AE49615F32C7D98C2DB86C");
    }

    #[test]
    fn version_1_cuts_long_strings() {
        let v1 = |text: String| version1(&text.into());
        let hundred = v1("a".repeat(100));
        assert_eq!(hex(&hundred), format!("05C1EB5921F70608{}00", "62".repeat(100)));
        assert_eq!(v1("a".repeat(101)), hundred);
        assert_eq!(v1(format!("{}🚀", "a".repeat(100))), hundred);
        // The byte limit falls into the last character, which then ends without a mark.
        assert_eq!(hex(&v1(format!("{}€", "a".repeat(99)))), format!("05C1D747E54D9008{}E383", "62".repeat(99)));
        // The unit limit falls between the surrogates of the last character.
        assert_eq!(hex(&v1(format!("{}😀", "a".repeat(99)))), format!("05C1E153DB455808{}F0C0", "62".repeat(99)));
        assert_eq!(hex(&v1(format!("{}😀", "a".repeat(98)))), format!("05C1DD87B7E74C08{}F1A099", "62".repeat(98)));
    }

    #[test]
    fn version_1_hashes_sort_like_their_numbers() {
        let near_powers = (0..32).map(|bit| 1u32 << bit).flat_map(|power| [power - 1, power, power + 1]);
        let mut hashes: Vec<u32> = near_powers.chain([u32::MAX, 0xDEAD_BEEF]).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert!(hashes.iter().map(|hash| version1_hash(*hash)).is_sorted_by(|a, b| a < b));
        assert_eq!(hex(&version1_hash(0x7FFF_FFFF)), "05C1DFFFFFFFFC");
    }
}
