//! Variants of the model store: freedoms that the contract leaves to a store, each of which must pass the suite.

/// How a model store uses the freedoms of the contract. All of them count LSNs through a container, unlike the embedded
/// store, which counts each physical range for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// Pages ascend across keys, and never cut a transaction: a page may exceed its bound. As the embedded store.
    #[default]
    Plain,
    /// A transaction that alone exceeds the page bound is cut at the bound; one that fits is never cut, and a page ends
    /// before it instead of exceeding the bound.
    CutsOversizedTransactions,
    /// Pages do not ascend across keys: only changes of the same key are in order.
    OrdersWithinKeysOnly,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::CutsOversizedTransactions, Self::OrdersWithinKeysOnly];
}
