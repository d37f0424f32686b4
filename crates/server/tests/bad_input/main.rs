//! Requests that make no sense: the right refusal, nothing changed, and the connection goes on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod catalog;
mod continuations;
mod items;
mod many_items;
mod methods;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
