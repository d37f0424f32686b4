//! What a container of the model store is made of.

use std::collections::{BTreeMap, BTreeSet};

use changefeed_core::{
    Bytes, Change, ContainerSpec, Epk, Item, ItemId, Lsn, Operation, PhysicalRange, RangeId, ResourceId, Result,
    TimeToLive, Timestamp,
};

use super::{Bug, Variant, body};

/// One container.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) rid: ResourceId,
    pub(super) database: String,
    pub(super) spec: ContainerSpec,
    pub(super) timestamp: Timestamp,
    pub(super) ranges: Vec<PhysicalRange>,
    pub(super) gone: BTreeSet<RangeId>,
    pub(super) next_range: u64,
    pub(super) lsn: Lsn,
    /// Counts etags and resource ids of items.
    pub(super) counter: u64,
    pub(super) items: BTreeMap<Place, Stored>,
    /// Every version ever, in order.
    pub(super) log: Vec<Entry>,
    /// All-versions mode was turned on here.
    pub(super) kept_since: Lsn,
    pub(super) bug: Option<Bug>,
    pub(super) variant: Variant,
}

/// Where an item lives: in key order, then by id.
pub(super) type Place = (Epk, ItemId);

/// A live item.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) item: Item,
    /// Orders writes of one batch.
    pub(super) order: (Lsn, usize),
    pub(super) expires: Option<Timestamp>,
}

/// One version in the log.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) epk: Epk,
    pub(super) change: Change,
    /// Its place in its batch.
    pub(super) index: usize,
}

impl State {
    pub(super) fn new(
        rid: ResourceId,
        database: &str,
        spec: ContainerSpec,
        now: Timestamp,
        (bug, variant): (Option<Bug>, Variant),
    ) -> Result<Self> {
        let mut state = Self {
            rid,
            database: database.to_owned(),
            timestamp: now,
            ranges: Vec::new(),
            gone: BTreeSet::new(),
            next_range: 0,
            lsn: Lsn::ZERO,
            counter: 0,
            items: BTreeMap::new(),
            log: Vec::new(),
            kept_since: Lsn::ZERO,
            spec,
            bug,
            variant,
        };
        for range in state.spec.partition_key.split_evenly(state.spec.ranges)? {
            let id = state.new_range_id();
            state.ranges.push(PhysicalRange { id, range, parents: Vec::new() });
        }
        Ok(state)
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// When an item written at `now` dies, if ever.
    pub(super) fn expires(&self, own: Option<i64>, now: Timestamp) -> Option<Timestamp> {
        let seconds = match (self.spec.time_to_live, own) {
            (TimeToLive::Off, Some(own)) if self.has(Bug::ExpiresWithoutBeingAsked) => u64::try_from(own).ok()?,
            (TimeToLive::Off, _) | (TimeToLive::ItemsOnly, None) => return None,
            (TimeToLive::Seconds(default), None) => default.into(),
            (_, Some(own)) => u64::try_from(own).ok()?,
        };
        Some(now.saturating_add(std::time::Duration::from_secs(seconds)))
    }

    /// Removes every item whose time to live is over; each under an LSN of its own.
    pub(super) fn expire(&mut self, now: Timestamp) {
        if self.has(Bug::NeverExpires) {
            return;
        }
        let mut due: Vec<_> = self
            .items
            .iter()
            .filter_map(|(place, stored)| Some((stored.expires.filter(|at| *at <= now)?, place.clone())))
            .collect();
        due.sort();
        for (_, place) in due {
            let Some(stored) = self.items.remove(&place) else { continue };
            self.lsn = self.lsn.next();
            let operation = if self.has(Bug::ExpiryLooksLikeADelete) { Operation::Delete } else { Operation::Expire };
            self.record(&place, operation, (None, Some(&stored.item)), (self.lsn, 0), now);
        }
    }

    /// Adds a version to the log.
    pub(super) fn record(
        &mut self,
        (epk, id): &Place,
        operation: Operation,
        (current, previous): (Option<&Item>, Option<&Item>),
        (lsn, index): (Lsn, usize),
        timestamp: Timestamp,
    ) {
        let change = Change {
            id: id.clone(),
            rid: current.or(previous).map(|item| item.rid),
            lsn,
            timestamp,
            operation,
            current: current.map(|item| self.feed_body(item)),
            previous: previous.filter(|_| !self.has(Bug::DropsPreviousImages)).map(|item| self.feed_body(item)),
            previous_lsn: previous.map(|item| item.lsn),
        };
        self.log.push(Entry { epk: epk.clone(), change, index });
    }

    /// The body as the feed shows it.
    pub(super) fn feed_body(&self, item: &Item) -> Bytes {
        if self.has(Bug::ForgetsTheLsnInFeedBodies) { item.body.clone() } else { body::with_lsn(&item.body, item.lsn) }
    }

    pub(super) fn new_range_id(&mut self) -> RangeId {
        let number = self.next_range;
        self.next_range += 1;
        RangeId::from(number)
    }
}
