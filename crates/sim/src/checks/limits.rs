//! S19: a host keeps the limits that its user has set, as seen from outside: calls that run, pages that it holds, request
//! units that it has spent when it reads.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use changefeed_core::ChangePage;
use parking_lot::Mutex;

use super::{Broken, key_range::KeyRange};
use crate::exec::ProcessId;

/// What a read of the feed costs where stores charge, and each change in it.
pub const READ_UNITS: f64 = 2.0;
const CHANGE_UNITS: f64 = 0.1;

/// What any other request costs: so little that renewals leave enough for the feed.
pub const OTHER_UNITS: f64 = 0.02;

/// No clock is more than five percent wrong.
const CLOCK: f64 = 1.06;

/// What hosts hold and spend.
#[derive(Debug, Default)]
pub struct Limits {
    pages: Pages,
    numbers: u64,
    spent: BTreeMap<ProcessId, Spent>,
}

/// By number: what was read later has a higher one.
type Pages = Arc<Mutex<BTreeMap<(ProcessId, u64), Page>>>;

/// A page in memory.
#[derive(Debug)]
struct Page {
    range: KeyRange,
    bytes: u64,
    changes: usize,
    /// Whether a call for it has ended, and not all of it was handled.
    failed: bool,
    /// Whether it was read ahead of such a page.
    waits: bool,
}

/// What a process has spent since its first read, and when that was, in microseconds.
#[derive(Debug)]
struct Spent {
    since: u64,
    units: f64,
}

/// A page, for as long as any of its changes is in memory.
struct HeldPage {
    pages: Pages,
    key: (ProcessId, u64),
}

struct HeldBody {
    body: Bytes,
    _page: Arc<HeldPage>,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for HeldPage {
    fn drop(&mut self) {
        self.pages.lock().remove(&self.key);
    }
}

fn of_process(pages: &mut BTreeMap<(ProcessId, u64), Page>, process: ProcessId) -> impl Iterator<Item = &mut Page> {
    pages.range_mut((process, 0)..=(process, u64::MAX)).map(|(_, page)| page)
}

/// What a read of the feed costs.
pub fn read_units(page: &ChangePage) -> f64 {
    READ_UNITS + CHANGE_UNITS * page.changes.len() as f64
}

impl Limits {
    /// A process receives a page of the feed: its bodies are followed until they are dropped. Pages whose batches failed
    /// stay in memory, together with what was read ahead of them, and leave room for one other page.
    ///
    /// # Errors
    /// S19, if it holds more than its limit, and more than one page is there for another reason than a failure.
    pub fn page(
        &mut self,
        process: ProcessId,
        range: KeyRange,
        page: &mut ChangePage,
        limit: u64,
    ) -> Result<(), Broken> {
        let changes = page.changes.len();
        let mut bodies: Vec<&mut Bytes> =
            page.changes.iter_mut().flat_map(|change| change.current.iter_mut().chain(&mut change.previous)).collect();
        let bytes = bodies.iter().map(|body| body.len() as u64).sum();
        if bytes == 0 {
            return Ok(());
        }
        self.numbers += 1;
        let key = (process, self.numbers);
        let held = Arc::new(HeldPage { pages: Arc::clone(&self.pages), key });
        for body in &mut bodies {
            let followed = HeldBody { body: std::mem::take(*body), _page: Arc::clone(&held) };
            **body = Bytes::from_owner(followed);
        }
        let mut pages = self.pages.lock();
        let first = of_process(&mut pages, process).find(|page| page.range == range);
        let waits = first.is_some_and(|first| first.failed);
        pages.insert(key, Page { range, bytes, changes, failed: false, waits });
        let bytes: u64 = of_process(&mut pages, process).map(|page| page.bytes).sum();
        let others = of_process(&mut pages, process).filter(|page| !page.failed && !page.waits).count();
        if others <= 1 || bytes <= limit {
            return Ok(());
        }
        let count = of_process(&mut pages, process).count();
        let what = format!(
            "process {process} holds {count} pages of {bytes} bytes, {others} of them without a failure; its limit is {limit}"
        );
        Err(("S19", what))
    }

