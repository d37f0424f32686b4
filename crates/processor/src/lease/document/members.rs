//! The members of a JSON object in their order, each as it was written: what we do not understand goes back unchanged.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, de,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

use super::error::DocumentError;

/// Members of an object that nobody has taken yet, as they stand in its text.
#[derive(Debug)]
pub(super) struct Members<'a>(Vec<(Name<'a>, &'a RawValue)>);

/// Members that nobody knows, to be written back.
#[derive(Clone, Debug, Default)]
pub(super) struct Extra(Vec<(String, Box<RawValue>)>);

impl<'a> Members<'a> {
    /// Reads an object; refuses one that has a member twice, because readers differ in which one they take.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, DocumentError> {
        let members: Self = serde_json::from_slice(body)
            .map_err(|error| DocumentError::NotJson { problem: error.to_string().to_lowercase() })?;
        let mut names: Vec<&str> = members.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find_map(|pair| (pair.first() == pair.last()).then(|| pair.first()).flatten()) {
            Some(name) => Err(DocumentError::bad_field(*name, "appears twice")),
            None => Ok(members),
        }
    }

    /// Whether there is such a member.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own.as_str() == name)
    }

    /// Takes a member out; `null` counts as absent. `wanted` is for the error.
    pub(super) fn take<T: Deserialize<'a>>(&mut self, name: &str, wanted: &str) -> Result<Option<T>, DocumentError> {
        match self.take_raw(name) {
            None => Ok(None),
            Some(value) => serde_json::from_str(value.get())
                .map_err(|error| DocumentError::bad_field(name, format!("is not {wanted} ({error})"))),
        }
    }

    fn take_raw(&mut self, name: &str) -> Option<&'a RawValue> {
        let at = self.0.iter().position(|(own, _)| own.as_str() == name)?;
        Some(self.0.remove(at).1)
    }

    /// Takes a text.
    pub(super) fn take_text(&mut self, name: &str) -> Result<Option<String>, DocumentError> {
        match self.take_raw(name) {
            None => Ok(None),
            Some(value) => {
                text(value).map_err(|error| DocumentError::bad_field(name, format!("is not a string ({error})")))
            }
        }
    }

    /// Takes the id, which must be there.
    pub(super) fn take_id(&mut self) -> Result<String, DocumentError> {
        self.take_text("id")?.ok_or_else(|| DocumentError::bad_field("id", "is missing"))
    }

    /// Takes `properties`; only strings are allowed in it, because .NET hosts fail on objects.
    pub(super) fn take_properties(&mut self) -> Result<BTreeMap<String, String>, DocumentError> {
        let values: Option<BTreeMap<String, &RawValue>> = self.take("properties", "an object")?;
        let read = |(key, value): (String, &RawValue)| match text(value) {
            Ok(Some(text)) => Ok((key, text)),
            _ => Err(DocumentError::bad_field(format!("properties.{key}"), "is not a string")),
        };
        values.unwrap_or_default().into_iter().map(read).collect()
    }

    /// What is left.
    pub(super) fn into_extra(self) -> Extra {
        Extra(self.0.into_iter().map(|(name, value)| (name.0.into_owned(), value.to_owned())).collect())
    }
}

/// A text, or none for `null`. Few have escapes; the others are copied as they stand.
fn text(value: &RawValue) -> Result<Option<String>, serde_json::Error> {
    let inside = value.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inside {
        Some(plain) if !plain.contains('\\') => Ok(Some(plain.to_owned())),
        _ => serde_json::from_str(value.get()),
    }
}

impl Extra {
    /// Writes all of them.
    pub(super) fn serialize_into<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))
    }
}

impl PartialEq for Extra {
    fn eq(&self, other: &Self) -> bool {
        let texts = |(name, value): &(String, Box<RawValue>)| (name.clone(), value.get().to_owned());
        self.0.iter().map(texts).eq(other.0.iter().map(texts))
    }
}

impl Eq for Extra {}

/// The name of a member: borrowed, unless it was written with escapes.
#[derive(Debug)]
struct Name<'a>(Cow<'a, str>);

impl Name<'_> {
    fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowed;

        impl<'de> Visitor<'de> for Borrowed {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E: de::Error>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(Borrowed)
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                // A lease has about fifteen.
                let mut members = Vec::with_capacity(16);
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}
