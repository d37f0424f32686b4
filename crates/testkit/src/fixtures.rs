//! Items for tests: a partition key `pk`, an `id` and a number `n` that tells versions apart.

use bytes::Bytes;
use changefeed_core::{Change, ETag, Item, ItemId, Write};
use serde_json::{Map, Value, json};

/// An item `{"id", "pk", "n"}`.
pub fn item(pk: &str, id: &str, n: u64) -> Value {
    json!({"id": id, "pk": pk, "n": n})
}

/// An item of a container whose partition key is `/tenant`, `/user`, `/session`.
pub fn session(tenant: &str, user: &str, session: &str, id: &str, n: u64) -> Value {
    json!({"id": id, "tenant": tenant, "user": user, "session": session, "n": n})
}

/// An item that lives for `ttl` seconds; `-1`: without limit.
pub fn mortal(pk: &str, id: &str, n: u64, ttl: i64) -> Value {
    json!({"id": id, "pk": pk, "n": n, "ttl": ttl})
}

/// An item whose body has exactly `bytes` bytes.
pub fn item_of_size(pk: &str, id: &str, bytes: usize) -> Bytes {
    let empty = body(&json!({"id": id, "pk": pk, "filler": ""}));
    let filler = bytes.checked_sub(empty.len()).expect("an item holds at least its id and its partition key");
    body(&json!({"id": id, "pk": pk, "filler": "x".repeat(filler)}))
}

/// An id that is known to be good.
pub fn id(text: &str) -> ItemId {
    ItemId::new(text).expect("a good id")
}

/// The bytes of an item.
pub fn body(item: &Value) -> Bytes {
    Bytes::from(item.to_string())
}

/// A write that creates `item`.
pub fn create(item: &Value) -> Write {
    Write::Create { body: body(item) }
}

/// A write that creates or replaces `item`.
pub fn upsert(item: &Value) -> Write {
    Write::Upsert { body: body(item), if_match: None }
}

/// A write that replaces `item`.
pub fn replace(item: &Value) -> Write {
    Write::Replace { body: body(item), if_match: None }
}

/// A write that replaces the version `etag` of `item`.
pub fn replace_if(item: &Value, etag: &ETag) -> Write {
    Write::Replace { body: body(item), if_match: Some(etag.clone()) }
}

/// A write that deletes the item `id`.
pub fn delete(text: &str) -> Write {
    Write::Delete { id: id(text), if_match: None }
}

/// The body of an item as an object.
pub fn object(body: &[u8]) -> Map<String, Value> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => object,
        other => panic!("the store returned a body that is not a JSON object: {other:?}"),
    }
}

/// The members of a body that belong to the user: all except the store's own.
pub fn user_members(body: &[u8]) -> Value {
    const SYSTEM: [&str; 6] = ["_rid", "_self", "_etag", "_ts", "_lsn", "_attachments"];
    let mut object = object(body);
    object.retain(|name, _| !SYSTEM.contains(&name.as_str()));
    Value::Object(object)
}

/// The `n` of a body.
pub fn number(body: &[u8]) -> u64 {
    object(body).get("n").and_then(Value::as_u64).expect("the body has a number n")
}

/// The `n` of an item.
pub fn item_number(item: &Item) -> u64 {
    number(&item.body)
}

/// The `n` of the item after a change.
pub fn change_number(change: &Change) -> u64 {
    number(change.current.as_deref().expect("the change carries the item"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_of_a_size_has_exactly_that_size() {
        for bytes in [40, 100, 4096] {
            assert_eq!(item_of_size("a", "x", bytes).len(), bytes);
        }
    }

    #[test]
    fn user_members_leave_out_what_the_store_added() {
        let stored = body(&json!({"id": "x", "pk": "a", "n": 3, "_etag": "\"1\"", "_lsn": 4, "_mine": true}));
        assert_eq!(user_members(&stored), json!({"id": "x", "pk": "a", "n": 3, "_mine": true}));
        assert_eq!(number(&stored), 3);
    }
}
