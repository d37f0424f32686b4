//! What `serve` and `run --metrics` show: the documents name what is there and nothing else, and not everybody may read it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod documents;
mod http;
mod probes;
mod scrape;

#[path = "../command/shop.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod shop;

#[path = "../serve/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;
