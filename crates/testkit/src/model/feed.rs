//! Reading changes.

use changefeed_core::{
    Change, ChangePage, Continuation, Epk, Error, ErrorKind, FeedRange, Lsn, Mode, Operation, ReadChanges, Result,
    StartFrom, Timestamp,
};

use super::{Bug, state::State};

/// Changes and the keys they belong to.
type Found = Vec<(Epk, Change)>;

impl State {
    /// One page.
    pub(super) fn read(&mut self, request: &ReadChanges, now: Timestamp) -> Result<ChangePage> {
        self.expire(now);
        if request.max_items == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_items is 0: ask for at least one change"));
        }
        let (physical, range) = self.route(request)?;
        let (after, since) = self.start(request, now)?;
        let wanted = |epk: &Epk| range.contains(epk) || self.has(Bug::IgnoresSubRanges);
        let since = since.max(request.not_before.filter(|_| !self.has(Bug::IgnoresNotBefore)));
        let mut found: Found = self.feed(request.mode, now);
        found.retain(|(epk, change)| {
            let counted = wanted(epk) || self.has(Bug::CountsChangesOfOtherKeys);
            counted && change.lsn > after && since.is_none_or(|since| change.timestamp >= since)
        });
        let (mut page, after_it) = self.cut(found, request.max_items);
        let more = !after_it.is_empty();
        let remaining = after_it.iter().filter(|(epk, _)| wanted(epk)).count() as u64;
        let miscounted = u64::from(self.has(Bug::MiscountsRemaining));
        let continuation = match page.last() {
            Some((_, last)) if more && self.has(Bug::SkipsAChangeAtThePageEdge) => last.lsn.next(),
            Some((_, last)) if more => last.lsn,
            Some((_, last)) if self.has(Bug::RepeatsAChangeAtThePageEdge) && page.len() > 1 => {
                Lsn::new(last.lsn.get() - 1)
            }
            None if self.has(Bug::StandsStillOnEmptyPages) => after,
            _ => self.lsn,
        };
        page.retain(|(epk, _)| wanted(epk));
        Ok(ChangePage {
            changes: page.into_iter().map(|(_, change)| change).collect(),
            continuation: Continuation::after(continuation, self.rid),
            newest_lsn: self.lsn,
            remaining: request.count_remaining.then_some(remaining + miscounted),
            tally: None,
            physical,
            request_charge: 0.0,
        })
    }

    /// Whether anything in `range` happened after `continuation`.
    pub(super) fn has_news(&self, range: &FeedRange, continuation: &Continuation) -> bool {
        let Ok(after) = continuation.to_lsn(&self.rid) else { return true };
        self.log.iter().any(|entry| entry.change.lsn > after && range.contains(&entry.epk))
    }

    /// After which LSN, and since when.
    fn start(&self, request: &ReadChanges, now: Timestamp) -> Result<(Lsn, Option<Timestamp>)> {
        self.check_mode(request)?;
        let after = match &request.start {
            StartFrom::Now if self.has(Bug::NowIsTheBeginning) => Lsn::ZERO,
            StartFrom::Now => self.lsn,
            StartFrom::Beginning => Lsn::ZERO,
            StartFrom::Time(moment) if self.has(Bug::TimesAreExclusive) => {
                return Ok((Lsn::ZERO, Some(Timestamp::from_millis(moment.as_millis() + 1))));
            }
            StartFrom::Time(moment) => return Ok((Lsn::ZERO, Some(*moment))),
            StartFrom::Continuation(continuation) => return Ok((self.resume(request.mode, continuation, now)?, None)),
        };
        Ok((after, None))
    }

    fn check_mode(&self, request: &ReadChanges) -> Result<()> {
        if request.mode == Mode::LatestVersion {
            return Ok(());
        }
        if self.spec.all_versions_retention.is_none() {
            let message = format!("container {} keeps no versions: give it a retention", self.spec.name);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        match request.start {
            StartFrom::Beginning | StartFrom::Time(_) => Err(Error::new(
                ErrorKind::InvalidArgument,
                "all-versions mode starts at now or at a continuation, not at the beginning or a time",
            )),
            StartFrom::Now | StartFrom::Continuation(_) => Ok(()),
        }
    }

    fn resume(&self, mode: Mode, continuation: &Continuation, now: Timestamp) -> Result<Lsn> {
        let after = if self.has(Bug::AcceptsForeignContinuations) {
            Continuation::from_token(continuation.token()).to_lsn(&self.rid)?
        } else {
            continuation.to_lsn(&self.rid)?
        };
        if after > self.lsn && !self.has(Bug::AcceptsContinuationsBeyondTheEnd) {
            let message = format!("continuation {continuation} lies after the newest change, {}", self.lsn);
            return Err(Error::new(ErrorKind::ContinuationBeyondEnd, message));
        }
        let lenient = self.has(Bug::SkipsWhatLeftRetention) || self.has(Bug::NeverForgetsVersions);
        if mode == Mode::AllVersions && after < self.forgotten(now) && !lenient {
            let message = format!("changes after {continuation} have left retention: start anew");
            return Err(Error::new(ErrorKind::ContinuationExpired, message));
        }
        Ok(after)
    }

    /// The newest LSN that has left retention.
    fn forgotten(&self, now: Timestamp) -> Lsn {
        let Some(retention) = self.spec.all_versions_retention else { return self.lsn };
        let horizon = now.saturating_sub(retention);
        let left = self.log.iter().filter(|entry| entry.change.timestamp < horizon);
        left.map(|entry| entry.change.lsn).max().unwrap_or(Lsn::ZERO).max(self.kept_since)
    }

    /// The whole feed, in order.
    fn feed(&self, mode: Mode, now: Timestamp) -> Found {
        if mode == Mode::AllVersions {
            let forgotten = if self.has(Bug::NeverForgetsVersions) { Lsn::ZERO } else { self.forgotten(now) };
            let kept = self.log.iter().filter(|entry| entry.change.lsn > forgotten);
            let all: Vec<_> = kept.map(|entry| (entry.epk.clone(), entry.change.clone())).collect();
            if !self.has(Bug::DropsIntermediateVersions) {
                return all;
            }
            let newest = |index: usize, (epk, change): &(Epk, Change)| {
                !all[index + 1..].iter().any(|(other, later)| other == epk && later.id == change.id)
            };
            return all
                .iter()
                .enumerate()
                .filter(|(index, one)| newest(*index, one))
                .map(|(_, one)| one.clone())
                .collect();
        }
        if self.has(Bug::ShowsOldVersions) {
            let writes = self.log.iter().filter(|entry| entry.change.current.is_some());
            return writes.map(|entry| (entry.epk.clone(), latest(entry.change.clone()))).collect();
        }
        let mut live: Vec<_> = self.items.iter().collect();
        if !self.has(Bug::OrdersByKey) {
            live.sort_by_key(|(_, stored)| stored.order);
        }
        if self.has(Bug::RetentionHitsLatestMode) && self.spec.all_versions_retention.is_some() {
            live.retain(|(_, stored)| stored.item.lsn > self.forgotten(now));
        }
        live.retain(|(_, stored)| stored.order.0 > Lsn::ZERO);
        let change = |item: &changefeed_core::Item| Change {
            id: item.id.clone(),
            rid: Some(item.rid),
            lsn: item.lsn,
            timestamp: item.timestamp,
            operation: Operation::Write,
            current: Some(self.feed_body(item)),
            previous: None,
            previous_lsn: None,
        };
        live.into_iter().map(|((epk, _), stored)| (epk.clone(), change(&stored.item))).collect()
    }

    /// The first changes, without cutting a transaction, and those after them.
    fn cut(&self, mut found: Found, max_items: usize) -> (Found, Found) {
        let end = match found.get(max_items - 1) {
            None => found.len(),
            Some(_) if self.has(Bug::CutsTransactions) => max_items,
            Some((_, last)) => {
                let last = last.lsn;
                max_items + found[max_items..].iter().take_while(|(_, change)| change.lsn == last).count()
            }
        };
        let after = found.split_off(end);
        (found, after)
    }
}

/// A version of all-versions mode as latest-version mode would show it.
fn latest(change: Change) -> Change {
    Change { operation: Operation::Write, previous: None, previous_lsn: None, ..change }
}
