//! Queries: over items, and over the few resources of an account.

pub(crate) mod kept;
mod scan;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::BytesMut;
use changefeed_core::{FeedRange, PartitionKey, PartitionKeyValue, Timestamp};
use changefeed_query::{Bound, Flow, Page, QueryRange, Row};
use hyper::header::HeaderValue;
use serde_json::Value;

use self::{
    kept::Kept,
    scan::{Progress, Scan},
};
use super::{read_feed, scope};
use crate::{
    containers::{handle::ContainerHandle, indexing},
    error::{ApiError, ApiResult},
    headers,
    net::timeouts::Deadline,
    state::ServerState,
    wire::{
        http::{Reply, Request},
        render::List,
    },
};

const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// How long a query over databases, containers or offers may take: these are few and small.
const RESOURCE_TIME: Duration = Duration::from_millis(200);

/// From this length on parsing a query takes milliseconds.
const LONG_QUERY: usize = 16 * 1024;

/// Separates a continuation from the number of its kept state. No continuation contains it.
const KEPT: char = '~';

fn bound(request: &Request<'_>) -> ApiResult<Bound> {
    Ok(Bound::from_body(&request.body)?)
}

fn millis(now: Timestamp) -> i64 {
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Refuses a query that Cosmos DB refuses: one that sorts by several paths without a composite index for them.
async fn check_sorting(state: &ServerState, query: &Bound, handle: &ContainerHandle) -> ApiResult<()> {
    let sorted = query.sort_paths();
    if sorted.len() < 2 {
        return Ok(());
    }
    let identity = handle.identity();
    let containers = state.catalog.list_containers(&identity.database_name).await?;
    let info = containers.iter().find(|info| info.rid == identity.container);
    if indexing::can_sort(info.and_then(|info| info.spec.extra.get("indexingPolicy")), &sorted) {
        return Ok(());
    }
    Err(ApiError::bad_request(
        "The order by query does not have a corresponding composite index that it can be served from: add one with these \
         paths and directions to compositeIndexes of the container's indexingPolicy",
    ))
}

/// Returns one page of a query over items.
pub(crate) async fn items(
    state: &ServerState,
    request: &Request<'_>,
    handle: &Arc<ContainerHandle>,
) -> ApiResult<Reply> {
    let now = state.clock.wall();
    let query = bound_elsewhere(state, request).await?;
    check_sorting(state, &query, handle).await?;
    let scope = scope::of_request(request, handle)?;
    let range = scope::live(&scope, handle).await?;
    let max_items = request.max_items()?.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE);
    let paths: Vec<&str> = handle.identity().partition_key.paths().collect();
    let hints = query.hints(&paths);
    let range = narrowed(range, handle, hints.partition_key.as_deref());
    let (continuation, number) = match continuation(request, &handle.rid)? {
        Some(text) => text.split_once(KEPT).map_or((Some(text), None), |(text, number)| (Some(text), Some(number))),
        None => (None, None),
    };
    let number = number.and_then(|text| u64::from_str_radix(text, 16).ok());
    let kept = number.and_then(|number| state.kept_queries.take(number, &handle.rid, range.as_ref()));
    let fresh = || {
        let run = query.start(continuation, max_items, millis(now))?;
        Ok::<_, ApiError>(Scan::new(run, range.clone(), hints.id_prefix.clone().unwrap_or_default()))
    };
    let kept = kept.map(|kept| match kept {
        Kept::Scan(scan) => *scan,
        Kept::Ahead(run) => Scan::new(*run, range.clone(), String::new()),
    });
    let mut scan = match kept {
        Some(scan) if scan.run.is_of(&query) => scan.resized(max_items),
        _ => fresh()?,
    };
    let deadline = Deadline::after(state.limits.query_time);
    let (page, charge, number) = loop {
        let on = Arc::clone(handle);
        match state.workers.run(move |cancelled| scan.advance(&on, cancelled)).await?? {
            Progress::Done(mut page, charge) => {
                let ahead = page.ahead.take().map(|run| Kept::Ahead(Box::new(run)));
                let keep = |kept| state.kept_queries.keep(kept, &handle.rid, range.clone(), now);
                break (page, charge, ahead.map(keep).transpose()?.flatten());
            }
            // A full page looks for one more row within this slice, to omit the continuation if there is none.
            Progress::More(more) if !deadline.is_over() && !more.run.is_full() => scan = more,
            Progress::More(more) if more.run.is_streaming() => match more.finish(false)? {
                Progress::Done(page, charge) => break (page, charge, None),
                Progress::More(more) => scan = more,
            },
            Progress::More(mut more) => {
                let continuation = Some(more.run.origin()?);
                let charge = std::mem::take(&mut more.charge);
                let number = state.kept_queries.keep(Kept::Scan(Box::new(more)), &handle.rid, range.clone(), now)?;
                break (Page { rows: Vec::new(), continuation, ahead: None }, charge, number);
            }
        }
    };
    let mut list = List::new(&handle.rid, "Documents", page.rows.iter().map(|row| row.len() + 1).sum());
    for row in &page.rows {
        list.next().extend_from_slice(row);
    }
    let mut reply = read_feed::reply(handle, &scope, list.count(), list.finish()).await?;
    reply.charge(charge);
    if let Some(mut next) = page.continuation {
        if let Some(number) = number {
            next.push_str(&format!("{KEPT}{number:x}"));
        }
        reply.set_text(&headers::CONTINUATION, &read_feed::bind(&handle.rid, &next));
    }
    Ok(reply)
}

