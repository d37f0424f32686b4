//! Cosmos resource ids (`_rid`): numbers of database, container and child, packed and written in base64.

use std::{fmt, str::FromStr};

use base64::{
    Engine as _,
    alphabet::Alphabet,
    engine::{GeneralPurpose, general_purpose::PAD},
};
use bytes::BufMut;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{Error, ErrorKind, Result};

/// The letters of base64 with `-` where the standard alphabet has `/`, because ids appear in paths.
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &match Alphabet::new(LETTERS) {
        Ok(alphabet) => alphabet,
        Err(_) => panic!("an alphabet of 64 different letters"),
    },
    PAD,
);
/// Set in the fifth byte of a container; clear there would mean a user.
const CONTAINER_BIT: u32 = 0x8000_0000;
/// How long an id can be, in bytes and in letters.
const MAX_BYTES: usize = 16;
const MAX_CHARS: usize = 24;
/// Bytes that `MAX_CHARS` letters can stand for.
const DECODED_BYTES: usize = 18;
/// The high nibble of the last byte holds the type of a child, the 60 bits below its number.
const TYPE_SHIFT: u32 = 60;
const DOCUMENT: u64 = 0;
const PARTITION_KEY_RANGE: u64 = 5;

/// The id of a database (4 bytes), a container (8) or a child of a container (16).
///
/// Database and container are big endian, the child is little endian. An id contains the ids above it:
/// `ADyiAIABAAENAAAAAAAAAA==` is document 13 of container `ADyiAIABAAE=` of database `ADyiAA==`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    database: u32,
    container: Option<u32>,
    child: Option<u64>,
}

impl ResourceId {
    /// The largest number of a document or partition key range, plus one.
    pub const CHILD_LIMIT: u64 = 1 << TYPE_SHIFT;

    /// Creates the id of a database.
    pub fn database(database: u32) -> Self {
        Self { database, container: None, child: None }
    }

    /// Creates the id of a container. Its number has 31 bits; the top bit is always set in the id and never in the
    /// number.
    pub fn container(database: u32, container: u32) -> Self {
        Self { database, container: Some(container & !CONTAINER_BIT), child: None }
    }

    /// Creates the id of a document; SDKs break ties by this number, so it should grow. Must be below 2^60.
    pub fn document(database: u32, container: u32, number: u64) -> Result<Self> {
        Self::child(database, container, DOCUMENT, number)
    }

    /// Creates the id of a partition key range. The number must be below 2^60.
    pub fn partition_key_range(database: u32, container: u32, number: u64) -> Result<Self> {
        Self::child(database, container, PARTITION_KEY_RANGE, number)
    }

    /// Parses an id; `None` if the text is not one. Cheaper than `parse` where most texts are names: no error is built.
    pub fn try_parse(text: &str) -> Option<Self> {
        // Longer text is not worth decoding.
        if text.len() > MAX_CHARS {
            return None;
        }
        decode(text.as_bytes()).and_then(|(bytes, count)| Self::from_bytes(bytes.get(..count)?))
    }

    /// Returns the id of the database this belongs to, or is.
    #[must_use]
    pub fn database_part(&self) -> Self {
        Self::database(self.database)
    }

    /// Returns the id of the container this belongs to, or is; none for a database.
    pub fn container_part(&self) -> Option<Self> {
        self.container.map(|container| Self::container(self.database, container))
    }

    /// Returns the number of the database.
    pub fn database_number(&self) -> u32 {
        self.database
    }

    /// Returns the number of the container, without its top bit; none for a database.
    pub fn container_number(&self) -> Option<u32> {
        self.container
    }

    /// Returns the number of the document, if this is the id of one.
    pub fn document_number(&self) -> Option<u64> {
        self.child_number(DOCUMENT)
    }

    /// Returns the number of the partition key range, if this is the id of one.
    pub fn partition_key_range_number(&self) -> Option<u64> {
        self.child_number(PARTITION_KEY_RANGE)
    }

    /// Appends the text to `out`, without the cost of formatting: a feed page prints one id for each item.
    pub fn write_to(&self, out: &mut impl BufMut) {
        let (bytes, count) = self.packed();
        let (text, length) = encode(&bytes[..count]);
        out.put_slice(&text[..length]);
    }

