//! A server that speaks the Cosmos DB REST protocol over any store, so that unmodified official SDKs work against it.
//!
//! ```
//! # async fn example() -> changefeed_core::Result<()> {
//! use changefeed_embedded::Engine;
//! use changefeed_server::Server;
//!
//! let engine = Engine::in_memory()?;
//! let server = Server::builder(engine.catalog()).listen(([127, 0, 0, 1], 0).into()).start().await?;
//! println!("connect any Cosmos DB SDK to {} with the emulator's key", server.endpoint());
//! server.stop().await;
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
//! ```
//!
//! What works, what is refused and how: `docs/compatibility.md`. *Layers:* [`Server`] accepts connections (`net`) and
//! reads requests; `path` and [`auth`] say what they are about and who asks; `service` finds who answers; bodies are
//! put together by `render` without parsing items.

mod account;
mod activity;
mod admin;
pub mod auth;
mod batch;
pub mod binary_json;
mod charges;
mod contract;
mod exchange;
mod faults;
mod feed;
mod host_check;
mod indexing;
mod items;
mod json_tokens;
mod lists;
mod names;
mod net;
mod offers;
mod open;
mod partition_key_delete;
pub mod patch;
pub mod path;
mod problem;
mod query;
mod render;
mod scope;
mod server;
mod service;
mod session;
mod storage;
mod unique_keys;
mod verify;

pub use self::{
    net::tls::{Certificate, Tls, self_signed},
    server::{Builder, Limits, Server},
    storage::{Health, Storage},
    verify::{Findings, verify},
};
