//! A handle to one container of the model store.

use std::sync::Arc;

use async_trait::async_trait;
use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, FeedRange, Item, ItemKey,
    ItemPage, ListItems, Lsn, PhysicalRange, ReadChanges, Response, Result, TimeToLive, WriteResult,
};

use super::{Bug, catalog::Shared, state::State};

/// What every container of the model can do.
pub(super) const CAPABILITIES: Capabilities =
    Capabilities::new().split_on_demand(true).all_versions(true).wake_ups(true).range_parents(true).in_process(true);

/// What a call costs, in request units, and what each item of its response adds.
const CALL: f64 = 1.0;
const ITEM: f64 = 0.125;

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

    /// Charges for a call whose response holds `count` items, and for one that fails.
    fn charge<T>(&self, result: Result<T>, count: impl FnOnce(&T) -> usize) -> Result<Response<T>> {
        match result {
            Ok(value) if self.shared.has(Bug::OmitsTheRequestCharge) => Ok(Response::free(value)),
            Ok(value) => {
                let charge = CALL + ITEM * count(&value) as f64;
                Ok(Response::new(value, charge))
            }
            Err(error) if self.shared.has(Bug::OmitsTheRequestChargeOfErrors) => Err(error),
            Err(error) => Err(error.with_request_charge(CALL)),
        }
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

    fn capabilities(&self) -> Capabilities {
        let second = self.identity.container.container_number().is_some_and(|number| number % 2 == 0);
        CAPABILITIES.wake_ups(!(second && self.shared.has(Bug::DeclaresCapabilitiesByContainer)))
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.charge(self.with(|state| Ok(state.ranges.clone())), Vec::len)
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        let now = self.shared.now();
        let page = self.charge(self.with(|state| state.read(&request, now)), |page| page.changes.len());
        match page {
            Ok(page) if self.shared.has(Bug::OmitsTheRequestChargeOfPages) => Ok(Response::free(page.into_value())),
            page => page,
        }
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

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        let now = self.shared.now();
        self.charge(self.with(|state| state.get(key, now)), |_| 1)
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let now = self.shared.now();
        let reserved = self.reserve().await?;
        let written = self.charge(self.with(|state| state.write(&batch, now, reserved)), Vec::len)?;
        if self.shared.has(Bug::SharesLsnsBetweenContainers) {
            self.share_lsns();
        }
        self.shared.wake();
        Ok(written)
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        let now = self.shared.now();
        self.charge(self.with(|state| state.list(&request, now)), |page| page.items.len())
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        let found = self.with(|state| Ok(state.spec.time_to_live));
        let told = found.map(|found| if self.shared.has(Bug::TellsNoTimeToLive) { TimeToLive::Off } else { found });
        self.charge(told, |_| 1)
    }

    async fn reopen(&self) -> Result<Container> {
        let ContainerIdentity { database_name, container_name, .. } = &self.identity;
        if self.shared.has(Bug::ReopensTheDeletedContainer) {
            return Ok(Container::new(Arc::new(Self::new(self.identity.clone(), Arc::clone(&self.shared)))));
        }
        self.shared.open(database_name, container_name)
    }
}
