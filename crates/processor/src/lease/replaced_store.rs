//! Positions are of one store: a store that was restored or replaced has other changes under the same LSNs.

use changefeed_core::{ContainerIdentity, Error, ErrorKind, Result};

use super::document::InfoDocument;

/// Returns whether the leases name the store of the monitored container; `false` if they name none, or name it by its
/// endpoint although it has an id: then a host wrote them whose SDK did not show the id.
///
/// # Errors
/// `ForeignContinuation` if they name another one.
pub(crate) fn check(info: &InfoDocument, monitored: &ContainerIdentity) -> Result<bool> {
    let ContainerIdentity { store, container_name, account_host, .. } = monitored;
    let is_endpoint = |known: &str| known.rsplit_once(':').map_or(known, |(host, _)| host) == account_host;
    match info.store() {
        None => Ok(false),
        Some(known) if store.is_random() && is_endpoint(known) => Ok(false),
        Some(known) if known == store.as_str() => Ok(true),
        Some(known) => Err(Error::new(
            ErrorKind::ForeignContinuation,
            format!(
                "the leases have positions in store {known}, but container {container_name} is in store {store}: it was \
                 restored or replaced, and the positions could skip changes; seek all leases (`changefeed seek NAME --to \
                 beginning`), or choose another name"
            ),
        )),
    }
}
