//! Where a copy comes from, as it says itself, and whether a change may replace it. Pure.

use changefeed_core::ContainerIdentity;
use serde::{Deserialize, Serialize};

/// The container that a copy was made of. LSNs are compared within one only: a container that was created again counts from
/// 1, and a store that was restored counts on from its backup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Origin {
    pub(super) store: String,
    /// Database and name.
    pub(super) container: String,
    /// The resource id, which another container of the same name does not have.
    pub(super) rid: String,
}

impl Origin {
    pub(super) fn of(container: &ContainerIdentity) -> Self {
        Self {
            store: container.store.to_string(),
            container: format!("{}/{}", container.database_name, container.container_name),
            rid: container.container.to_string(),
        }
    }
}

/// What a copy says of itself.
#[derive(Debug, Deserialize)]
pub(super) struct Marks {
    #[serde(rename = "_cf_lsn")]
    lsn: u64,
    /// None in copies of versions that did not write it.
    #[serde(rename = "_cf_source")]
    origin: Option<Origin>,
}

/// What is to be done with a change of which there is a copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The copy is older, or no copy.
    Replace,
    /// The copy has a higher LSN. It is newer, unless the source has lost that version since, as an account of Azure may at a
    /// failover between regions: the source has the version of the change then.
    ReplaceIfCurrent,
    /// The copy has a higher LSN, of a container that it does not name.
    KeepUnnamed,
    /// The copy is of another container of the same name: if that was replaced by this one, so is the copy.
    ReplaceIfSucceeded(Origin),
    /// The copy belongs to another source.
    Refuse(Origin),
}

/// Decides about a change of `ours` at `lsn`. `beside`: the copies are in the store of the source, and were restored with it
/// if it was.
pub(super) fn decide(marks: Option<Marks>, ours: &Origin, lsn: u64, beside: bool) -> Decision {
    let Some(Marks { lsn: found, origin }) = marks else { return Decision::Replace };
    let is_newer = found > lsn;
    let Some(origin) = origin else {
        return if is_newer { Decision::KeepUnnamed } else { Decision::Replace };
    };
    if origin.container != ours.container || origin.store != ours.store && !beside {
        return Decision::Refuse(origin);
    }
    match (origin.rid == ours.rid, is_newer) {
        (true, true) => Decision::ReplaceIfCurrent,
        (true, false) => Decision::Replace,
        (false, _) => Decision::ReplaceIfSucceeded(origin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(store: &str, container: &str, rid: &str) -> Origin {
        Origin { store: store.to_owned(), container: container.to_owned(), rid: rid.to_owned() }
    }

    fn marks(lsn: u64, origin: Option<&Origin>) -> Option<Marks> {
        Some(Marks { lsn, origin: origin.cloned() })
    }

    #[test]
    fn lsns_are_compared_within_one_container_only() {
        let ours = origin("s", "shop/orders", "c1");
        assert_eq!(decide(None, &ours, 5, false), Decision::Replace, "no copy");
        for (lsn, decision) in [(4, Decision::Replace), (5, Decision::Replace), (6, Decision::ReplaceIfCurrent)] {
            assert_eq!(decide(marks(lsn, Some(&ours)), &ours, 5, false), decision);
        }
        let before = origin("s", "shop/orders", "c0");
        for lsn in [4, 6] {
            let decision = Decision::ReplaceIfSucceeded(before.clone());
            assert_eq!(decide(marks(lsn, Some(&before)), &ours, 5, false), decision);
        }
    }

    #[test]
    fn a_copy_that_names_no_container_is_taken_for_one_of_this_one() {
        let ours = origin("s", "shop/orders", "c1");
        assert_eq!(decide(marks(5, None), &ours, 5, false), Decision::Replace);
        assert_eq!(decide(marks(6, None), &ours, 5, false), Decision::KeepUnnamed);
    }

    #[test]
    fn copies_of_another_source_are_left_alone() {
        let ours = origin("s", "shop/orders", "c1");
        for other in [origin("s", "shop/audit", "c2"), origin("t", "shop/orders", "c1")] {
            assert_eq!(decide(marks(1, Some(&other)), &ours, 5, false), Decision::Refuse(other));
        }
        // Restored with its source.
        let restored = origin("t", "shop/orders", "c1");
        assert_eq!(decide(marks(6, Some(&restored)), &ours, 5, true), Decision::ReplaceIfCurrent);
        assert_eq!(decide(marks(4, Some(&restored)), &ours, 5, true), Decision::Replace);
    }
}
