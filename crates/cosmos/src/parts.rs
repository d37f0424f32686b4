//! Reads of a part of a physical range, such as a lease that two merged ranges have left. The SDK names the range and two
//! bounds for them; by one of its comments the standard gateway refuses that, by another it does not. Where it is refused,
//! pages of the whole range are read and the changes of the part are picked out of them. Also remembers how far pages
//! without changes were read, of a part and of a whole range.

use std::collections::{BTreeMap, BTreeSet};

use azure_data_cosmos::options::MaxItemCountHint;
use changefeed_core::{
    Change, Continuation, Epk, Error, ErrorKind, FeedRange, Mode, ReadChanges, Response, Result, StartFrom, Timestamp,
};
use tracing::warn;

use crate::{
    container::CosmosContainer,
    feed::{Answer, lsn_of},
    ranges::page_size,
};

/// How many changes of the whole range are read at once, where fewer of the part are wanted: changes of other keys may
/// come before them.
const SCANNED_AT_ONCE: usize = 1000;

/// How many readers' scans are remembered.
const SCANS: usize = 1024;

/// How parts of the physical ranges of a container are read.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Ranges of which the service refuses to read a part, or one key.
    refused: BTreeSet<(FeedRange, bool)>,
    /// How far pages were read that had nothing of a range: a reader whose time limit ends among them goes on there.
    scans: BTreeMap<FeedRange, Scan>,
}

/// A stretch without changes of a range.
#[derive(Debug)]
struct Scan {
    mode: Mode,
    from: StartFrom,
    not_before: Option<Timestamp>,
    reached: Continuation,
}

impl Parts {
    /// The physical range that is read as a whole for this part of it.
    pub(crate) fn refused_in(&self, part: &FeedRange, is_one_key: bool) -> Option<FeedRange> {
        let is_it = |(whole, of_keys): &&(FeedRange, bool)| *of_keys == is_one_key && whole.contains_range(part);
        self.refused.iter().find(is_it).map(|(whole, _)| whole.clone()).filter(|whole| whole != part)
    }

    /// Records that parts of a range are refused. Returns whether that is new.
    fn refuse(&mut self, whole: &FeedRange, is_one_key: bool) -> bool {
        self.refused.insert((whole.clone(), is_one_key))
    }

    /// Forgets that parts of a range are refused.
    pub(crate) fn forget(&mut self, whole: &FeedRange) {
        self.refused.retain(|(own, _)| own != whole);
    }

    /// Forgets ranges that do not live.
    pub(crate) fn keep(&mut self, live: impl Fn(&FeedRange) -> bool) {
        self.refused.retain(|(whole, _)| live(whole));
    }

    /// Where a reader that starts like this goes on.
    fn reached(&self, part: &FeedRange, request: &ReadChanges) -> Option<Continuation> {
        let scan = self.scans.get(part)?;
        let is_it = scan.mode == request.mode && scan.from == request.start && scan.not_before == request.not_before;
        is_it.then(|| scan.reached.clone())
    }

    fn reach(&mut self, part: &FeedRange, request: &ReadChanges, reached: Continuation) {
        if request.start == StartFrom::Now {
            // A later reader starts at a later moment.
            return;
        }
        if self.scans.len() >= SCANS && !self.scans.contains_key(part) {
            self.scans.pop_first();
        }
        let ReadChanges { mode, start: from, not_before, .. } = request.clone();
        self.scans.insert(part.clone(), Scan { mode, from, not_before, reached });
    }

    fn restart(&mut self, part: &FeedRange) {
        self.scans.remove(part);
    }
}

impl CosmosContainer {
    /// Reads the next page with changes of `part`, or the end of the feed, out of pages of the whole physical range.
    ///
    /// # Errors
    /// Those of a read of the whole range.
    pub(crate) async fn read_part(
        &self,
        request: &ReadChanges,
        part: &FeedRange,
        whole: FeedRange,
        is_one_key: bool,
    ) -> Result<Answer> {
        let read = Box::pin(self.scan(request, part, &whole)).await;
        if read.is_ok() && self.parts.lock().refuse(&whole, is_one_key) {
            warn!(
                container = %self.identity.container_name, %part, range = %whole, is_one_key,
                "the service refuses to read a part of a range: the whole range is read, at its charge"
            );
        }
        read
    }

