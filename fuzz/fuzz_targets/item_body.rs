//! Items as values of a user's type: whatever serde_json reads is read the same, without the members of the system, and
//! nothing else is read.
#![no_main]

use std::collections::BTreeMap;

use changefeed_core::parse_item;
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

const SYSTEM_MEMBERS: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

/// serde_json reads values that are nested less deeply than this.
const DEPTH: usize = 120;

#[derive(Debug, Deserialize, PartialEq)]
struct Order {
    id: String,
    number: Option<i64>,
    customer: Option<String>,
    price: Option<f64>,
    count: Option<u8>,
    flag: Option<bool>,
    tags: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct WithEtag {
    #[serde(rename = "_etag")]
    etag: String,
}

/// Compares what is read with what serde_json reads.
fn compare<T: DeserializeOwned + PartialEq + std::fmt::Debug>(body: &[u8], expected: Option<T>) {
    match (parse_item::<T>(body).ok(), expected) {
        (Some(read), None) => assert!(body.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() > DEPTH, "{read:?}"),
        (read, expected) => assert_eq!(read, expected),
    }
}

fuzz_target!(|body: &[u8]| {
    // serde_json does not look into texts that a type ignores.
    if std::str::from_utf8(body).is_err() {
        assert!(parse_item::<Order>(body).is_err());
        return;
    }
    let members = serde_json::from_slice::<BTreeMap<String, Value>>(body).ok().map(|mut members| {
        members.retain(|name, _| !SYSTEM_MEMBERS.contains(&name.as_str()));
        members
    });
    // A type ignores members that it does not name; one that is given twice is refused.
    compare(body, members);
    compare(body, serde_json::from_slice::<Order>(body).ok());
    compare(body, serde_json::from_slice::<WithEtag>(body).ok());
});
