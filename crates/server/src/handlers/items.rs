//! Single items: create, upsert, read, replace, patch, delete.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use changefeed_core::{
    Batch, ETag, Epk, Error, ErrorKind, FeedRange, Item, ItemId, ItemKey, PartitionKey, ResourceId, Write, WriteResult,
};
use changefeed_query::json;
use hyper::{
    StatusCode,
    header::{self, HeaderValue},
};

use super::{scope, session_headers};
use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    headers,
    net::timeouts::Deadline,
    patch::Patch,
    wire::{
        binary_json,
        http::{Reply, Request},
        render,
    },
};

/// How long a patch is retried after lost races. Patches are serialized, so it can lose only to other writes.
pub(crate) const PATCH_TIME: Duration = Duration::from_secs(10);

/// The time limit of a patch's condition.
const CONDITION_TIME: Duration = Duration::from_millis(200);

/// Returns the body of a write as JSON text.
pub(crate) fn text_body(request: &Request<'_>) -> ApiResult<Bytes> {
    if !binary_json::is_binary(&request.body) {
        return Ok(request.body.clone());
    }
    binary_json::to_text(&request.body)
        .map(Bytes::from)
        .map_err(|error| ApiError::bad_request(format!("the body is not valid Cosmos binary JSON: {error}")))
}

/// Creates or upserts an item.
pub(crate) async fn create(request: &Request<'_>, handle: &ContainerHandle) -> ApiResult<Reply> {
    let body = text_body(request)?;
    let write = if request.flag(&headers::IS_UPSERT) {
        Write::Upsert { body, if_match: if_match(request)? }
    } else {
        Write::Create { body }
    };
    write_one(request, handle, scope::partition_key(request)?, write).await
}

/// Replaces an item.
pub(crate) async fn replace(request: &Request<'_>, handle: &ContainerHandle, segment: &str) -> ApiResult<Reply> {
    let (key, _) = key_of(request, handle, segment).await?;
    let body = text_body(request)?;
    let if_match = if_match(request)?;
    if id_in(&body).is_some_and(|id| id != key.id.as_str()) {
        return rename(request, handle, key, body, if_match).await;
    }
    write_one(request, handle, Some(key.partition_key), Write::Replace { body, if_match }).await
}

/// Replaces an item by one with another id, in one transaction. Fails if an item with that id exists.
async fn rename(
    request: &Request<'_>,
    handle: &ContainerHandle,
    key: ItemKey,
    body: Bytes,
    if_match: Option<ETag>,
) -> ApiResult<Reply> {
    let epk = handle.identity().partition_key.epk(&key.partition_key)?;
    let writes = vec![Write::Delete { id: key.id, if_match }, Write::Create { body }];
    let batch = Batch { partition_key: Some(key.partition_key), writes, return_items: !request.wants_minimal() };
    let written = handle.write(batch).await?;
    let charge = written.request_charge;
    let Some(written) = written.last() else {
        return Err(Error::new(ErrorKind::Corrupt, "the store returned no result for the write").into());
    };
    let mut reply = shown(written, handle);
    reply.status = StatusCode::OK;
    reply.charge(charge);
    let range = handle.range_of(&epk).await?;
    handle.observe_lsn(&range, written.lsn.get());
    session_headers::set(&mut reply, handle, &range, written.lsn.get());
    Ok(reply)
}

/// Deletes an item.
pub(crate) async fn delete(request: &Request<'_>, handle: &ContainerHandle, segment: &str) -> ApiResult<Reply> {
    let (key, _) = key_of(request, handle, segment).await?;
    let write = Write::Delete { id: key.id, if_match: if_match(request)? };
    write_one(request, handle, Some(key.partition_key), write).await
}

/// Reads an item.
pub(crate) async fn read(request: &Request<'_>, handle: &ContainerHandle, segment: &str) -> ApiResult<Reply> {
    let (key, epk) = key_of(request, handle, segment).await?;
    let range = handle.range_of(&epk).await?;
    let item = handle.read_item(&key).await?;
    handle.observe_lsn(&range, item.lsn.get());
    let unchanged =
        request.text(&header::IF_NONE_MATCH)?.is_some_and(|known| known == "*" || is_same_etag(known, &item.etag));
    let mut reply =
        if unchanged { Reply::new(StatusCode::NOT_MODIFIED, "") } else { Reply::ok(render::item(&item, &handle.link)) };
    reply.set(&headers::ITEM_LSN, HeaderValue::from(item.lsn.get()));
    reply.charge(item.request_charge);
    session_headers::set(&mut reply, handle, &range, handle.known_lsn(&range));
    Ok(reply.with_etag(item.etag.as_str()))
}

