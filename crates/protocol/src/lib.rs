//! The calls of our own between `changefeed-remote` and `changefeed-server`: paths, messages, encoding.
//!
//! The protocol of Cosmos DB does not tell what the contract needs: times in milliseconds, kinds and effects of errors,
//! the LSNs of a batch, the identity of the store, splits on demand. These calls do. They are `POST` requests under
//! `/_changefeed/v3/`, signed with the account's key as every request of Cosmos DB is; their bodies are the values of
//! `changefeed_core` in a binary encoding ([`Wire`]), with bodies of items as they are.
//!
//! Pure: no I/O. An incompatible change of a message needs another [`VERSION`].

mod codec;
mod contract;
mod error;
mod messages;
mod paths;

pub use self::{
    codec::{Malformed, Reader, Wire, decode, decode_parts, encode},
    error::{decode_error, encode_error},
    messages::{Address, Opened, Wait, WatchCall, WatchId, WatchReply},
    paths::{CatalogCall, ContainerCall, PREFIX, Target, VERSION},
};

/// The content type of every message of these calls. An answer with another one does not come from such a call.
pub const CONTENT_TYPE: &str = "application/vnd.changefeed.v1";
