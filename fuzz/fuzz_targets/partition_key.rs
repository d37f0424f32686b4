//! The partition key header: what is accepted is JSON, is written and read back the same, and has a place.
#![no_main]

use changefeed_core::{PartitionKey, PartitionKeyDefinition};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(key) = text.parse::<PartitionKey>() else { return };
    assert_eq!(key.to_string().parse::<PartitionKey>().expect("its own text"), key);
    serde_json::from_str::<Vec<serde_json::Value>>(text).expect("a list in JSON");
    if let Ok([one]) = serde_json::from_str::<[String; 1]>(text) {
        assert_eq!(key, PartitionKey::from(one));
    }
    let definitions = [
        PartitionKeyDefinition::hash("/a"),
        PartitionKeyDefinition::hash_v1("/a"),
        PartitionKeyDefinition::hierarchical(["/a", "/b"]),
        PartitionKeyDefinition::hierarchical(["/a", "/b", "/c"]),
    ];
    for definition in definitions {
        let definition = definition.expect("paths");
        if let (Ok(epk), Ok(range)) = (definition.epk(&key), definition.key_range(&key)) {
            assert!(range.contains(&epk));
        }
    }
});