/// Patches an item.
pub(crate) async fn patch(request: &Request<'_>, handle: &ContainerHandle, segment: &str) -> ApiResult<Reply> {
    let (key, epk) = key_of(request, handle, segment).await?;
    let patch = parse_patch(&request.body)?;
    let wanted = if_match(request)?;
    let mut charge = 0.0;
    let _turn = handle.lock_for_patch(&epk).await;
    let deadline = Deadline::after(PATCH_TIME);
    while !deadline.is_over() {
        let read = handle.read_item(&key).await?;
        charge += read.request_charge;
        let item = read.into_value();
        if wanted.as_ref().is_some_and(|wanted| *wanted != item.etag) {
            return Err(changed(&key.id));
        }
        let body = apply_patch(&patch, &item.body, handle)?;
        let write = Write::Replace { body, if_match: Some(item.etag) };
        match write_item(request, handle, Some(key.partition_key.clone()), write, charge).await {
            Err(error) if error.status == StatusCode::PRECONDITION_FAILED => charge = error.request_charge,
            other => return other,
        }
    }
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, format!("item {} is written too often to be patched", key.id)))
}

/// Reads the operations of a patch.
pub(crate) fn parse_patch(body: &[u8]) -> ApiResult<Patch> {
    Patch::parse(body).map_err(|error| ApiError::bad_request(error.to_string()))
}

/// Applies a patch to the body of an item if its condition holds.
pub(crate) fn apply_patch(patch: &Patch, body: &[u8], handle: &ContainerHandle) -> ApiResult<Bytes> {
    let now = i64::try_from(handle.clock.wall().as_millis()).unwrap_or(i64::MAX);
    if let Some(condition) = patch.condition() {
        let deadline = Deadline::after(CONDITION_TIME);
        let condition = changefeed_query::Condition::parse(condition)
            .map_err(|error| ApiError::bad_request(format!("the condition of the patch: {error}")))?;
        let holds = condition
            .holds(body, now, &|| deadline.is_over())
            .map_err(|error| ApiError::bad_request(format!("the condition of the patch: {error}")))?;
        if !holds {
            return Err(ApiError::precondition_failed("the condition of the patch does not hold for the item"));
        }
    }
    let paths: Vec<&str> = handle.identity().partition_key.paths().collect();
    patch.apply(body, &paths).map(Bytes::from).map_err(|error| ApiError::bad_request(error.to_string()))
}

/// Performs one write and returns its result.
async fn write_one(
    request: &Request<'_>,
    handle: &ContainerHandle,
    key: Option<PartitionKey>,
    write: Write,
) -> ApiResult<Reply> {
    write_item(request, handle, key, write, 0.0).await
}

/// Performs one write and returns its result. `charge` is what the request has cost so far.
async fn write_item(
    request: &Request<'_>,
    handle: &ContainerHandle,
    key: Option<PartitionKey>,
    write: Write,
    charge: f64,
) -> ApiResult<Reply> {
    let minimal = request.wants_minimal();
    let definition = &handle.identity().partition_key;
    let epk = match (&key, &write) {
        (Some(key), _) => definition.epk(key)?,
        (None, Write::Create { body } | Write::Upsert { body, .. } | Write::Replace { body, .. }) => {
            definition.epk(&definition.extract(body)?)?
        }
        (None, Write::Delete { .. }) => Epk::MIN,
    };
    let batch = Batch { partition_key: key, writes: vec![write], return_items: !minimal };
    let written = handle.write(batch).await.map_err(|error| {
        let mut error = ApiError::from(error);
        error.request_charge += charge;
        error
    })?;
    let charge = charge + written.request_charge;
    let no_result = || Error::new(ErrorKind::Corrupt, "the store returned no result for the write");
    let written = written.first().ok_or_else(no_result)?;
    let mut reply = shown(written, handle);
    reply.charge(charge);
    let range = handle.range_of(&epk).await?;
    handle.observe_lsn(&range, written.lsn.get());
    session_headers::set(&mut reply, handle, &range, written.lsn.get());
    Ok(reply)
}

