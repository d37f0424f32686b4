//! Parts of a page that are delivered together. Pure.

use std::ops::Range;

/// Items of a page by index: ascending ranges, none of them empty, no two of them adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Items(Vec<Range<usize>>);

impl Items {
    /// One contiguous range.
    pub(crate) fn range(range: Range<usize>) -> Self {
        let mut items = Self::default();
        items.push(range);
        items
    }

    /// Appends items that come after all others.
    pub(crate) fn push(&mut self, range: Range<usize>) {
        match self.0.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.0.push(range),
        }
    }

    pub(crate) fn ranges(&self) -> &[Range<usize>] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The page index of the item at `position` in this selection.
    pub(crate) fn index(&self, mut position: usize) -> Option<usize> {
        for range in &self.0 {
            if position < range.len() {
                return Some(range.start + position);
            }
            position -= range.len();
        }
        None
    }

    pub(crate) fn first(&self) -> Option<usize> {
        self.index(0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(Clone::clone)
    }

    /// The first `count` items, and the rest.
    pub(crate) fn split_at(self, count: usize) -> (Self, Self) {
        let (mut head, mut tail) = (Self::default(), Self::default());
        let mut left = count;
        for range in self.0 {
            let middle = range.start + left.min(range.len());
            left -= middle - range.start;
            head.push(range.start..middle);
            tail.push(middle..range.end);
        }
        (head, tail)
    }
}

impl FromIterator<usize> for Items {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut items = Self::default();
        for index in indices {
            items.push(index..index + 1);
        }
        items
    }
}

/// Items that are delivered in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) items: Items,
    /// Failed attempts so far.
    pub(crate) failures: u32,
    /// Whether the failures are those of each item, as after [`ItemResult::Retry`](crate::ItemResult::Retry).
    pub(crate) per_item: bool,
}

impl Batch {
    /// Items without failed attempts.
    pub(crate) fn fresh(items: Items) -> Self {
        Self { items, failures: 0, per_item: false }
    }

    /// The first `count` items, and the rest.
    pub(crate) fn split_at(self, count: usize) -> (Self, Self) {
        let (head, tail) = self.items.split_at(count);
        (Self { items: head, ..self }, Self { items: tail, ..self })
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_become_one_and_empty_ones_none() {
        let mut items = Items::range(2..4);
        items.push(4..4);
        items.push(4..6);
        items.push(9..10);
        assert_eq!(items.ranges(), [2..6, 9..10]);
        assert_eq!((items.len(), items.first(), items.index(4), items.index(5)), (5, Some(2), Some(9), None));
        assert_eq!([2, 3, 4, 5, 9].into_iter().collect::<Items>(), items);
    }

    #[test]
    fn a_selection_is_cut_by_count() {
        let items: Items = [0, 1, 4, 5, 6].into_iter().collect();
        let (head, tail) = items.clone().split_at(3);
        assert_eq!((head.ranges(), tail.ranges()), ([0..2, 4..5].as_slice(), [5..7].as_slice()));
        assert_eq!(items.clone().split_at(9), (items, Items::default()));
    }
}