    async fn scan(&self, request: &ReadChanges, part: &FeedRange, whole: &FeedRange) -> Result<Answer> {
        let mut next = ReadChanges { partition_key: None, ..self.resumed(request, part) };
        let mut charge = 0.0;
        loop {
            let size = page_size(request.max_items.max(SCANNED_AT_ONCE))?;
            let mut page = self.read_scanned(request, part, &next, (whole, size)).await?;
            charge += page.answer.request_charge;
            let wanted = inside(&page, part);
            if let Some(last) = wanted.get(request.max_items).and_then(|_| wanted.get(request.max_items - 1)) {
                // The page has too many. One that ends with the last of them has a continuation there.
                for size in [last + 1, request.max_items] {
                    page = self.read_exactly(&next, whole, page_size(size)?).await?;
                    charge += page.answer.request_charge;
                    if inside(&page, part).len() <= request.max_items {
                        break;
                    }
                }
            }
            let page = pick(page, part, charge);
            match self.next_read(request, part, &next, &page) {
                Some(read) => next = read,
                None => return Ok(page),
            }
        }
    }

    /// The read that a reader of a range begins with: where one that started like it has got without changes.
    pub(crate) fn resumed(&self, request: &ReadChanges, part: &FeedRange) -> ReadChanges {
        match self.parts.lock().reached(part, request) {
            Some(reached) => after(request, reached),
            None => request.clone(),
        }
    }

    /// Reads a page on the way of a reader of `part`.
    pub(crate) async fn read_scanned(
        &self,
        request: &ReadChanges,
        part: &FeedRange,
        read: &ReadChanges,
        (range, size): (&FeedRange, MaxItemCountHint),
    ) -> Result<Answer> {
        let page = self.read_exactly(read, range, size).await;
        let is_refused = |kind| matches!(kind, ErrorKind::BadContinuation | ErrorKind::ContinuationExpired);
        if page.as_ref().is_err_and(|error| is_refused(error.kind())) {
            // The place that was reached may be what is refused: the next read begins where the reader is.
            self.parts.lock().restart(part);
        }
        let page = page?;
        self.check_scan(request, part, read, &page)?;
        Ok(page)
    }

    /// The read after a page without changes; none if the page has changes or is the end of the feed.
    pub(crate) fn next_read(
        &self,
        request: &ReadChanges,
        part: &FeedRange,
        read: &ReadChanges,
        page: &Answer,
    ) -> Option<ReadChanges> {
        if page.is_end || !page.answer.changes.is_empty() {
            self.parts.lock().restart(part);
            return None;
        }
        let reached = page.answer.continuation.clone();
        self.parts.lock().reach(part, request, reached.clone());
        Some(after(read, reached))
    }

    /// Checks that the feed has the place at which a scan goes on: positions of readers are judged, and this is none.
    fn check_scan(&self, request: &ReadChanges, part: &FeedRange, next: &ReadChanges, page: &Answer) -> Result<()> {
        if self.options.failover().is_off() || self.is_incomparable(&next.start, page) {
            return Ok(());
        }
        let StartFrom::Continuation(at) = &next.start else { return Ok(()) };
        let is_ahead = lsn_of(at).zip(page.known).is_some_and(|(at, known)| at > known);
        if !is_ahead || next.start == request.start {
            return Ok(());
        }
        self.parts.lock().restart(part);
        let message = self.what("read changes of");
        Err(Error::new(ErrorKind::Unavailable, format!("{message}: a replica that lags has answered")))
    }
}

/// The read that goes on after a page. A start at a time holds for what follows, too.
fn after(read: &ReadChanges, reached: Continuation) -> ReadChanges {
    let since = match read.start {
        StartFrom::Time(time) => Some(read.not_before.map_or(time, |moment| moment.max(time))),
        _ => read.not_before,
    };
    ReadChanges { start: StartFrom::Continuation(reached), not_before: since, ..read.clone() }
}

