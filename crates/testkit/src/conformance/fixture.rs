//! What the suite needs from a store under test.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use changefeed_core::Catalog;

/// A store under test, made anew for each case and dropped after it.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The store: empty at first, the same one at each call.
    fn catalog(&self) -> Arc<dyn Catalog>;

    /// Moves the store's clock forward and returns when everything that is due by then has expired: items whose time
    /// to live is over and versions that leave retention. A store on real time really waits.
    async fn advance(&self, by: Duration);

    /// Whether the store can do this. Where it says no, the cases that need it are skipped, by name, and the store
    /// must refuse it with `Unsupported`. Default: it can do everything.
    fn supports(&self, _feature: Feature) -> bool {
        true
    }

    /// How long the suite waits for something that has to happen before it calls it a failure. Nothing waits this
    /// long when all is well. Default: 30 s.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }
}

/// What not every store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Containers that begin with several physical ranges.
    ManyRanges,
    /// Splitting a physical range.
    Split,
    /// Merging two physical ranges.
    Merge,
    /// All-versions mode and retention.
    AllVersions,
    /// Items that expire.
    TimeToLive,
    /// `changed` returns when there is news, rather than never.
    WakeUps,
    /// Continuations are quoted LSNs, as in our own stores, so that one beyond the end can be made up.
    NumberedContinuations,
    /// Partition keys of several paths.
    HierarchicalKeys,
    /// Partition keys of version 1.
    Version1Keys,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
