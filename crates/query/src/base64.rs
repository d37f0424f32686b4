//! Base64 for continuations and rids. Both alphabets are read (`+/` and `-_`, with `-` also for `/` as rids use it).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Without padding, safe in headers and URLs.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..=chunk.len() {
            let six = word >> (18 - 6 * index) & 63;
            out.push(char::from(ALPHABET[six as usize]));
        }
    }
    out
}

/// Reads what [`encode`] wrote.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    decode_with(text, |byte| ALPHABET.iter().position(|own| *own == byte))
}

/// Reads a rid: standard base64 with padding, `-` for `/`.
pub(crate) fn decode_rid(text: &str) -> Option<Vec<u8>> {
    decode_with(text.trim_end_matches('='), |byte| match byte {
        b'+' => Some(62),
        b'/' | b'-' => Some(63),
        other => ALPHABET[..62].iter().position(|own| *own == other),
    })
}

fn decode_with(text: &str, digit: impl Fn(u8) -> Option<usize>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.as_bytes().chunks(4) {
        let mut word = 0usize;
        for byte in chunk {
            word = word << 6 | digit(*byte)?;
        }
        let bits = chunk.len() * 6;
        let whole = bits / 8;
        // A single digit holds no byte, and the bits that are left over must be zero.
        if whole == 0 || word & ((1 << (bits - whole * 8)) - 1) != 0 {
            return None;
        }
        word >>= bits - whole * 8;
        out.extend((0..whole).rev().map(|index| (word >> (8 * index)) as u8));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        for length in 0..40u8 {
            let bytes: Vec<u8> = (0..length).map(|i| i.wrapping_mul(73)).collect();
            assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
        assert_eq!(encode(b"\xff\xfe\xfd"), "__79");
        for bad in ["A", "AB", "A*==", "AAAAA"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn rids_are_read_in_both_spellings() {
        let expected = decode_rid("ADyiAIABAAEIAAAAAAAAAA==").unwrap();
        assert_eq!(expected[8..], [8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode_rid("a-+="), decode_rid("a/+="));
    }
}
