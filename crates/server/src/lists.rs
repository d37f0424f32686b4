//! Plain lists of items, page by page.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use changefeed_core::ListItems;
use hyper::header::HeaderValue;

use crate::{
    exchange::{Reply, Request},
    items, names,
    open::Open,
    problem::{Answer, Problem},
    render::{self, List},
    scope::{self, Scope},
};

const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// Longest continuation that is looked at.
const MAX_CONTINUATION_BYTES: usize = 8 * 1024;

/// A continuation that says what it continues, so that it is of no use elsewhere.
pub(crate) fn bind(owner: &str, continuation: &str) -> String {
    format!("{owner}:{continuation}")
}

/// Reads such a continuation.
///
/// # Errors
/// If it continues something else.
pub(crate) fn unbind<'a>(owner: &str, text: &'a str) -> Answer<&'a str> {
    text.strip_prefix(owner).and_then(|rest| rest.strip_prefix(':')).ok_or_else(|| {
        Problem::bad_request("x-ms-continuation does not continue this: pass what the page before returned")
    })
}

/// Where a listing goes on, as a header can carry it.
pub(crate) fn encode(cursor: &str) -> String {
    URL_SAFE_NO_PAD.encode(cursor)
}

/// Reads such a continuation.
///
/// # Errors
/// If it is none.
pub(crate) fn decode(text: &str) -> Answer<String> {
    let bytes = (text.len() <= MAX_CONTINUATION_BYTES).then(|| URL_SAFE_NO_PAD.decode(text).ok()).flatten();
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
        Problem::bad_request("x-ms-continuation is not one of this server: pass what the page before returned")
    })
}

/// One page of the items of a container.
pub(crate) async fn read(request: &Request<'_>, open: &Open) -> Answer<Reply> {
    let scope = scope::of_request(request, open)?;
    let page = open
        .container
        .backend()
        .list_items(ListItems {
            range: scope::live(&scope, open).await?,
            after: after(request, &open.rid)?,
            max_items: request.max_items()?.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE),
            ..ListItems::default()
        })
        .await?;
    open.remember(page.items.iter());
    let mut list = List::new(&open.rid, "Documents", page.items.iter().map(|item| item.body.len() + 128).sum());
    for item in &page.items {
        render::complete(list.next(), &item.body, &open.link, Some(item.rid));
    }
    let mut reply = reply(open, &scope, list.count(), list.finish()).await?;
    reply.charge(page.request_charge);
    if let Some(next) = &page.next {
        reply.set_text(&names::CONTINUATION, &bind(&open.rid, &encode(next)));
    }
    Ok(reply)
}

/// Where the listing of the container `rid` goes on.
fn after(request: &Request<'_>, rid: &str) -> Answer<Option<String>> {
    let Some(text) = request.text(&names::CONTINUATION)? else { return Ok(None) };
    decode(unbind(rid, text)?).map(Some)
}

/// The answer with a page of documents.
pub(crate) async fn reply(open: &Open, scope: &Scope, count: usize, body: Bytes) -> Answer<Reply> {
    let mut reply = Reply::ok(body);
    reply.set(&names::ITEM_COUNT, HeaderValue::from(count));
    let range = match &scope.physical {
        Some(id) => id.clone(),
        None => open.range_of(scope.range.min_inclusive()).await?,
    };
    items::set_place(&mut reply, open, &range, open.reached());
    Ok(reply)
}
