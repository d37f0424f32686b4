//! Items as values of a user's type: whatever serde_json reads is read the same, and nothing else is read.
#![no_main]

use changefeed_core::parse_item;
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

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
        (Some(read), None) => {
            let opened = body.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
            assert!(opened > DEPTH, "{read:?}");
        }
        (read, expected) => assert_eq!(read, expected),
    }
}

fuzz_target!(|body: &[u8]| {
    // serde_json does not look into texts that a type ignores.
    if std::str::from_utf8(body).is_err() {
        assert!(parse_item::<Order>(body).is_err());
        return;
    }
    // An item is an object; serde_json reads a type from a list of its members as well.
    if body.trim_ascii_start().first() != Some(&b'{') {
        assert!(parse_item::<Order>(body).is_err() && parse_item::<WithEtag>(body).is_err());
        return;
    }
    // Types, since they ignore members that they do not name, those of the system among them.
    compare(body, serde_json::from_slice::<Order>(body).ok());
    compare(body, serde_json::from_slice::<WithEtag>(body).ok());
});
