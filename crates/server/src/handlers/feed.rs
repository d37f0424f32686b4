//! The change feed: both modes, every start, every scope, both wire formats.

use changefeed_core::{Continuation, ErrorKind, Mode, ReadChanges, StartFrom, Timestamp};
use hyper::{
    StatusCode,
    header::{self, HeaderValue},
};

use super::{scope, session_headers};
use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    headers,
    wire::{
        http::{Reply, Request},
        render::{self, WireFormat},
    },
};

/// The wire format that wraps each change; the only one there is beside none.
const ENVELOPE_VERSION: &str = "2021-09-15";

/// The page size by default, and at most.
const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// Returns the mode of a change feed request; none for any other request.
pub(crate) fn mode(request: &Request<'_>) -> ApiResult<Option<Mode>> {
    let Some(manipulation) = request.text(&headers::A_IM)? else { return Ok(None) };
    let asks = |word: &str| manipulation.split(',').any(|given| given.trim().eq_ignore_ascii_case(word));
    if asks("Incremental feed") {
        Ok(Some(Mode::LatestVersion))
    } else if asks("Full-Fidelity feed") {
        Ok(Some(Mode::AllVersions))
    } else {
        Err(ApiError::bad_request(format!("A-IM is {manipulation:?}: use Incremental Feed or Full-Fidelity Feed")))
    }
}

pub(crate) async fn read(request: &Request<'_>, handle: &ContainerHandle, mode: Mode) -> ApiResult<Reply> {
    let scope = scope::of_request(request, handle)?;
    if !scope.is_given && handle.fresh_ranges().await?.len() > 1 {
        return Err(ApiError::bad_request(
            "the change feed is read range by range: name one with x-ms-documentdb-partitionkeyrangeid, or a \
             partition key",
        ));
    }
    let format = wire_format(request, mode)?;
    let (start, not_before) = start(request)?;
    if mode == Mode::AllVersions && !matches!(start, StartFrom::Now | StartFrom::Continuation(_)) {
        return Err(ApiError::bad_request(
            "Full-Fidelity Feed starts now (If-None-Match: *) or at a continuation, not at the beginning or at a time",
        ));
    }
    let max_items = request.max_items()?.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE);
    let named = scope.physical.is_some();
    let mut read = ReadChanges::new(scope.range, start).mode(mode).max_items(max_items);
    (read.physical, read.not_before) = (scope.physical, not_before);
    let page = match handle.read_changes(read.clone()).await {
        // There is nothing after it, and it stays where it is: writes will pass it.
        Err(error) if error.kind() == ErrorKind::ContinuationBeyondEnd => {
            return beyond_end(request, handle, read).await;
        }
        other => other,
    };
    let page = page.map_err(|error| match error.kind() {
        // 410 sends clients to read the ranges again; without a range id there is nothing they could do better.
        ErrorKind::RangeGone if !named => ApiError::bad_request(format!(
            "{}: name the range with x-ms-documentdb-partitionkeyrangeid",
            error.message()
        )),
        _ => ApiError::from(error),
    })?;
    handle.observe_lsn(&page.physical, page.newest_lsn.get());
    let mut reply = if page.changes.is_empty() {
        Reply::new(StatusCode::NOT_MODIFIED, "")
    } else {
        let definition = &handle.identity().partition_key;
        Reply::ok(render::changes(&page.changes, format, handle.previous_images, definition, &handle.rid, &handle.link))
    };
    reply.set(&headers::ITEM_COUNT, HeaderValue::from(page.changes.len()));
    reply.charge(page.request_charge);
    // Estimators subtract from it: the LSN of the first change that a client gets, or its continuation.
    session_headers::set(&mut reply, handle, &page.physical, page.newest_lsn.get());
    Ok(reply.with_etag(page.continuation.token()))
}

/// Answers a continuation beyond the newest change: 304, with the same continuation.
async fn beyond_end(request: &Request<'_>, handle: &ContainerHandle, read: ReadChanges) -> ApiResult<Reply> {
    let page = handle.read_changes(ReadChanges { start: StartFrom::Now, ..read }).await?;
    handle.observe_lsn(&page.physical, page.newest_lsn.get());
    let mut reply = Reply::new(StatusCode::NOT_MODIFIED, "");
    reply.set(&headers::ITEM_COUNT, HeaderValue::from(0));
    session_headers::set(&mut reply, handle, &page.physical, page.newest_lsn.get());
    Ok(reply.with_etag(request.text(&header::IF_NONE_MATCH)?.unwrap_or_default()))
}

fn wire_format(request: &Request<'_>, mode: Mode) -> ApiResult<WireFormat> {
    match request.text(&headers::WIRE_FORMAT)? {
        Some(ENVELOPE_VERSION) => Ok(WireFormat::Envelope),
        Some(other) => Err(ApiError::bad_request(format!(
            "x-ms-cosmos-changefeed-wire-format-version {other} is not known: use {ENVELOPE_VERSION}"
        ))),
        None if mode == Mode::AllVersions => Ok(WireFormat::Envelope),
        None => Ok(WireFormat::Flat),
    }
}

/// Parses the start position and the time filter. Clients that began at a time send it with every later continuation.
fn start(request: &Request<'_>) -> ApiResult<(StartFrom, Option<Timestamp>)> {
    let since = request.text(&header::IF_MODIFIED_SINCE)?.map(time).transpose()?;
    Ok(match (request.text(&header::IF_NONE_MATCH)?, since) {
        (Some("*"), _) => (StartFrom::Now, None),
        (Some(token), since) => (StartFrom::Continuation(Continuation::from_token(token)), since),
        (None, Some(since)) => (StartFrom::Time(since), None),
        (None, None) => (StartFrom::Beginning, None),
    })
}

fn time(text: &str) -> ApiResult<Timestamp> {
    let time = httpdate::parse_http_date(text).map_err(|_| {
        ApiError::bad_request(format!(
            "If-Modified-Since is {text:?}: use a date such as Sun, 15 Nov 2026 20:52:04 GMT"
        ))
    })?;
    Ok(Timestamp::from_secs(time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()))
}
