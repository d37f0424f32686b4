//! The monitored container of a fleet: any number of ranges, each with a log of changes in memory.

use std::sync::Arc;

use changefeed_core::{
    Backend, Batch, Capabilities, Change, ChangePage, Container, ContainerIdentity, Continuation, Epk, Error,
    ErrorKind, FeedRange, Item, ItemId, ItemKey, ItemPage, ListItems, Lsn, Operation, PhysicalRange, RangeId,
    ReadChanges, Response, Result, StartFrom, TimeToLive, Timestamp, WriteResult, async_trait,
};
use parking_lot::Mutex;

/// A container whose ranges never change, and whose only writer is the fleet.
#[derive(Debug)]
pub(super) struct FleetFeed {
    identity: ContainerIdentity,
    ranges: Vec<PhysicalRange>,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    newest: u64,
    /// The LSNs of each range, ascending.
    ranges: Vec<Vec<u64>>,
}

impl FleetFeed {
    /// A container with so many ranges of equal size, and no changes.
    pub(super) fn new(identity: ContainerIdentity, ranges: usize) -> Result<Self> {
        let bound = |at: usize| match at {
            0 => Epk::MIN,
            last if last == ranges => Epk::MAX,
            at => {
                let key = 0xFF00_0000 * at as u64 / ranges as u64;
                Epk::from_bytes(&key.to_be_bytes()[4..])
            }
        };
        let range = |at: usize| {
            let (id, range) = (RangeId::from(at as u64), FeedRange::new(bound(at), bound(at + 1))?);
            Ok(PhysicalRange { id, range, parents: Vec::new() })
        };
        let tiles = (0..ranges).map(range).collect::<Result<_>>()?;
        Ok(Self { identity, ranges: tiles, log: Mutex::new(Log { newest: 0, ranges: vec![Vec::new(); ranges] }) })
    }

    /// Writes one item in a range.
    pub(super) fn write_change(&self, range: usize) {
        let log = &mut *self.log.lock();
        log.newest += 1;
        if let Some(changes) = log.ranges.get_mut(range) {
            changes.push(log.newest);
        }
    }

    /// How many changes were written.
    pub(super) fn written(&self) -> u64 {
        self.log.lock().newest
    }

    fn place_of(&self, range: &FeedRange) -> Result<usize> {
        let at = self.ranges.partition_point(|physical| physical.range.max_exclusive() <= range.min_inclusive());
        match self.ranges.get(at) {
            Some(physical) if physical.range.contains_range(range) => Ok(at),
            _ => Err(Error::new(ErrorKind::RangeGone, format!("{range} spans several ranges"))),
        }
    }
}

fn unsupported<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "the fleet only reads the feed of its monitored container"))
}

#[async_trait]
impl Backend for FleetFeed {
    fn identity(&self) -> &ContainerIdentity {
        &self.identity
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        Ok(Response::new(self.ranges.clone(), 0.0))
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        let at = self.place_of(&request.range)?;
        let log = self.log.lock();
        let after = match &request.start {
            StartFrom::Beginning | StartFrom::Time(_) => 0,
            StartFrom::Now => log.newest,
            StartFrom::Continuation(continuation) => continuation.token().trim_matches('"').parse().map_err(|_| {
                Error::new(ErrorKind::InvalidArgument, format!("{} is not a position", continuation.token()))
            })?,
        };
        let lsns = log.ranges.get(at).map(Vec::as_slice).unwrap_or_default();
        let first = lsns.partition_point(|lsn| *lsn <= after);
        let page: Vec<u64> = lsns.iter().skip(first).take(request.max_items).copied().collect();
        let whole = first + page.len() == lsns.len();
        let end = if whole { log.newest } else { page.last().copied().unwrap_or(after) };
        let change = |lsn: u64| {
            Ok(Change {
                id: ItemId::new(format!("item-{lsn}"))?,
                rid: None,
                lsn: Lsn::new(lsn),
                timestamp: Timestamp::default(),
                operation: Operation::Write,
                current: Some(bytes::Bytes::from(format!(r#"{{"id":"item-{lsn}"}}"#))),
                previous: None,
                previous_lsn: None,
            })
        };
        let page = ChangePage {
            changes: page.into_iter().map(change).collect::<Result<_>>()?,
            continuation: Continuation::after(Lsn::new(end.max(after)), self.identity.container),
            newest_lsn: Lsn::new(log.newest),
            remaining: None,
            physical: RangeId::from(at as u64),
        };
        Ok(Response::new(page, 0.0))
    }

    async fn changed(&self, _: &FeedRange, _: &Continuation) {
        std::future::pending().await
    }

    async fn read_item(&self, _: &ItemKey) -> Result<Response<Item>> {
        unsupported()
    }

    async fn write(&self, _: Batch) -> Result<Response<Vec<WriteResult>>> {
        unsupported()
    }

    async fn list_items(&self, _: ListItems) -> Result<Response<ItemPage>> {
        unsupported()
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        Ok(Response::free(TimeToLive::Off))
    }

    async fn reopen(&self) -> Result<Container> {
        unsupported()
    }
}

/// The feed as a host sees it; reads take no time, since none of the figures depends on it.
pub(super) fn container(feed: &Arc<FleetFeed>) -> changefeed_core::Container {
    changefeed_core::Container::new(Arc::clone(feed) as Arc<dyn Backend>)
}
