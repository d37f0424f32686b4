//! An idle host: while nothing happens that concerns it, it reads what was written since and not all leases again.
//!
//! The feed of the lease container has every write, but no deletes. An owner learns of those at its next renewal, and the
//! owner of a lease that is not renewed falls silent; both end the idle state. All leases are listed once in an expiration
//! interval all the same.
//!
//! In a large fleet somebody renews a lease at every moment, and each host that followed the feed as it grows would read
//! without a pause. So an idle host reads once in each cycle; between cycles it follows the feed only as far as the budget
//! of one read in an acquire interval, on average, allows.

use std::time::Duration;

use changefeed_core::{ChangePage, Result};

use super::{Host, lease_feed::Relevance};
use crate::lease::session::ended_sessions;

/// After so many pages without reaching the end of the feed, listing all leases costs less than following it.
const MOST_PAGES: u32 = 16;

impl Host {
    /// How long this host must not read, if it is idle.
    pub(super) fn wait_while_idle(&self) -> Duration {
        match self.idle_since {
            Some(_) => self.budget.wait(self.context.runtime.monotonic()),
            None => Duration::ZERO,
        }
    }

    /// Takes in changes of the lease container.
    pub(super) fn take_changes(&mut self, page: Result<ChangePage>) -> Relevance {
        let now = self.context.runtime.monotonic();
        let session = &self.context.identity.session;
        let relevance = self.feed.take(page, session, &mut self.records, now);
        if relevance == Relevance::Relevant {
            self.idle_since = None;
        }
        relevance
    }

    /// Whether a listing of all leases would find nothing to do: nothing was at the last one, nobody has written anything
    /// since that concerns this host, no owner has fallen silent and no host of this process has ended. At least once in an
    /// expiration interval: no.
    pub(super) async fn is_still_idle(&mut self) -> bool {
        let Some(listed) = self.idle_since.filter(|_| self.ended_sessions == ended_sessions()) else { return false };
        if self.context.runtime.monotonic().saturating_sub(listed) >= self.context.options.timing.expiration {
            return false;
        }
        self.feed_is_irrelevant().await && !self.records.any_silent(self.context.runtime.monotonic())
    }

    /// Reads to the end of the feed.
    async fn feed_is_irrelevant(&mut self) -> bool {
        self.budget.spend(self.context.runtime.monotonic());
        for _ in 0..MOST_PAGES {
            let Some(page) = self.feed.page().await else { return false };
            let last = page.as_ref().is_ok_and(is_last);
            if self.take_changes(page) == Relevance::Relevant {
                return false;
            }
            if last {
                return true;
            }
        }
        false
    }
}

/// Whether nothing came after the page when it was read. LSNs cannot tell: those of different keys are not compared. A
/// store that does not count what remains is read until a page is empty.
fn is_last(page: &ChangePage) -> bool {
    page.changes.is_empty() || page.remaining == Some(0)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use changefeed_core::{Change, Continuation, ItemId, Lsn, Operation, RangeId, Timestamp};

    use super::*;

    fn page(lsns: &[u64], newest: u64, remaining: Option<u64>) -> ChangePage {
        let change = |lsn: &u64| Change {
            id: ItemId::new(format!("lease-{lsn}")).unwrap(),
            rid: None,
            lsn: Lsn::new(*lsn),
            timestamp: Timestamp::default(),
            operation: Operation::Write,
            current: Some(Bytes::from_static(b"{}")),
            previous: None,
            previous_lsn: None,
        };
        ChangePage {
            changes: lsns.iter().map(change).collect(),
            continuation: Continuation::from_token("\"9\""),
            newest_lsn: Lsn::new(newest),
            remaining,
            physical: RangeId::from(0),
        }
    }

    #[test]
    fn a_page_is_the_last_one_by_what_remains_whatever_the_lsns_of_its_leases() {
        // The feed of a store that gives changes of different keys in any order.
        assert!(!is_last(&page(&[3, 9], 9, Some(1))), "lease 4 is still to come");
        assert!(is_last(&page(&[9, 3], 9, Some(0))), "the newest came first");
        assert!(!is_last(&page(&[9], 9, None)), "the store does not count: only an empty page is the last");
        assert!(is_last(&page(&[], 9, None)));
    }
}
