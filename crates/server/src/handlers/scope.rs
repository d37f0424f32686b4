//! The scope of a read of many items: a partition key, a range or everything.

use changefeed_core::{Epk, FeedRange, PartitionKey, RangeId};

use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    headers,
    wire::http::Request,
};

/// A range of keys, and the id of the physical range that the client expects them in.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) range: FeedRange,
    pub(crate) physical: Option<RangeId>,
    /// Whether the request names a key or a range.
    pub(crate) is_given: bool,
}

/// Parses the partition key header.
pub(crate) fn partition_key(request: &Request<'_>) -> ApiResult<Option<PartitionKey>> {
    Ok(request.text(&headers::PARTITION_KEY)?.map(str::parse).transpose()?)
}

/// Parses the scope from headers: a partition key or a prefix of one, a range, a part of a range, or everything.
pub(crate) fn of_request(request: &Request<'_>, handle: &ContainerHandle) -> ApiResult<Scope> {
    let physical = request.text(&headers::RANGE_ID)?.map(str::parse::<RangeId>).transpose()?;
    let mut range = FeedRange::full();
    let mut is_given = physical.is_some();
    if let Some(part) = epk_headers(request)? {
        (range, is_given) = (part, true);
    }
    let definition = &handle.identity().partition_key;
    // An empty list is an empty prefix of a hierarchical key: SDKs read everything with it.
    let is_prefix_of_all = |key: &PartitionKey| key.values().is_empty() && definition.paths().count() > 1;
    let key = partition_key(request)?;
    is_given |= key.is_some();
    if let Some(key) = key.filter(|key| !is_prefix_of_all(key)) {
        let of_key = definition.key_range(&key)?;
        range = range.intersection(&of_key).ok_or_else(|| {
            ApiError::bad_request(format!("the partition key {key} lies outside of x-ms-start-epk to x-ms-end-epk"))
        })?;
    }
    Ok(Scope { range, physical, is_given })
}

/// Intersects the scope with the physical range that it names, which must be live.
pub(crate) async fn live(scope: &Scope, handle: &ContainerHandle) -> ApiResult<FeedRange> {
    let Some(id) = &scope.physical else { return Ok(scope.range.clone()) };
    let physical = handle.range(id).await?;
    physical.range.intersection(&scope.range).ok_or_else(|| {
        ApiError::bad_request(format!("{} has nothing in common with partition key range {id}", scope.range))
    })
}

fn epk_headers(request: &Request<'_>) -> ApiResult<Option<FeedRange>> {
    let (start, end) = (request.text(&headers::START_EPK)?, request.text(&headers::END_EPK)?);
    let kind = request.text(&headers::READ_KEY_TYPE)?;
    if start.is_none() && end.is_none() {
        return Ok(None);
    }
    if kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("EffectivePartitionKeyRange")) {
        return Err(ApiError::bad_request(
            "x-ms-read-key-type must be EffectivePartitionKeyRange where x-ms-start-epk or x-ms-end-epk is given",
        ));
    }
    let bound = |text: Option<&str>, other: Epk| text.map_or(Ok(other), |text| text.trim_matches('"').parse::<Epk>());
    let (min, max) = (bound(start, Epk::MIN)?, bound(end, Epk::MAX)?);
    Ok(Some(FeedRange::new(min, max.min(Epk::MAX))?))
}
