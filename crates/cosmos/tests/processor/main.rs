//! The processor on the emulator inside of the SDK: the tests of delivery, failing delegates, hosts, ranges and tools that
//! run against a server, while writes of leases and reads of the feed fail now and then, and each such fault alone.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "those of the SDK are, and a test has room for them")]

#[path = "../../../cli/tests/processor/delivery.rs"]
mod delivery;
#[path = "../../../cli/tests/processor/failures.rs"]
mod failures;
#[path = "../../../cli/tests/processor/hosts.rs"]
mod hosts;
mod lease_faults;
#[path = "../../../cli/tests/processor/ranges.rs"]
mod ranges;
#[path = "../../../cli/tests/processor/seen.rs"]
mod seen;
mod shop;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../../cli/tests/processor/tools.rs"]
mod tools;
