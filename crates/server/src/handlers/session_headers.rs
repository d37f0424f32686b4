//! Session headers of a response: range, LSN, session token, content paths.

use changefeed_core::RangeId;

use super::scope;
use crate::{
    containers::handle::ContainerHandle,
    error::ApiError,
    headers,
    wire::http::{Reply, Request},
};

/// Adds the headers of a range that has reached an LSN.
pub(crate) fn set(reply: &mut Reply, handle: &ContainerHandle, range: &RangeId, lsn: u64) {
    let session = handle.session_headers(range, lsn);
    for (name, value) in [
        (&headers::LSN, &session.lsn_header),
        (&headers::RANGE_ID, &session.range_header),
        (&headers::SESSION_TOKEN, &session.token_header),
        (&headers::CONTENT_PATH, &handle.rid_header),
        (&headers::ALT_CONTENT_PATH, &handle.name_header),
    ] {
        if let Some(value) = value {
            reply.set(name, value.clone());
        }
    }
}

/// Adds the headers of the item's range to an error: a read that found nothing is part of a session too, and clients drop
/// their cached ranges when a response names none.
pub(crate) async fn add_to_error(mut error: ApiError, request: &Request<'_>, handle: &ContainerHandle) -> ApiError {
    let key = scope::partition_key(request).ok().flatten();
    let Some(epk) = key.and_then(|key| handle.identity().partition_key.epk(&key).ok()) else { return error };
    if let Ok(range) = handle.range_of(&epk).await {
        let mut reply = Reply::new(error.status, "");
        set(&mut reply, handle, &range, handle.known_lsn(&range));
        error.headers = Some(Box::new(reply.headers));
    }
    error
}
