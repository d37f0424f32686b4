//! Containers of JSON items on local disk, with a change feed: nothing to install, nothing to run beside the program.
//!
//! ```
//! # async fn example() -> changefeed_core::Result<()> {
//! use changefeed_embedded::Engine;
//! use serde_json::json;
//!
//! # let folder = std::env::temp_dir().join(format!("changefeed-doc-{}", std::process::id()));
//! let engine = Engine::open(&folder)?;
//! let orders = engine.database("shop").container("orders").partition_key("/customer").open_or_create().await?;
//! orders.create(&json!({"id": "1", "customer": "ada", "total": 12})).await?;
//! # engine.close().await?;
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
//! ```
//!
//! *Durability.* An acknowledged write survives a power cut; concurrent writers share syncs. [`Durability::Relaxed`]
//! trades that away. *One process.* A folder is open in one process at a time; others go through the server.
//! *Memory.* The index is in memory, a few hundred bytes for each item. *Format.* `docs/format.md`.

mod backend;
mod body;
mod catalog;
mod commit;
mod descriptor;
mod durability;
mod engine;
mod format;
mod health;
mod index;
mod inner;
mod log;
mod metrics;
mod snapshot;
mod state;
mod threads;
pub mod vfs;

pub use self::{
    durability::Durability,
    engine::{Builder, Engine},
    health::Health,
    snapshot::{Snapshot, SnapshotFile},
};
