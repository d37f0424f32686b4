//! Partition keys: the values that place an item, in the form of the `x-ms-documentdb-partitionkey` header.

mod definition;
mod extract;
mod hashing;
mod path;
mod split_points;
mod value;

use std::{fmt, slice, str::FromStr};

use serde_json::value::RawValue;

pub use definition::{PartitionKeyDefinition, PartitionKeyKind, PartitionKeyVersion};
pub use value::{KeyNumber, PartitionKeyValue};

use crate::error::{Error, ErrorKind, Result};

/// A partition key: one value, or up to three for a hierarchical definition.
///
/// ```text
/// PartitionKey::from("alice")            ["alice"]
/// PartitionKey::from(("tenant", 7))      ["tenant",7]
/// PartitionKey::from(())                 [null]
/// PartitionKey::undefined()              [{}]
/// PartitionKey::none()                   []
/// ```
///
/// Text and [`FromStr`] use the header form shown on the right, with everything but ASCII escaped. A key with fewer
/// values than the definition has paths is a prefix: it names all keys that begin with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey(Repr);

/// One value is by far the most frequent: it needs no list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    None,
    One(PartitionKeyValue),
    Many(Vec<PartitionKeyValue>),
}

impl PartitionKey {
    /// The most values a key may have.
    pub const MAX_VALUES: usize = 3;

    /// Creates the key of an item that lacks the member the definition points to.
    pub fn undefined() -> Self {
        PartitionKeyValue::Undefined.into()
    }

    /// Creates `[]`: how SDKs ask for items of a migrated container that have no key. It is placed like
    /// [`PartitionKey::undefined`], but is not equal to it: see [`PartitionKey::or_undefined`].
    pub fn none() -> Self {
        Self(Repr::None)
    }

    /// Returns the values, outermost level first; empty for [`PartitionKey::none`].
    pub fn values(&self) -> &[PartitionKeyValue] {
        match &self.0 {
            Repr::None => &[],
            Repr::One(value) => slice::from_ref(value),
            Repr::Many(values) => values,
        }
    }

    /// Returns this key, or [`PartitionKey::undefined`] instead of [`PartitionKey::none`]: the form to compare and
    /// store.
    #[must_use]
    pub fn or_undefined(self) -> Self {
        match self.0 {
            Repr::None => Self::undefined(),
            _ => self,
        }
    }

    fn from_values(mut values: Vec<PartitionKeyValue>) -> Result<Self> {
        match values.len() {
            0 => Ok(Self::none()),
            1 => Ok(values.remove(0).into()),
            2..=Self::MAX_VALUES => Ok(Self(Repr::Many(values))),
            count => Err(Error::new(
                ErrorKind::WrongPartitionKey,
                format!("a partition key has at most 3 values, this one has {count}"),
            )),
        }
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, value) in self.values().iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            value.fmt(f)?;
        }
        f.write_str("]")
    }
}

impl FromStr for PartitionKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // Most keys are one string without anything that JSON writes in a special way.
        if let Some(inner) = text.strip_prefix("[\"").and_then(|rest| rest.strip_suffix("\"]"))
            && inner.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
        {
            return Ok(inner.into());
        }
        let components: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| {
            Error::new(ErrorKind::WrongPartitionKey, "a partition key is a JSON array such as [\"a\"]")
                .with_source(error)
        })?;
        let value = |raw: &RawValue| {
            if let Some(value) = PartitionKeyValue::from_scalar(raw)? {
                return Ok(value);
            }
            // What is no scalar is an object or an array; the only one allowed is the empty object.
            match raw.get().strip_prefix('{').map(str::trim_start) {
                Some("}") => Ok(PartitionKeyValue::Undefined),
                _ => Err(Error::new(
                    ErrorKind::WrongPartitionKey,
                    "a value of a partition key is a string, number, boolean, null or {}",
                )),
            }
        };
        if components.len() > Self::MAX_VALUES {
            return Err(Error::new(
                ErrorKind::WrongPartitionKey,
                format!("a partition key has at most 3 values, this one has {}", components.len()),
            ));
        }
        Self::from_values(components.into_iter().map(value).collect::<Result<_>>()?)
    }
}

impl TryFrom<Vec<PartitionKeyValue>> for PartitionKey {
    type Error = Error;

    /// Refuses more than three values; an empty list is [`PartitionKey::none`].
    fn try_from(values: Vec<PartitionKeyValue>) -> Result<Self> {
        Self::from_values(values)
    }
}

impl TryFrom<f64> for PartitionKey {
    type Error = Error;

    /// Refuses NaN and infinity, which JSON does not have.
    fn try_from(number: f64) -> Result<Self> {
        PartitionKeyValue::try_from(number).map(Self::from)
    }
}

