//! One value of a partition key: undefined, null, boolean, number or string.

use std::{cmp::Ordering, fmt, fmt::Write as _, hash};

use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};

/// One value of a partition key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartitionKeyValue {
    /// The item has no such member.
    Undefined,
    /// JSON `null`.
    Null,
    /// JSON `true` or `false`.
    Bool(bool),
    /// A JSON number; all of them are doubles, `1` and `1.0` are the same key.
    Number(KeyNumber),
    /// A JSON string.
    String(String),
}

impl PartitionKeyValue {
    /// Reads a JSON value; nothing if it is an object or an array.
    pub(super) fn from_scalar(raw: &RawValue) -> Result<Option<Self>> {
        let text = raw.get();
        Ok(Some(match text.as_bytes().first() {
            Some(b'{' | b'[') | None => return Ok(None),
            Some(b'n') => Self::Null,
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'"') => Self::String(serde_json::from_str(text).map_err(|error| {
                Error::new(ErrorKind::WrongPartitionKey, "a string of the partition key is not Unicode")
                    .with_source(error)
            })?),
            // Not through serde_json, whose fast reader may miss the nearest double by one bit: that is another key.
            Some(_) => text
                .parse::<f64>()
                .map_err(|error| {
                    Error::new(ErrorKind::WrongPartitionKey, format!("{text} is not a number")).with_source(error)
                })?
                .try_into()?,
        }))
    }
}

impl fmt::Display for PartitionKeyValue {
    /// The form inside the header: JSON, ASCII only, `{}` for undefined.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined => f.write_str("{}"),
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => number.fmt(f),
            Self::String(text) => write_ascii(f, text),
        }
    }
}

impl From<&str> for PartitionKeyValue {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for PartitionKeyValue {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for PartitionKeyValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<()> for PartitionKeyValue {
    fn from((): ()) -> Self {
        Self::Null
    }
}

impl From<i32> for PartitionKeyValue {
    fn from(number: i32) -> Self {
        Self::Number(KeyNumber(number.into()))
    }
}

impl From<u32> for PartitionKeyValue {
    fn from(number: u32) -> Self {
        Self::Number(KeyNumber(number.into()))
    }
}

impl From<i64> for PartitionKeyValue {
    /// Beyond 2^53 the nearest double is taken, as everywhere in Cosmos DB.
    fn from(number: i64) -> Self {
        Self::Number(KeyNumber(number as f64))
    }
}

impl From<KeyNumber> for PartitionKeyValue {
    fn from(number: KeyNumber) -> Self {
        Self::Number(number)
    }
}

impl TryFrom<f64> for PartitionKeyValue {
    type Error = Error;

    /// Refuses NaN and infinity, which JSON does not have.
    fn try_from(number: f64) -> Result<Self> {
        KeyNumber::try_from(number).map(Self::Number)
    }
}

/// A number in a partition key: a double that is finite and not negative zero, hence with a total order.
///
/// Keys are placed by the bits of the double, and the two zeros have different bits although `0 == -0`. Both become
/// `0` here, as in the Rust SDK: equal keys are one key.
#[derive(Clone, Copy, Debug)]
pub struct KeyNumber(f64);

impl KeyNumber {
    /// Returns the number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for KeyNumber {
    type Error = Error;

    fn try_from(number: f64) -> Result<Self> {
        if !number.is_finite() {
            return Err(Error::new(
                ErrorKind::WrongPartitionKey,
                format!("{number} cannot be part of a partition key, only finite numbers can"),
            ));
        }
        // -0.0 == 0.0, so this replaces both by the positive one.
        Ok(Self(if number == 0.0 { 0.0 } else { number }))
    }
}

impl fmt::Display for KeyNumber {
    /// The shortest JSON number that reads back as the same double; integers without a fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The limits at which JavaScript changes to an exponent.
        if self.0 == 0.0 || (1e-6..1e21).contains(&self.0.abs()) {
            write!(f, "{}", self.0)
        } else {
            write!(f, "{:e}", self.0)
        }
    }
}

impl PartialEq for KeyNumber {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for KeyNumber {}

impl PartialOrd for KeyNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl hash::Hash for KeyNumber {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// Writes a JSON string of printable ASCII only, as a header needs it.
fn write_ascii(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '\u{8}' => f.write_str("\\b")?,
            '\u{c}' => f.write_str("\\f")?,
            ' '..='~' => f.write_char(c)?,
            _ => c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(f, "\\u{unit:04x}"))?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: f64) -> KeyNumber {
        value.try_into().unwrap()
    }

    #[test]
    fn numbers_are_written_in_the_shortest_form_and_read_back_exactly() {
        for (value, text) in [
            (1.0, "1"),
            (-1.0, "-1"),
            (0.1, "0.1"),
            (5.5, "5.5"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (9007199254740992.0, "9007199254740992"),
            (1e20, "100000000000000000000"),
            (1e21, "1e21"),
            (-1.7976931348623157e308, "-1.7976931348623157e308"),
            (2.225073858507201e-308, "2.225073858507201e-308"),
        ] {
            assert_eq!(number(value).to_string(), text);
            let raw = RawValue::from_string(text.to_owned()).unwrap();
            assert_eq!(PartitionKeyValue::from_scalar(&raw).unwrap(), Some(number(value).into()));
        }
    }

    #[test]
    fn numbers_are_ordered_by_value() {
        let numbers = [f64::MIN, -1.0, -5e-324, 0.0, 5e-324, 1.0, f64::MAX].map(number);
        assert!(numbers.is_sorted());
        assert_eq!(number(-0.0).get().to_bits(), 0);
    }
}
