//! Settings of a container: how long its calls may take, and which regions they use.

use std::{sync::Arc, time::Duration};

use azure_data_cosmos::options::{
    BinaryEncodingOptions, ContentResponseOnWrite, EndToEndOperationLatencyPolicy, OperationOptions,
    OperationOptionsBuilder, ReadConsistencyStrategy, ThrottlingRetryOptionsBuilder,
};
use changefeed_core::{Clock, SystemClock};
use parking_lot::RwLock;

use crate::failover::Policy;

/// How often the SDK repeats a throttled request by itself. More would hide it from the processor, whose back-off looks
/// after all leases.
const THROTTLED_REPEATS: u32 = 2;

/// How often the SDK goes to another region, or waits for a session to be readable, within one call.
const FAILOVERS: u32 = 3;

/// What is added to the SDK's own time limit before a call is given up from outside: the SDK knows better what happened.
const GRACE: Duration = Duration::from_millis(500);

/// Settings of a container.
///
/// ```
/// use std::time::Duration;
///
/// use changefeed_cosmos::Options;
///
/// let options = Options::new().feed_timeout(Duration::from_secs(8)).item_timeout(Duration::from_secs(3));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    feed_timeout: Duration,
    item_timeout: Duration,
    excluded_regions: Vec<String>,
    write_region: Option<String>,
    leases: Option<Leases>,
    failover: Policy,
    clock: Arc<dyn Clock>,
}

/// What is added for a lease container.
#[derive(Clone, Debug)]
struct Leases {
    strategy: ReadConsistencyStrategy,
    /// The regions beside the pinned one: an account may get more.
    others: Arc<RwLock<Vec<String>>>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// All settings at their defaults.
    pub fn new() -> Self {
        Self {
            feed_timeout: Duration::from_secs(10),
            item_timeout: Duration::from_secs(5),
            excluded_regions: Vec::new(),
            write_region: None,
            leases: None,
            failover: Policy { patience: Duration::from_secs(60), window: Duration::from_secs(24 * 60 * 60) },
            clock: Arc::new(SystemClock),
        }
    }

    /// How long a read of a page of the feed may take, with all its requests and all retries of the SDK, and each request
    /// of a read of the feed ranges, which has at least one for each range. At least 1 s; half a second is added for the
    /// SDK to report its own error. Keep it below the renew interval of the processor's leases. Default: 10 s; the default
    /// renew interval is 17 s.
    pub fn feed_timeout(mut self, timeout: Duration) -> Self {
        self.feed_timeout = timeout;
        self
    }

    /// How long a read or write of items, or a page of a listing, may take, with all its requests and all retries of the
    /// SDK: these are the calls that leases are kept with, apart from those of the feed. At least 1 s, to which half a
    /// second is added; a write of a lease before which the settings of the account are read again waits for up to 2 s
    /// more. Keep it below the renew interval. Default: 5 s.
    pub fn item_timeout(mut self, timeout: Duration) -> Self {
        self.item_timeout = timeout;
        self
    }

    /// Regions that no call goes to. Default: none.
    pub fn excluded_regions(mut self, regions: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.excluded_regions = regions.into_iter().map(Into::into).collect();
        self
    }

    /// The one region that leases are kept in, for accounts that take writes in several, or will: the same on every host.
    /// [`CosmosContainer::open_leases`](crate::CosmosContainer::open_leases) excludes the others, also those that the
    /// account gets later. While this region is not available, or takes no writes, no lease is acquired or renewed: the SDK
    /// goes to another region then, whose answers are dropped with `Unavailable`. Default: none, and accounts that take
    /// writes in several regions are refused for leases.
    pub fn write_region(mut self, region: impl Into<String>) -> Self {
        self.write_region = Some(region.into());
        self
    }

    /// How long a position must be ahead of the feed, on at least three reads in a row, until it is taken for one that a
    /// failover between regions left behind; what was written since it was last good is then read again. Shorter than the
    /// longest time that a replica lags, changes come again for no reason; none is lost either way. With
    /// [`Duration::MAX`] positions are not compared with the feed at all. Default: 1 min.
    pub fn failover_patience(mut self, patience: Duration) -> Self {
        self.failover.patience = patience;
        self
    }

    /// How far back the feed is read again after a failover if this process has not read the range before it. Make it
    /// longer than it takes from a failover until hosts run again: what was written before is not delivered. Default:
    /// 24 h.
    pub fn failover_window(mut self, window: Duration) -> Self {
        self.failover.window = window;
        self
    }

