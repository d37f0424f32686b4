//! The Rust SDK, unmodified, against `changefeed serve`: HTTP/2 and Cosmos binary JSON by default.
//! Needs `CHANGEFEED_BIN` and `COSMOS_ENDPOINT`, as `sdk-tests/run` sets them.

mod driver;
mod feed;
mod items;
mod server;
mod splits;
mod support;
mod trouble;
