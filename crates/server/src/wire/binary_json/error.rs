//! Errors of conversions, with the position in the buffer.

use std::fmt;

use changefeed_query::json::MAX_DEPTH;

/// Why a buffer or a text cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryJsonError {
    at: usize,
    problem: Problem,
}

/// The cause of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The first byte is not [`super::PREAMBLE`].
    NotBinary,
    /// The buffer, or the array or object around this place, ends within a value.
    Truncated,
    /// Bytes follow the value.
    Trailing,
    /// No value starts with this byte.
    UnknownMarker(u8),
    /// The string is in a dictionary that requests do not carry.
    UserDictionary,
    /// A member name is not a string.
    NotAName,
    /// A reference does not lead to an earlier string.
    BadReference,
    /// An array or object has more or fewer items than it says.
    WrongCount,
    /// A string is not UTF-8.
    NotUtf8,
    /// A packed string has bits where there should be none, or stands for characters outside ASCII.
    BadPacking,
    /// A number is infinite or not a number.
    NotFinite,
    /// Arrays and objects nest deeper than [`MAX_DEPTH`].
    TooDeep,
    /// The text is longer than this limit.
    TooLarge(usize),
    /// The text to encode is not JSON; the parser's words.
    NotJson(String),
}

impl BinaryJsonError {
    pub(super) fn new(at: usize, problem: Problem) -> Self {
        Self { at, problem }
    }

    /// The position of the error: the offset of a value or of the bytes after its marker, from the preamble.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The cause.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Returns `true` if a smaller value would be accepted.
    pub fn is_too_large(&self) -> bool {
        matches!(self.problem, Problem::TooLarge(_))
    }
}

impl fmt::Display for BinaryJsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !matches!(self.problem, Problem::NotJson(_)) {
            write!(f, "binary JSON, byte {}: ", self.at)?;
        }
        match &self.problem {
            Problem::NotBinary => {
                f.write_str("the first byte is not 80: send JSON text without the binary content type")
            }
            Problem::Truncated => f.write_str("the value ends before its length says: send the whole buffer"),
            Problem::Trailing => f.write_str("bytes follow the value: send exactly one value"),
            Problem::UnknownMarker(marker) => write!(f, "no value starts with {marker:02x}"),
            Problem::UserDictionary => {
                f.write_str("the string is in a user dictionary, which requests do not carry: write it in full")
            }
            Problem::NotAName => f.write_str("a member name has to be a string"),
            Problem::BadReference => f.write_str("the reference does not lead to an earlier string"),
            Problem::WrongCount => f.write_str("the count differs from the number of items"),
            Problem::NotUtf8 => f.write_str("the string is not UTF-8"),
            Problem::BadPacking => f.write_str("the packed string has stray bits or characters outside ASCII"),
            Problem::NotFinite => f.write_str("JSON has no infinity and no NaN: send a finite number"),
            Problem::TooDeep => write!(f, "nested deeper than {} levels: flatten the item", MAX_DEPTH),
            Problem::TooLarge(limit) => write!(f, "the text is longer than {limit} bytes: make the item smaller"),
            Problem::NotJson(cause) => write!(f, "the text is not JSON: {cause}"),
        }
    }
}

impl std::error::Error for BinaryJsonError {}
