//! The wire format of Cosmos DB: requests and replies, JSON of resources, binary JSON, session tokens.

pub mod binary_json;
pub(crate) mod http;
pub(crate) mod number;
pub(crate) mod render;
pub(crate) mod resources;
pub(crate) mod session_token;
