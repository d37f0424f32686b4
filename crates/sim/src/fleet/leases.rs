//! The lease container of a fleet: the embedded store performs every write, and the newest version of each document is kept
//! here as it was stored. All hosts read these versions, without copies: a thousand hosts that list ten thousand leases at
//! the same moment would not fit in memory otherwise.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
};

use changefeed_core::{
    Backend, Batch, Capabilities, Change, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind,
    FeedRange, Item, ItemId, ItemKey, ItemPage, ListItems, Lsn, Operation, PhysicalRange, RangeId, ReadChanges,
    Response, Result, StartFrom, TimeToLive, Write, WriteResult, async_trait,
};
use parking_lot::Mutex;

/// The lease container, in one physical range and in this process.
#[derive(Debug)]
pub(super) struct FleetLeases {
    inner: Arc<dyn Backend>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest versions, by id.
    items: BTreeMap<ItemId, Item>,
    /// The same, by LSN.
    feed: BTreeMap<u64, Item>,
    newest: u64,
}

impl FleetLeases {
    /// The documents of an empty container.
    pub(super) fn new(container: &Container) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(container.backend()), state: Mutex::default() })
    }

    fn after(&self, start: &StartFrom, newest: u64) -> Result<u64> {
        match start {
            StartFrom::Beginning | StartFrom::Time(_) => Ok(0),
            StartFrom::Now => Ok(newest),
            StartFrom::Continuation(continuation) => continuation.token().trim_matches('"').parse().map_err(|_| {
                Error::new(ErrorKind::InvalidArgument, format!("{} is not a position", continuation.token()))
            }),
        }
    }
}

impl State {
    fn put(&mut self, item: Item) {
        let lsn = item.lsn.get();
        if let Some(before) = self.items.insert(item.id.clone(), item.clone()) {
            self.feed.remove(&before.lsn.get());
        }
        self.feed.insert(lsn, item);
        self.newest = self.newest.max(lsn);
    }

    fn remove(&mut self, id: &ItemId) {
        if let Some(before) = self.items.remove(id) {
            self.feed.remove(&before.lsn.get());
        }
    }
}

fn change(item: &Item) -> Change {
    Change {
        id: item.id.clone(),
        rid: Some(item.rid),
        lsn: item.lsn,
        timestamp: item.timestamp,
        operation: Operation::Write,
        current: Some(item.body.clone()),
        previous: None,
        previous_lsn: None,
    }
}

#[async_trait]
impl Backend for FleetLeases {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.inner.feed_ranges().await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        let state = self.state.lock();
        let after = self.after(&request.start, state.newest)?;
        let mut rest = state.feed.range((Excluded(after), Unbounded));
        // Space for all at once: growing step by step would take more time than reading.
        let most = usize::try_from(state.newest.saturating_sub(after)).unwrap_or(usize::MAX);
        let mut changes = Vec::with_capacity(most.min(request.max_items).min(state.items.len()));
        changes.extend(rest.by_ref().take(request.max_items).map(|(_, item)| change(item)));
        let end = changes.last().map_or(state.newest.max(after), |last| last.lsn.get());
        let page = ChangePage {
            continuation: Continuation::after(Lsn::new(end), self.identity().container),
            newest_lsn: Lsn::new(state.newest),
            remaining: request.count_remaining.then(|| rest.count() as u64),
            physical: RangeId::from(0),
            changes,
        };
        Ok(Response::free(page))
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.inner.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        match self.state.lock().items.get(&key.id) {
            Some(item) => Ok(Response::free(item.clone())),
            None => Err(Error::new(ErrorKind::ItemNotFound, format!("there is no item {}", key.id))),
        }
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let deleted: Vec<ItemId> = batch
            .writes
            .iter()
            .filter_map(|write| if let Write::Delete { id, .. } = write { Some(id.clone()) } else { None })
            .collect();
        let written = self.inner.write(Batch { return_items: true, ..batch }).await?;
        let mut state = self.state.lock();
        deleted.iter().for_each(|id| state.remove(id));
        written.iter().filter_map(|written| written.item.clone()).for_each(|item| state.put(item));
        Ok(written)
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        let state = self.state.lock();
        let first = request.after.as_deref().map(ItemId::new).transpose()?;
        let from = first.as_ref().map_or(Unbounded, Excluded);
        let mut rest = state.items.range((from, Unbounded));
        let mut found = rest.by_ref().filter(|(id, _)| id.starts_with(&request.id_prefix));
        let mut items: Vec<Item> = Vec::with_capacity(request.max_items.min(state.items.len()));
        items.extend(found.by_ref().take(request.max_items).map(|(_, item)| item.clone()));
        let more = found.next().is_some();
        let next = items.last().filter(|_| more).map(|last| last.id.to_string());
        Ok(Response::free(ItemPage { items, cursors: Vec::new(), next }))
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.inner.time_to_live().await
    }

    /// The container is never deleted.
    async fn reopen(&self) -> Result<Container> {
        self.inner.reopen().await
    }
}
