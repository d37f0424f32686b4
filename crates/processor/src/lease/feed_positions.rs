//! Positions in the feed of the monitored container: finds and compares them by reading, since only the store understands
//! its continuations.

use changefeed_core::{
    Change, ChangePage, Container, Continuation, ErrorKind, FeedRange, Lsn, Mode, ReadChanges, Response, Result,
    StartFrom, Timestamp,
};

use super::document::StartPosition;

/// Whether a store answers so to a position that it cannot read from: it would give the same answer again.
fn refuses_position(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::BadContinuation
            | ErrorKind::ForeignContinuation
            | ErrorKind::ContinuationBeyondEnd
            | ErrorKind::ContinuationExpired
            | ErrorKind::InvalidArgument
            | ErrorKind::Unsupported
    )
}

/// Whether a read whose first change is `found` may leave out what one gives that begins with `wanted`, and at the time
/// `since` if at one. LSNs of different keys cannot be compared; another first change is taken for a later one. Pure.
fn begins_later(since: Option<Timestamp>, wanted: &Change, found: Option<&Change>) -> bool {
    let Some(found) = found else { return true };
    let is_earlier = since.is_some_and(|since| found.timestamp < since);
    !is_earlier && (&found.id, found.lsn) != (&wanted.id, wanted.lsn)
}

/// Finds and compares positions in the feed of the monitored container.
pub(crate) struct FeedPositions<'a> {
    pub(crate) monitored: &'a Container,
    pub(crate) mode: Mode,
}

