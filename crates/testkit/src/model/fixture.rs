//! The model store as a fixture of the conformance suite.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use changefeed_core::{Capabilities, Catalog};

use super::{Bug, ModelStore, Variant, container::CAPABILITIES};
use crate::{
    clock::TestClock,
    conformance::{Feature, Fixture},
};

/// How long cases wait on a store with a bug: these are expected to wait in vain.
const IMPATIENCE: Duration = Duration::from_secs(2);

/// A model store on a test clock.
#[derive(Debug)]
pub struct ModelFixture {
    clock: TestClock,
    store: ModelStore,
    /// The store beside it.
    other: ModelStore,
    variant: Variant,
    patience: Duration,
}

impl ModelFixture {
    /// A store without bugs.
    pub fn new() -> Self {
        Self::with_variant(Variant::Plain)
    }

    /// A store that uses the freedoms of the contract in this way.
    pub fn with_variant(variant: Variant) -> Self {
        let patience = Duration::from_secs(30);
        Self::build(patience, variant, |clock| ModelStore::with_variant(clock, variant))
    }

    /// A store with a bug.
    pub fn with_bug(bug: Bug) -> Self {
        Self::build(IMPATIENCE, Variant::Plain, |clock| ModelStore::with_bug(clock, bug))
    }

    fn build(patience: Duration, variant: Variant, make: impl Fn(TestClock) -> ModelStore) -> Self {
        let clock = TestClock::new();
        Self { store: make(clock.clone()), other: make(clock.clone()), clock, variant, patience }
    }
}

impl Default for ModelFixture {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Fixture for ModelFixture {
    fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::new(self.store.clone())
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn supports(&self, feature: Feature) -> bool {
        // A position inside a transaction is not a number.
        feature != Feature::NumberedContinuations || self.variant != Variant::CutsOversizedTransactions
    }

    async fn reopen(&self) {
        self.store.reopen();
    }

    async fn other_store(&self) -> Arc<dyn Catalog> {
        Arc::new(self.other.clone())
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.store.expire();
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}
