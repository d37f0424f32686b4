//! Which keys a read of many items is about.

use changefeed_core::{Epk, FeedRange, PartitionKey, RangeId};

use crate::{
    exchange::Request,
    names,
    open::Open,
    problem::{Answer, Problem},
};

/// Keys, and the physical range that the client believes to hold them.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) range: FeedRange,
    pub(crate) physical: Option<RangeId>,
    /// Whether the request named anything at all.
    pub(crate) is_given: bool,
}

/// The partition key of the request's header.
pub(crate) fn partition_key(request: &Request<'_>) -> Answer<Option<PartitionKey>> {
    Ok(request.text(&names::PARTITION_KEY)?.map(str::parse).transpose()?)
}

/// The scope that the headers give: a partition key or a prefix of one, a range, a part of a range, or everything.
pub(crate) fn of_request(request: &Request<'_>, open: &Open) -> Answer<Scope> {
    let physical = request.text(&names::RANGE_ID)?.map(str::parse::<RangeId>).transpose()?;
    let mut range = FeedRange::full();
    let mut is_given = physical.is_some();
    if let Some(part) = epk_headers(request)? {
        (range, is_given) = (part, true);
    }
    if let Some(key) = partition_key(request)? {
        let of_key = open.identity().partition_key.key_range(&key)?;
        range = range.intersection(&of_key).ok_or_else(|| {
            Problem::bad_request(format!("the partition key {key} lies outside of x-ms-start-epk to x-ms-end-epk"))
        })?;
        is_given = true;
    }
    Ok(Scope { range, physical, is_given })
}

/// The scope cut to the range it names, which must be live.
pub(crate) async fn live(scope: &Scope, open: &Open) -> Answer<FeedRange> {
    let Some(id) = &scope.physical else { return Ok(scope.range.clone()) };
    let physical = open.range(id).await?;
    physical.range.intersection(&scope.range).ok_or_else(|| {
        Problem::bad_request(format!("{} has nothing in common with partition key range {id}", scope.range))
    })
}

fn epk_headers(request: &Request<'_>) -> Answer<Option<FeedRange>> {
    let (start, end) = (request.text(&names::START_EPK)?, request.text(&names::END_EPK)?);
    let kind = request.text(&names::READ_KEY_TYPE)?;
    if start.is_none() && end.is_none() {
        return Ok(None);
    }
    if kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("EffectivePartitionKeyRange")) {
        return Err(Problem::bad_request(
            "x-ms-read-key-type must be EffectivePartitionKeyRange where x-ms-start-epk or x-ms-end-epk is given",
        ));
    }
    let bound = |text: Option<&str>, other: Epk| text.map_or(Ok(other), |text| text.trim_matches('"').parse::<Epk>());
    let (min, max) = (bound(start, Epk::MIN)?, bound(end, Epk::MAX)?);
    Ok(Some(FeedRange::new(min, max.min(Epk::MAX))?))
}