fn shown(written: &WriteResult, handle: &ContainerHandle) -> Reply {
    let Some(etag) = &written.etag else { return Reply::new(StatusCode::NO_CONTENT, "") };
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let body = written.item.as_ref().map(|item| render::item(item, &handle.link)).unwrap_or_default();
    let mut reply = Reply::new(status, body).with_etag(etag.as_str());
    reply.set(&headers::ITEM_LSN, HeaderValue::from(written.lsn.get()));
    reply
}

/// Parses the `If-Match` header; none matches any version.
fn if_match(request: &Request<'_>) -> ApiResult<Option<ETag>> {
    parse_if_match(request.text(&header::IF_MATCH)?)
}

/// Parses an `If-Match`. An etag that no version can have matches none.
pub(crate) fn parse_if_match(text: Option<&str>) -> ApiResult<Option<ETag>> {
    match text.map(str::trim) {
        None | Some("" | "*") => Ok(None),
        // Cosmos DB accepts etags without quotes.
        Some(text) if !text.starts_with('"') => Ok(Some(ETag::new(format!("\"{text}\""))?)),
        Some(text) => Ok(Some(ETag::new(text)?)),
    }
}

/// Cosmos DB accepts etags with and without quotes.
fn is_same_etag(text: &str, etag: &ETag) -> bool {
    text.trim().trim_matches('"') == etag.as_str().trim_matches('"')
}

fn changed(id: &ItemId) -> ApiError {
    ApiError::precondition_failed(format!("item {id} has another version: read it again"))
}

/// The id in the body of an item. None if it has none or is not JSON: the store refuses such a body with a reason.
pub(crate) fn id_in(body: &[u8]) -> Option<Cow<'_, str>> {
    let id = json::member(json::check(body).ok()?, "id")?;
    id.starts_with('"').then(|| json::unescape(id))
}

/// Finds the key of the item under a segment of a path, which is its id or its resource id, and its EPK.
async fn key_of(request: &Request<'_>, handle: &ContainerHandle, segment: &str) -> ApiResult<(ItemKey, Epk)> {
    let given = scope::partition_key(request)?;
    let rid = ResourceId::try_parse(segment).filter(|rid| rid.document_number().is_some());
    if let Some(rid) = rid.filter(|rid| rid.container_part() == Some(handle.identity().container))
        && let Some(id) = Box::pin(id_of(rid, given.as_ref(), handle)).await?
    {
        let (key, epk) = located(given, handle, id)?;
        let item: Item = handle.read_item(&key).await?.into_value();
        return if item.rid == rid {
            Ok((key, epk))
        } else {
            Err(ApiError::not_found(format!("there is no item {rid}")))
        };
    }
    located(given, handle, ItemId::new(segment)?)
}

/// Finds the id of the item with a resource id, under the partition key if one is given.
async fn id_of(rid: ResourceId, given: Option<&PartitionKey>, handle: &ContainerHandle) -> ApiResult<Option<ItemId>> {
    let definition = &handle.identity().partition_key;
    let range = given.map_or(Ok(FeedRange::full()), |key| definition.key_range(key))?;
    Ok(handle.id_of(rid, range).await?)
}

/// Returns the key of an item and its EPK.
fn located(given: Option<PartitionKey>, handle: &ContainerHandle, id: ItemId) -> ApiResult<(ItemKey, Epk)> {
    let partition_key = key_or_id(given, handle, &id)?;
    let epk = handle.identity().partition_key.epk(&partition_key)?;
    Ok((ItemKey { partition_key, id }, epk))
}

/// Returns the partition key of the header, or the id where the id is the partition key.
fn key_or_id(given: Option<PartitionKey>, handle: &ContainerHandle, id: &ItemId) -> ApiResult<PartitionKey> {
    if let Some(key) = given {
        return Ok(key);
    }
    let paths: Vec<&str> = handle.identity().partition_key.paths().collect();
    match paths.as_slice() {
        ["/id"] => Ok(PartitionKey::from(id.as_str())),
        _ => Err(ApiError::bad_request(
            "PartitionKey value must be supplied for this operation: send x-ms-documentdb-partitionkey",
        )),
    }
}
