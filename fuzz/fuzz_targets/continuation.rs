//! Positions and names that come back from clients: refused or read, and written the same.
#![no_main]

use changefeed_core::{Continuation, ETag, ItemId, ResourceId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let container = ResourceId::container(1, 1);
    if let Ok(lsn) = Continuation::from_token(text).to_lsn(&container) {
        let own = Continuation::after(lsn, container.clone());
        assert_eq!(own.to_lsn(&container).expect("its own text"), lsn);
        assert!(own.to_lsn(&ResourceId::container(1, 2)).is_err());
        assert_eq!(own.token().replace('"', "").parse(), Ok(lsn.get()), "a number for who removes the quotes");
    }
    if let Ok(rid) = text.parse::<ResourceId>() {
        assert_eq!(rid.to_string().parse::<ResourceId>().expect("its own text"), rid);
    }
    if let Ok(etag) = ETag::new(text) {
        assert_eq!(etag.as_str(), text);
    }
    if let Ok(id) = ItemId::new(text) {
        assert_eq!(id.as_str(), text);
    }
});
