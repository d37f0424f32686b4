//! Our state in the properties of a lease: whatever stands there, a lease is read, and what is set comes back.
//!
//! The input has one property in each line, `name=value`; names stand for those with the prefix `cf.`.
#![no_main]

use changefeed::{
    core::{FeedRange, Mode},
    lease::document::{Attempts, LeaseDocument, LeaseVersion},
};
use changefeed_fuzz::read_everything;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let token = "0".parse().expect("token");
    let mut lease =
        LeaseDocument::new("x..0".to_owned(), None, LeaseVersion::Range, token, FeedRange::full(), Mode::LatestVersion);
    lease.continuation = Some("\"7052\"".to_owned());
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        match name {
            // Members beside the properties decide what some of them mean.
            "Owner" => lease.owner = Some(value.to_owned()).filter(|owner| !owner.trim().is_empty()),
            "ContinuationToken" => lease.continuation = Some(value.to_owned()).filter(|token| !token.is_empty()),
            "timestamp" => lease.timestamp = Some(value.to_owned()),
            name => drop(lease.properties.insert(format!("cf.{name}"), value.to_owned())),
        }
    }
    read_everything(&lease);
    let read = LeaseDocument::parse(&lease.to_json()).expect("its own JSON");
    assert_eq!(read, lease);

    let child = lease.child("x..1".to_owned(), LeaseVersion::Range, "1".parse().expect("token"), FeedRange::full());
    read_everything(&child);
    assert_eq!((child.generation(), child.is_paused()), (lease.generation(), lease.is_paused()));
    assert_eq!((child.attempts(), child.suspect(), child.start()), (lease.attempts(), lease.suspect(), lease.start()));
    assert_eq!((&child.owner, child.epoch(), child.session(), child.hand_over()), (&None, 0, None, None));

    // Every change of hands and of position must be possible, whatever the numbers say.
    let mut next = lease.clone();
    next.set_epoch(lease.epoch() + 1);
    next.set_generation(lease.generation() + 1);
    let attempts = Attempts { continuation: lease.continuation.clone(), count: lease.attempts().count.saturating_add(1) };
    next.set_attempts(&attempts);
    let next = LeaseDocument::parse(&next.to_json()).expect("its own JSON");
    assert!(next.epoch() > lease.epoch() && next.generation() > lease.generation());
    assert_eq!(next.attempts(), attempts);
});