    /// A call of a process has ended, in which so many changes of the first page of a range were handled.
    pub fn call_ended(&mut self, process: ProcessId, range: &KeyRange, handled: usize) {
        let mut pages = self.pages.lock();
        let mut of_range = of_process(&mut pages, process).filter(|page| page.range == *range);
        let Some(first) = of_range.next() else { return };
        first.failed |= handled < first.changes;
        if first.failed {
            of_range.for_each(|page| page.waits = true);
        }
    }

    /// A request of a process was charged.
    pub fn charge(&mut self, process: ProcessId, units: f64) {
        if let Some(spent) = self.spent.get_mut(&process) {
            spent.units += units;
        }
    }

    /// A process begins to read the feed.
    ///
    /// # Errors
    /// S19, if it had spent more than its limit allows by now.
    pub fn read(&mut self, process: ProcessId, now: u64, per_second: u64) -> Result<(), Broken> {
        let spent = self.spent.entry(process).or_insert(Spent { since: now, units: 0.0 });
        let seconds = (now - spent.since) as f64 / 1e6;
        // One second of units may have been saved.
        let allowed = per_second as f64 * (seconds * CLOCK + 1.0) + OTHER_UNITS;
        if spent.units <= allowed {
            return Ok(());
        }
        let units = spent.units;
        let what =
            format!("process {process} reads after {units:.1} units in {seconds:.1} s; its limit is {per_second}");
        Err(("S19", what))
    }
}

#[cfg(test)]
mod tests {
    use changefeed_core::{Change, Continuation, ItemId, Lsn, Operation, RangeId, Timestamp};

    use super::*;

    /// A page of `count` changes with 100 bytes each.
    fn page_of(count: u64) -> ChangePage {
        let change = |lsn| Change {
            id: ItemId::new("1").unwrap(),
            rid: None,
            lsn: Lsn::new(lsn),
            timestamp: Timestamp::default(),
            operation: Operation::Write,
            current: Some(Bytes::from(vec![b'x'; 100])),
            previous: None,
            previous_lsn: None,
        };
        ChangePage {
            changes: (1..=count).map(change).collect(),
            continuation: Continuation::from_token("1"),
            newest_lsn: Lsn::new(count),
            remaining: None,
            physical: RangeId::from(0),
        }
    }

    fn range(number: u8) -> KeyRange {
        KeyRange::parse(&format!("{number:02X}"), &format!("{:02X}", number + 1)).unwrap()
    }

    /// Receives a page of two changes, where 300 bytes are allowed.
    fn receive(limits: &mut Limits, number: u8) -> Result<ChangePage, Broken> {
        let mut page = page_of(2);
        limits.page(7, range(number), &mut page, 300).map(|()| page)
    }

    #[test]
    fn two_pages_that_exceed_the_limit_break_the_rule_until_one_is_dropped() {
        let mut limits = Limits::default();
        let first = receive(&mut limits, 1).unwrap();
        assert_eq!(receive(&mut limits, 2).unwrap_err().0, "S19");
        drop(first);
        receive(&mut limits, 2).unwrap();
    }

    #[test]
    fn pages_of_failed_batches_leave_room_for_one_other() {
        let mut limits = Limits::default();
        let _failed = receive(&mut limits, 1).unwrap();
        limits.call_ended(7, &range(1), 1);
        let _ahead = receive(&mut limits, 1).unwrap();
        let _other = receive(&mut limits, 2).unwrap();
        receive(&mut limits, 3).unwrap_err();
    }

    #[test]
    fn a_failure_excuses_no_other_lease_and_no_page_that_was_read_after_it() {
        let mut limits = Limits::default();
        let failed = receive(&mut limits, 1).unwrap();
        limits.call_ended(7, &range(2), 0);
        receive(&mut limits, 2).unwrap_err();
        limits.call_ended(7, &range(1), 0);
        drop(failed);
        let _next = receive(&mut limits, 1).unwrap();
        limits.call_ended(7, &range(1), 2);
        receive(&mut limits, 2).unwrap_err();
    }
}
