//! The feed ranges, with the ids that the SDK does not list: each range is asked for its id.

use azure_data_cosmos::{
    feed::FeedScope,
    models::ResponseHeaders,
    options::{ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint, ReadFeedRangesOptions},
};
use changefeed_core::{Error, ErrorKind, FeedRange, PhysicalRange, RangeId, Response, Result, check_tiling};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use crate::{
    container::CosmosContainer,
    error::{Call, is_session_behind},
    key,
    options::Session,
    token,
};

/// How many ranges are asked at once.
const AT_ONCE: usize = 16;

/// How often the ranges are read again because one was split or merged meanwhile.
const LAYOUT_TRIES: u32 = 10;

impl CosmosContainer {
    /// Reads the live ranges.
    pub(crate) async fn live_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.check_identity().await?;
        let mut charge = 0.0;
        for attempt in 1..=LAYOUT_TRIES {
            let ranges = self.listed_ranges().await?;
            let asked = stream::iter(ranges.into_iter().map(|range| self.identified(range)));
            match asked.buffered(AT_ONCE).try_collect::<Vec<_>>().await {
                Ok(ranges) => {
                    charge += ranges.iter().map(|range| range.request_charge).sum::<f64>();
                    let ranges: Vec<_> = ranges.into_iter().map(Response::into_value).collect();
                    match check_tiling(&ranges) {
                        Err(error) if attempt == LAYOUT_TRIES => return Err(error),
                        // One range answered for two: they were merged after they had been listed.
                        Err(_) => continue,
                        Ok(()) => {}
                    }
                    self.positions
                        .lock()
                        .keep(|known| ranges.iter().any(|live| live.range.intersection(known).as_ref() == Some(known)));
                    self.parts.lock().keep(|whole| ranges.iter().any(|live| live.range == *whole));
                    self.ranges.lock().clone_from(&ranges);
                    return Ok(Response::new(ranges, charge));
                }
                Err(error) if error.kind() == ErrorKind::RangeGone && attempt < LAYOUT_TRIES => {
                    charge += error.request_charge();
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Unavailable, self.what("read the feed ranges of")))
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
