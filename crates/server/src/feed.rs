//! The change feed: both modes, every start, every scope, both wire formats.

use changefeed_core::{ChangePage, Continuation, ErrorKind, Mode, ReadChanges, StartFrom, Timestamp};
use hyper::{
    StatusCode,
    header::{self, HeaderValue},
};

use crate::{
    exchange::{Reply, Request},
    items, names,
    open::Open,
    problem::{Answer, Problem},
    render::{self, WireFormat},
    scope,
};

/// The wire format that wraps each change; the only one there is beside none.
const ENVELOPE_VERSION: &str = "2021-09-15";

/// How many changes a page holds if the client leaves it to the server, and at most.
const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// The mode that a request asks for; none if it is not about the change feed.
pub(crate) fn mode(request: &Request<'_>) -> Answer<Option<Mode>> {
    let Some(manipulation) = request.text(&names::A_IM)? else { return Ok(None) };
    let asks = |word: &str| manipulation.split(',').any(|given| given.trim().eq_ignore_ascii_case(word));
    if asks("Incremental feed") {
        Ok(Some(Mode::LatestVersion))
    } else if asks("Full-Fidelity feed") {
        Ok(Some(Mode::AllVersions))
    } else {
        Err(Problem::bad_request(format!("A-IM is {manipulation:?}: use Incremental Feed or Full-Fidelity Feed")))
    }
}

pub(crate) async fn read(request: &Request<'_>, open: &Open, mode: Mode) -> Answer<Reply> {
    let scope = scope::of_request(request, open)?;
    if !scope.is_given && open.fresh_ranges().await?.len() > 1 {
        return Err(Problem::bad_request(
            "the change feed is read range by range: name one with x-ms-documentdb-partitionkeyrangeid, or a \
             partition key",
        ));
    }
    let format = wire_format(request, mode)?;
    let (start, not_before) = start(request)?;
    if mode == Mode::AllVersions && !matches!(start, StartFrom::Now | StartFrom::Continuation(_)) {
        return Err(Problem::bad_request(
            "Full-Fidelity Feed starts now (If-None-Match: *) or at a continuation, not at the beginning or at a time",
        ));
    }
    let max_items = request.max_items()?.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE);
    let named = scope.physical.is_some();
    let mut read = ReadChanges::new(scope.range, start).mode(mode).max_items(max_items);
    (read.physical, read.not_before) = (scope.physical, not_before);
    // Estimators ask for one item and take its distance from the session token for the number of changes behind it.
    read.count_remaining = max_items == 1;
    read.tally = subtracts_continuations(request)?;
    let page = match open.container.read_changes(read.clone()).await {
        // There is nothing after it, and it stays where it is: writes will pass it.
        Err(error) if error.kind() == ErrorKind::ContinuationBeyondEnd => {
            return beyond_end(request, open, read).await;
        }
        other => other,
    };
    let page = page.map_err(|error| match error.kind() {
        // 410 sends clients to read the ranges again; without a range id there is nothing they could do better.
        ErrorKind::RangeGone if !named => Problem::bad_request(format!(
            "{}: name the range with x-ms-documentdb-partitionkeyrangeid",
            error.message()
        )),
        _ => Problem::from(error),
    })?;
    open.saw(page.newest_lsn.get());
    let mut reply = if page.changes.is_empty() {
        Reply::new(StatusCode::NOT_MODIFIED, "")
    } else {
        let definition = &open.identity().partition_key;
        Reply::ok(render::changes(&page.changes, format, definition, &open.rid, &open.link))
    };
    reply.set(&names::ITEM_COUNT, HeaderValue::from(page.changes.len()));
    reply.charge(page.request_charge);
    items::set_place(&mut reply, open, &page.physical, session_lsn(&page));
    Ok(reply.with_etag(etag(&page).token()))
}

/// The answer to a continuation that no change has reached yet.
async fn beyond_end(request: &Request<'_>, open: &Open, read: ReadChanges) -> Answer<Reply> {
    let page = open.container.read_changes(ReadChanges { start: StartFrom::Now, ..read }).await?;
    open.saw(page.newest_lsn.get());
    let mut reply = Reply::new(StatusCode::NOT_MODIFIED, "");
    reply.set(&names::ITEM_COUNT, HeaderValue::from(0));
    items::set_place(&mut reply, open, &page.physical, page.newest_lsn.get());
    Ok(reply.with_etag(request.text(&header::IF_NONE_MATCH)?.unwrap_or_default()))
}

/// Azure's processor for Java takes the continuations of its newer leases for numbers, and what lies between two of
/// them for changes of their range. LSNs run through all ranges, so it gets continuations that count.
///
/// They go to no other client: entity tags should have no quotes inside.
fn subtracts_continuations(request: &Request<'_>) -> Answer<bool> {
    Ok(request.text(&header::USER_AGENT)?.is_some_and(|agent| agent.contains("azsdk-java-cosmos")))
}

/// The continuation of a page; with a tally if the page has one.
fn etag(page: &ChangePage) -> Continuation {
    let continuation = &page.continuation;
    let Some((tally, container)) = page.tally.zip(continuation.container()) else { return continuation.clone() };
    let Ok(lsn) = continuation.to_lsn(container) else { return continuation.clone() };
    // A lease without continuation counts as 1.
    Continuation::with_tally(lsn, tally + 1, *container)
}

/// The LSN that the session token tells. LSNs run through all ranges, so to an estimator that reads one of them the
/// newest would look too far away.
fn session_lsn(page: &ChangePage) -> u64 {
    let newest = page.newest_lsn.get();
    match (page.changes.first(), page.remaining) {
        (Some(first), Some(remaining)) => newest.min(first.lsn.get() + page.changes.len() as u64 + remaining - 1),
        _ => newest,
    }
}

fn wire_format(request: &Request<'_>, mode: Mode) -> Answer<WireFormat> {
    match request.text(&names::WIRE_FORMAT)? {
        Some(ENVELOPE_VERSION) => Ok(WireFormat::Envelope),
        Some(other) => Err(Problem::bad_request(format!(
            "x-ms-cosmos-changefeed-wire-format-version {other} is not known: use {ENVELOPE_VERSION}"
        ))),
        None if mode == Mode::AllVersions => Ok(WireFormat::Envelope),
        None => Ok(WireFormat::Flat),
    }
}

/// Where to begin, and what to skip. Clients that began at a time send it along with every later continuation.
fn start(request: &Request<'_>) -> Answer<(StartFrom, Option<Timestamp>)> {
    let since = request.text(&header::IF_MODIFIED_SINCE)?.map(time).transpose()?;
    Ok(match (request.text(&header::IF_NONE_MATCH)?, since) {
        (Some("*"), _) => (StartFrom::Now, None),
        (Some(token), since) => (StartFrom::Continuation(Continuation::from_token(token)), since),
        (None, Some(since)) => (StartFrom::Time(since), None),
        (None, None) => (StartFrom::Beginning, None),
    })
}

fn time(text: &str) -> Answer<Timestamp> {
    let time = httpdate::parse_http_date(text).map_err(|_| {
        Problem::bad_request(format!("If-Modified-Since is {text:?}: use a date such as Sun, 15 Nov 2026 20:52:04 GMT"))
    })?;
    Ok(Timestamp::from_secs(time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()))
}
