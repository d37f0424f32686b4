//! The members of a JSON object in their order, each as it was written: what we do not understand goes back unchanged.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

use super::DocumentError;

/// Members of an object that nobody has taken yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    /// Reads an object; refuses one that has a member twice, because readers differ in which one they take.
    pub(super) fn parse(body: &[u8]) -> Result<Self, DocumentError> {
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
        self.0.iter().any(|(own, _)| own == name)
    }

    /// Takes a member out; `null` counts as absent. `wanted` is for the error.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str, wanted: &str) -> Result<Option<T>, DocumentError> {
        let Some(at) = self.0.iter().position(|(own, _)| own == name) else { return Ok(None) };
        let (_, value) = self.0.remove(at);
        serde_json::from_str(value.get())
            .map_err(|error| DocumentError::bad_field(name, format!("is not {wanted} ({error})")))
    }

    /// Takes a text.
    pub(super) fn take_text(&mut self, name: &str) -> Result<Option<String>, DocumentError> {
        self.take(name, "a string")
    }

    /// Takes the id, which must be there.
    pub(super) fn take_id(&mut self) -> Result<String, DocumentError> {
        self.take_text("id")?.ok_or_else(|| DocumentError::bad_field("id", "is missing"))
    }

    /// Takes `properties`; only strings are allowed in it, because .NET hosts fail on objects.
    pub(super) fn take_properties(&mut self) -> Result<BTreeMap<String, String>, DocumentError> {
        let values: Option<BTreeMap<String, Box<RawValue>>> = self.take("properties", "an object")?;
        let read = |(key, value): (String, Box<RawValue>)| match serde_json::from_str(value.get()) {
            Ok(text) => Ok((key, text)),
            Err(_) => Err(DocumentError::bad_field(format!("properties.{key}"), "is not a string")),
        };
        values.unwrap_or_default().into_iter().map(read).collect()
    }

    /// Writes what is left.
    pub(super) fn serialize_into<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        let texts = |members: &Self| -> Vec<(String, String)> {
            members.0.iter().map(|(name, value)| (name.clone(), value.get().to_owned())).collect()
        };
        texts(self) == texts(other)
    }
}

impl Eq for Members {}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}
