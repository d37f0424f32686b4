//! A host at rest: while nothing happens that concerns it, it reads what was written since and not all leases again.
//!
//! The feed of the lease container tells of every write, but not of deletes. An owner learns of those at its next
//! renewal, and a lease whose owner is gone falls silent; both end the rest. All leases are listed every now and then
//! all the same.

use changefeed_core::{ChangePage, Result};

use crate::{host::Host, lease::news::Heard};

/// So many pages without reaching the end of the feed: listing all leases costs less than following it.
const MOST_PAGES: u32 = 16;

impl Host {
    /// Takes in changes of the lease container.
    pub(crate) fn hear(&mut self, page: Result<ChangePage>) -> Heard {
        let now = self.shared.runtime.monotonic();
        let (running, session) = (&self.running, &self.shared.identity.session);
        let heard = self.news.take(page, |token| running.contains_key(token), session, &mut self.observations, now);
        if heard == Heard::Something {
            self.at_rest = None;
        }
        heard
    }

    /// Whether a look at all leases would find nothing to do: nothing was at the last one, nobody has written anything
    /// since that concerns us, and nobody has fallen silent. At least once in an expiration interval the answer is no.
    pub(crate) async fn is_still_at_rest(&mut self) -> bool {
        let expiration = self.shared.options.timing.expiration;
        let Some(listed) = self.at_rest else { return false };
        if self.shared.runtime.monotonic().saturating_sub(listed) >= expiration {
            return false;
        }
        self.has_heard_nothing().await && !self.observations.any_silent(expiration, self.shared.runtime.monotonic())
    }

    /// Reads to the end of the feed.
    async fn has_heard_nothing(&mut self) -> bool {
        for _ in 0..MOST_PAGES {
            let Some(page) = self.news.page().await else { return false };
            let last = page.as_ref().is_ok_and(|page| self.news.is_last(page));
            if self.hear(page) == Heard::Something {
                return false;
            }
            if last {
                return true;
            }
        }
        false
    }
}