impl FeedPositions<'_> {
    /// The first change after a start.
    pub(crate) async fn first(&self, range: &FeedRange, start: StartFrom) -> Result<ChangePage> {
        let request = ReadChanges::new(range.clone(), start).mode(self.mode).max_items(1);
        self.monitored.read_changes(request).await.map(Response::into_value)
    }

    /// Whether the store reads a range from this start: a start at a time is refused by some.
    pub(crate) async fn accepts(&self, range: &FeedRange, start: StartFrom) -> Result<bool> {
        let is_time = matches!(start, StartFrom::Time(_));
        match self.first(range, start).await {
            Ok(_) => Ok(true),
            Err(error) if refuses_position(error.kind()) => Ok(false),
            // A refusal comes at once. A store may look for the first change since a time for longer than it may read.
            Err(error) if is_time && error.kind() == ErrorKind::Timeout => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether reading from `start` and after `continuation` gives the same: stores need not understand positions
    /// that they did not make, and only the store knows.
    async fn same(&self, ranges: &[FeedRange], start: &StartFrom, continuation: &Continuation) -> Result<bool> {
        for range in ranges {
            let wanted = self.first(range, start.clone()).await?;
            let found = self.first(range, StartFrom::Continuation(continuation.clone())).await;
            let lsn = |page: &ChangePage| page.changes.first().map(|change| change.lsn);
            // A first change that was overwritten between the two reads shows as a later one; then the answer is no.
            if !found.is_ok_and(|found| lsn(&found) == lsn(&wanted)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether reading from `position` leaves out changes that reading from `wanted` gives, as far as their first changes
    /// tell: LSNs of different keys are not compared. In doubt it does: then changes are repeated, not lost.
    pub(crate) async fn leaves_out(&self, range: &FeedRange, wanted: &StartFrom, position: &StartFrom) -> Result<bool> {
        let since = match (wanted, position) {
            (_, StartFrom::Beginning) => return Ok(false),
            (StartFrom::Time(wanted), StartFrom::Time(position)) if position <= wanted => return Ok(false),
            (StartFrom::Time(wanted), _) => Some(*wanted),
            _ => None,
        };
        if position == wanted {
            return Ok(false);
        }
        let wanted = self.first(range, wanted.clone()).await?;
        let Some(wanted) = wanted.changes.first() else { return Ok(false) };
        let found = match self.first(range, position.clone()).await {
            Err(error) if refuses_position(error.kind()) => return Ok(true),
            found => found?,
        };
        Ok(begins_later(since, wanted, found.changes.first()))
    }

    /// The position past everything there is at this moment.
    pub(crate) async fn end(&self, range: &FeedRange) -> Result<String> {
        Ok(self.first(range, StartFrom::Now).await?.continuation.token().to_owned())
    }

    /// Before the first version of a range, if its store reads all versions from there: some cannot, and versions may have
    /// left the retention already.
    pub(crate) async fn first_version(&self, range: &FeedRange) -> Result<Option<Continuation>> {
        let first = Continuation::after(Lsn::ZERO, self.monitored.identity().container);
        Ok(self.accepts(range, StartFrom::Continuation(first.clone())).await?.then_some(first))
    }

    /// The beginning, as a continuation if the store has one for it.
    pub(crate) async fn at_beginning(&self, ranges: &[FeedRange]) -> Result<StartPosition> {
        let zero = Continuation::after(Lsn::ZERO, self.monitored.identity().container);
        let same = self.same(ranges, &StartFrom::Beginning, &zero).await?;
        Ok(if same { StartPosition::Continuation(zero.token().to_owned()) } else { StartPosition::Beginning })
    }

    /// The position right before the first change at or after a moment, as a continuation if the store has one for it.
    pub(crate) async fn at_time(&self, ranges: &[FeedRange], moment: Timestamp) -> Result<StartPosition> {
        let mut before = Vec::new();
        for range in ranges {
            let page = self.first(range, StartFrom::Time(moment)).await?;
            before.push(match page.changes.first() {
                Some(first) => {
                    let lsn = Lsn::new(first.lsn.get().saturating_sub(1));
                    Continuation::after(lsn, self.monitored.identity().container)
                }
                None => page.continuation,
            });
        }
        let Some(earliest) = Self::common(before) else { return Ok(StartPosition::Time(moment)) };
        let candidate = Continuation::from_token(earliest.as_str());
        let same = match ranges {
            // Parts of a split range begin at different changes: the earliest of them is good for all.
            [_] => self.same(ranges, &StartFrom::Time(moment), &candidate).await?,
            _ => true,
        };
        Ok(if same { StartPosition::Continuation(earliest) } else { StartPosition::Time(moment) })
    }

    /// The one position of all ranges; `None` if they differ: LSNs of different ranges cannot be compared.
    pub(crate) fn common(mut positions: Vec<Continuation>) -> Option<String> {
        positions.dedup();
        match positions.as_slice() {
            [only] => Some(only.token().to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use changefeed_core::{ItemId, Operation};

    use super::*;

    fn change(id: &str, lsn: u64, second: u64) -> Change {
        Change {
            id: ItemId::new(id).unwrap(),
            rid: None,
            lsn: Lsn::new(lsn),
            timestamp: Timestamp::from_secs(second),
            operation: Operation::Write,
            current: None,
            previous: None,
            previous_lsn: None,
        }
    }

    #[test]
    fn only_the_same_first_change_or_one_before_the_time_leaves_out_nothing() {
        let (wanted, since) = (change("o1", 5, 100), Some(Timestamp::from_secs(90)));
        for since in [None, since] {
            assert!(begins_later(since, &wanted, None), "nothing is left");
            assert!(!begins_later(since, &wanted, Some(&change("o1", 5, 100))));
            // A store may give changes of different keys in any order: a lower LSN is no earlier place.
            for other in [change("o2", 3, 100), change("o2", 5, 100), change("o1", 9, 100)] {
                assert!(begins_later(since, &wanted, Some(&other)), "{other:?}");
            }
        }
        let before = change("o2", 3, 80);
        assert!(!begins_later(since, &wanted, Some(&before)));
        assert!(
            begins_later(None, &wanted, Some(&before)),
            "times do not order a feed that is read from its beginning"
        );
    }
}
