//! Finds the container of a call by name, and checks its identity.

use std::sync::Arc;

use changefeed_core::{Error, ErrorKind, Result};
use changefeed_protocol::Address;

use crate::containers::{container_cache::ContainerCache, handle::ContainerHandle};

/// Returns the container of this name, unless it was created after the client opened it.
pub(super) async fn open(
    containers: &ContainerCache,
    (database, name): (&str, &str),
    address: &Address,
) -> Result<Arc<ContainerHandle>> {
    for _ in 0..2 {
        let handle = containers.get(database, name).await.map_err(gone)?;
        let identity = handle.identity();
        if identity.store != address.store {
            let message = format!(
                "this server serves store {}, but {database}/{name} was opened on store {}: start the server with the \
                 folder that it had, or start this host again to use the other store",
                identity.store, address.store
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        if identity.container == address.container {
            return Ok(handle);
        }
        // The handle may be older than the container of this name.
        containers.forget(&identity.container);
    }
    let message = format!("container {database}/{name} was deleted and created again: open it again");
    Err(Error::new(ErrorKind::ContainerNotFound, message))
}

/// The error of a handle whose container is gone, with its database or without.
fn gone(error: Error) -> Error {
    match error.kind() {
        ErrorKind::DatabaseNotFound => Error::new(ErrorKind::ContainerNotFound, error.message()),
        _ => error,
    }
}
