//! What the suite needs from a store under test.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use changefeed_core::{Capabilities, Catalog};

/// A store under test, created for each case and dropped after it.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The store: empty at first, the same one at each call.
    fn catalog(&self) -> Arc<dyn Catalog>;

    /// Moves the store's clock forward and returns when everything that is due by then has expired: items whose time
    /// to live is over and versions that leave retention. A store on real time really waits.
    async fn advance(&self, by: Duration);

    /// What the store declares: equal to what its containers declare. Cases that need a capability which the store
    /// does not declare are reported as not applicable, and the store must refuse it with `Unsupported`.
    fn capabilities(&self) -> Capabilities;

    /// Whether the store can do what no capability states. Not asked for those features that are capabilities. Where it
    /// returns `false`, the cases that need the feature are reported as not applicable, and the store must refuse it
    /// with `Unsupported`. Default: `true`.
    fn supports(&self, _feature: Feature) -> bool {
        true
    }

    /// Closes the store and opens it again; [`catalog`](Self::catalog) returns the reopened store from then on. Default:
    /// panics, since it is for [`Feature::Reopen`] only.
    async fn reopen(&self) {
        panic!("this fixture cannot reopen its store: implement `reopen`, or return false for Feature::Reopen");
    }

    /// Another store of the same kind, empty. Default: panics, since it is for [`Feature::OtherStore`] only.
    async fn other_store(&self) -> Arc<dyn Catalog> {
        panic!("this fixture has one store: implement `other_store`, or return false for Feature::OtherStore");
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
    /// The capability [`split_on_demand`](Capabilities::split_on_demand).
    Split,
    /// Merging two physical ranges.
    Merge,
    /// The capability [`range_parents`](Capabilities::range_parents).
    RangeParents,
    /// The capability [`all_versions`](Capabilities::all_versions).
    AllVersions,
    /// Items that expire.
    TimeToLive,
    /// The capability [`wake_ups`](Capabilities::wake_ups).
    WakeUps,
    /// The store charges for every call.
    Charges,
    /// The fixture can close and reopen the store.
    Reopen,
    /// The fixture can make a second store.
    OtherStore,
    /// Continuations are quoted LSNs, as in our own stores, so that one beyond the end can be made up.
    NumberedContinuations,
    /// A handle to a container that was deleted does nothing, also when another one has got its name.
    DeletedHandles,
    /// A listing tells the LSN of each item. Where it does not, the LSN is zero there.
    ListedLsns,
    /// Partition keys of several paths.
    HierarchicalKeys,
    /// Partition keys of version 1.
    Version1Keys,
}

impl Feature {
    /// Whether the store has it: as declared in its capabilities, or as its fixture says.
    pub(super) fn is_offered_by(self, fixture: &dyn Fixture) -> bool {
        let capabilities = fixture.capabilities();
        match self {
            Self::Split => capabilities.split_on_demand,
            Self::AllVersions => capabilities.all_versions,
            Self::WakeUps => capabilities.wake_ups,
            Self::RangeParents => capabilities.range_parents,
            other => fixture.supports(other),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
