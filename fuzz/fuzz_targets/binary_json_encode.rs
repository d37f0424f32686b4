//! Any text is refused or becomes binary JSON, whose text has the same meaning.
#![no_main]

use changefeed_server::binary_json::{from_text, to_text_within};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &[u8]| {
    let Ok(binary) = from_text(text) else { return };
    let again = to_text_within(&binary, usize::MAX).expect("encoded text can be decoded");
    let before: Value = serde_json::from_slice(text).expect("encoded text is JSON");
    let after: Value = serde_json::from_slice(&again).expect("decoded text is JSON");
    assert!(same(&before, &after), "{before} became {after}");
    assert_eq!(from_text(&again).and_then(|binary| to_text_within(&binary, usize::MAX)), Ok(again));
});

/// Numbers may change their form, not their value.
fn same(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Number(before), Value::Number(after)) => before.as_f64() == after.as_f64(),
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len() && before.iter().zip(after).all(|(before, after)| same(before, after))
        }
        (Value::Object(before), Value::Object(after)) => {
            before.len() == after.len()
                && before.iter().all(|(name, before)| after.get(name).is_some_and(|after| same(before, after)))
        }
        (before, after) => before == after,
    }
}
