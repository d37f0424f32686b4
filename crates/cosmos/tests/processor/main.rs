//! The processor on the emulator inside of the SDK: the tests of delivery and failing delegates that run against a server,
//! while writes of leases and reads of the feed fail now and then, and each such fault alone.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "those of the SDK are, and a test has room for them")]

#[path = "../../../cli/tests/processor/delivery.rs"]
mod delivery;
#[path = "../../../cli/tests/processor/failures.rs"]
mod failures;
mod lease_faults;
#[path = "../../../cli/tests/processor/seen.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod seen;
mod shop;
#[path = "../support/mod.rs"]
mod support;
