//! Read feed: the items of a container, page by page.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use changefeed_core::ListItems;
use hyper::header::HeaderValue;

use super::{
    scope::{self, Scope},
    session_headers,
};
use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    headers,
    wire::{
        http::{Reply, Request},
        render::{self, List},
    },
};

const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// The longest continuation that is accepted.
const MAX_CONTINUATION_BYTES: usize = 8 * 1024;

/// Adds the owner to a continuation, so that it is refused elsewhere.
pub(crate) fn bind(owner: &str, continuation: &str) -> String {
    format!("{owner}:{continuation}")
}

/// Removes the owner from a continuation.
///
/// # Errors
/// 400 if it has another owner.
pub(crate) fn unbind<'a>(owner: &str, text: &'a str) -> ApiResult<&'a str> {
    text.strip_prefix(owner).and_then(|rest| rest.strip_prefix(':')).ok_or_else(|| {
        ApiError::bad_request(
            "x-ms-continuation belongs to another feed or query: pass the continuation of the previous page",
        )
    })
}

/// Encodes a cursor as a header value.
pub(crate) fn encode(cursor: &str) -> String {
    URL_SAFE_NO_PAD.encode(cursor)
}

/// Decodes a cursor.
///
/// # Errors
/// 400 if it is not valid.
pub(crate) fn decode(text: &str) -> ApiResult<String> {
    let bytes = (text.len() <= MAX_CONTINUATION_BYTES).then(|| URL_SAFE_NO_PAD.decode(text).ok()).flatten();
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
        ApiError::bad_request("x-ms-continuation is not valid: pass the continuation of the previous page")
    })
}

/// Returns one page of the items of a container.
pub(crate) async fn read(request: &Request<'_>, handle: &ContainerHandle) -> ApiResult<Reply> {
    let scope = scope::of_request(request, handle)?;
    let page = handle
        .list_items(ListItems {
            range: scope::live(&scope, handle).await?,
            after: after(request, &handle.rid)?,
            max_items: request.max_items()?.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE),
            ..ListItems::default()
        })
        .await?;
    handle.remember(page.items.iter());
    let mut list = List::new(&handle.rid, "Documents", page.items.iter().map(|item| item.body.len() + 128).sum());
    for item in &page.items {
        render::complete(list.next(), &item.body, &handle.link, Some(item.rid));
    }
    let mut reply = reply(handle, &scope, list.count(), list.finish()).await?;
    reply.charge(page.request_charge);
    if let Some(next) = &page.next {
        reply.set_text(&headers::CONTINUATION, &bind(&handle.rid, &encode(next)));
    }
    Ok(reply)
}

/// Parses the continuation of a listing of the container `rid`.
fn after(request: &Request<'_>, rid: &str) -> ApiResult<Option<String>> {
    let Some(text) = request.text(&headers::CONTINUATION)? else { return Ok(None) };
    decode(unbind(rid, text)?).map(Some)
}

/// Builds the reply with a page of documents.
pub(crate) async fn reply(handle: &ContainerHandle, scope: &Scope, count: usize, body: Bytes) -> ApiResult<Reply> {
    let mut reply = Reply::ok(body);
    reply.set(&headers::ITEM_COUNT, HeaderValue::from(count));
    let range = match &scope.physical {
        Some(id) => id.clone(),
        None => handle.range_of(scope.range.min_inclusive()).await?,
    };
    session_headers::set(&mut reply, handle, &range, handle.known_lsn(&range));
    Ok(reply)
}
