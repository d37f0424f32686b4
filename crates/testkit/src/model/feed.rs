//! Reading changes.

use changefeed_core::{
    Change, ChangePage, Continuation, Epk, Error, ErrorKind, FeedRange, Lsn, Mode, Operation, ReadChanges, ResourceId,
    Result, StartFrom, Timestamp,
};

use super::{
    Bug, Variant, body,
    state::{Entry, Place, State, Stored},
};

/// A change, the key it belongs to, and its place in its batch.
#[derive(Clone, Debug)]
struct Found {
    epk: Epk,
    change: Change,
    index: usize,
}

impl Found {
    fn position(&self) -> Position {
        Position { lsn: self.change.lsn, index: self.index }
    }

    fn is_of_transaction(&self, other: &Self) -> bool {
        self.epk == other.epk && self.change.lsn == other.change.lsn
    }
}

/// Right after a write of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    lsn: Lsn,
    index: usize,
}

impl Position {
    /// After all writes under `lsn`.
    fn after(lsn: Lsn) -> Self {
        Self { lsn, index: usize::MAX }
    }

    /// A quoted LSN; inside a transaction the LSN, a dot and the place in the batch.
    fn print(self, container: ResourceId) -> Continuation {
        match self.index {
            usize::MAX => Continuation::after(self.lsn, container),
            index => Continuation::new(format!("\"{}.{index}\"", self.lsn), container),
        }
    }

