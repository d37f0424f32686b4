//! Reads the body of a request, with limits on its size and duration.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::{
    StatusCode,
    body::{Body, Incoming},
};

use super::timeouts::within;
use crate::error::{ApiError, ApiResult};

/// Reads the whole body.
///
/// # Errors
/// 413 as soon as it is known to be too long, 408 if it does not arrive in time, 400 if it breaks off.
pub(crate) async fn read(body: Incoming, limit: usize, patience: Duration) -> ApiResult<Bytes> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(too_long(limit));
    }
    let all = collect(body, limit);
    within(patience, all).await.unwrap_or_else(|| {
        let seconds = patience.as_secs();
        Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, format!("the body did not arrive within {seconds} seconds")))
    })
}

async fn collect(mut body: Incoming, limit: usize) -> ApiResult<Bytes> {
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::bad_request(format!("the body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.as_ref().map_or(0, Bytes::len) + all.len() + data.len() > limit {
            return Err(too_long(limit));
        }
        match (&mut first, all.is_empty()) {
            (None, true) => first = Some(data),
            (before, _) => {
                if let Some(before) = before.take() {
                    all.extend_from_slice(&before);
                }
                all.extend_from_slice(&data);
            }
        }
    }
    // Most bodies are a single frame, which needs no copy.
    Ok(first.unwrap_or_else(|| all.freeze()))
}

fn too_long(limit: usize) -> ApiError {
    let message = format!("the body has more than {limit} bytes, which is the most for one request");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}
