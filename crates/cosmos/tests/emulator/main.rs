//! The store and the processor on the emulator inside of the SDK, behind sockets: the conformance suite, several write
//! regions, identities of Entra ID, and the data actions that docs/azure.md lists.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "those of the SDK are, and a test has room for them")]

mod account;
mod conformance;
mod consistency;
mod data_actions;
#[path = "../support/http.rs"]
mod http;
mod identity;
mod regions;
#[path = "../../../cli/tests/processor/seen.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod seen;
mod shop;
#[path = "../support/mod.rs"]
mod support;
