//! A reader of the feed that checks on every page what must hold for every page.

use std::collections::BTreeMap;

use changefeed_core::{
    Change, ChangePage, Container, Continuation, Epk, ErrorKind, FeedRange, Lsn, Mode, Operation, RangeId, ReadChanges,
    Result, StartFrom, Timestamp,
};

use crate::fixtures::{number, object};

/// More pages than any case has: a reader that gets here does not advance.
const MAX_PAGES: usize = 20_000;

/// Reads page after page of one range.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    container: Container,
    request: ReadChanges,
    /// The LSN of the last change of each key that was read.
    last: BTreeMap<Epk, Lsn>,
}

impl Reader {
    /// Latest versions of `range` from `start` on.
    pub(super) fn new(container: &Container, range: FeedRange, start: impl Into<StartFrom>) -> Self {
        Self { container: container.clone(), request: ReadChanges::new(range, start), last: BTreeMap::new() }
    }

    pub(super) fn mode(mut self, mode: Mode) -> Self {
        self.request = self.request.mode(mode);
        self
    }

    pub(super) fn all_versions(self) -> Self {
        self.mode(Mode::AllVersions)
    }

    pub(super) fn max_items(mut self, max_items: usize) -> Self {
        self.request = self.request.max_items(max_items);
        self
    }

    pub(super) fn count_remaining(mut self) -> Self {
        self.request = self.request.count_remaining();
        self
    }

    pub(super) fn physical(mut self, id: &RangeId) -> Self {
        self.request = self.request.physical(id.clone());
        self
    }

    pub(super) fn not_before(mut self, moment: Timestamp) -> Self {
        self.request = self.request.not_before(moment);
        self
    }

    pub(super) fn range(&self) -> &FeedRange {
        &self.request.range
    }

    /// Goes on elsewhere: in a part of its range, after a split or merge.
    pub(super) fn in_range(&self, range: &FeedRange) -> Self {
        let mut part = self.clone();
        part.request.range = range.clone();
        part.request.physical = None;
        part
    }

    /// Starts elsewhere, without knowing what was read before.
    pub(super) fn starting_at(&self, start: impl Into<StartFrom>) -> Self {
        let mut elsewhere = self.clone();
        elsewhere.request.start = start.into();
        elsewhere.last.clear();
        elsewhere
    }

    /// Where it goes on: the continuation of its last page.
    pub(super) fn continuation(&self) -> Continuation {
        match &self.request.start {
            StartFrom::Continuation(continuation) => continuation.clone(),
            other => panic!("no page was read yet, the reader stands at {other:?}"),
        }
    }

    /// The next page, or why there is none.
    pub(super) async fn try_page(&mut self) -> Result<ChangePage> {
        let page = self.container.read_changes(self.request.clone()).await?;
        assert!(page.request_charge.is_finite() && page.request_charge >= 0.0, "{} RU", page.request_charge);
        let page = page.into_value();
        self.check(&page);
        for change in &page.changes {
            self.last.insert(self.key_of(change), change.lsn);
        }
        self.request.start = StartFrom::Continuation(page.continuation.clone());
        Ok(page)
    }

    /// The next page.
    pub(super) async fn page(&mut self) -> ChangePage {
        self.try_page().await.expect("read a page of changes")
    }

    /// The next page, which must be refused.
    pub(super) async fn refused(&mut self, kind: ErrorKind) {
        super::stage::refused(self.try_page().await, kind);
    }

