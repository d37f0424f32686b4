//! The position of the search for poison items, as a lease stores it.

use changefeed_core::Change;
use serde::{Deserialize, Serialize};

/// Ends the entry of an item that crashed a process once, in leases of version 1.
const AGAIN: &str = " again";

/// Ends the entry of an item that is a dead letter, in leases of version 1.
const BURIED: &str = " buried";

/// Separates entries in leases of version 1, and the resource id of an item from its id. No id that can be written contains it.
const SEPARATOR: char = '/';

/// Items that are delivered apart from others, because batches with them failed or crashed the process. Items are named
/// `lsn:id/rid`: in a merged range two items with the same id, of different partition keys, may share an LSN. Names of
/// earlier versions end with the id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// The first item of the batch that is being delivered; none between two batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// How many items that batch has.
    pub window: usize,
    /// How many processes crashed while they delivered it; without a batch, how many crashed after the search.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crashes: u32,
    /// How many items after the checkpoint are still to be delivered in isolation.
    #[serde(default)]
    pub remaining: usize,
    /// Items after the checkpoint that are dead letters because they crashed processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Search {
    /// The name of an item in a search.
    pub(crate) fn name_of(change: &Change) -> String {
        let name = format!("{}:{}", change.lsn, change.id.as_str());
        match change.rid {
            Some(rid) => format!("{name}{SEPARATOR}{rid}"),
            None => name,
        }
    }

    /// Returns whether a stored name is that of an item; one without a resource id fits each item with its LSN and id.
    pub(crate) fn is_name_of(stored: &str, item: &str) -> bool {
        let rest = item.strip_prefix(stored);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(SEPARATOR))
    }

    /// Reads `cf.search`; `None` if it is not valid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|search: &Self| search.window > 0)
    }

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("invariant: texts and numbers always serialise")
    }

    /// Reads `cf.suspect`, which hosts of version 1 wrote: the item that was being delivered alone when its process
    /// crashed, and items that are dead letters.
    pub(super) fn parse_version_1(text: &str) -> Self {
        let mut search = Self { window: 1, remaining: 1, ..Self::default() };
        for entry in text.split(SEPARATOR) {
            match (entry.strip_suffix(BURIED), entry.strip_suffix(AGAIN)) {
                (Some(dead), _) => search.dead.push(dead.to_owned()),
                (None, Some(item)) => (search.first, search.crashes) = (Some(item.to_owned()), 2),
                (None, None) => (search.first, search.crashes) = (Some(entry.to_owned()), 1),
            }
        }
        search
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_comes_back_from_its_text() {
        let search = Search {
            first: Some("203:o \"7\"".into()),
            window: 31,
            crashes: 1,
            remaining: 969,
            dead: vec!["7:x".into()],
        };
        assert_eq!(Search::parse(&search.to_text()), Some(search));
        assert_eq!(Search { window: 1, ..Search::default() }.to_text(), r#"{"window":1,"remaining":0}"#);
        for text in ["", "7:x", "{}", r#"{"window":0}"#, r#"{"window":-1}"#, "[]"] {
            assert_eq!(Search::parse(text), None, "{text}");
        }
    }

    #[test]
    fn items_with_one_id_and_lsn_are_told_apart_by_their_resource_ids() {
        assert!(Search::is_name_of("7:x/AAA=", "7:x/AAA="));
        assert!(!Search::is_name_of("7:x/AAA=", "7:x/AAB="));
        assert!(!Search::is_name_of("7:x", "7:xy/AAA="));
        assert!(Search::is_name_of("7:x", "7:x/AAA="), "a name of an earlier version");
    }

    #[test]
    fn what_version_1_wrote_is_understood() {
        let search = Search::parse_version_1("7:x buried/9:y again");
        assert_eq!(
            (search.first.as_deref(), search.crashes, search.dead.as_slice()),
            (Some("9:y"), 2, &["7:x".into()][..])
        );
        let search = Search::parse_version_1("9:y");
        assert_eq!((search.first.as_deref(), search.crashes, search.window), (Some("9:y"), 1, 1));
    }
}
