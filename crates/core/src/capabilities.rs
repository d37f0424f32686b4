//! Capabilities: what a store can do beyond the contract's core.

/// What a store declares that it can do. Constant during the life of a [`Backend`](crate::Backend).
///
/// ```
/// use changefeed_core::Capabilities;
///
/// let capabilities = Capabilities::new().all_versions(true).wake_ups(true);
/// assert!(capabilities.wake_ups && !capabilities.split_on_demand);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// [`Catalog::split`](crate::Catalog::split) splits a physical range when a caller asks for it. Where `false`,
    /// ranges may still split by the store's own decision.
    pub split_on_demand: bool,
    /// Containers can keep every version and delete, and serve them in all-versions mode. Where `false`, that mode is
    /// refused with `Unsupported`.
    pub all_versions: bool,
    /// [`Backend::changed`](crate::Backend::changed) returns soon after a change. Where `false`, it may never return,
    /// and callers rely on polling alone.
    pub wake_ups: bool,
    /// [`PhysicalRange::parents`](crate::PhysicalRange::parents) names all ancestors of a range. Where `false`, it is
    /// always empty, also after a split or merge.
    pub range_parents: bool,
    /// The store runs in this process: calls take microseconds and never fail for the network's sake.
    pub in_process: bool,
}

impl Capabilities {
    /// Creates the capabilities of a store that has none of them.
    pub const fn new() -> Self {
        Self { split_on_demand: false, all_versions: false, wake_ups: false, range_parents: false, in_process: false }
    }

    /// Sets whether physical ranges can be split on demand. Default: `false`.
    #[must_use]
    pub const fn split_on_demand(mut self, can: bool) -> Self {
        self.split_on_demand = can;
        self
    }

    /// Sets whether all-versions mode is supported. Default: `false`.
    #[must_use]
    pub const fn all_versions(mut self, can: bool) -> Self {
        self.all_versions = can;
        self
    }

    /// Sets whether `changed` returns when there is news. Default: `false`.
    #[must_use]
    pub const fn wake_ups(mut self, can: bool) -> Self {
        self.wake_ups = can;
        self
    }

    /// Sets whether the ancestors of a range are known. Default: `false`.
    #[must_use]
    pub const fn range_parents(mut self, can: bool) -> Self {
        self.range_parents = can;
        self
    }

    /// Sets whether the store runs in this process. Default: `false`.
    #[must_use]
    pub const fn in_process(mut self, is: bool) -> Self {
        self.in_process = is;
        self
    }
}
