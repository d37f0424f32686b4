//! Any bytes are refused or become JSON text, which survives the way to binary and back.
#![no_main]

use changefeed_server::binary_json::{MAX_TEXT, from_text, to_text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = to_text(bytes) else { return };
    assert!(text.len() <= MAX_TEXT);
    // Azure Cosmos DB allows 128 levels, one more than serde_json does by default.
    let mut reader = serde_json::Deserializer::from_slice(&text);
    reader.disable_recursion_limit();
    let mut values = reader.into_iter::<serde_json::Value>();
    values.next().expect("a value").expect("decoded text is JSON");
    assert!(values.next().is_none(), "something follows the value");
    let binary = from_text(&text).expect("decoded text can be encoded");
    assert_eq!(to_text(&binary).expect("encoded text can be decoded"), text);
});
