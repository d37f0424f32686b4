//! A handle to one container of the model store.

use std::sync::Arc;

use async_trait::async_trait;
use changefeed_core::{
    Backend, Batch, ChangePage, ContainerIdentity, Continuation, FeedRange, Item, ItemKey, ItemPage, ListItems, Lsn,
    PhysicalRange, ReadChanges, Result, Written,
};

use super::{Bug, catalog::Shared, state::State};

#[derive(Debug)]
pub(super) struct ModelBackend {
    identity: ContainerIdentity,
    shared: Arc<Shared>,
}

impl ModelBackend {
    pub(super) fn new(identity: ContainerIdentity, shared: Arc<Shared>) -> Self {
        Self { identity, shared }
    }

    /// Does something with the container, if it still exists.
    fn with<T>(&self, action: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut tables = self.shared.lock();
        action(tables.state(&self.identity.container)?)
    }

    /// Whether a waiting reader should look again.
    fn is_worth_a_look(&self, range: &FeedRange, continuation: &Continuation) -> bool {
        let look = |state: &mut State| Ok(state.is_gone(range) || state.has_news(range, continuation));
        self.with(look).unwrap_or(true)
    }

    /// The LSN that the next write will get, for the bug that gives it out too early.
    async fn reserve(&self) -> Result<Option<Lsn>> {
        if !self.shared.has(Bug::PublishesLsnsEarly) {
            return Ok(None);
        }
        let lsn = self.with(|state| {
            state.lsn = state.lsn.next();
            Ok(state.lsn)
        })?;
        tokio::task::yield_now().await;
        Ok(Some(lsn))
    }

    /// For the bug that makes all containers count together.
    fn share_lsns(&self) {
        let mut tables = self.shared.lock();
        let newest = tables.containers.values().map(|state| state.lsn).max().unwrap_or_default();
        tables.containers.values_mut().for_each(|state| state.lsn = newest);
    }
}

#[async_trait]
impl Backend for ModelBackend {
    fn identity(&self) -> &ContainerIdentity {
        &self.identity
    }

    async fn feed_ranges(&self) -> Result<Vec<PhysicalRange>> {
        self.with(|state| Ok(state.ranges.clone()))
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<ChangePage> {
        let now = self.shared.now();
        self.with(|state| state.read(&request, now))
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        let mut commits = self.shared.commits.subscribe();
        if self.shared.has(Bug::MissesNewsBeforeTheWait) {
            // The sender lives as long as `self`.
            let _ = commits.changed().await;
            return;
        }
        while !self.is_worth_a_look(range, continuation) {
            if commits.changed().await.is_err() {
                return;
            }
        }
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Item> {
        let now = self.shared.now();
        self.with(|state| state.get(key, now))
    }

    async fn write(&self, batch: Batch) -> Result<Vec<Written>> {
        let now = self.shared.now();
        let reserved = self.reserve().await?;
        let written = self.with(|state| state.write(&batch, now, reserved))?;
        if self.shared.has(Bug::SharesLsnsBetweenContainers) {
            self.share_lsns();
        }
        self.shared.wake();
        Ok(written)
    }

    async fn list_items(&self, request: ListItems) -> Result<ItemPage> {
        let now = self.shared.now();
        self.with(|state| state.list(&request, now))
    }
}
