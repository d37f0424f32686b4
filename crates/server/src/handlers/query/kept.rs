//! The state of queries between two pages: scans that ran out of time, and rows that are sorted already. Bounded in bytes,
//! number and age; a query whose state was dropped starts its page again.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use changefeed_core::{FeedRange, Timestamp};
use changefeed_query::Run;
use parking_lot::Mutex;

use super::scan::Scan;
use crate::error::{ApiError, ApiResult};

/// The total size of all states.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The most states.
const MAX_COUNT: usize = 1024;

/// The size of a state without its rows.
const ENTRY_BYTES: usize = 4096;

/// How long a state is kept. SDKs request the next page at once.
const MAX_AGE: Duration = Duration::from_secs(60);

/// A scan is not dropped in favour of another before this age: otherwise neither would ever finish.
const SCAN_AGE: Duration = Duration::from_secs(10);

/// The retry delay if there is no room.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The state of a query between two pages.
#[derive(Debug)]
pub(super) enum Kept {
    /// The page is not complete yet.
    Scan(Box<Scan>),
    /// Rows of the next pages.
    Ahead(Box<Run>),
}

#[derive(Debug)]
struct Entry {
    kept: Kept,
    container: String,
    range: Option<FeedRange>,
    bytes: usize,
    at: Timestamp,
}

/// All queries between two pages, by number.
#[derive(Debug, Default)]
pub(crate) struct KeptQueries {
    entries: Mutex<BTreeMap<u64, Entry>>,
    next: AtomicU64,
}

impl KeptQueries {
    /// Keeps the state of a query of `container` over `range`; returns the number under which it is found.
    ///
    /// # Errors
    /// 429 if there is no room for a scan. Rows are dropped silently: they can be sorted again.
    pub(super) fn keep(
        &self,
        kept: Kept,
        container: &str,
        range: Option<FeedRange>,
        now: Timestamp,
    ) -> ApiResult<Option<u64>> {
        let bytes = ENTRY_BYTES
            + match &kept {
                Kept::Scan(scan) => scan.bytes(),
                Kept::Ahead(run) => run.bytes(),
            };
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| entry.at.saturating_add(MAX_AGE) > now);
        let is_scan = matches!(kept, Kept::Scan(_));
        while entries.len() >= MAX_COUNT || entries.values().map(|entry| entry.bytes).sum::<usize>() + bytes > MAX_BYTES
        {
            let may_go = |entry: &Entry| match entry.kept {
                Kept::Ahead(_) => true,
                Kept::Scan(_) => is_scan && entry.at.saturating_add(SCAN_AGE) <= now,
            };
            let oldest = entries.iter().find(|(_, entry)| may_go(entry)).map(|(number, _)| *number);
            match oldest {
                Some(number) => drop(entries.remove(&number)),
                None if is_scan => {
                    let mut error = ApiError::throttled(RETRY_AFTER);
                    "too many queries wait for their next page: wait, then try again".clone_into(&mut error.message);
                    return Err(error);
                }
                None => return Ok(None),
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        entries.insert(number, Entry { kept, container: container.to_owned(), range, bytes, at: now });
        Ok(Some(number))
    }

    /// Takes out the state under this number, if it is there and of this container and range.
    pub(super) fn take(&self, number: u64, container: &str, range: Option<&FeedRange>) -> Option<Kept> {
        let mut entries = self.entries.lock();
        let entry = entries.get(&number)?;
        if entry.container != container || entry.range.as_ref() != range {
            return None;
        }
        entries.remove(&number).map(|entry| entry.kept)
    }
}

#[cfg(test)]
mod tests {
    use changefeed_query::Bound;

    use super::*;

    fn scan() -> Kept {
        let bound = Bound::from_body(br#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#).unwrap();
        let run = bound.start(None, 10, 0).unwrap();
        Kept::Scan(Box::new(Scan::new(run, Some(FeedRange::full()), String::new())))
    }

    #[test]
    fn a_state_is_found_once_and_only_for_its_container_and_range() {
        let kept = KeptQueries::default();
        let (now, range) = (Timestamp::from_secs(100), FeedRange::full());
        let number = kept.keep(scan(), "c1", Some(range.clone()), now).unwrap().unwrap();
        assert!(kept.take(number + 1, "c1", Some(&range)).is_none());
        assert!(kept.take(number, "c2", Some(&range)).is_none());
        assert!(kept.take(number, "c1", None).is_none());
        assert!(kept.take(number, "c1", Some(&range)).is_some());
        assert!(kept.take(number, "c1", Some(&range)).is_none());
    }

    #[test]
    fn young_scans_stay_and_newcomers_are_told_to_wait() {
        let kept = KeptQueries::default();
        let at = |seconds| Timestamp::from_secs(seconds);
        for _ in 0..MAX_COUNT {
            kept.keep(scan(), "c", None, at(100)).unwrap();
        }
        let error = kept.keep(scan(), "c", None, at(105)).unwrap_err();
        assert_eq!((error.status.as_u16(), error.retry_after), (429, Some(RETRY_AFTER)));
        assert!(kept.keep(scan(), "c", None, at(111)).is_ok(), "the oldest has had its time");
        assert!(kept.take(0, "c", None).is_none() && kept.take(1, "c", None).is_some());
        kept.keep(scan(), "c", None, at(165)).unwrap();
        assert_eq!(kept.entries.lock().len(), 2, "those of a minute ago are gone");
    }
}