    /// Reads an id from the bytes that its text encodes; `None` if they are not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (database, rest) = bytes.split_first_chunk()?;
        let database = u32::from_be_bytes(*database);
        if rest.is_empty() {
            return Some(Self::database(database));
        }
        let (container, rest) = rest.split_first_chunk()?;
        let container = u32::from_be_bytes(*container);
        if container & CONTAINER_BIT == 0 {
            return None;
        }
        let child = match rest {
            [] => None,
            _ => Some(u64::from_le_bytes(rest.try_into().ok()?)),
        };
        Some(Self { child, ..Self::container(database, container) })
    }

    /// Returns the bytes that the text encodes: 4, 8 or 16.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_BYTES);
        self.write_bytes_to(&mut bytes);
        bytes
    }

    /// Appends the bytes that the text encodes to `out` and returns their number.
    pub fn write_bytes_to(&self, out: &mut impl BufMut) -> usize {
        let (bytes, count) = self.packed();
        out.put_slice(&bytes[..count]);
        count
    }

    /// The bytes behind the text, and how many there are.
    fn packed(&self) -> ([u8; MAX_BYTES], usize) {
        let mut bytes = [0; MAX_BYTES];
        bytes[..4].copy_from_slice(&self.database.to_be_bytes());
        let Some(container) = self.container else { return (bytes, 4) };
        bytes[4..8].copy_from_slice(&(container | CONTAINER_BIT).to_be_bytes());
        let Some(child) = self.child else { return (bytes, 8) };
        bytes[8..].copy_from_slice(&child.to_le_bytes());
        (bytes, MAX_BYTES)
    }

    fn child(database: u32, container: u32, kind: u64, number: u64) -> Result<Self> {
        if number >= Self::CHILD_LIMIT {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("number {number} of a resource id is not below 2^60"),
            ));
        }
        Ok(Self { child: Some(kind << TYPE_SHIFT | number), ..Self::container(database, container) })
    }

    fn child_number(&self, kind: u64) -> Option<u64> {
        self.child.filter(|child| child >> TYPE_SHIFT == kind).map(|child| child & (Self::CHILD_LIMIT - 1))
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, count) = self.packed();
        let (text, length) = encode(&bytes[..count]);
        f.write_str(std::str::from_utf8(&text[..length]).unwrap_or_default())
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceId({self})")
    }
}

impl FromStr for ResourceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::try_parse(text).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{text:?} is not the resource id of a database, a container or a child of one"),
            )
        })
    }
}

impl Serialize for ResourceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ResourceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Base64 with padding, and its length. Does not allocate: a feed page prints one id for each item.
fn encode(bytes: &[u8]) -> ([u8; MAX_CHARS], usize) {
    if let Ok(bytes) = bytes.try_into() {
        return (encode_longest(bytes), MAX_CHARS);
    }
    let mut text = [0; MAX_CHARS];
    let length = BASE64.encode_slice(bytes, &mut text).expect("invariant: an id has at most 16 bytes");
    (text, length)
}

/// The same for the ids of documents, as in [`decode_longest`].
fn encode_longest(bytes: &[u8; MAX_BYTES]) -> [u8; MAX_CHARS] {
    // The last byte fills two letters, and padding follows.
    let mut text = [b'='; MAX_CHARS];
    let letter = |bits: u32| LETTERS.as_bytes()[(bits & 0x3f) as usize];
    let (threes, last) = bytes.split_at(MAX_BYTES - 1);
    for (three, four) in threes.chunks_exact(3).zip(text.chunks_exact_mut(4)) {
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        four.copy_from_slice(&[letter(bits >> 18), letter(bits >> 12), letter(bits >> 6), letter(bits)]);
    }
    let bits = u32::from(last[0]) << 4;
    [text[MAX_CHARS - 4], text[MAX_CHARS - 3]] = [letter(bits >> 6), letter(bits)];
    text
}

/// What each letter stands for; [`NO_LETTER`] for all other bytes.
const VALUES: [u8; 256] = {
    let mut values = [NO_LETTER; 256];
    let mut value = 0;
    while value < LETTERS.len() {
        values[LETTERS.as_bytes()[value] as usize] = value as u8;
        value += 1;
    }
    values
};
/// A bit that no value of six bits has.
const NO_LETTER: u8 = 0x80;

/// The reverse of [`encode`]; `None` for text that `encode` does not write.
fn decode(text: &[u8]) -> Option<([u8; DECODED_BYTES], usize)> {
    if let Ok(text) = text.try_into() {
        return decode_longest(text).map(|bytes| (bytes, MAX_BYTES));
    }
    let mut bytes = [0; DECODED_BYTES];
    let length = BASE64.decode_slice(text, &mut bytes).ok()?;
    Some((bytes, length))
}

