//! The processor on the official SDK of Azure Cosmos DB against a server in a process of its own: the tests of
//! `../processor`, with another client.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "those of the SDK are, and a test has room for them")]

mod bad_input;
mod command;
#[path = "../processor/delivery.rs"]
mod delivery;
#[path = "../processor/estimator.rs"]
mod estimator;
mod failover;
#[path = "../processor/failures.rs"]
mod failures;
#[path = "../../../cosmos/tests/support/front.rs"]
mod front;
#[path = "../processor/hosts.rs"]
mod hosts;
#[path = "../../../cosmos/tests/support/http.rs"]
mod http;
#[path = "../processor/lease_container.rs"]
mod lease_container;
mod mixed;
mod permissions;
#[path = "../serve/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../processor/ranges.rs"]
mod ranges;
mod recovery;
#[path = "../processor/seen.rs"]
mod seen;
#[path = "../processor/server_faults.rs"]
mod server_faults;
#[path = "../processor/shop.rs"]
mod shop;
mod stage;
mod store;
#[path = "../../../cosmos/tests/support/mod.rs"]
mod support;
#[path = "../processor/tools.rs"]
mod tools;
#[path = "../processor/versions.rs"]
mod versions;
