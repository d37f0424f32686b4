//! A reader of a whole container that follows splits and merges, and checks the versions of every item.

use std::collections::BTreeMap;

use changefeed_core::{
    Change, Container, Continuation, ErrorKind, FeedRange, Mode, RangeId, ReadChanges, Result, StartFrom,
};

use crate::fixtures::change_number;

/// Small, so that readers are often in the middle of something.
const PAGE: usize = 3;

/// Follows everything that happens in a container. Each id has one writer that counts `n` up from 1.
pub(super) struct Follower {
    container: Container,
    mode: Mode,
    cursors: Vec<Cursor>,
    /// The last version of each id.
    seen: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
struct Cursor {
    range: FeedRange,
    physical: RangeId,
    start: StartFrom,
}

impl Follower {
    /// Follows from now on.
    pub(super) async fn new(container: &Container, mode: Mode) -> Self {
        let ranges = container.feed_ranges().await.expect("read the feed ranges");
        let cursors = ranges
            .into_iter()
            .map(|physical| Cursor { range: physical.range, physical: physical.id, start: StartFrom::Now })
            .collect();
        let mut follower = Self { container: container.clone(), mode, cursors, seen: BTreeMap::new() };
        assert_eq!(follower.round().await, 0, "nothing has happened yet");
        follower
    }

    /// Reads a page of each range; returns how many changes came.
    pub(super) async fn round(&mut self) -> usize {
        let mut count = 0;
        let mut next = Vec::new();
        for cursor in std::mem::take(&mut self.cursors) {
            match self.page(&cursor).await {
                Ok((changes, continuation)) => {
                    count += changes.len();
                    changes.iter().for_each(|change| self.record(change));
                    next.push(Cursor { start: continuation.into(), ..cursor });
                }
                Err(error) if error.kind() == ErrorKind::RangeGone => next.extend(self.successors(&cursor).await),
                Err(error) => panic!("read {cursor:?}: {error:?}"),
            }
        }
        self.cursors = next;
        count
    }

    /// Reads until every id has arrived at its final version.
    pub(super) async fn follow_to(&mut self, last: &BTreeMap<String, u64>) {
        while self.seen != *last {
            if self.round().await == 0 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(self.round().await, 0, "nothing comes after the final versions");
    }

    /// Whether every id has arrived at its final version.
    pub(super) fn has_seen(&self, last: &BTreeMap<String, u64>) -> bool {
        self.seen == *last
    }

    /// Where it stands, if it follows one range.
    pub(super) fn place(&self) -> (FeedRange, Continuation) {
        match self.cursors.as_slice() {
            [Cursor { range, start: StartFrom::Continuation(continuation), .. }] => {
                (range.clone(), continuation.clone())
            }
            other => panic!("the follower reads several ranges: {other:?}"),
        }
    }

    async fn page(&self, cursor: &Cursor) -> Result<(Vec<Change>, Continuation)> {
        let request = ReadChanges::new(cursor.range.clone(), cursor.start.clone())
            .physical(cursor.physical.clone())
            .mode(self.mode)
            .max_items(PAGE);
        let page = self.container.read_changes(request).await?.into_value();
        Ok((page.changes, page.continuation))
    }

    /// The same keys, from the same place, in the ranges that live now.
    async fn successors(&self, cursor: &Cursor) -> Vec<Cursor> {
        let live = self.container.feed_ranges().await.expect("read the feed ranges");
        changefeed_core::check_tiling(&live).expect("the live ranges tile the key space");
        live.into_iter()
            .filter_map(|physical| {
                let range = cursor.range.intersection(&physical.range)?;
                Some(Cursor { range, physical: physical.id, start: cursor.start.clone() })
            })
            .collect()
    }

    fn record(&mut self, change: &Change) {
        let n = change_number(change);
        let last = self.seen.insert(change.id.to_string(), n).unwrap_or(0);
        match self.mode {
            Mode::LatestVersion => assert!(n > last, "version {n} of {} came after version {last}", change.id),
            Mode::AllVersions => assert_eq!(n, last + 1, "every version of {} comes once, in order", change.id),
        }
    }
}