/// The same for the ids of documents: a page has a thousand of them, and base64 of any length takes several times as long.
fn decode_longest(text: &[u8; MAX_CHARS]) -> Option<[u8; DECODED_BYTES]> {
    let (text, padding) = text.split_at(MAX_CHARS - 2);
    let (mut bytes, mut wrong) = ([0; DECODED_BYTES], 0);
    for (four, three) in text.chunks(4).zip(bytes.chunks_exact_mut(3)) {
        let mut bits = 0;
        for letter in 0..4 {
            let value = four.get(letter).map_or(0, |byte| VALUES[usize::from(*byte)]);
            wrong |= value;
            bits = bits << 6 | u32::from(value);
        }
        three.copy_from_slice(&bits.to_be_bytes()[1..]);
    }
    // The last letter has four bits more than the last byte: these are zero.
    (wrong & NO_LETTER == 0 && padding == b"==" && bytes[MAX_BYTES] == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the base64 library makes of a text.
    fn slowly(text: &[u8]) -> Option<[u8; DECODED_BYTES]> {
        let mut bytes = [0; DECODED_BYTES];
        (BASE64.decode_slice(text, &mut bytes) == Ok(MAX_BYTES)).then_some(bytes)
    }

    #[test]
    fn documents_are_read_as_base64_of_any_length_is() {
        let good = *b"ADyiAIABAAENAAAAAAAAAA==";
        assert!(decode_longest(&good).is_some());
        for at in 0..good.len() {
            for byte in 0..=u8::MAX {
                let mut text = good;
                text[at] = byte;
                assert_eq!(decode_longest(&text), slowly(&text), "{:?}", String::from_utf8_lossy(&text));
            }
        }
    }

    #[test]
    fn documents_are_written_as_base64_of_any_length_is() {
        // Every value at every place.
        let of = |number: usize| std::array::from_fn(|at| (number + at * 37) as u8);
        for bytes in (0..256).map(of).chain([[0; MAX_BYTES], [u8::MAX; MAX_BYTES]]) {
            assert_eq!(encode_longest(&bytes), BASE64.encode(bytes).as_bytes(), "{bytes:?}");
        }
    }

    const DB: u32 = 0x003C_A200;
    const COLL: u32 = 0x0001_0001;

    #[test]
    fn ids_read_as_the_service_writes_them() {
        assert_eq!(ResourceId::database(DB).to_string(), "ADyiAA==");
        assert_eq!(ResourceId::container(DB, COLL).to_string(), "ADyiAIABAAE=");
        assert_eq!(ResourceId::document(DB, COLL, 13).unwrap().to_string(), "ADyiAIABAAENAAAAAAAAAA==");
        let range = ResourceId::partition_key_range(DB, COLL, 0).unwrap();
        assert_eq!(range.to_string(), "ADyiAIABAAEAAAAAAAAAUA==");
        let mut text = Vec::new();
        range.write_to(&mut text);
        assert_eq!(text, range.to_string().as_bytes());
    }

    #[test]
    fn an_id_contains_the_ids_above_it() {
        let container: ResourceId = "kEgGAMy0JpU=".parse().unwrap();
        assert_eq!(container.database_part().to_string(), "kEgGAA==");
        assert_eq!(container.container_part(), Some(container));
        let document: ResourceId = "ADyiAIABAAENAAAAAAAAAA==".parse().unwrap();
        assert_eq!(document.container_part().unwrap().to_string(), "ADyiAIABAAE=");
        assert_eq!(document.database_part().to_string(), "ADyiAA==");
        assert_eq!(document.database_part().container_part(), None);
    }

    #[test]
    fn numbers_come_back() {
        let last = ResourceId::CHILD_LIMIT - 1;
        let document = ResourceId::document(u32::MAX, 7, last).unwrap().to_string().parse::<ResourceId>().unwrap();
        assert_eq!(document.database_number(), u32::MAX);
        assert_eq!(document.container_number(), Some(7));
        assert_eq!(document.document_number(), Some(last));
        assert_eq!(document.partition_key_range_number(), None);
        let range = ResourceId::partition_key_range(1, u32::MAX, 12).unwrap();
        assert_eq!(range.partition_key_range_number(), Some(12));
        assert_eq!(range.container_number(), Some(u32::MAX >> 1));
        assert_eq!(range.document_number(), None);
        assert_eq!(ResourceId::database(5).container_number(), None);
    }

    #[test]
    fn a_slash_is_written_as_a_dash() {
        let id = ResourceId::database(0xFFFF_FFFF);
        assert_eq!(id.to_string(), "-----w==");
        assert_eq!("-----w==".parse::<ResourceId>().unwrap(), id);
        assert!("/////w==".parse::<ResourceId>().is_err());
        assert_eq!(serde_json::to_string(&id).unwrap(), r#""-----w==""#);
        assert_eq!(serde_json::from_str::<ResourceId>(r#""-----w==""#).unwrap(), id);
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
        for text in [
            "",
            "A",
            "ADyi",
            "ADyiAA",
            "ADyiAA=",
            "ADyiAB==",
            "AD==AA==",
            "A===",
            "====",
            "ADyiAA==ADyi",
            "ADyiAAABAAE=",
            "ADyiAIABAAENAAAAAAAA",
            "ADyiAIABAAENAAAAAAAAAAAA",
            "ADyiAIABAAENAAAAAAAAAAAAAAA=",
            "ADyi é==",
            "mydb",
        ] {
            let error = text.parse::<ResourceId>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn a_number_of_more_than_60_bits_is_refused() {
        assert!(ResourceId::document(1, 1, ResourceId::CHILD_LIMIT).is_err());
        assert!(ResourceId::partition_key_range(1, 1, u64::MAX).is_err());
    }
}
