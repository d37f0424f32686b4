//! Places and ranges in text and JSON: what is accepted is written and read back the same.
#![no_main]

use changefeed_core::{Epk, FeedRange, RangeId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(epk) = text.parse::<Epk>() {
        assert_eq!(epk.to_string().parse::<Epk>().expect("its own text"), epk);
        assert!(epk.successor() > epk);
    }
    let ranges = [text.parse::<FeedRange>().ok(), serde_json::from_str::<FeedRange>(text).ok()];
    for range in ranges.into_iter().flatten() {
        assert!(range.min_inclusive() < range.max_exclusive());
        assert_eq!(range.to_string().parse::<FeedRange>().expect("its own text"), range);
        let json = serde_json::to_string(&range).expect("JSON");
        assert_eq!(serde_json::from_str::<FeedRange>(&json).expect("its own JSON"), range);
    }
    if let Ok(id) = text.parse::<RangeId>() {
        assert_eq!(id.as_str(), text);
    }
});
