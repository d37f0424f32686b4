//! The contract of changefeed: what items, changes, feed ranges and continuations are, and what a store must do
//! ([`Backend`], [`Catalog`]) so that processors, servers and tools can stand on it.
//!
//! This crate does no I/O, spawns nothing and knows no runtime. Users hold a [`Container`]; stores implement
//! [`Backend`] and prove it with `changefeed_testkit::conformance`.

mod backend;
mod capabilities;
mod catalog;
mod change;
mod clock;
mod container;
mod continuation;
mod epk;
mod error;
mod item;
mod lsn;
mod murmur3;
mod partition_key;
mod range;
mod response;
mod rid;
#[doc(hidden)] // no part of the API: hashes for the other crates of this project
pub mod stable_hash;
mod store_id;
mod typed;

pub use async_trait::async_trait;
pub use bytes::Bytes;

pub use self::{
    backend::{Backend, Batch, ContainerIdentity, ItemPage, ListItems, Write, WriteResult},
    capabilities::Capabilities,
    catalog::{
        Catalog, ContainerBuilder, ContainerInfo, ContainerSpec, Database, DatabaseInfo, DatabaseSpec, TimeToLive,
    },
    change::{Change, ChangePage, Mode, Operation, ReadChanges, StartFrom},
    clock::{Clock, SystemClock, Timestamp},
    container::{BatchBuilder, Container},
    continuation::Continuation,
    epk::Epk,
    error::{Effect, Error, ErrorKind, Result},
    item::{ETag, Item, ItemId, ItemKey, MAX_ID_BYTES, MAX_ITEM_BYTES, check_name},
    lsn::Lsn,
    partition_key::{
        KeyNumber, PartitionKey, PartitionKeyDefinition, PartitionKeyKind, PartitionKeyValue, PartitionKeyVersion,
    },
    range::{FeedRange, PhysicalRange, RangeId, check_tiling},
    response::Response,
    rid::ResourceId,
    store_id::StoreId,
    typed::parse_item,
};