impl From<PartitionKeyValue> for PartitionKey {
    fn from(value: PartitionKeyValue) -> Self {
        Self(Repr::One(value))
    }
}

macro_rules! from_one {
    ($($from:ty),*) => {$(
        impl From<$from> for PartitionKey {
            fn from(value: $from) -> Self {
                PartitionKeyValue::from(value).into()
            }
        }
    )*};
}

from_one!(&str, String, bool, i32, i64, u32, ());

impl<A: Into<PartitionKeyValue>> From<[A; 1]> for PartitionKey {
    fn from([a]: [A; 1]) -> Self {
        a.into().into()
    }
}

impl<A: Into<PartitionKeyValue>> From<[A; 2]> for PartitionKey {
    fn from(values: [A; 2]) -> Self {
        Self(Repr::Many(values.map(Into::into).into()))
    }
}

impl<A: Into<PartitionKeyValue>> From<[A; 3]> for PartitionKey {
    fn from(values: [A; 3]) -> Self {
        Self(Repr::Many(values.map(Into::into).into()))
    }
}

impl<A: Into<PartitionKeyValue>, B: Into<PartitionKeyValue>> From<(A, B)> for PartitionKey {
    fn from((a, b): (A, B)) -> Self {
        [a.into(), b.into()].into()
    }
}

impl<A, B, C> From<(A, B, C)> for PartitionKey
where
    A: Into<PartitionKeyValue>,
    B: Into<PartitionKeyValue>,
    C: Into<PartitionKeyValue>,
{
    fn from((a, b, c): (A, B, C)) -> Self {
        [a.into(), b.into(), c.into()].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> PartitionKey {
        text.parse().unwrap()
    }

    #[test]
    fn a_key_is_written_and_read_in_the_header_form() {
        for (value, header) in [
            (PartitionKey::from("a"), r#"["a"]"#),
            ("quote\" back\\slash \n\t\u{1}\u{7f}".into(), r#"["quote\" back\\slash \n\t\u0001\u007f"]"#),
            ("é✓🚀".into(), r#"["\u00e9\u2713\ud83d\ude80"]"#),
            (().into(), "[null]"),
            (true.into(), "[true]"),
            (7.into(), "[7]"),
            (i64::MIN.into(), "[-9223372036854776000]"),
            (1.5.try_into().unwrap(), "[1.5]"),
            (1e300.try_into().unwrap(), "[1e300]"),
            (5e-324.try_into().unwrap(), "[5e-324]"),
            (PartitionKey::undefined(), "[{}]"),
            (PartitionKey::none(), "[]"),
            (("T", "U").into(), r#"["T","U"]"#),
            (("a", 1, true).into(), r#"["a",1,true]"#),
            (["a", "b", "c"].into(), r#"["a","b","c"]"#),
            (("a", PartitionKeyValue::Undefined).into(), r#"["a",{}]"#),
        ] {
            assert_eq!(value.to_string(), header);
            assert_eq!(key(header), value);
        }
    }

    #[test]
    fn a_key_is_read_with_any_white_space_and_without_escapes() {
        assert_eq!(key(" [ \"é\" , { } , -0.0 ] "), ("é", PartitionKeyValue::Undefined, 0).into());
        assert_eq!(key("[1.0]"), 1.into());
        assert_eq!(key("[12e1]"), 120.into());
    }

    #[test]
    fn a_header_that_is_no_key_is_refused() {
        for text in [
            "",
            "a",
            "\"a\"",
            "{}",
            "null",
            "[",
            "[\"a\"",
            "[\"a\",]",
            "[{\"a\":1}]",
            "[[]]",
            "[[\"a\"]]",
            "[1,2,3,4]",
            "[1e999]",
            "[-1e999]",
            "[NaN]",
            "[\"a\"] x",
            "[\"\\ud800\"]",
            "[01]",
        ] {
            let error = text.parse::<PartitionKey>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongPartitionKey, "{text}");
        }
    }

    #[test]
    fn nan_and_infinity_are_refused() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(PartitionKey::try_from(number).unwrap_err().kind(), ErrorKind::WrongPartitionKey);
        }
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(PartitionKey::try_from(-0.0).unwrap(), PartitionKey::from(0));
        assert_eq!(PartitionKey::try_from(-0.0).unwrap().to_string(), "[0]");
    }

    #[test]
    fn none_is_stored_as_undefined() {
        assert_ne!(PartitionKey::none(), PartitionKey::undefined());
        assert_eq!(PartitionKey::none().or_undefined(), PartitionKey::undefined());
        assert_eq!(PartitionKey::from(1).or_undefined(), 1.into());
    }
}
