//! Bodies of items: checking what came in, and adding the system's members without parsing again.
//!
//! A stored body is the user's text up to its last brace, then `,"_rid":…,"_etag":…,"_ts":…,"_lsn":…}`. The feed
//! serves it as it lies on disk; point reads cut the `_lsn` off.

use std::{borrow::Cow, fmt, fmt::Write as _};

use bytes::{Bytes, BytesMut};
use changefeed_core::{
    ETag, Error, ErrorKind, ItemId, MAX_ITEM_BYTES, PartitionKey, PartitionKeyDefinition, ResourceId, Result,
};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::format::record::ChangeId;

/// How deep JSON may nest, as in Azure Cosmos DB; parsers of our users give up there too.
const MAX_DEPTH: usize = 128;

/// Members that belong to the store: whatever a client sends in them is discarded.
const SYSTEM_MEMBERS: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

/// A body that was found good.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) id: ItemId,
    pub(crate) partition_key: PartitionKey,
    /// `ttl` of the item: 0 not set, -1 never expires.
    pub(crate) ttl: i32,
    /// The user's JSON without system members and without its last brace.
    pub(crate) body_prefix: Bytes,
}

/// Checks a body and takes out of it what the store needs.
pub(crate) fn check(body: &Bytes, definition: &PartitionKeyDefinition) -> Result<Checked> {
    if body.len() > MAX_ITEM_BYTES {
        let size = body.len();
        return Err(refuse(
            ErrorKind::TooLarge,
            format!("the item has {size} bytes, but {MAX_ITEM_BYTES} is the most"),
        ));
    }
    let text = std::str::from_utf8(body).map_err(|error| {
        refuse(ErrorKind::NotUtf8, "the item is not valid UTF-8: encode it as such").with_source(error)
    })?;
    check_depth(text)?;
    let members = members(text)?;
    let find = |name: &str| members.0.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
    let id = match find("id").map(|value| serde_json::from_str::<String>(value.get())) {
        Some(Ok(id)) => ItemId::new(id)?,
        Some(Err(_)) => return Err(refuse(ErrorKind::MissingId, "the item's id is not a string: make it one")),
        None => return Err(refuse(ErrorKind::MissingId, "the item has no id: give it a member \"id\"")),
    };
    let partition_key = definition.extract_from(find)?;
    let ttl = find("ttl").map_or(Ok(0), |value| time_to_live(&id, value.get()))?;
    Ok(Checked { id, partition_key, ttl, body_prefix: without_system_members(body, text, &members) })
}

fn refuse(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message)
}

fn time_to_live(id: &ItemId, text: &str) -> Result<i32> {
    match text.parse::<i32>() {
        Ok(seconds) if seconds == -1 || seconds > 0 => Ok(seconds),
        _ => Err(refuse(
            ErrorKind::InvalidArgument,
            format!("ttl of item {id} is {text}: it must be -1 or a positive whole number of seconds"),
        )),
    }
}

fn check_depth(text: &str) -> Result<()> {
    let openings = text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if openings <= MAX_DEPTH {
        return Ok(());
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(refuse(ErrorKind::BadJson, format!("the item nests deeper than {MAX_DEPTH} levels")));
        }
    }
    Ok(())
}

/// The members of the outermost object.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

fn members(text: &str) -> Result<Members<'_>> {
    let first = text.trim_start_matches([' ', '\t', '\r', '\n']).bytes().next();
    let parsed = match first {
        Some(b'{') => serde_json::from_str::<Members<'_>>(text),
        _ => match serde_json::from_str::<&RawValue>(text) {
            Ok(_) => return Err(refuse(ErrorKind::NotAnObject, "the item is JSON but not an object: wrap it in {}")),
            Err(error) => Err(error),
        },
    };
    let parsed = parsed.map_err(|error| refuse(ErrorKind::BadJson, "the item is not valid JSON").with_source(error))?;
    let mut names: Vec<&str> = parsed.0.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair.first() == pair.last()).and_then(<[_]>::first) {
        Some(name) => Err(refuse(ErrorKind::BadJson, format!("the item has the member {name:?} twice"))),
        None => Ok(parsed),
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(8);
        while let Some(Name(name)) = map.next_key::<Name<'de>>()? {
            members.push((name, map.next_value::<&RawValue>()?));
        }
        Ok(Members(members))
    }
}

/// A member's name, borrowed from the text unless it has escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> std::result::Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> std::result::Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

fn without_system_members(body: &Bytes, text: &str, members: &Members<'_>) -> Bytes {
    let is_system = |name: &str| SYSTEM_MEMBERS.contains(&name);
    if !members.0.iter().any(|(name, _)| is_system(name)) {
        let end = text.rfind('}').unwrap_or(text.len());
        return body.slice(..text[..end].trim_end().len());
    }
    let mut prefix = String::with_capacity(text.len());
    for (name, value) in members.0.iter().filter(|(name, _)| !is_system(name)) {
        prefix.push(if prefix.is_empty() { '{' } else { ',' });
        match name {
            // It stands in the text without escapes, so it needs none here.
            Cow::Borrowed(name) => {
                prefix.push('"');
                prefix.push_str(name);
                prefix.push('"');
            }
            Cow::Owned(name) => prefix.push_str(&serde_json::Value::from(name.as_str()).to_string()),
        }
        prefix.push(':');
        prefix.push_str(value.get());
    }
    Bytes::from(prefix)
}

/// The etag of the version with this id: unique in the store for all time.
pub(crate) fn etag(container: u32, change_id: ChangeId) -> String {
    // Two quotes, two dashes and the digits of the largest numbers.
    let mut etag = String::with_capacity(32);
    let written = match change_id.op {
        0 => write!(etag, "\"{container:x}-{:x}\"", change_id.lsn),
        op => write!(etag, "\"{container:x}-{:x}-{op:x}\"", change_id.lsn),
    };
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
    etag
}

