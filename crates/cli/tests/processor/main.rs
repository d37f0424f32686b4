//! The processor against a server in a process of its own, on real time with short intervals: what the tests of the
//! processor show on a paused clock and a store in memory holds over the network as well.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod delivery;
mod estimator;
mod failures;
mod hosts;
mod lease_container;
#[path = "../serve/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../../../remote/tests/support/proxy.rs"]
mod proxy;
mod ranges;
mod seen;
mod server_faults;
mod shop;
mod store;
mod tools;
mod versions;
