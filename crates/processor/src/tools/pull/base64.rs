//! Base64 with the alphabet for URLs, without padding: text that survives shells, file names and query strings.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The bytes as text.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            let digit = (group >> (18 - 6 * place)) & 63;
            text.push(char::from(ALPHABET.get(digit as usize).copied().unwrap_or(b'A')));
        }
    }
    text
}

/// The bytes of a text; none if it is not what [`encode`] writes.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.as_bytes().chunks(4) {
        let mut group = 0_u32;
        for byte in chunk {
            let digit = ALPHABET.iter().position(|letter| letter == byte)?;
            group = group << 6 | u32::try_from(digit).ok()?;
        }
        let group = (group << (6 * (4 - chunk.len()))).to_be_bytes();
        bytes.extend(group.get(1..chunk.len())?);
    }
    // Bits that are left over must be zero, and one letter alone is nothing: the same bytes have one text only.
    (encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        for length in 0..bytes.len() {
            assert_eq!(decode(&encode(&bytes[..length])).unwrap(), &bytes[..length]);
        }
        assert_eq!(encode(b"\xfb\xff\xfe"), "-__-");
        assert_eq!(encode(b"Ma"), "TWE");
    }

    #[test]
    fn text_that_was_not_written_here_is_refused() {
        for text in ["A", "AAAAA", "AB", "A=", "A A", "+/", "é", "TWF="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
