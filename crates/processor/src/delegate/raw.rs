//! Changes as the store returned them, shared instead of copied.

use std::{
    ops::{Deref, Range},
    sync::Arc,
};

use changefeed_core::{Change, Container, ContainerIdentity};

use super::info::ChangeInfo;

/// Changes as the store returned them: bodies are bytes. A slice of a shared page; cheap to clone.
///
/// Used like a slice: `changes.len()`, `for change in &changes`.
///
/// ```
/// use changefeed::{Context, DelegateError, RawChanges};
///
/// async fn archive(changes: RawChanges, _ctx: Context) -> Result<(), DelegateError> {
///     for change in &changes {
///         let bytes = change.current.as_ref().map_or(0, |body| body.len());
///         println!("{} at {}: {bytes} bytes", change.id, change.lsn);
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct RawChanges {
    page: Arc<Vec<Change>>,
    items: Range<usize>,
    container: Option<Arc<ContainerIdentity>>,
}

impl RawChanges {
    /// Returns the changes with these indices; indices beyond the end are ignored.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let place = |at: usize| self.items.start + at.min(self.items.len());
        let (start, end) = (place(range.start), place(range.end));
        Self { page: Arc::clone(&self.page), items: start..end.max(start), container: self.container.clone() }
    }

    /// Iterates in order, with partition key, etag and [`ChangeInfo::change_id`] of each change.
    pub fn with_info(&self) -> impl ExactSizeIterator<Item = (&Change, ChangeInfo<'_>)> {
        self.iter().zip(self.infos())
    }

    /// Returns changes that were read from `container`, for example by a [`Pull`](crate::Pull), with the
    /// [`ChangeInfo::change_id`] that they have when a processor delivers them. Without the container the ids are others.
    pub fn from_container(changes: Vec<Change>, container: &Container) -> Self {
        Self::of(changes, &Arc::new(container.identity().clone()))
    }

    /// Returns the container that the changes are from: another one than before if it was deleted and created again. `None`
    /// for changes that were made from a list.
    pub fn container(&self) -> Option<&ContainerIdentity> {
        self.container.as_deref()
    }

    /// The changes with the container that they are from.
    pub(crate) fn of(changes: Vec<Change>, container: &Arc<ContainerIdentity>) -> Self {
        Self { container: Some(Arc::clone(container)), ..Self::from(changes) }
    }

    pub(super) fn infos(&self) -> impl ExactSizeIterator<Item = ChangeInfo<'_>> {
        self.iter().map(|change| ChangeInfo::new(change, self.container.as_deref()))
    }
}

impl From<Vec<Change>> for RawChanges {
    fn from(changes: Vec<Change>) -> Self {
        let items = 0..changes.len();
        Self { page: Arc::new(changes), items, container: None }
    }
}

impl RawChanges {
    /// Returns the changes in several ranges of indices: a slice if there is one range, a copy otherwise.
    pub(crate) fn select(&self, ranges: &[Range<usize>]) -> Self {
        match ranges {
            [range] => self.slice(range.clone()),
            ranges => {
                let chosen = ranges.iter().filter_map(|range| self.get(range.clone()));
                let chosen: Vec<Change> = chosen.flat_map(|changes| changes.iter().cloned()).collect();
                Self { container: self.container.clone(), ..Self::from(chosen) }
            }
        }
    }
}

impl Deref for RawChanges {
    type Target = [Change];

    fn deref(&self) -> &[Change] {
        // Always within the page: that is how it was cut.
        self.page.get(self.items.clone()).unwrap_or_default()
    }
}

impl<'a> IntoIterator for &'a RawChanges {
    type Item = &'a Change;
    type IntoIter = std::slice::Iter<'a, Change>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use changefeed_core::{ItemId, Lsn, Operation, Timestamp};

    use super::*;

    pub(crate) fn change(lsn: u64) -> Change {
        Change {
            id: ItemId::new("1").unwrap(),
            rid: None,
            lsn: Lsn::new(lsn),
            timestamp: Timestamp::default(),
            operation: Operation::Write,
            current: None,
            previous: None,
            previous_lsn: None,
        }
    }

    fn changes(count: u64) -> RawChanges {
        (0..count).map(change).collect::<Vec<_>>().into()
    }

    fn lsns(changes: &RawChanges) -> Vec<u64> {
        changes.iter().map(|change| change.lsn.get()).collect()
    }

    #[test]
    fn a_slice_of_a_slice_counts_from_its_own_beginning() {
        let middle = changes(10).slice(2..8);
        assert_eq!(lsns(&middle), [2, 3, 4, 5, 6, 7]);
        assert_eq!(lsns(&middle.slice(1..3)), [3, 4]);
        assert_eq!(middle.slice(1..3).len(), 2);
    }

    #[test]
    fn a_slice_beyond_the_end_is_cut() {
        let all = changes(3);
        assert_eq!(lsns(&all.slice(1..9)), [1, 2]);
        assert!(all.slice(7..9).is_empty());
        #[expect(clippy::reversed_empty_ranges, reason = "as a caller could")]
        let backwards = all.slice(2..1);
        assert!(backwards.is_empty());
    }
}
