//! Our properties of a lease: any text is read without a panic, and values that are set are read back.
//!
//! The input has one property in each line, `name=value`; names stand for those with the prefix `cf.`.
#![no_main]

use std::{sync::Arc, time::Duration};

use changefeed::{
    core::{FeedRange, Mode},
    lease::document::{Attempts, DocumentError, LeaseDocument, LeaseVersion, OwnerKind},
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
            name => drop(Arc::make_mut(&mut lease.properties).insert(format!("cf.{name}"), value.to_owned())),
        }
    }
    read_everything(&lease);
    let read = match LeaseDocument::parse(&lease.to_json()) {
        // A lease of a later version is refused, and nothing else is.
        Err(DocumentError::FutureVersion(version)) => {
            assert!(version > 2 && lease.properties.contains_key("cf.version"));
            return;
        }
        read => read.expect("its own JSON"),
    };
    assert_eq!(read, lease);

    let child = lease.child("x..1".to_owned(), LeaseVersion::Range, "1".parse().expect("token"), FeedRange::full());
    read_everything(&child);
    assert_eq!((child.generation(), child.is_paused()), (lease.generation(), lease.is_paused()));
    assert_eq!((child.attempts(), child.search(), child.start()), (lease.attempts(), lease.search(), lease.start()));
    assert_eq!((&child.owner, child.epoch(), child.session(), child.hand_over()), (&None, 0, None, None));

    // A change of owner or position must be possible whatever the numbers are.
    let mut next = lease.clone();
    next.set_epoch(lease.epoch() + 1);
    next.set_generation(lease.generation() + 1);
    let attempts =
        Attempts { continuation: lease.continuation.clone(), count: lease.attempts().count.saturating_add(1) };
    next.set_attempts(&attempts);
    let next = LeaseDocument::parse(&next.to_json()).expect("its own JSON");
    assert_ne!(next.epoch(), lease.epoch());
    assert_ne!(next.generation(), lease.generation());
    assert_eq!(next.attempts(), attempts);

    // A promise counts for its owner only.
    let mut promised = next.clone();
    promised.owner = Some("worker-1".to_owned());
    promised.set_promise("worker-1", Duration::from_secs(7));
    assert_eq!(promised.owner_kind(), Some(OwnerKind::Current));
    assert_eq!(promised.expires_after(Duration::from_secs(10)), Duration::from_secs(7));
    promised.owner = Some("worker-2".to_owned());
    assert_ne!(promised.owner_kind(), Some(OwnerKind::Current));
    assert!(promised.expires_after(Duration::from_secs(10)) >= Duration::from_secs(60));

    // A crash counts as one attempt, and as one crash of the batch under way.
    let mut crashed = lease.clone();
    crashed.count_crash();
    let crashed = LeaseDocument::parse(&crashed.to_json()).expect("its own JSON");
    assert_eq!(crashed.attempts(), attempts);
    assert_eq!(crashed.search().is_some(), lease.search().is_some());
    let crashes = |lease: &LeaseDocument| lease.search().map_or(0, |search| search.crashes);
    assert!(crashes(&crashed) >= crashes(&lease) && crashes(&crashed) <= crashes(&lease).saturating_add(1));
    read_everything(&crashed);
});
