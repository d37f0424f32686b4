//! The scope of a command: which leases it is about.

use changefeed_core::{Error, ErrorKind, Result};

use crate::{
    lease::{
        listing::{BrokenDocument, StoredLease},
        prefix::LeaseToken,
    },
    tools::snapshot::Snapshot,
};

/// Which leases are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// All of the processor.
    All,
    /// One, by its token.
    Lease(LeaseToken),
}

/// The leases that are meant; tombstones never are. Refuses to go on beside documents that cannot be read, if all are
/// meant: one of them would stay as it was.
pub(super) fn chosen<'a>(snapshot: &'a Snapshot, scope: &Scope) -> Result<Vec<&'a StoredLease>> {
    match scope {
        Scope::All => match snapshot.listing.broken.first() {
            Some(BrokenDocument { id, error, .. }) => {
                let message = format!(
                    "document {id} cannot be read: {error}; nothing was done: replace it by importing leases that were \
                     exported, or name the lease that is meant"
                );
                Err(Error::new(ErrorKind::Corrupt, message))
            }
            None => Ok(snapshot.leases().collect()),
        },
        Scope::Lease(token) => match snapshot.leases().find(|lease| lease.document.token == *token) {
            Some(lease) => Ok(vec![lease]),
            None => {
                let known: Vec<&str> = snapshot.leases().map(|lease| lease.document.token.as_str()).collect();
                let message = format!("there is no lease {token}: the leases are {}", known.join(", "));
                Err(Error::new(ErrorKind::ItemNotFound, message))
            }
        },
    }
}
