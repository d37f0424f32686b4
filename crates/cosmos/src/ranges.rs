//! The feed ranges, with the ids that the SDK does not list: each range is asked for its id.

use std::{collections::BTreeMap, time::Duration};

use azure_data_cosmos::{
    feed::FeedScope,
    models::ResponseHeaders,
    options::{ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint, ReadFeedRangesOptions},
};
use changefeed_core::{Error, ErrorKind, FeedRange, PhysicalRange, RangeId, Response, Result, check_tiling};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use crate::{
    container::CosmosContainer,
    error::{Call, cause_of, is_session_behind, status_of},
    key,
    options::Session,
    timer::{pause, within},
    token,
};

/// How many ranges are asked at once.
const AT_ONCE: usize = 16;

/// How often ranges are asked, because one is throttled or was split or merged meanwhile.
const LAYOUT_TRIES: u32 = 10;

/// How the SDK reports a range that is being split for longer than its ten attempts take.
const SPLIT_TAKES_LONG: (u16, u16) = (500, 20206);

/// The first pause before ranges that failed are asked again; it doubles up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A read of the ranges: what is known so far.
#[derive(Default)]
struct Layout {
    /// The keys of the live ranges, as last listed; none if they have to be listed.
    listed: Option<Vec<FeedRange>>,
    /// Those that have told their ids.
    found: BTreeMap<FeedRange, RangeId>,
    charge: f64,
    /// Why it is not complete.
    failure: Option<Error>,
}

impl Layout {
    fn is_complete(&self) -> bool {
        self.failure.is_none()
    }

    fn ranges(&self) -> Vec<PhysicalRange> {
        let physical = |(range, id): (&FeedRange, &RangeId)| PhysicalRange {
            id: id.clone(),
            range: range.clone(),
            parents: Vec::new(),
        };
        self.found.iter().map(physical).collect()
    }

    /// How long to wait until the ranges that failed are asked again.
    fn pause(&self, attempt: u32) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1))).min(LONGEST_PAUSE);
        self.failure.as_ref().and_then(Error::retry_after).map_or(pause, |asked| asked.max(pause))
    }
}