    fn parse(continuation: &Continuation, container: &ResourceId) -> Result<Self> {
        let inside = || {
            let (lsn, index) = continuation.token().strip_prefix('"')?.strip_suffix('"')?.split_once('.')?;
            Some((lsn.to_owned(), index.parse().ok()?))
        };
        let Some((lsn, index)) = inside() else { return continuation.to_lsn(container).map(Self::after) };
        let lsn = match continuation.container() {
            Some(own) => Continuation::new(lsn, *own),
            None => Continuation::from_token(lsn),
        };
        Ok(Self { lsn: lsn.to_lsn(container)?, index })
    }
}

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
        let mut all = self.feed(request.mode, now);
        all.retain(|found| {
            let counted = wanted(&found.epk) || self.has(Bug::CountsChangesOfOtherKeys);
            counted && since.is_none_or(|since| found.change.timestamp >= since)
        });
        let mut page: Vec<Found> = all.iter().filter(|found| found.position() > after).cloned().collect();
        let after_it = page.split_off(self.page_end(&page, &all, request.max_items));
        let remaining = after_it.iter().filter(|found| wanted(&found.epk)).count() as u64;
        let miscounted = u64::from(self.has(Bug::MiscountsRemaining));
        let continuation = self.position_after(&page, after_it.first(), after);
        page.retain(|found| wanted(&found.epk));
        if self.variant == Variant::OrdersWithinKeysOnly {
            // Stable: changes of one key stay in order.
            page.sort_by(|a, b| b.epk.cmp(&a.epk));
        }
        if self.has(Bug::RenumbersTheRestOfACutTransaction) && after.index != usize::MAX {
            page.iter_mut().filter(|found| found.change.lsn == after.lsn).for_each(renumber);
        }
        Ok(ChangePage {
            changes: page.into_iter().map(|found| found.change).collect(),
            continuation: continuation.print(self.rid),
            newest_lsn: self.lsn,
            remaining: request.count_remaining.then_some(remaining + miscounted),
            physical,
        })
    }

    /// Whether anything in `range` happened after `continuation`.
    pub(super) fn has_news(&self, range: &FeedRange, continuation: &Continuation) -> bool {
        let Ok(after) = Position::parse(continuation, &self.rid) else { return true };
        let position = |entry: &Entry| Position { lsn: entry.change.lsn, index: entry.index };
        self.log.iter().any(|entry| position(entry) > after && range.contains(&entry.epk))
    }

    /// After which position, and since when.
    fn start(&self, request: &ReadChanges, now: Timestamp) -> Result<(Position, Option<Timestamp>)> {
        self.check_mode(request)?;
        let after = match &request.start {
            StartFrom::Now if self.has(Bug::NowIsTheBeginning) => Lsn::ZERO,
            StartFrom::Now => self.lsn,
            StartFrom::Beginning => Lsn::ZERO,
            StartFrom::Time(moment) if self.has(Bug::TimesAreExclusive) => {
                return Ok((Position::after(Lsn::ZERO), Some(Timestamp::from_millis(moment.as_millis() + 1))));
            }
            StartFrom::Time(moment) => return Ok((Position::after(Lsn::ZERO), Some(*moment))),
            StartFrom::Continuation(continuation) => return Ok((self.resume(request.mode, continuation, now)?, None)),
        };
        Ok((Position::after(after), None))
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

    fn resume(&self, mode: Mode, continuation: &Continuation, now: Timestamp) -> Result<Position> {
        let after = if self.has(Bug::AcceptsForeignContinuations) {
            Position::parse(&Continuation::from_token(continuation.token()), &self.rid)?
        } else {
            Position::parse(continuation, &self.rid)?
        };
        if after.lsn > self.lsn && !self.has(Bug::AcceptsContinuationsBeyondTheEnd) {
            let message = format!("continuation {continuation} lies after the newest change, {}", self.lsn);
            return Err(Error::new(ErrorKind::ContinuationBeyondEnd, message));
        }
        let lenient = self.has(Bug::SkipsWhatLeftRetention) || self.has(Bug::NeverForgetsVersions);
        if mode == Mode::AllVersions && after.lsn < self.forgotten(now) && !lenient {
            let message = format!("changes after {continuation} have left retention: start again");
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
    fn feed(&self, mode: Mode, now: Timestamp) -> Vec<Found> {
        if mode == Mode::AllVersions {
            let forgotten = if self.has(Bug::NeverForgetsVersions) { Lsn::ZERO } else { self.forgotten(now) };
            let kept = self.log.iter().filter(|entry| entry.change.lsn > forgotten);
            let all: Vec<_> = kept.map(Found::from).collect();
            if !self.has(Bug::DropsIntermediateVersions) {
                return all;
            }
            let newest = |index: usize, one: &Found| {
                !all[index + 1..].iter().any(|later| later.epk == one.epk && later.change.id == one.change.id)
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
            let shown = writes.map(Found::from);
            return shown.map(|found| Found { change: latest(found.change), ..found }).collect();
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
        let found = |((epk, _), stored): (&Place, &Stored)| Found {
            epk: epk.clone(),
            change: change(&stored.item),
            index: stored.order.1,
        };
        live.into_iter().map(found).collect()
    }

    /// How many of the changes `found` make a page. `all` holds those before them, too.
    fn page_end(&self, found: &[Found], all: &[Found], max_items: usize) -> usize {
        let Some(edge) = found.get(max_items - 1) else { return found.len() };
        let same = |found: &&Found| found.is_of_transaction(edge);
        let rest = found[max_items..].iter().take_while(same).count();
        let first = max_items - found[..max_items].iter().rev().take_while(same).count();
        let size = all.iter().filter(same).count();
        let cuts = self.variant == Variant::CutsOversizedTransactions
            || self.has(Bug::SkipsTheRestOfACutTransaction)
            || self.has(Bug::RepeatsAChangeInsideATransaction)
            || self.has(Bug::RenumbersTheRestOfACutTransaction);
        match rest {
            0 => max_items,
            _ if self.has(Bug::CutsTransactionsThatFit) => max_items,
            _ if cuts && size > max_items => max_items,
            _ if self.variant == Variant::CutsOversizedTransactions && first > 0 => first,
            _ => max_items + rest,
        }
    }

    /// Where to resume after `page`, which ends before `next`.
    fn position_after(&self, page: &[Found], next: Option<&Found>, after: Position) -> Position {
        match (page.last(), next) {
            (Some(last), Some(_)) if self.has(Bug::SkipsAChangeAtThePageEdge) => {
                Position::after(last.change.lsn.next())
            }
            (Some(last), Some(next)) if next.is_of_transaction(last) => match last.position() {
                position if self.has(Bug::SkipsTheRestOfACutTransaction) => Position::after(position.lsn),
                Position { lsn, index: 0 } if self.has(Bug::RepeatsAChangeInsideATransaction) => {
                    Position::after(Lsn::new(lsn.get() - 1))
                }
                Position { lsn, index } if self.has(Bug::RepeatsAChangeInsideATransaction) => {
                    Position { lsn, index: index - 1 }
                }
                position => position,
            },
            (Some(last), Some(_)) => Position::after(last.change.lsn),
            (Some(last), None) if self.has(Bug::RepeatsAChangeAtThePageEdge) && page.len() > 1 => {
                Position::after(Lsn::new(last.change.lsn.get() - 1))
            }
            (None, _) if self.has(Bug::StandsStillOnEmptyPages) => after,
            _ => Position::after(self.lsn),
        }
    }
}

impl From<&Entry> for Found {
    fn from(entry: &Entry) -> Self {
        Self { epk: entry.epk.clone(), change: entry.change.clone(), index: entry.index }
    }
}

/// Gives a change the next LSN.
fn renumber(found: &mut Found) {
    let change = &mut found.change;
    change.lsn = change.lsn.next();
    change.current = change.current.take().map(|current| body::with_lsn(&current, change.lsn));
}

/// A version of all-versions mode as latest-version mode would show it.
fn latest(change: Change) -> Change {
    Change { operation: Operation::Write, previous: None, previous_lsn: None, ..change }
}