/// Parses the query of a request; a long one on another thread.
async fn bound_elsewhere(state: &ServerState, request: &Request<'_>) -> ApiResult<Bound> {
    if request.body.len() < LONG_QUERY {
        return bound(request);
    }
    let body = request.body.clone();
    Ok(state.workers.run(move |_| Bound::from_body(&body)).await??)
}

/// Returns the continuation of a query over the contents of `owner`.
fn continuation<'a>(request: &'a Request<'_>, owner: &str) -> ApiResult<Option<&'a str>> {
    request.text(&headers::CONTINUATION)?.map(|text| read_feed::unbind(owner, text)).transpose()
}

/// Narrows the range to the partition key of the query; none if they have nothing in common.
fn narrowed(range: FeedRange, handle: &ContainerHandle, key: Option<&[Value]>) -> Option<FeedRange> {
    let values = key.map(|key| key.iter().map(key_value).collect::<Option<Vec<_>>>());
    let Some(Some(values)) = values else { return Some(range) };
    let Ok(key) = PartitionKey::try_from(values) else { return Some(range) };
    match handle.identity().partition_key.key_range(&key) {
        Ok(of_key) => range.intersection(&of_key),
        Err(_) => Some(range),
    }
}

fn key_value(value: &Value) -> Option<PartitionKeyValue> {
    // A fraction may have lost its last bit on the way, and that would be another key.
    if value.is_f64() {
        return None;
    }
    let key: PartitionKey = format!("[{value}]").parse().ok()?;
    key.values().first().cloned()
}

/// Returns the plan by which a client runs a query over several ranges.
pub(crate) async fn plan(state: &ServerState, request: &Request<'_>, handle: &ContainerHandle) -> ApiResult<Reply> {
    let query = bound(request)?;
    check_sorting(state, &query, handle).await?;
    let paths: Vec<&str> = handle.identity().partition_key.paths().collect();
    let supported = request.text(&headers::QUERY_FEATURES)?;
    let mut plan = query.plan(supported)?;
    let hints = query.hints(&paths);
    let range = narrowed(FeedRange::full(), handle, hints.partition_key.as_deref()).unwrap_or_else(FeedRange::full);
    plan.query_ranges = vec![QueryRange {
        min: range.min_inclusive().to_string(),
        max: range.max_exclusive().to_string(),
        is_min_inclusive: true,
        is_max_inclusive: false,
    }];
    let body = serde_json::to_vec(&plan).map_err(|error| ApiError::bad_request(format!("the plan: {error}")))?;
    Ok(Reply::ok(body))
}

/// Lists or queries databases, containers or offers.
pub(crate) fn resources(
    request: &Request<'_>,
    owner: &str,
    member: &str,
    all: &[Value],
    now: Timestamp,
) -> ApiResult<Reply> {
    let max_items = request.max_items()?.unwrap_or(MAX_PAGE).min(MAX_PAGE);
    // Databases and offers have no owner.
    let bound_to = if owner.is_empty() { member } else { owner };
    let continuation = continuation(request, bound_to)?;
    let query = if request.method == hyper::Method::POST {
        bound(request)?
    } else {
        Bound::from_body(br#"{"query":"SELECT * FROM c"}"#)?
    };
    let mut run = query.start(continuation, max_items, millis(now))?;
    let mut at_end = true;
    let deadline = Deadline::after(RESOURCE_TIME);
    let stop = || deadline.is_over();
    let text = |resource: &Value, name: &str| resource.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    // In the order of ids, which continuations contain.
    let by_id: BTreeMap<String, &Value> = all.iter().map(|resource| (text(resource, "id"), resource)).collect();
    for (position, resource) in &by_id {
        let rid = text(resource, "_rid");
        if run.begin_after().is_some_and(|after| position.as_str() <= after) {
            continue;
        }
        let mut body = BytesMut::new();
        body.extend_from_slice(resource.to_string().as_bytes());
        let row = Row { position, rid: &rid, body: &body };
        if run.push_until(row, &stop)? == Flow::Done {
            at_end = false;
            break;
        }
    }
    let page = run.finish(at_end)?;
    let mut list = List::new(owner, member, page.rows.iter().map(|row| row.len() + 1).sum());
    for row in &page.rows {
        list.next().extend_from_slice(row);
    }
    let mut reply = Reply::ok(bytes::Bytes::new());
    reply.set(&headers::ITEM_COUNT, HeaderValue::from(list.count()));
    reply.body = list.finish();
    if let Some(next) = &page.continuation {
        reply.set_text(&headers::CONTINUATION, &read_feed::bind(bound_to, next));
    }
    Ok(reply)
}