impl CosmosContainer {
    /// Reads the live ranges. Those that are throttled, or being split, are asked again while the others' ids are kept.
    pub(crate) async fn live_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.check_identity().await?;
        let mut layout = Layout::default();
        Box::pin(self.ask(&mut layout)).await?;
        if !layout.is_complete() {
            let repeating = Box::pin(self.ask_again(&mut layout));
            within(self.budgets.feed.limit, repeating).await.transpose()?;
        }
        if let Some(error) = layout.failure {
            return Err(error.with_request_charge(layout.charge));
        }
        let ranges = layout.ranges();
        self.positions.lock().keep(|known| ranges.iter().any(|live| live.id == *known));
        self.parts.lock().keep(|whole| ranges.iter().any(|live| live.range == *whole));
        self.ranges.lock().clone_from(&ranges);
        Ok(Response::new(ranges, layout.charge))
    }

    /// Asks the ranges that failed, until none does.
    async fn ask_again(&self, layout: &mut Layout) -> Result<()> {
        for attempt in 1..LAYOUT_TRIES {
            if layout.is_complete() {
                break;
            }
            pause(layout.pause(attempt)).await;
            match self.ask(layout).await {
                Err(error) if error.kind().is_transient() => layout.failure = Some(error),
                asked => asked?,
            }
        }
        Ok(())
    }

    /// Asks each range for its id that has not told it. What was found is kept if the call is cancelled.
    ///
    /// # Errors
    /// What repeating would not help, or what fails for all ranges. Other failures are noted.
    async fn ask(&self, layout: &mut Layout) -> Result<()> {
        let listed = match layout.listed.take() {
            Some(listed) => listed,
            None => self.listed_ranges().await?,
        };
        let Layout { found, charge, .. } = &mut *layout;
        found.retain(|range, _| listed.contains(range));
        let missing: Vec<_> = listed.iter().filter(|range| !found.contains_key(*range)).cloned().collect();
        let mut answers =
            stream::iter(missing.into_iter().map(|range| self.identified(range))).buffer_unordered(AT_ONCE);
        let mut failures = Failures::default();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(answer) => {
                    *charge += answer.request_charge;
                    let PhysicalRange { id, range, .. } = answer.into_value();
                    found.insert(range, id);
                }
                Err(error) => {
                    *charge += error.request_charge();
                    failures.note(error)?;
                    if failures.unanswered >= AT_ONCE {
                        break;
                    }
                }
            }
        }
        drop(answers);
        if failures.unanswered > 0 && found.is_empty() {
            // Not one range, but the account.
            return failures.last.map_or(Ok(()), Err);
        }
        layout.listed = Some(listed).filter(|_| !failures.may_have_moved);
        layout.failure = failures.last;
        if let Some(error) = layout.failure.is_none().then(|| check_tiling(&layout.ranges())).and_then(Result::err) {
            // One range answered for two: they were merged after they had been listed.
            (layout.listed, layout.failure) = (None, Some(error));
            layout.found.clear();
        }
        Ok(())
    }

    /// The keys of each range, in order, fresh from the service.
    pub(crate) async fn listed_ranges(&self) -> Result<Vec<FeedRange>> {
        let budget = &self.budgets.feed;
        let options =
            ReadFeedRangesOptions::default().with_force_refresh(true).with_operation_options(budget.sdk.clone());
        let client = self.sdk();
        let listed = client.read_feed_ranges(Some(options));
        let listed = self.call(Call::Ranges, "read the feed ranges of", budget, listed).await?;
        let mut ranges = listed.iter().map(key::range).collect::<Result<Vec<_>>>()?;
        ranges.sort();
        Ok(ranges)
    }

    /// Asks a range for its id.
    pub(crate) async fn identified(&self, range: FeedRange) -> Result<Response<PhysicalRange>> {
        match self.identified_in(Session::Kept, range.clone()).await {
            Err(error) if is_session_behind(&error) => self.identified_in(Session::Ignored, range).await,
            other => other,
        }
    }

    /// Asks with a read of what comes after now, which returns nothing.
    async fn identified_in(&self, session: Session, range: FeedRange) -> Result<Response<PhysicalRange>> {
        let budget = &self.budgets.feed;
        let scope = FeedScope::range(key::range_to_sdk(&range)?);
        let options = ChangeFeedOptions::default()
            .with_operation_options(budget.reading(session))
            .with_max_item_count(MaxItemCountHint::Limit(std::num::NonZeroU32::MIN));
        let reading = async {
            let start = ChangeFeedStartFrom::Now;
            let mut pages = self.sdk().query_change_feed::<Value>(scope, start, Some(options)).await?;
            let page = pages.next().await;
            let token = pages.to_continuation_token();
            page.map(|page| page.and_then(|page| Ok((page, token?)))).transpose()
        };
        let answer = self.call(Call::Feed, "read the range ids of", budget, reading).await?;
        let (page, after) = answer.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the feed ended"))?;
        token::position(after.as_str(), &range)?;
        let id = range_id(page.headers())?;
        let charge = self.charge_of(Call::Feed, &page.diagnostics())?;
        Ok(Response::new(PhysicalRange { id, range, parents: Vec::new() }, charge))
    }

    /// The keys of the physical range `id`: as last read, or read again.
    ///
    /// # Errors
    /// `RangeGone` or `RangeNotFound` if it does not live. The service does not tell which of them ever existed; its ids
    /// are numbers that ascend, so one up to the highest is taken for gone.
    pub(crate) async fn range_of(&self, id: &RangeId) -> Result<FeedRange> {
        let find = |ranges: &[PhysicalRange]| ranges.iter().find(|live| live.id == *id).map(|live| live.range.clone());
        if let Some(range) = find(&self.ranges.lock()) {
            return Ok(range);
        }
        let live = self.live_ranges().await?;
        find(&live).ok_or_else(|| missing(id, &live))
    }
}

/// What failed in one round of questions.
#[derive(Default)]
struct Failures {
    /// The one with the longest pause that the service asks for.
    last: Option<Error>,
    /// How many ranges gave no answer.
    unanswered: usize,
    /// Whether a range may have been split or merged.
    may_have_moved: bool,
}

impl Failures {
    /// Notes a failure that may pass.
    ///
    /// # Errors
    /// The failure, if it does not.
    fn note(&mut self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Throttled => {}
            ErrorKind::RangeGone => self.may_have_moved = true,
            _ if cause_of(&error).is_some_and(|cause| status_of(cause) == SPLIT_TAKES_LONG) => {
                self.may_have_moved = true;
            }
            ErrorKind::Unavailable | ErrorKind::Timeout => {
                self.may_have_moved = true;
                self.unanswered += 1;
            }
            _ => return Err(error),
        }
        let is_longer = |last: &Error| last.retry_after() >= error.retry_after();
        if !self.last.as_ref().is_some_and(is_longer) {
            self.last = Some(error);
        }
        Ok(())
    }
}

