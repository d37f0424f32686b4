//! Values of the language: JSON plus *undefined*. Values of a document keep their text.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::json;

/// A value during evaluation. Arrays and objects of documents stay raw until something looks inside.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Undefined,
    Null,
    Bool(bool),
    /// The number, and how the document wrote it.
    Number(f64, Option<&'a str>),
    /// The text, and how the document wrote it.
    Text(Cow<'a, str>, Option<&'a str>),
    Array(Vec<Value<'a>>),
    Object(Vec<(Cow<'a, str>, Value<'a>)>),
    RawArray(Cow<'a, str>),
    RawObject(Cow<'a, str>),
}

/// The types of values, in the order in which `ORDER BY` puts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Type {
    Undefined,
    Null,
    Bool,
    Number,
    Text,
    Array,
    Object,
}

impl<'a> Value<'a> {
    /// A computed number; NaN and infinity, which JSON cannot express, are undefined.
    pub(crate) fn number(value: f64) -> Self {
        if value.is_finite() { Self::Number(value, None) } else { Self::Undefined }
    }

    pub(crate) fn text(value: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(value.into(), None)
    }

    /// Reads one checked raw value; arrays and objects stay raw.
    pub(crate) fn raw(text: &'a str) -> Self {
        match text.as_bytes().first() {
            Some(b'{') => Self::RawObject(Cow::Borrowed(text)),
            Some(b'[') => Self::RawArray(Cow::Borrowed(text)),
            Some(b'"') => Self::Text(json::unescape(text), Some(text)),
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'n') => Self::Null,
            // Numbers too large for a double become infinite: still comparable, and printed as they were written.
            Some(_) => text.parse().map_or(Self::Undefined, |value| Self::Number(value, Some(text))),
            None => Self::Undefined,
        }
    }

    /// An owned value of a JSON tree, as parameters are.
    pub(crate) fn from_json(value: &serde_json::Value) -> Value<'static> {
        match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(b) => Value::Bool(*b),
            serde_json::Value::Number(n) => n.as_f64().map_or(Value::Undefined, Value::number),
            serde_json::Value::String(s) => Value::text(s.clone()),
            serde_json::Value::Array(_) => Value::RawArray(Cow::Owned(value.to_string())),
            serde_json::Value::Object(_) => Value::RawObject(Cow::Owned(value.to_string())),
        }
    }

    /// A cheap copy that borrows from `self`.
    pub(crate) fn borrowed<'b>(&'b self) -> Value<'b>
    where
        'a: 'b,
    {
        match self {
            Self::Undefined => Value::Undefined,
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Number(n, raw) => Value::Number(*n, *raw),
            Self::Text(text, raw) => Value::Text(Cow::Borrowed(text), *raw),
            Self::Array(list) => Value::Array(list.iter().map(Value::borrowed).collect()),
            Self::Object(list) => {
                Value::Object(list.iter().map(|(k, v)| (Cow::Borrowed(k.as_ref()), v.borrowed())).collect())
            }
            Self::RawArray(text) => Value::RawArray(Cow::Borrowed(text)),
            Self::RawObject(text) => Value::RawObject(Cow::Borrowed(text)),
        }
    }

    /// A copy that borrows nothing. Composites are stored as text.
    pub(crate) fn owned(&self) -> Value<'static> {
        match self {
            Self::Undefined => Value::Undefined,
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Number(n, _) => Value::Number(*n, None),
            Self::Text(text, _) => Value::Text(Cow::Owned(text.clone().into_owned()), None),
            Self::Array(_) | Self::RawArray(_) => Value::RawArray(Cow::Owned(self.json())),
            Self::Object(_) | Self::RawObject(_) => Value::RawObject(Cow::Owned(self.json())),
        }
    }

    /// The cost of a copy: nothing for borrowed values, otherwise about one for each element.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Text(Cow::Owned(text), _) | Self::RawArray(Cow::Owned(text)) | Self::RawObject(Cow::Owned(text)) => {
                text.len() / 64
            }
            Self::Array(list) => list.iter().map(|value| 1 + value.weight()).sum(),
            Self::Object(list) => list.iter().map(|(_, value)| 1 + value.weight()).sum(),
            _ => 0,
        }
    }

    /// The bytes of text that the value owns.
    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            Self::Text(Cow::Owned(text), _) | Self::RawArray(Cow::Owned(text)) | Self::RawObject(Cow::Owned(text)) => {
                text.len()
            }
            _ => 0,
        }
    }

    /// The length of a text, or of the text of a raw array or object.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text, _) | Self::RawArray(text) | Self::RawObject(text) => text.len(),
            _ => 0,
        }
    }

    /// Returns `true` if the JSON text has more than `limit` bytes, escapes apart. Stops as soon as that is known.
    pub(crate) fn exceeds(&self, limit: usize) -> bool {
        self.measure(limit).is_none()
    }

    /// Returns the rest of `limit` after the JSON text; none if it does not fit.
    fn measure(&self, limit: usize) -> Option<usize> {
        match self {
            Self::Undefined => Some(limit),
            Self::Null | Self::Bool(_) | Self::Number(..) => limit.checked_sub(4),
            Self::Text(..) | Self::RawArray(_) | Self::RawObject(_) => limit.checked_sub(self.text_bytes() + 2),
            Self::Array(list) => list.iter().try_fold(limit, |left, value| value.measure(left)?.checked_sub(1)),
            Self::Object(list) => {
                list.iter().try_fold(limit, |left, (name, value)| value.measure(left)?.checked_sub(name.len() + 4))
            }
        }
    }

    pub(crate) fn kind(&self) -> Type {
        match self {
            Self::Undefined => Type::Undefined,
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Number(..) => Type::Number,
            Self::Text(..) => Type::Text,
            Self::Array(_) | Self::RawArray(_) => Type::Array,
            Self::Object(_) | Self::RawObject(_) => Type::Object,
        }
    }

    pub(crate) fn is_defined(&self) -> bool {
        !matches!(self, Self::Undefined)
    }

    pub(crate) fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(b) = self { Some(*b) } else { None }
    }

    pub(crate) fn as_number(&self) -> Option<f64> {
        if let Self::Number(n, _) = self { Some(*n) } else { None }
    }

    /// A number without a fraction that an `i64` holds.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        let n = self.as_number()?;
        (n.fract() == 0.0 && n.abs() < 9.3e18).then_some(n as i64)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text, _) = self { Some(text) } else { None }
    }

    /// The elements of an array.
    pub(crate) fn elements(&self) -> Option<Vec<Value<'_>>> {
        match self {
            Self::Array(list) => Some(list.iter().map(Value::borrowed).collect()),
            Self::RawArray(text) => Some(json::elements(text).map(Value::raw).collect()),
            _ => None,
        }
    }

    /// The elements of an array, taken out of it.
    pub(crate) fn into_elements(self) -> Option<Vec<Value<'a>>> {
        match self {
            Self::Array(list) => Some(list),
            Self::RawArray(Cow::Borrowed(text)) => Some(json::elements(text).map(Value::raw).collect()),
            Self::RawArray(Cow::Owned(text)) => Some(json::elements(&text).map(|e| Value::raw(e).owned()).collect()),
            _ => None,
        }
    }

    /// The members of an object, by name.
    pub(crate) fn members(&self) -> Option<Vec<(Cow<'_, str>, Value<'_>)>> {
        match self {
            Self::Object(list) => Some(list.iter().map(|(k, v)| (Cow::Borrowed(k.as_ref()), v.borrowed())).collect()),
            Self::RawObject(text) => {
                Some(json::members(text).map(|(k, v)| (json::unescape(k), Value::raw(v))).collect())
            }
            _ => None,
        }
    }

    /// `self[key]`: a member of an object or an element of an array; anything else is undefined.
    pub(crate) fn index(self, key: &Value<'_>) -> Value<'a> {
        match key {
            Value::Text(name, _) => self.member(name),
            Value::Number(..) => match key.as_integer().and_then(|i| usize::try_from(i).ok()) {
                Some(at) => self.element(at),
                None => Value::Undefined,
            },
            _ => Value::Undefined,
        }
    }

    fn member(self, name: &str) -> Value<'a> {
        match self {
            Self::RawObject(Cow::Borrowed(text)) => json::member(text, name).map_or(Value::Undefined, Value::raw),
            Self::RawObject(Cow::Owned(text)) => {
                json::member(&text, name).map_or(Value::Undefined, |v| Value::raw(v).owned())
            }
            Self::Object(list) => {
                list.into_iter().find(|(k, _)| k == name).map_or(Value::Undefined, |(_, value)| value)
            }
            _ => Value::Undefined,
        }
    }

    fn element(self, at: usize) -> Value<'a> {
        match self {
            Self::RawArray(Cow::Borrowed(text)) => json::elements(text).nth(at).map_or(Value::Undefined, Value::raw),
            Self::RawArray(Cow::Owned(text)) => {
                json::elements(&text).nth(at).map_or(Value::Undefined, |v| Value::raw(v).owned())
            }
            Self::Array(list) => list.into_iter().nth(at).unwrap_or(Value::Undefined),
            _ => Value::Undefined,
        }
    }

    /// Deep equality: numbers by value, objects whatever the order of their members.
    pub(crate) fn same(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Self::Number(a, _), Value::Number(b, _)) => a == b,
            (Self::Text(a, _), Value::Text(b, _)) => a == b,
            (Self::Bool(a), Value::Bool(b)) => a == b,
            _ if self.kind() != other.kind() => false,
            _ => match (self.elements(), other.elements(), self.members(), other.members()) {
                (Some(a), Some(b), _, _) => a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.same(b)),
                (_, _, Some(mut a), Some(mut b)) => {
                    a.sort_by(|x, y| x.0.cmp(&y.0));
                    b.sort_by(|x, y| x.0.cmp(&y.0));
                    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.0 == b.0 && a.1.same(&b.1))
                }
                _ => true,
            },
        }
    }

    /// The order of two values of one primitive type; none for different types, arrays and objects.
    pub(crate) fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Self::Null, Value::Null) => Some(Ordering::Equal),
            (Self::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Self::Number(a, _), Value::Number(b, _)) => a.partial_cmp(b),
            (Self::Text(a, _), Value::Text(b, _)) => Some(a.as_bytes().cmp(b.as_bytes())),
            _ => None,
        }
    }

    /// Appends the JSON text. Undefined members of objects and elements of arrays vanish.
    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Self::Undefined => {}
            Self::Null => out.push_str("null"),
            Self::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Self::Number(_, Some(raw)) | Self::Text(_, Some(raw)) => out.push_str(raw),
            Self::Number(n, None) => write_number(*n, out),
            Self::Text(text, None) => write_text(text, out),
            Self::RawArray(text) | Self::RawObject(text) => out.push_str(text),
            Self::Array(list) => {
                out.push('[');
                let mut first = true;
                for value in list.iter().filter(|v| v.is_defined()) {
                    separate(&mut first, out);
                    value.write(out);
                }
                out.push(']');
            }
            Self::Object(list) => {
                out.push('{');
                let mut first = true;
                for (key, value) in list.iter().filter(|(_, v)| v.is_defined()) {
                    separate(&mut first, out);
                    write_text(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// The JSON text; empty if undefined.
    pub(crate) fn json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }
}

/// Structural equality of constants, for finding `GROUP BY` expressions in the projection.
impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.same(other)
    }
}

