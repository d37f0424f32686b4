//! Cosmos binary JSON.
