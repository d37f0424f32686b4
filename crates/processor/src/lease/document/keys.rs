//! The names of our own properties in a lease: they begin with `cf.`. `docs/lease-lifecycle.md` lists them.

use std::collections::BTreeMap;

use super::error::DocumentError;

/// What this version of the properties is called. Hosts of version 1 wrote none.
pub(super) const VERSION: u64 = 2;

pub(super) const EPOCH: &str = "cf.epoch";
pub(super) const SESSION: &str = "cf.session";
pub(super) const HAND_OVER: &str = "cf.hand-over";
/// The promise of the instance that requests the lease, in milliseconds.
pub(super) const HAND_OVER_EXPIRATION: &str = "cf.hand-over-expiration";
/// Who wrote the promise. A .NET host copies `properties` when it acquires a lease: then this differs from `Owner`.
pub(super) const OWNER: &str = "cf.owner";
/// The epoch under which the promise was written. A host of version 1 raises the epoch and leaves the promise.
pub(super) const OWNER_EPOCH: &str = "cf.owner-epoch";
/// How long the owner may be silent before others may take the lease, in milliseconds.
pub(super) const EXPIRATION: &str = "cf.expiration";
pub(super) const VERSION_KEY: &str = "cf.version";
pub(super) const ATTEMPTS: &str = "cf.attempts";
pub(super) const SEARCH: &str = "cf.search";
pub(super) const STATUS: &str = "cf.status";
pub(super) const GENERATION: &str = "cf.generation";
pub(super) const PAUSED: &str = "cf.paused";
pub(super) const GONE: &str = "cf.gone";
pub(super) const START: &str = "cf.start";

/// In place of `cf.search`, in leases of version 1.
pub(super) const SUSPECT: &str = "cf.suspect";
/// In place of `cf.status`, in leases of version 1.
pub(super) const STATE: &str = "cf.state";

/// What a child takes over from its parent besides the users' properties.
const INHERITED: [&str; 7] = [ATTEMPTS, SEARCH, SUSPECT, GENERATION, PAUSED, START, VERSION_KEY];

/// Numbers from here on are damage and read as 0: nothing counts so far, and adding one must stay possible.
const TOO_LARGE: u64 = 1 << 53;

/// Refuses what a later version wrote: its meaning is not known here.
pub(super) fn check_version(properties: &BTreeMap<String, String>) -> Result<(), DocumentError> {
    match properties.get(VERSION_KEY).and_then(|text| parse_number(text)) {
        Some(version) if version > VERSION => Err(DocumentError::FutureVersion(version)),
        _ => Ok(()),
    }
}

/// What a child takes over of the properties of its parent.
pub(super) fn inherited(properties: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let inherited = |key: &str| !key.starts_with("cf.") || INHERITED.contains(&key);
    properties.iter().filter(|(key, _)| inherited(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

pub(super) fn parse_number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number < TOO_LARGE)
}

pub(super) fn parse_flag(text: &str) -> Option<bool> {
    text.parse().ok()
}
