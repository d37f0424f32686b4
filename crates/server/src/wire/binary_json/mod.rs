//! Cosmos binary JSON: the compact form in which some SDKs send items, and JSON text, in both directions.
//!
//! A buffer is the byte `80` and one value. The first byte of a value, its marker, says what follows; all integers are
//! little endian.
//!
//! | marker | value |
//! | --- | --- |
//! | `00`–`1F` | the integer itself |
//! | `20`–`3F` | one of 32 well-known strings |
//! | `40`–`67` | a string of a dictionary that is not part of the buffer: refused |
//! | `71`–`74` | a string that is base64 text, stored as the bytes it stands for |
//! | `75`–`77` | a string that is a GUID: lower case, upper case, lower case within quotes |
//! | `78`–`7F` | a string of few distinct characters, packed into 4 to 7 bits each |
//! | `80`–`BF` | a string of 0 to 63 bytes |
//! | `C0`–`C2` | a string with a length of 1, 2 or 4 bytes |
//! | `C3`–`C6` | the string at an earlier offset of the buffer, in 1 to 4 bytes |
//! | `C7`–`CF`, `D7`–`DC` | numbers of fixed size |
//! | `D0`–`D2` | null, false, true |
//! | `D3`, `DD`–`DF` | a GUID, and bytes with a length of 1, 2 or 4 bytes; text has them as strings |
//! | `E0`–`E7` | arrays: empty, of one item, with a length, with a length and a count |
//! | `E8`–`EF` | objects, likewise |
//! | `F0`–`F3` | arrays of numbers of one kind, and arrays of such arrays |
//!
//! Input of clients is not trusted: every length and count is checked, nothing may follow the value, and neither
//! nesting nor references can make the text grow beyond a limit. Repeated member names are passed on as they are.

mod decode;
mod encode;
mod error;
mod input;
mod number;
mod string;
#[cfg(test)]
mod tests;

pub use changefeed_query::json::MAX_DEPTH;

pub use self::{
    error::{BinaryJsonError, Problem},
    input::PREAMBLE,
};

/// The size limit of the text of one value: twice an item's 2 MiB, so that an item that is somewhat too large gets the
/// answer for items that are too large.
pub const MAX_TEXT: usize = 4 * 1024 * 1024;

/// Returns `true` if these bytes are binary JSON rather than JSON text.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes.first() == Some(&PREAMBLE)
}

/// JSON text of a binary value, at most [`MAX_TEXT`] bytes of it.
pub fn to_text(bytes: &[u8]) -> Result<Vec<u8>, BinaryJsonError> {
    to_text_within(bytes, MAX_TEXT)
}

/// JSON text of a binary value, at most `limit` bytes of it. Takes time and memory in proportion to input and limit.
pub fn to_text_within(bytes: &[u8], limit: usize) -> Result<Vec<u8>, BinaryJsonError> {
    decode::decode(bytes, limit)
}

/// The binary form of JSON text, made of those markers that the SDK for Rust writes itself: `00`–`1F`, `80`–`C2`, `C7`,
/// `CB`, `CC`, `D0`–`D2`, `E5`–`E7` and `ED`–`EF`. Integers beyond 64 bits become doubles.
pub fn from_text(text: &[u8]) -> Result<Vec<u8>, BinaryJsonError> {
    encode::encode(text)
}