/// Where the changes of a part are in a page. A change whose key is not known may be one: it comes twice rather than not
/// at all.
fn inside(page: &Answer, part: &FeedRange) -> Vec<usize> {
    let is_inside = |place: &Option<Epk>| place.as_ref().is_none_or(|epk| part.contains(epk));
    page.places.iter().enumerate().filter(|(_, place)| is_inside(place)).map(|(index, _)| index).collect()
}

/// The page with the changes of a part only.
fn pick(page: Answer, part: &FeedRange, charge: f64) -> Answer {
    let wanted: BTreeSet<usize> = inside(&page, part).into_iter().collect();
    let Answer { answer, known, places, is_end } = page;
    let mut value = answer.into_value();
    let changes = std::mem::take(&mut value.changes).into_iter().zip(places).enumerate();
    let (changes, places): (Vec<Change>, Vec<_>) =
        changes.filter(|(index, _)| wanted.contains(index)).map(|(_, pair)| pair).unzip();
    value.changes = changes;
    Answer { answer: Response::new(value, charge), known, places, is_end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> FeedRange {
        text.parse().unwrap()
    }

    fn at(etag: &str) -> Continuation {
        Continuation::from_token(etag.to_owned())
    }

    #[test]
    fn parts_of_a_range_and_its_keys_are_refused_apart() {
        let mut parts = Parts::default();
        assert!(parts.refuse(&range("-3F"), false));
        assert!(!parts.refuse(&range("-3F"), false), "once");
        assert_eq!(parts.refused_in(&range("10-20"), false), Some(range("-3F")));
        assert_eq!(parts.refused_in(&range("10-20"), true), None, "keys may be read by their names");
        assert_eq!(parts.refused_in(&range("-3F"), false), None, "the whole range");
        assert_eq!(parts.refused_in(&range("20-4F"), false), None, "a part of another one as well");
        parts.keep(|whole| *whole == range("-3F"));
        assert!(parts.refused_in(&range("10-20"), false).is_some());
        parts.forget(&range("-3F"));
        assert_eq!(parts.refused_in(&range("10-20"), false), None);
    }

    #[test]
    fn a_scan_goes_on_for_a_reader_that_starts_in_the_same_way() {
        let (mut parts, part) = (Parts::default(), range("10-20"));
        let read = ReadChanges::new(part.clone(), at("\"7\""));
        parts.reach(&part, &read, at("\"900\""));
        assert_eq!(parts.reached(&part, &read).unwrap().token(), "\"900\"");
        for other in [
            ReadChanges::new(part.clone(), at("\"8\"")),
            ReadChanges::new(part.clone(), StartFrom::Beginning),
            read.clone().mode(Mode::AllVersions),
            read.clone().not_before(Timestamp::from_secs(1)),
        ] {
            assert!(parts.reached(&part, &other).is_none(), "{other:?}");
        }
        assert!(parts.reached(&range("20-30"), &read).is_none());
        parts.restart(&part);
        assert!(parts.reached(&part, &read).is_none());
        let now = ReadChanges::new(part.clone(), StartFrom::Now);
        parts.reach(&part, &now, at("\"900\""));
        assert!(parts.reached(&part, &now).is_none(), "it begins later than the first one");
    }

    #[test]
    fn a_start_at_a_time_holds_for_the_pages_that_follow() {
        let (early, late) = (Timestamp::from_secs(5), Timestamp::from_secs(9));
        let read = ReadChanges::new(FeedRange::full(), early);
        let next = after(&read, at("\"7\""));
        assert_eq!((next.start, next.not_before), (at("\"7\"").into(), Some(early)));
        assert_eq!(after(&read.not_before(late), at("\"7\"")).not_before, Some(late));
        let read = ReadChanges::new(FeedRange::full(), StartFrom::Beginning);
        assert_eq!(after(&read, at("\"7\"")).not_before, None);
    }
}
