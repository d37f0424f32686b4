//! Writes of commands: compare-and-swap, repeated while the owner of the lease writes, too.

use changefeed_core::{Effect, Error, ErrorKind, Result};

use crate::lease::{document::LeaseDocument, listing::StoredLease, prefix::LeaseToken, store::LeaseStore};

/// How often a lease may change under our hands before we give up: its owner writes a few times a second at most.
pub(super) const CONFLICT_TRIES: u32 = 16;

/// Changes a lease by compare-and-swap, reading it again after each conflict. `done` says whether a document that was
/// read after an unknown outcome already is as wanted.
pub(super) async fn update(
    store: &LeaseStore,
    seen: &StoredLease,
    done: impl Fn(&LeaseDocument) -> bool,
    change: impl Fn(&mut LeaseDocument),
) -> Result<()> {
    let mut current = seen.clone();
    for _ in 0..CONFLICT_TRIES {
        let mut document = LeaseDocument::clone(&current.document);
        change(&mut document);
        match store.replace(&document, &current.etag).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::PreconditionFailed || error.effect() == Effect::Unknown => {
                let unknown = error.effect() == Effect::Unknown;
                current = match store.read(&document).await? {
                    Some(stored) if unknown && done(&stored.document) => return Ok(()),
                    Some(stored) if stored.document.is_gone() => return Err(replaced(&document.token)),
                    Some(stored) => stored,
                    None => return Err(replaced(&document.token)),
                };
            }
            Err(error) if error.kind() == ErrorKind::ItemNotFound => return Err(replaced(&document.token)),
            Err(error) => return Err(error),
        }
    }
    let token = &seen.document.token;
    let message = format!("lease {token} changed {CONFLICT_TRIES} times while it was being written: try again");
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// The result of a delete whose document may have been deleted before.
pub(super) fn gone_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::ItemNotFound => Ok(()),
        other => other,
    }
}

/// The error for a document that others write all the time.
pub(super) fn kept_changing(id: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{id} kept changing while it was being written: try again"))
}

fn replaced(token: &LeaseToken) -> Error {
    let message = format!("lease {token} was replaced meanwhile, by a split or merge: try again");
    Error::new(ErrorKind::Unavailable, message)
}
