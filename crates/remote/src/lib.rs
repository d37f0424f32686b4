//! Containers of a changefeed server, with the words of the embedded engine: changing one line moves a program from a
//! folder to a server, and with it to as many processes and machines as needed.
//!
//! ```no_run
//! # async fn example() -> changefeed_core::Result<()> {
//! use changefeed_remote::{EMULATOR_KEY, Server};
//! use serde_json::json;
//!
//! let server = Server::connect("http://localhost:8081", EMULATOR_KEY)?;
//! let orders = server.database("shop").container("orders").partition_key("/customer").open_or_create().await?;
//! orders.create(&json!({"id": "1", "customer": "ada", "total": 12})).await?;
//! # Ok(())
//! # }
//! ```
//!
//! *Connections.* Kept and used again; HTTP/1.1 or HTTP/2. Nothing is sent before the first call. *Retries.* A call that
//! had no effect is repeated a few times while the server cannot be reached or throttles; a write whose outcome is
//! unknown is repeated only if it replaces or deletes one version of an item, which can happen once at most, and is
//! otherwise reported with `Effect::Unknown`. *Wake-ups.* One
//! long request waits for changes of all ranges that the program follows. *Certificates* of [`Builder::certificate_file`] and
//! of the operating system are read again when a server presents one that is not signed by one of them. *Azure* is not reached by this client: it
//! speaks to `changefeed serve` only.

mod admin;
mod answer;
mod backend;
mod backoff;
mod catalog;
mod connect_error;
mod connector;
mod endpoint;
mod http;
mod key;
mod page_size;
mod parts;
mod poll_length;
mod roots;
mod server;
mod timer;
mod transport;
#[doc(hidden)] // no part of the API: for the command
pub mod trust;
mod watch;

pub use self::{
    http::HttpVersion,
    key::EMULATOR_KEY,
    server::{Builder, Server},
};
