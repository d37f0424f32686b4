//! Single items: create, upsert, read, replace, patch, delete.

use std::time::Duration;

use bytes::Bytes;
use changefeed_core::{
    Batch, ETag, Epk, Error, ErrorKind, FeedRange, Item, ItemId, ItemKey, PartitionKey, RangeId, ResourceId, Write,
    WriteResult,
};
use hyper::{
    StatusCode,
    header::{self, HeaderValue},
};
use serde::Deserialize;

use crate::{
    binary_json,
    exchange::{Reply, Request},
    names,
    net::timer::Deadline,
    open::Open,
    patch::Patch,
    problem::{Answer, Problem},
    render, scope,
};

/// First byte of a body in Cosmos binary JSON; no JSON text begins with it.
const BINARY_PREAMBLE: u8 = 0x80;

/// How long a patch is tried again because the item was written in between. Patches take turns, so only other writes can
/// come in between.
pub(crate) const PATCH_TIME: Duration = Duration::from_secs(10);

/// How long the condition of a patch may take.
const CONDITION_TIME: Duration = Duration::from_millis(200);

/// Where an item stands, for the headers of an answer.
pub(crate) fn set_place(reply: &mut Reply, open: &Open, range: &RangeId, lsn: u64) {
    let place = open.place(range, lsn);
    for (name, value) in [
        (&names::LSN, &place.lsn_header),
        (&names::RANGE_ID, &place.range_header),
        (&names::SESSION_TOKEN, &place.token_header),
        (&names::CONTENT_PATH, &open.rid_header),
        (&names::ALT_CONTENT_PATH, &open.name_header),
    ] {
        if let Some(value) = value {
            reply.set(name, value.clone());
        }
    }
}

/// A refusal with where its item is or would be: the session that did not find an item is a session too, and clients
/// drop what they know about ranges when an answer names none.
pub(crate) async fn placed(mut problem: Problem, request: &Request<'_>, open: &Open) -> Problem {
    let key = scope::partition_key(request).ok().flatten();
    let Some(epk) = key.and_then(|key| open.identity().partition_key.epk(&key).ok()) else { return problem };
    if let Ok(range) = open.range_of(&epk).await {
        let mut reply = Reply::new(problem.status, "");
        set_place(&mut reply, open, &range, open.reached());
        problem.headers = Some(Box::new(reply.headers));
    }
    problem
}

/// The body of a write as JSON text.
pub(crate) fn text_body(request: &Request<'_>) -> Answer<Bytes> {
    match request.body.first() {
        Some(&BINARY_PREAMBLE) => binary_json::to_text(&request.body)
            .map(Bytes::from)
            .map_err(|error| Problem::bad_request(format!("the body is not valid Cosmos binary JSON: {error}"))),
        _ => Ok(request.body.clone()),
    }
}

/// Creates or upserts an item.
pub(crate) async fn create(request: &Request<'_>, open: &Open) -> Answer<Reply> {
    let body = text_body(request)?;
    let write = if request.flag(&names::IS_UPSERT) {
        Write::Upsert { body, if_match: if_match(request)? }
    } else {
        Write::Create { body }
    };
    write_one(request, open, scope::partition_key(request)?, write).await
}

/// Replaces an item.
pub(crate) async fn replace(request: &Request<'_>, open: &Open, segment: &str) -> Answer<Reply> {
    let (key, _) = key_of(request, open, segment).await?;
    let body = text_body(request)?;
    let if_match = if_match(request)?;
    if has_other_id(&body, &key.id) {
        return rename(request, open, key, body, if_match).await;
    }
    write_one(request, open, Some(key.partition_key), Write::Replace { body, if_match }).await
}

/// Replaces an item by one with another id, in one transaction. Refused if there is one with that id.
async fn rename(
    request: &Request<'_>,
    open: &Open,
    key: ItemKey,
    body: Bytes,
    if_match: Option<ETag>,
) -> Answer<Reply> {
    let epk = open.identity().partition_key.epk(&key.partition_key)?;
    let writes = vec![Write::Delete { id: key.id, if_match }, Write::Create { body }];
    let batch = Batch { partition_key: Some(key.partition_key), writes, return_items: !request.wants_minimal() };
    let written = open.container.backend().write(batch).await?;
    let charge = written.request_charge;
    let Some(written) = written.last() else {
        return Err(Error::new(ErrorKind::Corrupt, "the store returned no result for the write").into());
    };
    open.saw(written.lsn.get());
    let mut reply = shown(written, open);
    reply.status = StatusCode::OK;
    reply.charge(charge);
    let range = open.range_of(&epk).await?;
    set_place(&mut reply, open, &range, written.lsn.get());
    Ok(reply)
}

