//! Checks of a stored position: S2, a checkpoint never passes work that was not handled; S3, it never goes back.

use super::{Broken, key_range::KeyRange, lease_document::LeaseDocument};
use crate::oracle::Oracle;

/// S2 and S3: what a checkpoint may say.
///
/// # Errors
/// S2 or S3.
pub fn check_position(
    old: Option<&LeaseDocument>,
    new: &LeaseDocument,
    range: Option<&KeyRange>,
    oracle: &Oracle,
) -> Result<(), Broken> {
    let before = old.and_then(LeaseDocument::position);
    let after = new.position();
    if let Some(old) = old
        && old.generation() == new.generation()
        && after < before
    {
        let message = format!("checkpoint of lease {} went back from {before:?} to {after:?}", new.token);
        return Err(("S3", message));
    }
    let (Some(after), Some(range)) = (after.filter(|after| Some(*after) != before), range) else { return Ok(()) };
    match oracle.undone(range, before.unwrap_or(0), after) {
        None => Ok(()),
        Some(change) => {
            let message = format!(
                "checkpoint {after} of lease {} passes the change of item {} at {}, which was not handled",
                new.token, change.item, change.lsn
            );
            Err(("S2", message))
        }
    }
}
