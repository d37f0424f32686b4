//! Leases: who works on which feed range, and how far they are.
//!
//! `task` runs one lease: it feeds events into the pure `state` and performs its effects. `writer` is the only way
//! to write a lease that is owned; `store` the only way to the lease container.

pub(crate) mod account_host;
pub(crate) mod coverage;
pub mod document;
pub(crate) mod dotnet_creation;
pub(crate) mod events;
pub(crate) mod feed_positions;
pub(crate) mod host_context;
mod in_progress;
pub(crate) mod interrupts;
pub(crate) mod listing;
pub(crate) mod lock;
pub(crate) mod loss;
mod pages;
pub(crate) mod parsed;
pub mod prefix;
pub(crate) mod ranges;
pub(crate) mod replaced_store;
pub(crate) mod session;
pub(crate) mod signals;
pub(crate) mod split;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod task;
pub(crate) mod texts;
pub(crate) mod timing;
pub(crate) mod update;
pub(crate) mod writer;
pub(crate) mod writes;
