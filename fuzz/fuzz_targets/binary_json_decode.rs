//! Any bytes are refused or become JSON text, which survives the way to binary and back.
#![no_main]

use changefeed_server::binary_json::{MAX_TEXT, from_text, to_text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = to_text(bytes) else { return };
    assert!(text.len() <= MAX_TEXT);
    serde_json::from_slice::<serde_json::Value>(&text).expect("decoded text is JSON");
    let binary = from_text(&text).expect("decoded text can be encoded");
    assert_eq!(to_text(&binary).expect("encoded text can be decoded"), text);
});
