//! Physical ranges of a container: finding, splitting, merging.

use changefeed_core::{ETag, Epk, Error, ErrorKind, FeedRange, Lsn, PhysicalRange, RangeId, ReadChanges, Result};

use super::{Bug, state::State};

impl State {
    /// The physical range that answers a read, and what of it was asked for.
    pub(super) fn route(&self, request: &ReadChanges) -> Result<(RangeId, FeedRange)> {
        if let Some(id) = &request.physical {
            let physical = match self.live(id) {
                Err(_) if self.has(Bug::GoneRangesAnswer) && self.gone.contains(id) => {
                    return Ok((id.clone(), request.range.clone()));
                }
                other => other?,
            };
            let range = physical.range.intersection(&request.range).ok_or_else(|| {
                Error::new(ErrorKind::BadRange, format!("{} lies outside of range {id}", request.range))
            })?;
            return Ok((id.clone(), range));
        }
        match self.ranges.iter().find(|physical| physical.range.contains_range(&request.range)) {
            Some(physical) => Ok((physical.id.clone(), request.range.clone())),
            None if self.has(Bug::SpanningRangesAnswer) => {
                let first = self
                    .ranges
                    .iter()
                    .find_map(|physical| Some((physical.id.clone(), physical.range.intersection(&request.range)?)));
                first.ok_or_else(|| Error::new(ErrorKind::BadRange, "no such range"))
            }
            None => {
                let message = format!("{} spans several physical ranges: read the feed ranges again", request.range);
                Err(Error::new(ErrorKind::RangeGone, message))
            }
        }
    }

    /// Whether a reader of `range` has to look for other ranges.
    pub(super) fn is_gone(&self, range: &FeedRange) -> bool {
        !self.ranges.iter().any(|physical| physical.range.contains_range(range))
    }

    pub(super) fn split(&mut self, id: &RangeId, at: Option<Epk>) -> Result<Vec<PhysicalRange>> {
        let parent = self.live(id)?.clone();
        let at = at.or_else(|| self.spec.partition_key.middle(&parent.range)).ok_or_else(|| {
            Error::new(ErrorKind::BadRange, format!("range {id} holds one key only and cannot be split"))
        })?;
        let (left, right) = parent.range.split_at(&at)?;
        let parents = self.ancestors(&[&parent]);
        let children: Vec<_> = [left, right]
            .into_iter()
            .map(|range| PhysicalRange { id: self.new_range_id(), range, parents: parents.clone() })
            .collect();
        if !self.has(Bug::StaleRanges) {
            self.exchange(&[&parent.id], children.clone());
        }
        if self.has(Bug::ChildrenLoseHistory) {
            self.lose_history_of(&parent.range);
        }
        if self.has(Bug::SplitsTouchItems) {
            self.touch_items()?;
        }
        if self.has(Bug::ChildrenCountAnew) {
            self.lsn = Lsn::ZERO;
        }
        Ok(children)
    }

    pub(super) fn merge(&mut self, ids: [&RangeId; 2]) -> Result<PhysicalRange> {
        let (a, b) = (self.live(ids[0])?.clone(), self.live(ids[1])?.clone());
        if !a.range.is_adjacent_to(&b.range) {
            let message = format!("ranges {} and {} are not neighbours", a.id, b.id);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let (left, right) = if a.range < b.range { (a, b) } else { (b, a) };
        let range = FeedRange::new(left.range.min_inclusive().clone(), right.range.max_exclusive().clone())?;
        let merged = PhysicalRange { id: self.new_range_id(), range, parents: self.ancestors(&[&left, &right]) };
        self.exchange(&[&left.id, &right.id], vec![merged.clone()]);
        if self.has(Bug::MergedRangesLoseTheRightHistory) {
            self.lose_history_of(&right.range);
        }
        if self.has(Bug::MergedRangesCountFromTheLeft) {
            let of_left = self.log.iter().filter(|entry| left.range.contains(&entry.epk));
            self.lsn = of_left.map(|entry| entry.change.lsn).max().unwrap_or_default();
        }
        Ok(merged)
    }

    fn live(&self, id: &RangeId) -> Result<&PhysicalRange> {
        self.ranges.iter().find(|physical| physical.id == *id).ok_or_else(|| {
            if self.gone.contains(id) || self.has(Bug::UnknownRangesAreGone) {
                Error::new(ErrorKind::RangeGone, format!("range {id} was split or merged: read the feed ranges again"))
            } else {
                Error::new(ErrorKind::RangeNotFound, format!("there has never been a range {id} in this container"))
            }
        })
    }

    /// All ancestors of a range that comes from `parents`, oldest first.
    fn ancestors(&self, parents: &[&PhysicalRange]) -> Vec<RangeId> {
        let mut all: Vec<RangeId> = Vec::new();
        for parent in parents {
            if !self.has(Bug::ForgetsGrandparents) {
                all.extend(parent.parents.iter().cloned());
            }
        }
        all.extend(parents.iter().map(|parent| parent.id.clone()));
        // Ids are numbers that grow, so the oldest is the smallest.
        all.sort_by_key(|id| id.as_str().parse::<u64>().unwrap_or_default());
        all.dedup();
        all
    }

    fn exchange(&mut self, old: &[&RangeId], new: Vec<PhysicalRange>) {
        self.ranges.retain(|physical| !old.contains(&&physical.id));
        self.ranges.extend(new);
        self.ranges.sort_by(|a, b| a.range.cmp(&b.range));
        if self.has(Bug::ReusesRangeIds) {
            self.next_range = self.ranges.len() as u64;
        }
        self.gone.extend(old.iter().map(|id| (*id).clone()));
    }

    fn touch_items(&mut self) -> Result<()> {
        for stored in self.items.values_mut() {
            self.counter += 1;
            stored.item.etag = ETag::new(format!("\"model-{}\"", self.counter))?;
        }
        Ok(())
    }

    fn lose_history_of(&mut self, range: &FeedRange) {
        self.log.retain(|entry| !range.contains(&entry.epk));
        for (_, stored) in self.items.iter_mut().filter(|((epk, _), _)| range.contains(epk)) {
            stored.order.0 = Lsn::ZERO;
        }
    }
}
