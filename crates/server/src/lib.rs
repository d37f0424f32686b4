//! A server that speaks the Cosmos DB REST protocol over any store.

pub mod binary_json;
pub mod patch;