/// Deletes an item.
pub(crate) async fn delete(request: &Request<'_>, open: &Open, segment: &str) -> Answer<Reply> {
    let (key, _) = key_of(request, open, segment).await?;
    let write = Write::Delete { id: key.id, if_match: if_match(request)? };
    write_one(request, open, Some(key.partition_key), write).await
}

/// Reads an item.
pub(crate) async fn read(request: &Request<'_>, open: &Open, segment: &str) -> Answer<Reply> {
    let (key, epk) = key_of(request, open, segment).await?;
    let range = open.range_of(&epk).await?;
    let item = open.container.backend().read_item(&key).await?;
    open.saw(item.lsn.get());
    let unchanged =
        request.text(&header::IF_NONE_MATCH)?.is_some_and(|known| known == "*" || known == item.etag.as_str());
    let mut reply =
        if unchanged { Reply::new(StatusCode::NOT_MODIFIED, "") } else { Reply::ok(render::item(&item, &open.link)) };
    reply.set(&names::ITEM_LSN, HeaderValue::from(item.lsn.get()));
    reply.charge(item.request_charge);
    set_place(&mut reply, open, &range, open.reached());
    Ok(reply.with_etag(item.etag.as_str()))
}

/// Changes parts of an item.
pub(crate) async fn patch(request: &Request<'_>, open: &Open, segment: &str) -> Answer<Reply> {
    let (key, epk) = key_of(request, open, segment).await?;
    let patch = parse_patch(&request.body)?;
    let wanted = if_match(request)?;
    let mut charge = 0.0;
    let _turn = open.patch_turn(&epk).await;
    let deadline = Deadline::after(PATCH_TIME);
    while !deadline.is_over() {
        let read = open.container.backend().read_item(&key).await?;
        charge += read.request_charge;
        let item = read.into_value();
        if wanted.as_ref().is_some_and(|wanted| *wanted != item.etag) {
            return Err(changed(&key.id));
        }
        let body = apply_patch(&patch, &item.body, open)?;
        let write = Write::Replace { body, if_match: Some(item.etag) };
        match write_item(request, open, Some(key.partition_key.clone()), write, charge).await {
            Err(problem) if problem.status == StatusCode::PRECONDITION_FAILED => charge = problem.request_charge,
            other => return other,
        }
    }
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("item {} is written too often to be patched", key.id)))
}

/// Reads the operations of a patch.
pub(crate) fn parse_patch(body: &[u8]) -> Answer<Patch> {
    Patch::parse(body).map_err(|error| Problem::bad_request(error.to_string()))
}

/// The item after a patch, if its condition holds.
pub(crate) fn apply_patch(patch: &Patch, body: &[u8], open: &Open) -> Answer<Bytes> {
    let now = i64::try_from(open.clock.wall().as_millis()).unwrap_or(i64::MAX);
    if let Some(condition) = patch.condition() {
        let deadline = Deadline::after(CONDITION_TIME);
        let condition = changefeed_query::Condition::parse(condition)
            .map_err(|error| Problem::bad_request(format!("the condition of the patch: {error}")))?;
        let holds = condition
            .holds(body, now, &|| deadline.is_over())
            .map_err(|error| Problem::bad_request(format!("the condition of the patch: {error}")))?;
        if !holds {
            let message = "the condition of the patch does not hold for the item";
            return Err(Problem::new(StatusCode::PRECONDITION_FAILED, message));
        }
    }
    let paths: Vec<&str> = open.identity().partition_key.paths().collect();
    patch.apply(body, &paths).map(Bytes::from).map_err(|error| Problem::bad_request(error.to_string()))
}

/// Performs one write and shows its result.
async fn write_one(request: &Request<'_>, open: &Open, key: Option<PartitionKey>, write: Write) -> Answer<Reply> {
    write_item(request, open, key, write, 0.0).await
}

