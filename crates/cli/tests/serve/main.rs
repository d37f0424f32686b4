//! `changefeed serve` as users run it: a process with a folder, a socket and signals.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod certificates;
mod durability;
mod effects;
mod followers;
mod http;
mod options;
mod process;
mod signals;