    /// Everything up to the first empty page.
    pub(super) async fn drain(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.page().await;
            if page.changes.is_empty() {
                return changes;
            }
            changes.extend(page.changes);
        }
        panic!("{MAX_PAGES} pages and no end: the continuation does not advance");
    }

    fn check(&self, page: &ChangePage) {
        let changes = &page.changes;
        let mut last = self.last.clone();
        let mut transactions: BTreeMap<(Epk, Lsn), usize> = BTreeMap::new();
        for change in changes {
            let key = self.key_of(change);
            // Equal: the same transaction, on this page or cut by the end of the page before.
            let before = last.insert(key.clone(), change.lsn).unwrap_or_default();
            assert!(change.lsn >= before, "changes of a partition key come in LSN order: {changes:?}");
            assert!(change.lsn <= page.newest_lsn, "no change is newer than the newest LSN {}", page.newest_lsn);
            *transactions.entry((key, change.lsn)).or_default() += 1;
        }
        let longest = transactions.into_values().max().unwrap_or_default();
        let max = self.request.max_items;
        let is_long = changes.len() > max && changes.len() - longest >= max;
        assert!(!is_long, "only a transaction makes a page longer than {max}: {changes:?}");
        assert!(self.request.count_remaining || page.remaining.is_none(), "nobody asked for the number of changes");
        let own = self.container.identity().container;
        assert_eq!(page.continuation.container(), Some(&own), "a continuation knows its container");
        changes.iter().for_each(|change| self.check_change(change));
    }

    /// The key that a change belongs to.
    pub(super) fn key_of(&self, change: &Change) -> Epk {
        let definition = &self.container.identity().partition_key;
        let body = change.current.as_ref().or(change.previous.as_ref()).expect("a change has an image");
        definition.extract(body).and_then(|key| definition.epk(&key)).expect("the partition key of a change")
    }

    /// Changes by key, those of each key in the order in which they came: what the contract promises.
    pub(super) fn by_key(&self, changes: &[Change]) -> Vec<Change> {
        let mut sorted = changes.to_vec();
        sorted.sort_by_key(|change| self.key_of(change));
        sorted
    }

    /// [`by_key`](Self::by_key), in a few words.
    pub(super) fn briefs_by_key(&self, changes: &[Change]) -> Vec<String> {
        briefs(&self.by_key(changes))
    }

    fn check_change(&self, change: &Change) {
        let images = (change.current.is_some(), change.previous.is_some(), change.previous_lsn.is_some());
        match (self.request.mode, change.operation) {
            (Mode::LatestVersion, Operation::Write) => assert_eq!((images.0, images.1), (true, false), "{change:?}"),
            (Mode::AllVersions, Operation::Create) => assert_eq!(images, (true, false, false), "{change:?}"),
            (Mode::AllVersions, Operation::Replace) => assert_eq!(images, (true, true, true), "{change:?}"),
            (Mode::AllVersions, Operation::Delete | Operation::Expire) => {
                assert_eq!(images, (false, true, true), "{change:?}");
            }
            (mode, operation) => panic!("{mode:?} mode never shows {operation:?}: {change:?}"),
        }
        assert!(change.lsn > Lsn::ZERO, "a change has an LSN");
        if let Some(current) = &change.current {
            let body = object(current);
            assert_eq!(body.get("_lsn"), Some(&change.lsn.get().into()), "feed bodies tell their LSN: {change:?}");
            let rid = change.rid.map(|rid| rid.to_string().into());
            assert_eq!(body.get("_rid").cloned(), rid, "a change tells the resource id of its item: {change:?}");
            assert_eq!(body.get("id"), Some(&change.id.as_str().into()), "{change:?}");
            assert_eq!(body.get("_ts"), Some(&change.timestamp.as_secs().into()), "{change:?}");
            assert!(body.contains_key("_etag") && body.contains_key("_rid"), "feed bodies are whole: {change:?}");
        }
    }
}

/// A change in a few words: what, which, which version, when.
pub(super) fn brief(change: &Change) -> String {
    let n = change.current.as_deref().or(change.previous.as_deref()).map_or(0, number);
    format!("{:?} {} n={n} lsn={}", change.operation, change.id, change.lsn)
}

/// Changes in a few words.
pub(super) fn briefs(changes: &[Change]) -> Vec<String> {
    changes.iter().map(brief).collect()
}

/// The ids of changes.
pub(super) fn ids(changes: &[Change]) -> Vec<&str> {
    changes.iter().map(|change| change.id.as_str()).collect()
}

/// Changes as `id=n`, without their positions.
pub(super) fn versions(changes: &[Change]) -> Vec<String> {
    let n = |change: &Change| change.current.as_deref().or(change.previous.as_deref()).map_or(0, number);
    changes.iter().map(|change| format!("{}={}", change.id, n(change))).collect()
}