/// Performs one write and shows its result. `charge` was spent on the request before.
async fn write_item(
    request: &Request<'_>,
    open: &Open,
    key: Option<PartitionKey>,
    write: Write,
    charge: f64,
) -> Answer<Reply> {
    let minimal = request.wants_minimal();
    let definition = &open.identity().partition_key;
    let epk = match (&key, &write) {
        (Some(key), _) => definition.epk(key)?,
        (None, Write::Create { body } | Write::Upsert { body, .. } | Write::Replace { body, .. }) => {
            definition.epk(&definition.extract(body)?)?
        }
        (None, Write::Delete { .. }) => Epk::MIN,
    };
    let batch = Batch { partition_key: key, writes: vec![write], return_items: !minimal };
    let written = open.container.backend().write(batch).await.map_err(|error| {
        let mut problem = Problem::from(error);
        problem.request_charge += charge;
        problem
    })?;
    let charge = charge + written.request_charge;
    let no_result = || Error::new(ErrorKind::Corrupt, "the store returned no result for the write");
    let written = written.first().ok_or_else(no_result)?;
    open.saw(written.lsn.get());
    let mut reply = shown(written, open);
    reply.charge(charge);
    let range = open.range_of(&epk).await?;
    set_place(&mut reply, open, &range, written.lsn.get());
    Ok(reply)
}

fn shown(written: &WriteResult, open: &Open) -> Reply {
    let Some(etag) = &written.etag else { return Reply::new(StatusCode::NO_CONTENT, "") };
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let body = written.item.as_ref().map(|item| render::item(item, &open.link)).unwrap_or_default();
    let mut reply = Reply::new(status, body).with_etag(etag.as_str());
    reply.set(&names::ITEM_LSN, HeaderValue::from(written.lsn.get()));
    reply
}

/// The version that a write is bound to; none if any will do.
fn if_match(request: &Request<'_>) -> Answer<Option<ETag>> {
    parse_if_match(request.text(&header::IF_MATCH)?)
}

/// Reads an `If-Match`; an etag that no version can have matches none.
pub(crate) fn parse_if_match(text: Option<&str>) -> Answer<Option<ETag>> {
    match text.map(str::trim) {
        None | Some("" | "*") => Ok(None),
        // The service takes etags without their quotes, too.
        Some(text) if !text.starts_with('"') => Ok(Some(ETag::new(format!("\"{text}\""))?)),
        Some(text) => Ok(Some(ETag::new(text)?)),
    }
}

fn changed(id: &ItemId) -> Problem {
    Problem::new(StatusCode::PRECONDITION_FAILED, format!("item {id} has another version: read it again"))
}

/// Whether a body has another id than the path.
pub(crate) fn has_other_id(body: &[u8], id: &ItemId) -> bool {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        id: Option<std::borrow::Cow<'a, str>>,
    }
    // What is wrong with a body that cannot be read is for the store to say.
    serde_json::from_slice::<Named<'_>>(body).is_ok_and(|named| named.id.is_some_and(|own| own != id.as_str()))
}

/// The key of the item under a segment of a path, which is its id or its resource id; and where that key lies.
async fn key_of(request: &Request<'_>, open: &Open, segment: &str) -> Answer<(ItemKey, Epk)> {
    let given = scope::partition_key(request)?;
    let rid = ResourceId::try_parse(segment).filter(|rid| rid.document_number().is_some());
    if let Some(rid) = rid.filter(|rid| rid.container_part() == Some(open.identity().container))
        && let Some(id) = Box::pin(id_of(rid, given.as_ref(), open)).await?
    {
        let (key, epk) = located(given, open, id)?;
        let item: Item = open.container.backend().read_item(&key).await?.into_value();
        return if item.rid == rid {
            Ok((key, epk))
        } else {
            Err(Problem::not_found(format!("there is no item {rid}")))
        };
    }
    located(given, open, ItemId::new(segment)?)
}

/// The id of the item with a resource id, among those under a partition key if one is given.
async fn id_of(rid: ResourceId, given: Option<&PartitionKey>, open: &Open) -> Answer<Option<ItemId>> {
    let definition = &open.identity().partition_key;
    let range = given.map_or(Ok(FeedRange::full()), |key| definition.key_range(key))?;
    Ok(open.id_of(rid, range).await?)
}

/// The key of an item, and where it lies.
fn located(given: Option<PartitionKey>, open: &Open, id: ItemId) -> Answer<(ItemKey, Epk)> {
    let partition_key = key_or_id(given, open, &id)?;
    let epk = open.identity().partition_key.epk(&partition_key)?;
    Ok((ItemKey { partition_key, id }, epk))
}

/// The partition key of the header, or the id where that is the partition key.
fn key_or_id(given: Option<PartitionKey>, open: &Open, id: &ItemId) -> Answer<PartitionKey> {
    if let Some(key) = given {
        return Ok(key);
    }
    let paths: Vec<&str> = open.identity().partition_key.paths().collect();
    match paths.as_slice() {
        ["/id"] => Ok(PartitionKey::from(id.as_str())),
        _ => Err(Problem::bad_request(
            "PartitionKey value must be supplied for this operation: send x-ms-documentdb-partitionkey",
        )),
    }
}
