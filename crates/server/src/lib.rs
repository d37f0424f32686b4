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
//! `docs/compatibility.md` lists what is supported. *Layers:* `net` accepts connections and reads requests; `router` parses
//! the path ([`path`]), checks the signature ([`auth`]) and calls a handler; `handlers` implement each resource;
//! `containers` caches the containers in use; `wire` is the format of requests and responses, built without parsing items.

pub mod auth;
mod containers;
mod error;
mod faults;
mod handlers;
mod headers;
mod metrics;
mod net;
pub mod patch;
mod router;
mod server;
mod state;
mod storage;
mod wire;

pub use self::{
    containers::verify::{Findings, verify},
    net::{
        limits::Limits,
        tls::{Certificate, Tls, self_signed, self_signed_for},
    },
    router::path,
    server::{Builder, Server, SocketServer},
    storage::{Health, Storage, StoredFiles},
    wire::binary_json,
};