fn missing(id: &RangeId, live: &[PhysicalRange]) -> Error {
    let number = |id: &RangeId| id.as_str().parse::<u64>().ok();
    let highest = live.iter().filter_map(|range| number(&range.id)).max();
    match number(id).zip(highest) {
        Some((number, highest)) if number <= highest => {
            Error::new(ErrorKind::RangeGone, format!("range {id} was split or merged: read the feed ranges again"))
        }
        _ => Error::new(ErrorKind::RangeNotFound, format!("there is no range {id}: read the feed ranges")),
    }
}

/// The id of the range that answered: as it is named or, where a proxy drops that header, as the session token has it.
pub(crate) fn range_id(headers: &ResponseHeaders) -> Result<RangeId> {
    let session = || headers.session_token().and_then(|token| session_range(token.as_str()));
    match headers.partition_key_range_id().or_else(session) {
        Some(id) => id.parse(),
        None => Err(Error::new(ErrorKind::Unsupported, "the service does not tell which range answered")),
    }
}

/// The range of a session token: `range:lsn` or `range:version#lsn#region=lsn…`; none if it has several.
fn session_range(token: &str) -> Option<&str> {
    let (range, rest) = token.split_once(':')?;
    (!range.is_empty() && !rest.contains(',')).then_some(range)
}

/// The LSN of a session token.
pub(crate) fn session_lsn(token: &str) -> Option<u64> {
    let (_, rest) = token.split_once(':')?;
    rest.split('#').nth(usize::from(rest.contains('#')))?.parse().ok()
}

/// The size of a page as the SDK takes it.
pub(crate) fn page_size(max_items: usize) -> Result<MaxItemCountHint> {
    let size = u32::try_from(max_items).unwrap_or(u32::MAX);
    match std::num::NonZeroU32::new(size) {
        Some(size) => Ok(MaxItemCountHint::Limit(size)),
        None => Err(Error::new(ErrorKind::InvalidArgument, "a page of 0 items: ask for at least one")),
    }
}

/// The range as a scope of the SDK.
pub(crate) fn scope(range: &FeedRange) -> Result<FeedScope> {
    Ok(FeedScope::range(key::range_to_sdk(range)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_asked_again_after_the_pause_that_the_service_asks_for() {
        for (asked, expected) in [(0, [50, 100, 1000]), (70, [70, 100, 1000]), (3000, [3000, 3000, 3000])] {
            let error = Error::new(ErrorKind::Throttled, "read the range ids of shop/orders");
            let failure = Some(error.with_retry_after(Duration::from_millis(asked)));
            let layout = Layout { failure, ..Layout::default() };
            assert_eq!([1, 2, 9].map(|attempt| layout.pause(attempt).as_millis()), expected);
        }
    }

    #[test]
    fn of_failures_the_one_with_the_longest_pause_is_kept() {
        let mut failures = Failures::default();
        for (kind, millis) in [(ErrorKind::RangeGone, 0), (ErrorKind::Throttled, 70), (ErrorKind::Throttled, 20)] {
            let error = Error::new(kind, "read the range ids of shop/orders");
            failures
                .note(if millis == 0 { error } else { error.with_retry_after(Duration::from_millis(millis)) })
                .unwrap();
        }
        assert_eq!(failures.last.unwrap().retry_after(), Some(Duration::from_millis(70)));
        assert!(failures.may_have_moved && failures.unanswered == 0);
        let mut failures = Failures::default();
        assert!(failures.note(Error::new(ErrorKind::Forbidden, "no")).is_err());
    }

    #[test]
    fn range_and_lsn_of_a_session_token_are_found_in_both_forms() {
        for (token, range, lsn) in [
            ("0:7052", Some("0"), Some(7052)),
            ("12:-1#7052", Some("12"), Some(7052)),
            ("0:1#7052#3=8#4=9", Some("0"), Some(7052)),
            ("0:-1#5,1:-1#7", None, None),
            ("", None, None),
            (":7", None, Some(7)),
            ("0:x", Some("0"), None),
        ] {
            assert_eq!((session_range(token), session_lsn(token)), (range, lsn), "{token}");
        }
    }

    #[test]
    fn a_missing_range_is_gone_if_a_newer_one_lives() {
        let live = [PhysicalRange { id: RangeId::from(7), range: FeedRange::full(), parents: Vec::new() }];
        assert_eq!(missing(&RangeId::from(3), &live).kind(), ErrorKind::RangeGone);
        assert_eq!(missing(&RangeId::from(8), &live).kind(), ErrorKind::RangeNotFound);
        assert_eq!(missing(&"x".parse().unwrap(), &live).kind(), ErrorKind::RangeNotFound);
    }
}
