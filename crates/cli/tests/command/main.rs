//! The command as people use it: data in, hosts without Rust, a look from outside, repairs. Each as real processes, on a
//! folder and through a server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin_endpoint;
mod backup;
mod bad_input;
mod config;
mod copy;
mod dead_letters;
mod demo;
mod exec;
mod exit_codes;
mod help;
mod leases;
mod load;
mod look;
mod man;
mod processor_options;
mod repair;
mod screen;
mod secrets;
#[allow(dead_code, reason = "other tests use the rest")]
mod shop;
mod signals;
mod starting;
mod stopped_store;
mod store_options;
mod terminal;
mod transfer;
mod webhook;

#[path = "../metrics/http.rs"]
mod http;

#[path = "../serve/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;

#[path = "../../../remote/tests/support/proxy.rs"]
mod proxy;
