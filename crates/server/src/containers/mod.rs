//! Containers between the handlers and the store: handles, request charges, unique keys, indexing policies, verification.

pub(crate) mod charges;
pub(crate) mod container_cache;
pub(crate) mod handle;
pub(crate) mod indexing;
pub(crate) mod previous_images;
pub(crate) mod unique_keys;
pub(crate) mod verify;
