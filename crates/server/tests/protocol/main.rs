//! The protocol as official SDKs need it, each thing that breaks one of them as a test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account;
mod all_versions;
mod as_in_azure;
mod as_the_service;
mod backup;
mod charges;
mod containers;
mod feed;
mod headers;
mod health;
mod items;
mod metrics;
mod ranges;
mod restart;
mod splits;
#[path = "../support/mod.rs"]
mod support;
mod wires;
