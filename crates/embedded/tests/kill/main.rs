//! Processes that are killed on a real disk: while they write, and while they change containers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../crash/mod.rs"]
mod crash;

mod changes;
mod process;
mod writes;