pub(crate) fn typed_etag(container: u32, change_id: ChangeId) -> Result<ETag> {
    ETag::new(etag(container, change_id))
}

/// What follows the user's members in a stored body.
pub(crate) fn system_suffix(rid: &ResourceId, container: u32, change_id: ChangeId, seconds: u64) -> String {
    let etag = etag(container, change_id);
    let inner = etag.trim_matches('"');
    format!(",\"_rid\":\"{rid}\",\"_etag\":\"\\\"{inner}\\\"\",\"_ts\":{seconds},\"_lsn\":{}}}", change_id.lsn)
}

/// A stored body without its `_lsn`, as point reads show it. Copies only what others hold, too.
pub(crate) fn without_lsn(mut stored: Bytes, lsn: u64) -> Bytes {
    let Some(length) = length_without_lsn(&stored, lsn) else { return stored };
    stored.truncate(length);
    let mut prefix = stored.try_into_mut().unwrap_or_else(|stored| {
        let mut copy = BytesMut::with_capacity(length + 1);
        copy.extend_from_slice(&stored);
        copy
    });
    prefix.extend_from_slice(b"}");
    prefix.freeze()
}

/// The length of a stored body up to its `_lsn`, if it ends with that.
fn length_without_lsn(stored: &[u8], lsn: u64) -> Option<usize> {
    let prefix = stored.strip_suffix(b"}")?;
    let digits = prefix.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, number) = prefix.split_at(prefix.len() - digits);
    let is_own = std::str::from_utf8(number).ok()?.parse() == Ok(lsn);
    rest.strip_suffix(b",\"_lsn\":").filter(|_| is_own).map(<[u8]>::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<Checked> {
        check(&Bytes::copy_from_slice(text.as_bytes()), &PartitionKeyDefinition::hash("/pk").unwrap())
    }

    fn kind(text: &str) -> ErrorKind {
        checked(text).unwrap_err().kind()
    }

    #[test]
    fn a_plain_body_is_kept_to_the_letter() {
        let body = checked(" { \"id\" : \"1\", \"pk\":\"a\" , \"v\": [1, {}] \n} \n").unwrap();
        assert_eq!(&*body.body_prefix, b" { \"id\" : \"1\", \"pk\":\"a\" , \"v\": [1, {}]");
        assert_eq!(body.partition_key, PartitionKey::from("a"));
    }

    #[test]
    fn members_of_the_system_are_taken_out() {
        let body = checked(r#"{"_etag":"x","id":"1","_lsn":{"a":1},"n\u0061me":"}","_ts":3}"#).unwrap();
        assert_eq!(&*body.body_prefix, br#"{"id":"1","name":"}""#);
    }

    #[test]
    fn each_kind_of_bad_body_has_its_own_error() {
        assert_eq!(kind("{}"), ErrorKind::MissingId);
        assert_eq!(kind(r#"{"id":1}"#), ErrorKind::MissingId);
        assert_eq!(kind(r#"{"id":"a/b"}"#), ErrorKind::BadId);
        assert_eq!(kind("[1]"), ErrorKind::NotAnObject);
        assert_eq!(kind("\"x\""), ErrorKind::NotAnObject);
        assert_eq!(kind(""), ErrorKind::BadJson);
        assert_eq!(kind("{"), ErrorKind::BadJson);
        assert_eq!(kind(r#"{"id":"1"} x"#), ErrorKind::BadJson);
        assert_eq!(kind(r#"{"id":"1","id":"2"}"#), ErrorKind::BadJson);
        assert_eq!(kind(r#"{"id":"1","pk":[1]}"#), ErrorKind::WrongPartitionKey);
        assert_eq!(kind(r#"{"id":"1","ttl":0}"#), ErrorKind::InvalidArgument);
        let definition = PartitionKeyDefinition::hash("/pk").unwrap();
        let large = Bytes::from(format!("{{\"id\":\"1\",\"x\":\"{}\"}}", "x".repeat(MAX_ITEM_BYTES)));
        assert_eq!(check(&large, &definition).unwrap_err().kind(), ErrorKind::TooLarge);
        let broken = Bytes::from_static(b"{\"id\":\"\xff\"}");
        assert_eq!(check(&broken, &definition).unwrap_err().kind(), ErrorKind::NotUtf8);
    }

    #[test]
    fn nesting_is_limited_and_brackets_in_strings_do_not_count() {
        let nest = |depth: usize| format!(r#"{{"id":"1","x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(checked(&nest(MAX_DEPTH - 1)).is_ok());
        assert_eq!(kind(&nest(MAX_DEPTH)), ErrorKind::BadJson);
        assert!(checked(&format!(r#"{{"id":"1","x":"\"{}"}}"#, "[{".repeat(500))).is_ok());
    }

    #[test]
    fn a_stored_body_ends_with_the_systems_members() {
        let rid = ResourceId::document(1, 2, 3).unwrap();
        let change_id = ChangeId { lsn: 255, op: 1 };
        let mut stored = b"{\"id\":\"1\"".to_vec();
        stored.extend_from_slice(system_suffix(&rid, 2, change_id, 9).as_bytes());
        let value: serde_json::Value = serde_json::from_slice(&stored).unwrap();
        assert_eq!(value["_etag"], etag(2, change_id));
        assert_eq!(value["_lsn"], 255);
        let value: serde_json::Value = serde_json::from_slice(&without_lsn(stored.into(), 255)).unwrap();
        assert_eq!(value.get("_lsn"), None);
        assert_eq!(value["_rid"], rid.to_string());
    }
}
