//! Reads the outermost object of an item: names, texts without escapes and whole numbers here, other values by serde_json.
//!
//! serde_json alone takes almost three times as long for a small item: it checks each name and text on its own, also those
//! that the type does not have, and looks at most bytes one by one.

use std::borrow::Cow;

use serde::{
    de::{Deserialize as _, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Error, Result, de::StrRead};

use super::{Key, RAW_VALUE, is_hidden};

/// What was not read yet of an item.
pub(super) struct Body<'de> {
    rest: &'de str,
}

impl<'de> Body<'de> {
    pub(super) fn new(text: &'de str) -> Self {
        Self { rest: text }
    }

    /// Refuses anything after the object.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(unexpected()) }
    }

    /// The next byte that is no space.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        match self.rest.as_bytes().first() {
            Some(byte) if *byte > b' ' => Some(*byte),
            _ => self.peek_after_spaces(),
        }
    }

    #[cold]
    fn peek_after_spaces(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\r', '\t']);
        self.rest.as_bytes().first().copied()
    }

    /// Passes `count` bytes, which end at a character.
    #[inline]
    fn pass(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.peek() != Some(byte) {
            return Err(unexpected());
        }
        self.pass(1);
        Ok(())
    }

    /// A text without escapes, if that comes next.
    #[inline]
    fn plain_text(&mut self) -> Option<&'de str> {
        self.peek()?;
        let [b'"', text @ ..] = self.rest.as_bytes() else { return None };
        let length = plain_length(text);
        if text.get(length) != Some(&b'"') {
            return None;
        }
        let text = self.rest.get(1..=length)?;
        self.pass(length + 2);
        Some(text)
    }

    /// The name of a member without escapes, if that comes next with nothing but a comma or brace before it and a colon
    /// after it: all names of most items.
    #[inline]
    fn plain_name(&mut self, separator: u8) -> Option<&'de str> {
        let [first, b'"', name @ ..] = self.rest.as_bytes() else { return None };
        let length = plain_length(name);
        let [b'"', b':', ..] = name.get(length..)? else { return None };
        if *first != separator {
            return None;
        }
        let name = self.rest.get(2..2 + length)?;
        self.pass(length + 4);
        Some(name)
    }

    /// Passes a text, if that comes next.
    #[inline]
    fn skip_text(&mut self) -> Option<()> {
        let [b'"', text @ ..] = self.rest.as_bytes() else { return None };
        let mut length = 0;
        loop {
            length += plain_length(text.get(length..)?);
            match text.get(length..)? {
                [b'"', ..] => break,
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => length += 2,
                _ => return None,
            }
        }
        self.pass(length + 2);
        Some(())
    }

    /// A whole number that is not negative, if that comes next.
    #[inline]
    fn plain_number(&mut self) -> Option<u64> {
        self.peek()?;
        let (number, digits) = leading_number(self.rest.as_bytes());
        // A fraction or an exponent may follow.
        if digits == 0 || !matches!(self.rest.as_bytes().get(digits)?, b',' | b'}') {
            return None;
        }
        self.pass(digits);
        Some(number)
    }

    /// Passes the value of `_rid` and everything after it, if that is what our own store appends to an item.
    #[inline]
    fn skip_suffix(&mut self) -> Option<()> {
        const RID_CHARS: usize = 24;
        let (rid, rest) = self.rest.as_bytes().strip_prefix(b"\"")?.split_first_chunk::<RID_CHARS>()?;
        let words = rid.as_chunks::<8>().0.iter();
        if words.fold(0, |any, word| any | special_bytes(u64::from_le_bytes(*word))) != 0 {
            return None;
        }
        let etag = rest.strip_prefix(br#"","_etag":"\""#)?;
        let rest = etag.get(plain_length(etag)..)?.strip_prefix(br#"\"","_ts":"#)?;
        let (_, digits) = leading_number(rest);
        let rest = rest.get(digits..)?.strip_prefix(br#","_lsn":"#)?;
        let (_, more_digits) = leading_number(rest);
        let rest = rest.get(more_digits..)?.strip_prefix(b"}")?;
        if digits == 0 || more_digits == 0 {
            return None;
        }
        self.pass(self.rest.len() - rest.len());
        Some(())
    }

    /// Reads what comes next with serde_json.
    fn json<T>(&mut self, read: impl FnOnce(&mut serde_json::Deserializer<StrRead<'de>>) -> Result<T>) -> Result<T> {
        let mut json = serde_json::Deserializer::from_str(self.rest);
        let value = read(&mut json)?;
        self.pass(json.into_iter::<IgnoredAny>().byte_offset());
        Ok(value)
    }

    fn members<V: Visitor<'de>>(&mut self, visitor: V, wanted: &'static [&'static str]) -> Result<V::Value> {
        self.peek();
        visitor.visit_map(Members { body: self, wanted, separator: b'{' })
    }

    /// The name of a member that is written in an unusual form, or `None` at the end of the object.
    fn name(&mut self, separator: u8) -> Result<Option<Cow<'de, str>>> {
        if separator == b'{' {
            self.expect(separator)?;
        }
        if self.peek() == Some(b'}') {
            self.pass(1);
            return Ok(None);
        }
        if separator == b',' {
            self.expect(separator)?;
        }
        let name = match self.plain_text() {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(self.json(|json| String::deserialize(json))?),
        };
        self.expect(b':')?;
        Ok(Some(name))
    }

    #[inline]
    fn skip(&mut self) -> Result<()> {
        match self.peek() {
            Some(b'"') if self.skip_text().is_some() => Ok(()),
            Some(b'0'..=b'9') if self.plain_number().is_some() => Ok(()),
            _ => self.json(|json| IgnoredAny::deserialize(json).map(|_| ())),
        }
    }
}

/// The whole number at the beginning of `text`, and how many digits it has: 0 if it is not a valid or a too large one.
#[inline]
fn leading_number(text: &[u8]) -> (u64, usize) {
    // As many digits as cannot overflow.
    const MAX_DIGITS: usize = 18;
    let (mut number, mut digits) = (0_u64, 0);
    for byte in text.iter().take(MAX_DIGITS) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number.wrapping_mul(10).wrapping_add(digit.into());
        digits += 1;
    }
    let leading_zero = digits > 1 && text.first() == Some(&b'0');
    if leading_zero { (0, 0) } else { (number, digits) }
}

/// The caller reads the item again with serde_json alone, whose errors say what and where.
#[cold]
fn unexpected() -> Error {
    Error::custom("unexpected")
}

/// How many bytes come before the first quote, backslash or control character.
#[inline]
fn plain_length(bytes: &[u8]) -> usize {
    // Names and most texts are shorter than this.
    const SHORT: usize = 32;
    let mut at = 0;
    for word in bytes.as_chunks::<8>().0.iter().take(SHORT / 8) {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    long_plain_length(bytes, at)
}

/// The same, `at` bytes after the first.
#[inline(never)]
fn long_plain_length(bytes: &[u8], mut at: usize) -> usize {
    let is_special = |byte: u8| (byte == b'"') | (byte == b'\\') | (byte < 0x20);
    // Without a branch for each byte, so that the compiler compares many at once.
    let is_plain = |block: &[u8; 32]| !block.iter().fold(false, |any, byte| any | is_special(*byte));
    let rest = bytes.get(at..).unwrap_or_default();
    at += rest.as_chunks().0.iter().take_while(|block| is_plain(block)).count() * 32;
    let rest = bytes.get(at..).unwrap_or_default();
    for word in rest.as_chunks::<8>().0 {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len())
}

/// The highest bit of the first byte of `word` that is a quote, a backslash or a control character, and perhaps of bytes
/// after it; 0 if there is none.
#[inline]
fn special_bytes(word: u64) -> u64 {
    const EACH: u64 = u64::MAX / 255;
    let zero = |word: u64| word.wrapping_sub(EACH) & !word;
    let control = word.wrapping_sub(EACH * 0x20) & !word;
    (control | zero(word ^ (EACH * 0x22)) | zero(word ^ (EACH * 0x5c))) & (EACH << 7)
}

impl<'de> Deserializer<'de> for &mut Body<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.members(visitor, &[])
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.members(visitor, fields)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        match name {
            RAW_VALUE => self.json(|json| json.deserialize_newtype_struct(name, visitor)),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.json(|json| json.deserialize_enum(name, variants, visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.json(|json| json.deserialize_ignored_any(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier
    }
}

/// The members of the object, without those of the system that are not in `wanted`.
struct Members<'a, 'de> {
    body: &'a mut Body<'de>,
    wanted: &'static [&'static str],
    /// What comes before the next member.
    separator: u8,
}

impl<'de> Members<'_, 'de> {
    /// The name of the next member; `None` after the last one.
    #[inline]
    fn next_name(&mut self) -> Result<Option<Cow<'de, str>>> {
        loop {
            let separator = std::mem::replace(&mut self.separator, b',');
            let name = match self.body.plain_name(separator) {
                Some(name) => Cow::Borrowed(name),
                None => match self.body.name(separator)? {
                    Some(name) => name,
                    None => return Ok(None),
                },
            };
            if !is_hidden(&name, self.wanted) {
                return Ok(Some(name));
            }
            let all_hidden = self.wanted.iter().all(|name| !name.starts_with('_'));
            if all_hidden && name == "_rid" && self.body.skip_suffix().is_some() {
                return Ok(None);
            }
            self.body.skip()?;
        }
    }
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        match self.next_name()? {
            Some(name) => seed.deserialize(Key { name, error: std::marker::PhantomData }).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        seed.deserialize(Value(&mut *self.body))
    }
}

/// The value of a member.
struct Value<'a, 'de>(&'a mut Body<'de>);

/// Methods that read a plain number or text here, and leave the rest to serde_json.
macro_rules! deserialize_plain {
    ($($read:ident $visit:ident: $($method:ident)*;)*) => {$($(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match self.0.$read() {
                Some(value) => visitor.$visit(value),
                None => self.0.json(|json| json.$method(visitor)),
            }
        }
    )*)*};
}

/// Methods that leave everything to serde_json.
macro_rules! deserialize_json {
    ($($method:ident($($argument:ident: $type:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value> {
            self.0.json(|json| json.$method($($argument,)* visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for Value<'_, 'de> {
    type Error = Error;

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.0.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0.peek() {
            Some(b'n') => self.0.json(|json| json.deserialize_option(visitor)),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        match name {
            RAW_VALUE => self.0.json(|json| json.deserialize_newtype_struct(name, visitor)),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    deserialize_plain! {
        plain_text visit_borrowed_str: deserialize_str deserialize_string;
        plain_number visit_u64: deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
            deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64;
    }

    deserialize_json! {
        deserialize_any();
        deserialize_bool();
        deserialize_i128();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(length: usize);
        deserialize_tuple_struct(name: &'static str, length: usize);
        deserialize_map();
        deserialize_struct(name: &'static str, fields: &'static [&'static str]);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, de::DeserializeOwned};

    use super::*;
    use crate::typed::parse_with_positions;

    const STORED: &str = r#"{"id":"w-7","number":70,"customer":"k7","padding":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","_rid":"ADyiAIABAAENAAAAAAAAAA==","_etag":"\"1-21b\"","_ts":1795000000,"_lsn":22}"#;
    const UNUSUAL: &str = r#" { "id" : "\u0061\n" ,"b\"c":null,"price":-1.5e3,"count":18446744073709551615,"tags":[1,{"a":"}"}],"é":"ü","flag":true,"_ts":0 } "#;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Order {
        id: String,
        number: Option<u32>,
        customer: Option<String>,
        price: Option<f64>,
        count: Option<u64>,
        flag: Option<bool>,
        tags: Option<Vec<serde_json::Value>>,
        #[serde(rename = "_etag")]
        etag: Option<String>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Small {
        number: i64,
    }

    type Tree = BTreeMap<String, serde_json::Value>;

    fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
        let mut body = Body::new(text);
        T::deserialize(&mut body).ok().filter(|_| body.end().is_ok())
    }

    /// Returns whether the text is read, which must give what serde_json gives.
    fn agrees<T: DeserializeOwned + PartialEq + std::fmt::Debug>(text: &str) -> bool {
        let found = read::<T>(text);
        if let Some(value) = &found {
            assert_eq!(Some(value), parse_with_positions(text).ok().as_ref(), "{text}");
        }
        found.is_some()
    }

    #[test]
    fn items_are_read_as_serde_json_reads_them() {
        for text in [STORED, UNUSUAL, "{\"id\":\"\"}", "\n{\t\"id\":\"1\",\r\n\"number\":0}\n"] {
            assert!(agrees::<Order>(text) && agrees::<Tree>(text), "{text}");
        }
        assert!(agrees::<Small>(STORED));
        assert!(agrees::<Tree>("{}") && agrees::<Tree>(" { } "));
        assert_eq!(read::<Order>(STORED).unwrap().etag.as_deref(), Some("\"1-21b\""));
        assert_eq!(read::<Tree>(UNUSUAL).unwrap().len(), 7);
    }

    #[test]
    fn whatever_is_cut_or_changed_is_never_read_as_something_else() {
        for text in [STORED, UNUSUAL] {
            for at in (0..text.trim_end().len()).filter(|at| text.is_char_boundary(*at)) {
                let (before, after) = text.split_at(at);
                agrees::<Small>(before);
                assert!(!agrees::<Tree>(before) && !agrees::<Order>(before), "{before}");
                let end = after.chars().next().map_or(0, char::len_utf8);
                for other in
                    ["", "\"", "\\", "{", "}", "[", ",", ":", " ", "0", "9", "-", ".", "e", "n", "\n", "\0", "é"]
                {
                    let changed = format!("{before}{other}{}", &after[end..]);
                    agrees::<Order>(&changed);
                    agrees::<Tree>(&changed);
                    agrees::<Small>(&changed);
                }
            }
        }
    }

    #[test]
    fn texts_of_every_length_end_where_they_should() {
        for length in 0..150 {
            let plain = "x".repeat(length);
            for end in ['"', '\\', '\n', '\0', '\u{1f}'] {
                assert_eq!(plain_length(format!("{plain}{end}yy\"yyyyyyy\\").as_bytes()), length, "{end:?}");
            }
            assert_eq!(plain_length(plain.as_bytes()), length);
            assert_eq!(plain_length(format!("{plain}é\u{7f} \"").as_bytes()), length + 4);
            assert!(agrees::<Tree>(&format!(r#"{{"{plain}":"{plain}é","b":1}}"#)));
        }
    }

    #[test]
    fn numbers_that_are_no_plain_ones_are_left_to_serde_json() {
        for number in
            ["0", "7", "123456789012345678", "1234567890123456789", "18446744073709551615", "-3", "1e2", "2.5"]
        {
            let text = format!(r#"{{"id":"1","number":{number}}}"#);
            assert!(agrees::<Tree>(&text), "{number}");
            agrees::<Order>(&text);
            agrees::<Small>(&text);
        }
        for number in ["00", "01", "1x", "", "+1", "1.", "--1"] {
            assert!(!agrees::<Tree>(&format!(r#"{{"number":{number}}}"#)), "{number}");
        }
    }
}
