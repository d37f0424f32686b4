//! Items as values of the caller's type, without the store's system members.

mod body;

use std::{borrow::Cow, fmt};

use serde::{
    de::{
        DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor,
        value::{BorrowedStrDeserializer, CowStrDeserializer, StrDeserializer},
    },
    forward_to_deserialize_any,
};

use self::body::Body;

/// How serde_json asks for a value as it is written.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// Parses the body of an item without the members that the store added (`_rid`, `_self`, `_etag`, `_attachments`, `_ts`,
/// `_lsn`), so that `deny_unknown_fields` and maps work. A struct that names one of these as a field gets it, and a
/// `Box<RawValue>` gets the body as it is stored.
///
/// # Errors
/// Those of serde_json if the body is not JSON, or does not fit the type.
pub fn parse_item<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    let Ok(text) = std::str::from_utf8(body) else { return Err(not_utf8(body)) };
    let mut body = Body::new(text);
    match T::deserialize(&mut body) {
        Ok(value) if body.end().is_ok() => Ok(value),
        _ => parse_with_positions(text),
    }
}

/// Parses with serde_json alone, whose errors name line and column.
#[cold]
fn parse_with_positions<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(WithoutSystemMembers(&mut json))?;
    json.end()?;
    Ok(value)
}

/// Where a body is not UTF-8.
#[cold]
fn not_utf8(body: &[u8]) -> serde_json::Error {
    let parsed = serde_json::from_slice::<serde_json::Value>(body);
    parsed.err().unwrap_or_else(|| serde::de::Error::custom("the item is not UTF-8"))
}

/// Whether a member is one that stores add to items, and the type does not name it. Names of the user's own that begin
/// with an underscore are left alone.
#[inline]
fn is_hidden(name: &str, wanted: &[&str]) -> bool {
    name.starts_with('_')
        && matches!(name, "_rid" | "_self" | "_etag" | "_attachments" | "_ts" | "_lsn")
        && !wanted.contains(&name)
}

/// Hides system members of the outermost object.
struct WithoutSystemMembers<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for WithoutSystemMembers<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Filter { visitor, wanted: &[] })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Filter { visitor, wanted: fields })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        match name {
            RAW_VALUE => self.0.deserialize_newtype_struct(name, visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_ignored_any(visitor)
    }

    // An item is an object: whatever else a type asks for is answered with one, and refused by its visitor.
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier
    }
}

/// Passes an object on without system members, but for those in `wanted`.
struct Filter<V> {
    visitor: V,
    wanted: &'static [&'static str],
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Filter<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Members { map, wanted: self.wanted })
    }
}

struct Members<A> {
    map: A,
    wanted: &'static [&'static str],
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(Name(name)) = self.map.next_key_seed(NameSeed)? {
            if is_hidden(&name, self.wanted) {
                self.map.next_value::<IgnoredAny>()?;
                continue;
            }
            return seed.deserialize(Key { name, error: std::marker::PhantomData }).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// The name of a member, borrowed from the body unless it has escapes.
struct Name<'de>(Cow<'de, str>);

struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Name<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Name<'de>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

/// A name as the key of a map: also as a newtype or an enum.
struct Key<'de, E> {
    name: Cow<'de, str>,
    error: std::marker::PhantomData<E>,
}

impl<'de, E: serde::de::Error> Deserializer<'de> for Key<'de, E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        match self.name {
            Cow::Borrowed(name) => BorrowedStrDeserializer::new(name).deserialize_any(visitor),
            Cow::Owned(name) => CowStrDeserializer::new(Cow::Owned(name)).deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, E> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, E> {
        StrDeserializer::new(&self.name).deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::value::RawValue;

    use super::*;

    const BODY: &[u8] =
        br#"{"id":"1","_rid":"r","total":2,"_self":"s","_etag":"\"e\"","_attachments":"a","_ts":5,"_lsn":7}"#;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        id: String,
        total: u32,
    }

    #[test]
    fn deny_unknown_fields_accepts_what_the_store_added() {
        assert_eq!(parse_item::<Strict>(BODY).unwrap(), Strict { id: "1".to_owned(), total: 2 });
        assert_eq!(parse_item::<Option<Strict>>(BODY).unwrap().unwrap().total, 2);
        #[derive(Deserialize)]
        struct Wrapped(Strict);
        assert_eq!(parse_item::<Wrapped>(BODY).unwrap().0.total, 2);
    }

    #[test]
    fn deny_unknown_fields_still_refuses_the_users_own_mistakes() {
        for body in [r#"{"id":"1","total":2,"_lns":7}"#, r#"{"id":"1","total":2,"inner":{"_ts":5}}"#] {
            let error = parse_item::<Strict>(body.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("unknown field"), "{error}");
        }
        let error = parse_item::<Strict>(br#"{"id":"1","total":2} x"#).unwrap_err();
        assert!(error.to_string().contains("trailing characters"), "{error}");
    }

    #[test]
    fn a_struct_that_names_a_system_member_gets_it() {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Dated {
            #[serde(rename = "id")]
            _id: String,
            #[serde(rename = "total")]
            _total: u32,
            #[serde(rename = "_ts")]
            seconds: u64,
        }
        assert_eq!(parse_item::<Dated>(BODY).unwrap().seconds, 5);
    }

    #[test]
    fn maps_and_values_have_the_users_members_only() {
        #[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
        struct Name(String);
        let map: BTreeMap<Name, serde_json::Value> = parse_item(BODY).unwrap();
        assert_eq!(map.keys().map(|name| name.0.as_str()).collect::<Vec<_>>(), ["id", "total"]);
        let value: serde_json::Value = parse_item(BODY).unwrap();
        assert_eq!(value, serde_json::json!({"id": "1", "total": 2}));
        let nested: serde_json::Value = parse_item(br#"{"a\u0062":{"_ts":1}}"#).unwrap();
        assert_eq!(nested, serde_json::json!({"ab": {"_ts": 1}}));
    }

    #[test]
    fn flattened_and_tagged_types_parse() {
        #[derive(Deserialize)]
        struct Flat {
            total: u32,
            #[serde(flatten)]
            rest: BTreeMap<String, serde_json::Value>,
        }
        let flat: Flat = parse_item(BODY).unwrap();
        assert_eq!((flat.total, flat.rest.keys().map(String::as_str).collect::<Vec<_>>()), (2, vec!["id"]));
        #[derive(Deserialize)]
        #[serde(tag = "id")]
        enum Tagged {
            #[serde(rename = "1")]
            One { total: u32 },
        }
        let Tagged::One { total } = parse_item(BODY).unwrap();
        assert_eq!(total, 2);
    }

    #[test]
    fn a_raw_value_is_the_body_as_it_is_stored() {
        let raw: Box<RawValue> = parse_item(BODY).unwrap();
        assert_eq!(raw.get().as_bytes(), BODY);
    }

    #[test]
    fn an_error_says_where_it_is() {
        let error = parse_item::<Strict>(br#"{"id":"1","total":"2"}"#).unwrap_err();
        assert_eq!((error.line(), error.column()), (1, 21), "{error}");
        let error = parse_item::<Strict>(b"{\"id\":\"1\",\"total\":2,\"x\":\"\xff\"}").unwrap_err();
        assert!(error.to_string().starts_with("invalid unicode code point at line 1 column"), "{error}");
    }

    #[test]
    fn an_item_is_no_number() {
        let error = parse_item::<u32>(BODY).unwrap_err();
        assert!(error.to_string().contains("invalid type: map, expected u32"), "{error}");
    }
}
