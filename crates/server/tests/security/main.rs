//! The security checklist over real sockets: transport and limits, authentication, input.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod authentication;
mod certificates;
mod connections;
mod host_names;
mod hostile_queries;
mod keys;
mod large_responses;
mod limits;
mod panics;
mod paths;
mod slow_clients;
mod smuggling;
#[path = "../support/mod.rs"]
mod support;
mod unread_responses;
