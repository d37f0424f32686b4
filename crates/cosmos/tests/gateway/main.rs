//! The store and the processor behind a gateway that behaves as the service may and the server of this project does not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "those of the SDK are, and a test has room for them")]

mod all_versions;
mod answers;
mod empty_pages;
#[path = "../support/http.rs"]
mod http;
mod parts;
mod proxy;
mod ranges;
#[path = "../../../cli/tests/processor/seen.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod seen;
mod stage;
#[path = "../support/mod.rs"]
mod support;
