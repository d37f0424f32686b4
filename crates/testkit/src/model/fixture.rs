//! The model store as a fixture of the conformance suite.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use changefeed_core::Catalog;

use super::{Bug, ModelStore};
use crate::{clock::TestClock, conformance::Fixture};

/// How long cases wait on a store with a bug: these are expected to wait in vain.
const IMPATIENCE: Duration = Duration::from_secs(2);

/// A model store on a test clock.
#[derive(Debug)]
pub struct ModelFixture {
    clock: TestClock,
    store: ModelStore,
    patience: Duration,
}

impl ModelFixture {
    /// A store without bugs.
    pub fn new() -> Self {
        let clock = TestClock::new();
        Self { store: ModelStore::new(clock.clone()), clock, patience: Duration::from_secs(30) }
    }

    /// A store with a bug.
    pub fn with_bug(bug: Bug) -> Self {
        let clock = TestClock::new();
        Self { store: ModelStore::with_bug(clock.clone(), bug), clock, patience: IMPATIENCE }
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

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.store.expire();
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}