fn separate(first: &mut bool, out: &mut String) {
    if !std::mem::replace(first, false) {
        out.push(',');
    }
}

/// Integral doubles print as integers; very large and very small ones with an exponent.
pub(crate) fn write_number(n: f64, out: &mut String) {
    use std::fmt::Write;
    let size = n.abs();
    // Writing to a String cannot fail.
    let _ = if n == 0.0 {
        out.write_str("0")
    } else if (1e-6..1e21).contains(&size) {
        write!(out, "{n}")
    } else {
        write!(out, "{n:e}")
    };
}

pub(crate) fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 => {
                use std::fmt::Write;
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_json() {
        let cases = [
            (1.0, "1"),
            (-0.0, "0"),
            (1.5, "1.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e21"),
            (1.5e300, "1.5e300"),
            (1e-7, "1e-7"),
            (0.1, "0.1"),
            (-2.0, "-2"),
        ];
        for (n, text) in cases {
            assert_eq!(Value::number(n).json(), text);
        }
        assert!(!Value::number(f64::NAN).is_defined());
    }

    #[test]
    fn values_of_documents_keep_their_text() {
        let doc = Value::raw("{\"a\":1.50,\"s\":\"\\u00e9\",\"big\":1e999,\"l\":[1.0]}");
        for (name, text) in [("a", "1.50"), ("s", "\"\\u00e9\""), ("big", "1e999"), ("l", "[1.0]")] {
            assert_eq!(doc.clone().index(&Value::text(name)).json(), text);
        }
    }

    #[test]
    fn equality_is_deep_and_ignores_the_order_of_members() {
        let a = Value::raw("{\"x\":[1,{\"y\":null}],\"z\":\"q\"}");
        assert!(a.same(&Value::raw("{\"z\":\"q\",\"x\":[1.0,{\"y\":null}]}")));
        assert!(!a.same(&Value::raw("{\"z\":\"q\",\"x\":[1.0,{\"y\":1}]}")));
    }
}
