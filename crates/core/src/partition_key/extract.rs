//! Reading the partition key out of an item without building its tree: only the members on the paths are looked at.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{PartitionKey, PartitionKeyDefinition, PartitionKeyValue, path::KeyPath};
use crate::error::{Error, ErrorKind, Result};

/// One slot per path of a definition.
type Found<'a> = [Option<&'a RawValue>; PartitionKey::MAX_VALUES];

impl PartitionKeyDefinition {
    /// Returns the partition key of an item, given its JSON.
    ///
    /// A member that is missing, or lies below something that is no object, is undefined, and so is an object in the
    /// place of a value, as for the SDKs of Azure Cosmos DB. Of members with the same name the last counts. An array in
    /// the place of a value is refused.
    pub fn extract(&self, body: &[u8]) -> Result<PartitionKey> {
        let text = std::str::from_utf8(body)
            .map_err(|error| Error::new(ErrorKind::NotUtf8, "the item is not valid UTF-8").with_source(error))?;
        let mut names = [""; PartitionKey::MAX_VALUES];
        for (name, path) in names.iter_mut().zip(self.key_paths()) {
            *name = path.first();
        }
        let names = names.get(..self.key_paths().len()).unwrap_or_default();
        let found = members(text, names).map_err(|error| not_an_item(text, error))?;
        self.extract_each(found)
    }

    /// Returns the partition key of an item whose top-level members are already at hand: `lookup` finds one by its
    /// name.
    pub fn extract_from<'a>(&self, lookup: impl Fn(&str) -> Option<&'a RawValue>) -> Result<PartitionKey> {
        self.extract_each(self.key_paths().iter().map(|path| lookup(path.first())))
    }

    fn extract_each<'a>(&self, tops: impl IntoIterator<Item = Option<&'a RawValue>>) -> Result<PartitionKey> {
        let mut values = self.key_paths().iter().zip(tops).map(|(path, top)| value_at(path, top));
        match self.key_paths() {
            // The usual case needs no list.
            [_] => values.next().unwrap_or(Ok(PartitionKeyValue::Undefined)).map(Into::into),
            _ => values.collect::<Result<Vec<_>>>()?.try_into(),
        }
    }
}

fn value_at(path: &KeyPath, top: Option<&RawValue>) -> Result<PartitionKeyValue> {
    let mut at = top;
    for name in path.rest() {
        at = match at {
            Some(raw) if raw.get().starts_with('{') => {
                let [found, ..] = members(raw.get(), &[name.as_str()]).map_err(bad_json)?;
                found
            }
            _ => None,
        };
    }
    let Some(raw) = at.filter(|raw| !raw.get().starts_with('{')) else {
        return Ok(PartitionKeyValue::Undefined);
    };
    PartitionKeyValue::from_scalar(raw)?.ok_or_else(|| {
        Error::new(
            ErrorKind::WrongPartitionKey,
            format!(
                "the item has an array at partition key path {}, which must be a string, number, boolean or null",
                path.as_str()
            ),
        )
    })
}

fn bad_json(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::BadJson, "the item is not valid JSON").with_source(error)
}

/// Tells broken JSON from good JSON that is something else than an object.
fn not_an_item(text: &str, error: serde_json::Error) -> Error {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) if !text.trim_start().starts_with('{') => {
            Error::new(ErrorKind::NotAnObject, "the item is not a JSON object")
        }
        _ => bad_json(error),
    }
}

/// Finds up to three members of a JSON object by name, in one pass.
fn members<'a>(object: &'a str, names: &[&str]) -> serde_json::Result<Found<'a>> {
    let mut deserializer = serde_json::Deserializer::from_str(object);
    let found = (&mut deserializer).deserialize_map(Members { names })?;
    deserializer.end()?;
    Ok(found)
}

struct Members<'n> {
    names: &'n [&'n str],
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Found::default();
        while let Some(matches) = map.next_key_seed(Name { wanted: self.names })? {
            if !matches.contains(&true) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let raw: &'de RawValue = map.next_value()?;
            for (slot, _) in found.iter_mut().zip(matches).filter(|(_, is_match)| *is_match) {
                *slot = Some(raw);
            }
        }
        Ok(found)
    }
}

