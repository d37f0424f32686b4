//! Queries: over items, and over the few resources of an account.

use std::collections::BTreeMap;

use bytes::BytesMut;
use changefeed_core::{FeedRange, ListItems, PartitionKey, PartitionKeyValue, Timestamp};
use changefeed_query::{Bound, Flow, QueryRange, Row, SqlError};
use hyper::header::HeaderValue;
use serde_json::Value;

use crate::{
    exchange::{Reply, Request},
    lists, names,
    open::Open,
    problem::{Answer, Problem},
    render::{self, List},
    scope,
};

const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// How many items are read from the store at once.
const BATCH: usize = 500;

fn refused(error: &SqlError) -> Problem {
    Problem::bad_request(format!("Syntax error, invalid query: {error}"))
}

fn bound(request: &Request<'_>) -> Answer<Bound> {
    Bound::from_body(&request.body).map_err(|error| refused(&error))
}

fn millis(now: Timestamp) -> i64 {
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// One page of the answer to a query over items.
pub(crate) async fn items(request: &Request<'_>, open: &Open, now: Timestamp) -> Answer<Reply> {
    let query = bound(request)?;
    let scope = scope::of_request(request, open)?;
    let range = scope::live(&scope, open).await?;
    let max_items = request.max_items()?.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE);
    let continuation = continuation(request, &open.rid)?;
    let mut run = query.start(continuation, max_items, millis(now)).map_err(|error| refused(&error))?;
    let paths: Vec<&str> = open.identity().partition_key.paths().collect();
    let hints = query.hints(&paths);
    let range = narrowed(range, open, hints.partition_key.as_deref());
    let mut at_end = range.is_none() || !run.wants_more();
    let mut charge = 0.0;
    if let Some(range) = range.filter(|_| !at_end) {
        let mut listing = ListItems {
            id_prefix: hints.id_prefix.unwrap_or_default(),
            range,
            after: run.begin_after().map(str::to_owned),
            max_items: BATCH,
            cursors: true,
        };
        'pages: loop {
            let read = open.container.backend().list_items(listing.clone()).await?;
            charge += read.request_charge;
            let page = read.into_value();
            open.remember(page.items.iter());
            for (item, cursor) in page.items.iter().zip(&page.cursors) {
                let body = render::item(item, &open.link);
                let rid = item.rid.to_string();
                let row = Row { position: cursor, rid: &rid, body: &body };
                if run.push(row).map_err(|error| refused(&error))? == Flow::Done {
                    break 'pages;
                }
            }
            match page.next {
                Some(next) => listing.after = Some(next),
                None => {
                    at_end = true;
                    break;
                }
            }
        }
    }
    let page = run.finish(at_end).map_err(|error| refused(&error))?;
    let mut list = List::new(&open.rid, "Documents", page.rows.iter().map(|row| row.len() + 1).sum());
    for row in &page.rows {
        list.next().extend_from_slice(row);
    }
    let mut reply = lists::reply(open, &scope, list.count(), list.finish()).await?;
    reply.charge(charge);
    if let Some(next) = &page.continuation {
        reply.set_text(&names::CONTINUATION, &lists::bind(&open.rid, next));
    }
    Ok(reply)
}

/// Where a query over what `owner` holds goes on.
fn continuation<'a>(request: &'a Request<'_>, owner: &str) -> Answer<Option<&'a str>> {
    request.text(&names::CONTINUATION)?.map(|text| lists::unbind(owner, text)).transpose()
}

/// The part of the range that the query can find something in; none if there is no such part.
fn narrowed(range: FeedRange, open: &Open, key: Option<&[Value]>) -> Option<FeedRange> {
    let values = key.map(|key| key.iter().map(key_value).collect::<Option<Vec<_>>>());
    let Some(Some(values)) = values else { return Some(range) };
    let Ok(key) = PartitionKey::try_from(values) else { return Some(range) };
    match open.identity().partition_key.key_range(&key) {
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

/// How a client should spread a query over ranges.
pub(crate) fn plan(request: &Request<'_>, open: &Open) -> Answer<Reply> {
    let query = bound(request)?;
    let paths: Vec<&str> = open.identity().partition_key.paths().collect();
    let supported = request.text(&names::QUERY_FEATURES)?;
    let mut plan = query.plan(supported).map_err(|error| refused(&error))?;
    let hints = query.hints(&paths);
    let range = narrowed(FeedRange::full(), open, hints.partition_key.as_deref()).unwrap_or_else(FeedRange::full);
    plan.query_ranges = vec![QueryRange {
        min: range.min_inclusive().to_string(),
        max: range.max_exclusive().to_string(),
        is_min_inclusive: true,
        is_max_inclusive: false,
    }];
    let body = serde_json::to_vec(&plan).map_err(|error| Problem::bad_request(format!("the plan: {error}")))?;
    Ok(Reply::ok(body))
}

/// A list of databases, containers or offers, or the answer to a query over it.
pub(crate) fn resources(
    request: &Request<'_>,
    owner: &str,
    member: &str,
    all: &[Value],
    now: Timestamp,
) -> Answer<Reply> {
    let max_items = request.max_items()?.unwrap_or(MAX_PAGE).min(MAX_PAGE);
    // Databases and offers have no owner.
    let bound_to = if owner.is_empty() { member } else { owner };
    let continuation = continuation(request, bound_to)?;
    let query = if request.method == hyper::Method::POST {
        bound(request)?
    } else {
        Bound::from_body(br#"{"query":"SELECT * FROM c"}"#).map_err(|error| refused(&error))?
    };
    let mut run = query.start(continuation, max_items, millis(now)).map_err(|error| refused(&error))?;
    let mut at_end = true;
    let text = |resource: &Value, name: &str| resource.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    // By id, which is where the next page goes on.
    let by_id: BTreeMap<String, &Value> = all.iter().map(|resource| (text(resource, "id"), resource)).collect();
    for (position, resource) in &by_id {
        let rid = text(resource, "_rid");
        if run.begin_after().is_some_and(|after| position.as_str() <= after) {
            continue;
        }
        let mut body = BytesMut::new();
        body.extend_from_slice(resource.to_string().as_bytes());
        if run.push(Row { position, rid: &rid, body: &body }).map_err(|error| refused(&error))? == Flow::Done {
            at_end = false;
            break;
        }
    }
    let page = run.finish(at_end).map_err(|error| refused(&error))?;
    let mut list = List::new(owner, member, page.rows.iter().map(|row| row.len() + 1).sum());
    for row in &page.rows {
        list.next().extend_from_slice(row);
    }
    let mut reply = Reply::ok(bytes::Bytes::new());
    reply.set(&names::ITEM_COUNT, HeaderValue::from(list.count()));
    reply.body = list.finish();
    if let Some(next) = &page.continuation {
        reply.set_text(&names::CONTINUATION, &lists::bind(bound_to, next));
    }
    Ok(reply)
}
