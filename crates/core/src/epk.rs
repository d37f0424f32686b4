//! Effective partition key: the bytes by which a container orders and divides its partition keys.

use std::{
    fmt::{self, Write as _},
    hash,
    str::FromStr,
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{Error, ErrorKind, Result};

/// Bytes kept in place: with the length and the tag they fill 24 bytes, and a version 2 key (16 bytes) never allocates.
const INLINE: usize = 22;
const _: () = assert!(size_of::<Epk>() == 24);

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// An effective partition key, compared byte by byte; its text form is upper-case hexadecimal.
///
/// Real keys lie between [`Epk::MIN`] (inclusive) and [`Epk::MAX`] (exclusive). Clones are cheap: short keys are
/// copied, long ones shared.
#[derive(Clone)]
pub struct Epk(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Arc<[u8]>),
}

impl Epk {
    /// The empty key: the inclusive start of the whole space.
    pub const MIN: Self = Self(Repr::Inline { len: 0, bytes: [0; INLINE] });

    /// `FF`: the exclusive end of the whole space, greater than every key a definition produces.
    pub const MAX: Self = {
        let mut bytes = [0; INLINE];
        bytes[0] = 0xFF;
        Self(Repr::Inline { len: 1, bytes })
    };

    /// Creates a key of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE];
        match inline.get_mut(..bytes.len()) {
            // `get_mut` succeeded, so the length is at most 22.
            Some(start) => {
                start.copy_from_slice(bytes);
                Self(Repr::Inline { len: bytes.len() as u8, bytes: inline })
            }
            None => Self(Repr::Heap(bytes.into())),
        }
    }

    /// Returns the bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Returns the exclusive end of the range that covers exactly this key.
    ///
    /// It is the smallest key greater than this one and everything that starts with it: the last byte that is not
    /// `FF` plus one, nothing behind it. No complete key of a definition is the beginning of another (version 2 and
    /// hierarchical keys have a fixed length, version 1 keys end themselves), so `key..key.successor()` holds one
    /// key and nothing else. Appending `00` would be tighter still, but some SDKs ignore trailing zero bytes and
    /// would take such a range for an empty one.
    ///
    /// An empty key, or one of `FF` bytes only, has no such bound; these get a `00` appended.
    pub fn successor(&self) -> Self {
        let mut bytes = self.as_bytes().to_vec();
        while bytes.last() == Some(&0xFF) {
            bytes.pop();
        }
        match bytes.last_mut() {
            Some(last) => {
                *last += 1;
                Self::from_bytes(&bytes)
            }
            None => self.followed_by(0x00),
        }
    }

    /// This key with one more byte.
    pub(crate) fn followed_by(&self, byte: u8) -> Self {
        let mut bytes = self.as_bytes().to_vec();
        bytes.push(byte);
        Self::from_bytes(&bytes)
    }
}

impl PartialEq for Epk {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Epk {}

impl PartialOrd for Epk {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Epk {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl hash::Hash for Epk {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for Epk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
        self.as_bytes().iter().try_for_each(|byte| {
            f.write_char(digit(byte >> 4))?;
            f.write_char(digit(*byte))
        })
    }
}

impl fmt::Debug for Epk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epk({self})")
    }
}

impl FromStr for Epk {
    type Err = Error;

    /// Reads hexadecimal text without regard to case; the empty text is [`Epk::MIN`].
    fn from_str(text: &str) -> Result<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Error::new(
                ErrorKind::BadRange,
                format!("effective partition key {text:?} has an odd number of hexadecimal digits"),
            ));
        }
        let (mut short, mut long) = ([0; INLINE], Vec::new());
        let bytes = match short.get_mut(..pairs.len()) {
            Some(bytes) => bytes,
            None => {
                long.resize(pairs.len(), 0);
                long.as_mut_slice()
            }
        };
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let (Some(high), Some(low)) = (nibble(*high), nibble(*low)) else {
                let message = format!("effective partition key {text:?} is not hexadecimal");
                return Err(Error::new(ErrorKind::BadRange, message));
            };
            *byte = high << 4 | low;
        }
        Ok(Self::from_bytes(bytes))
    }
}

impl Serialize for Epk {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Epk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl de::Visitor<'_> for Text {
            type Value = Epk;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Epk, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

fn nibble(digit: u8) -> Option<u8> {
    // `to_digit(16)` answers 0..=15.
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epk(text: &str) -> Epk {
        text.parse().unwrap()
    }

    #[test]
    fn hexadecimal_text_is_read_in_any_case_and_written_in_upper_case() {
        assert_eq!(epk("05c1dfFFff").to_string(), "05C1DFFFFF");
        assert_eq!(epk(""), Epk::MIN);
        assert_eq!(epk("ff"), Epk::MAX);
        assert_eq!(serde_json::to_string(&epk("0a")).unwrap(), r#""0A""#);
        assert_eq!(serde_json::from_str::<Epk>(r#""0a""#).unwrap(), epk("0A"));
    }

    #[test]
    fn text_that_is_not_hexadecimal_is_refused_with_a_sentence() {
        for (text, message) in [
            ("123", "effective partition key \"123\" has an odd number of hexadecimal digits"),
            ("1G", "effective partition key \"1G\" is not hexadecimal"),
            ("+1", "effective partition key \"+1\" is not hexadecimal"),
            ("é", "effective partition key \"é\" is not hexadecimal"),
        ] {
            let error = text.parse::<Epk>().unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::BadRange, message));
        }
    }

    #[test]
    fn short_and_long_keys_behave_alike() {
        for len in [0, 1, 16, 21, 22, 23, 32, 48, 300] {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let key = Epk::from_bytes(&bytes);
            assert_eq!(key.as_bytes(), bytes);
            assert_eq!(key.clone(), key);
            assert_eq!(key.to_string().parse::<Epk>().unwrap(), key);
            assert!(key < key.followed_by(0));
        }
    }

    #[test]
    fn keys_are_ordered_by_their_bytes() {
        let keys = ["", "00", "0000", "01", "05C1DF", "05C1DFFFFFFFFC", "05C1E0", "1F", "3FFF", "FF"].map(epk);
        assert!(keys.is_sorted());
    }

    #[test]
    fn a_successor_follows_the_key_and_everything_that_starts_with_it() {
        for (key, successor) in
            [("12", "13"), ("12FF", "13"), ("3FFFFF", "40"), ("05C100", "05C101"), ("", "00"), ("FF", "FF00")]
        {
            assert_eq!(epk(key).successor(), epk(successor));
        }
        assert!(epk("12FFAA") < epk("12FF").successor());
    }
}