/// Compares a name with the wanted ones as it is read, so that it need not be kept.
struct Name<'n> {
    wanted: &'n [&'n str],
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = [bool; PartitionKey::MAX_VALUES];

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = [bool; PartitionKey::MAX_VALUES];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        let mut matches = [false; PartitionKey::MAX_VALUES];
        for (is_match, wanted) in matches.iter_mut().zip(self.wanted) {
            *is_match = name == *wanted;
        }
        Ok(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(path: &str) -> PartitionKeyDefinition {
        PartitionKeyDefinition::hash(path).unwrap()
    }

    #[test]
    fn the_key_is_read_from_its_path() {
        for (path, body, key) in [
            ("/pk", r#"{"id":"1","pk":"a"}"#, r#"["a"]"#),
            ("/pk", r#" { "pk" : 1.0 } "#, "[1]"),
            ("/pk", r#"{"pk":null}"#, "[null]"),
            ("/pk", r#"{"pk":false,"x":{"pk":1}}"#, "[false]"),
            ("/pk", r#"{"p\u006b":"\u00e9"}"#, r#"["\u00e9"]"#),
            ("/pk", "{}", "[{}]"),
            ("/pk", r#"{"PK":"a"}"#, "[{}]"),
            ("/a/b", r#"{"a":{"x":[1,{"b":2}],"b":"deep"}}"#, r#"["deep"]"#),
            ("/a/b", r#"{"a":{}}"#, "[{}]"),
            ("/a/b", r#"{"a":"b"}"#, "[{}]"),
            ("/a/b", r#"{"a":[{"b":1}]}"#, "[{}]"),
            ("/a/b", r#"{"a/b":1}"#, "[{}]"),
            (r#"/"a/b""#, r#"{"a/b":1}"#, "[1]"),
        ] {
            assert_eq!(hash(path).extract(body.as_bytes()).unwrap().to_string(), key, "{path} in {body}");
        }
    }

    #[test]
    fn a_hierarchical_key_is_read_in_the_order_of_its_paths() {
        let definition = PartitionKeyDefinition::hierarchical(["/t", "/u/x", "/u/y"]).unwrap();
        let body = br#"{"u":{"y":3,"x":"u"},"t":true}"#;
        assert_eq!(definition.extract(body).unwrap(), (true, "u", 3).into());
        let partial = definition.extract(br#"{"u":{"x":"u"}}"#).unwrap();
        assert_eq!(partial, (PartitionKeyValue::Undefined, "u", PartitionKeyValue::Undefined).into());
    }

    #[test]
    fn of_members_with_one_name_the_last_counts() {
        assert_eq!(hash("/pk").extract(br#"{"pk":1,"pk":2}"#).unwrap(), 2.into());
        assert_eq!(hash("/a/b").extract(br#"{"a":{"b":1},"a":{"b":3,"b":4}}"#).unwrap(), 4.into());
        assert_eq!(hash("/a/b").extract(br#"{"a":{"b":1},"a":{}}"#).unwrap(), PartitionKey::undefined());
    }

    #[test]
    fn an_object_is_undefined_and_an_array_is_refused() {
        for body in [r#"{"a":{"b":{}}}"#, r#"{"a":{"b":{"c":1}}}"#] {
            assert_eq!(hash("/a/b").extract(body.as_bytes()).unwrap(), PartitionKey::undefined());
        }
        let error = hash("/a/b").extract(br#"{"a":{"b":[1]}}"#).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongPartitionKey);
        assert!(error.message().starts_with("the item has an array at partition key path /a/b"));
    }

    #[test]
    fn a_body_that_is_no_item_is_refused() {
        for (body, kind) in [
            (&b""[..], ErrorKind::BadJson),
            (b"{", ErrorKind::BadJson),
            (b"{\"pk\":1", ErrorKind::BadJson),
            (b"{\"pk\":1} x", ErrorKind::BadJson),
            (b"{\"pk\":01}", ErrorKind::BadJson),
            (b"{\"x\":tru}", ErrorKind::BadJson),
            (b"[1]", ErrorKind::NotAnObject),
            (b" \"a\"", ErrorKind::NotAnObject),
            (b"[1", ErrorKind::BadJson),
            (b"{\"x\":\"\xFF\"}", ErrorKind::NotUtf8),
            (b"{\"pk\":1e999}", ErrorKind::WrongPartitionKey),
            (b"{\"pk\":\"\\ud800\"}", ErrorKind::WrongPartitionKey),
        ] {
            let error = hash("/pk").extract(body).unwrap_err();
            assert_eq!(error.kind(), kind, "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn a_deeply_nested_item_does_not_overflow_the_stack() {
        let deep = format!("{{\"x\":{}{},\"pk\":7}}", "[".repeat(200_000), "]".repeat(200_000));
        // Either answer is fine as long as it is one.
        if let Err(error) = hash("/pk").extract(deep.as_bytes()) {
            assert_eq!(error.kind(), ErrorKind::BadJson);
        }
    }

    #[test]
    fn members_already_at_hand_are_not_parsed_again() {
        let tenant = RawValue::from_string("\"t\"".to_owned()).unwrap();
        let user = RawValue::from_string(r#"{"id":7}"#.to_owned()).unwrap();
        let lookup = |name: &str| match name {
            "tenant" => Some(&*tenant),
            "user" => Some(&*user),
            _ => None,
        };
        let definition = PartitionKeyDefinition::hierarchical(["/tenant", "/user/id"]).unwrap();
        assert_eq!(definition.extract_from(lookup).unwrap(), ("t", 7).into());
        assert_eq!(hash("/other").extract_from(lookup).unwrap(), PartitionKey::undefined());
        assert_eq!(hash("/user").extract_from(lookup).unwrap(), PartitionKey::undefined());
    }
}
