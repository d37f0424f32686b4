//! A server that speaks the Cosmos DB REST protocol over any store.

pub mod binary_json;
mod json_tokens;
pub mod patch;
