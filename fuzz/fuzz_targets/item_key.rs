//! The first line is a partition key definition, the rest an item: its key is refused or found, and has a place.
#![no_main]

use changefeed_core::{PartitionKey, PartitionKeyDefinition};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let (Some(definition), Some(item)) = (parts.next(), parts.next()) else { return };
    let Ok(definition) = serde_json::from_slice::<PartitionKeyDefinition>(definition) else { return };
    let json = serde_json::to_string(&definition).expect("JSON");
    assert_eq!(serde_json::from_str::<PartitionKeyDefinition>(&json).expect("its own JSON"), definition);
    let Ok(key) = definition.extract(item) else { return };
    let epk = definition.epk(&key).expect("a key from an item is complete");
    assert!(definition.key_range(&key).expect("a key from an item is complete").contains(&epk));
    assert_eq!(key.to_string().parse::<PartitionKey>().expect("its own text"), key);
});
