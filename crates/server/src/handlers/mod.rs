//! Handlers: one module for each kind of resource. Each takes a parsed request and returns a reply.

pub(crate) mod account;
pub(crate) mod admin;
pub(crate) mod backup;
pub(crate) mod batch;
pub(crate) mod container;
pub(crate) mod contract;
pub(crate) mod database;
pub(crate) mod feed;
pub(crate) mod health;
pub(crate) mod items;
pub(crate) mod metrics;
pub(crate) mod offers;
pub(crate) mod open_backups;
pub(crate) mod partition_key_delete;
pub(crate) mod partition_key_ranges;
pub(crate) mod query;
pub(crate) mod read_feed;
pub(crate) mod scope;
pub(crate) mod scripts;
pub(crate) mod session_headers;
pub(crate) mod workers;
