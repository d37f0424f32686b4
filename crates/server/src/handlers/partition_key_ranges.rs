//! The partition key ranges of a container.

use changefeed_core::Mode;
use hyper::{
    StatusCode,
    header::{self, HeaderValue},
};

use super::feed;
use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    headers,
    wire::{
        http::{Reply, Request},
        resources,
    },
};

/// Lists the live ranges; 304 if the client has them.
pub(crate) async fn read(request: &Request<'_>, handle: &ContainerHandle) -> ApiResult<Reply> {
    if feed::mode(request)? == Some(Mode::AllVersions) {
        return Err(ApiError::bad_request("pkranges have no Full-Fidelity Feed"));
    }
    let live = handle.fresh_ranges().await?;
    let etag = resources::ranges_etag(handle, &live);
    let known = request.text(&header::IF_NONE_MATCH)?;
    let mut reply = if known == Some(&etag) {
        Reply::new(StatusCode::NOT_MODIFIED, "")
    } else {
        let mut shown = Vec::with_capacity(live.len());
        for range in live.iter() {
            shown.push((range, handle.newest_lsn(range).await?));
        }
        Reply::json(StatusCode::OK, &resources::ranges(handle, &live, &shown))
    };
    reply.set(&headers::ITEM_COUNT, HeaderValue::from(if known == Some(&etag) { 0 } else { live.len() }));
    for (name, value) in
        [(&headers::CONTENT_PATH, &handle.rid_header), (&headers::ALT_CONTENT_PATH, &handle.name_header)]
    {
        if let Some(value) = value {
            reply.set(name, value.clone());
        }
    }
    Ok(reply.with_etag(&etag))
}