    /// Where the time comes from that is given to deletes, for which the service tells none, and by which positions are
    /// found to be ahead of the feed. Default: the operating system.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    pub(crate) fn pinned_region(&self) -> Option<&str> {
        self.write_region.as_deref()
    }

    pub(crate) fn failover(&self) -> Policy {
        self.failover
    }

    /// For a lease container: reads items with this strategy, and sends nothing to these regions.
    pub(crate) fn for_leases(mut self, strategy: ReadConsistencyStrategy, others: Vec<String>) -> Self {
        self.leases = Some(Leases { strategy, others: Arc::new(RwLock::new(others)) });
        self
    }

    /// Sends nothing to these regions from now on, in clones and budgets of the same lease container as well.
    pub(crate) fn exclude(&self, others: Vec<String>) {
        if let Some(leases) = &self.leases {
            *leases.others.write() = others;
        }
    }

    /// The one region whose answers are used: that of leases, if one is pinned.
    pub(crate) fn only_region(&self) -> Option<&str> {
        self.leases.as_ref().and(self.write_region.as_deref())
    }

    pub(crate) fn time(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn budgets(&self) -> Budgets {
        Budgets { feed: self.budget(self.feed_timeout), items: self.budget(self.item_timeout) }
    }

    fn budget(&self, timeout: Duration) -> Budget {
        let policy = EndToEndOperationLatencyPolicy::new(timeout);
        let limit = policy.timeout() + GRACE;
        let throttling = ThrottlingRetryOptionsBuilder::new()
            .with_max_retry_count(THROTTLED_REPEATS)
            .with_max_retry_wait_time(timeout / 2)
            .build();
        let mut sdk = OperationOptionsBuilder::new()
            .with_end_to_end_latency_policy(policy)
            .with_throttling_retry_options(throttling)
            .with_max_failover_retry_count(FAILOVERS)
            .with_max_session_retry_count(FAILOVERS)
            // Leases want the time of the service, which is in the body.
            .with_content_response_on_write(ContentResponseOnWrite::Enabled)
            // Bodies are passed on as they are.
            .with_binary_encoding(BinaryEncodingOptions::new().with_enabled(false));
        if let Some(Leases { strategy, .. }) = self.leases {
            // Whatever the client of the program or the environment says: a host must see its own leases.
            sdk = sdk.with_read_consistency_strategy(strategy).with_session_capturing_disabled(false);
        }
        let others = self.leases.as_ref().map(|leases| Arc::clone(&leases.others)).unwrap_or_default();
        let mut budget = Budget { sdk: sdk.build(), limit, own: self.excluded_regions.clone(), others };
        budget.sdk = budget.operation();
        budget
    }
}

/// The limits of the two kinds of calls.
#[derive(Clone, Debug)]
pub(crate) struct Budgets {
    pub(crate) feed: Budget,
    pub(crate) items: Budget,
}

/// The limits of a call.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    pub(crate) sdk: OperationOptions,
    /// When the call is given up from outside.
    pub(crate) limit: Duration,
    /// The regions that the program excludes.
    own: Vec<String>,
    /// Those that a pinned region excludes.
    others: Arc<RwLock<Vec<String>>>,
}

/// What a read asks for of the replica that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// All that the client has seen, where the consistency of the account is session.
    Kept,
    /// Whatever the replica has.
    Ignored,
}

impl Budget {
    /// The regions that no call goes to.
    pub(crate) fn excluded(&self) -> Vec<String> {
        let mut excluded: Vec<String> = self.own.iter().chain(self.others.read().iter()).cloned().collect();
        excluded.sort();
        excluded.dedup();
        excluded
    }

    /// The options of the SDK for a call.
    pub(crate) fn operation(&self) -> OperationOptions {
        let (mut sdk, excluded) = (self.sdk.clone(), self.excluded());
        // An empty list would undo what the client of the program excludes.
        sdk.excluded_regions = (!excluded.is_empty()).then(|| excluded.into_iter().collect());
        sdk
    }

    /// The options of the SDK for a read.
    pub(crate) fn reading(&self, session: Session) -> OperationOptions {
        let mut sdk = self.operation();
        if session == Session::Ignored {
            sdk.read_consistency_strategy = Some(ReadConsistencyStrategy::Eventual);
        }
        sdk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_and_items_have_budgets_of_their_own() {
        let options = Options::new().feed_timeout(Duration::from_secs(8)).item_timeout(Duration::from_secs(3));
        let Budgets { feed, items } = options.budgets();
        assert_eq!((feed.limit, items.limit), (Duration::from_millis(8500), Duration::from_millis(3500)));
        let timeout = |budget: &Budget| budget.sdk.end_to_end_latency_policy.as_ref().map(|policy| policy.timeout());
        assert_eq!(timeout(&feed), Some(Duration::from_secs(8)));
        assert_eq!(timeout(&items), Some(Duration::from_secs(3)));
    }

    #[test]
    fn leases_are_read_with_a_strategy_of_their_own_and_with_the_session() {
        let leases = Options::new().for_leases(ReadConsistencyStrategy::Session, Vec::new()).budgets();
        for budget in [&leases.feed, &leases.items] {
            let (kept, ignored) = (budget.reading(Session::Kept), budget.reading(Session::Ignored));
            assert_eq!(kept.read_consistency_strategy, Some(ReadConsistencyStrategy::Session));
            assert_eq!(ignored.read_consistency_strategy, Some(ReadConsistencyStrategy::Eventual));
            for options in [kept, ignored, budget.operation()] {
                assert_eq!(options.session_capturing_disabled, Some(false));
            }
        }
        let others = Options::new().budgets().items.reading(Session::Kept);
        assert_eq!((others.read_consistency_strategy, others.session_capturing_disabled), (None, None));
    }

    #[test]
    fn regions_are_excluded_by_the_program_and_by_the_pinned_one() {
        let options =
            Options::new().excluded_regions(["a", "b"]).for_leases(ReadConsistencyStrategy::Session, Vec::new());
        let budget = options.budgets().items;
        assert_eq!(budget.excluded(), ["a", "b"]);
        options.exclude(vec!["c".to_owned(), "b".to_owned()]);
        assert_eq!(budget.excluded(), ["a", "b", "c"]);
        let sent = budget.operation().excluded_regions.map(|regions| regions.iter().count());
        assert_eq!(sent, Some(3));
        assert!(Options::new().budgets().items.operation().excluded_regions.is_none());
    }

    #[test]
    fn all_repetitions_fit_below_the_default_renew_interval() {
        let Budgets { feed, items } = Options::new().budgets();
        let renew = Duration::from_secs(17);
        for budget in [feed, items] {
            assert!(budget.limit < renew);
            let throttling = budget.sdk.throttling_retry_options.unwrap();
            assert!(throttling.max_retry_count.unwrap() <= 2 && throttling.max_retry_wait_time.unwrap() < budget.limit);
        }
    }
}
