//! The result of each operation of a batch, and the size limit of the response.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use changefeed_core::{Item, WriteResult};
use hyper::StatusCode;

use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    wire::render,
};

pub(super) const NOT_MODIFIED: u16 = 304;

/// The status of operations that were not performed because another one failed.
pub(super) const FAILED_DEPENDENCY: u16 = 424;

/// The most bytes of items in one response, as in Cosmos DB.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

/// The size of an operation's result without its item.
const RESULT_BYTES: usize = 512;

/// The remaining size of the response. Reserved before an item is written or kept, so that no result is dropped.
#[derive(Debug)]
pub(super) struct Room(AtomicUsize);

impl Room {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(MAX_RESPONSE_BYTES))
    }

    /// Reserves room for an item; for the first one whatever its length.
    pub(super) fn take(&self, body: &[u8]) -> ApiResult<()> {
        let bytes = body.len() + RESULT_BYTES;
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left >= bytes || left == MAX_RESPONSE_BYTES).then(|| left.saturating_sub(bytes))
        });
        left.map(drop).map_err(|_| {
            let message = format!(
                "the results of this batch have more than {MAX_RESPONSE_BYTES} bytes: read or patch fewer items at once"
            );
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        })
    }
}

/// The result of one operation.
pub(super) struct Outcome {
    pub(super) status: u16,
    pub(super) substatus: Option<u32>,
    pub(super) etag: Option<String>,
    pub(super) body: Option<Bytes>,
    pub(super) message: Option<String>,
    pub(super) retry_after_millis: Option<u128>,
    /// In request units; zero where the store does not charge.
    pub(super) request_charge: f64,
}

impl Outcome {
    pub(super) fn new(status: u16) -> Self {
        Self {
            status,
            substatus: None,
            etag: None,
            body: None,
            message: None,
            retry_after_millis: None,
            request_charge: 0.0,
        }
    }

    pub(super) fn of_error(error: &ApiError) -> Self {
        Self {
            substatus: error.substatus,
            message: Some(error.message.clone()),
            retry_after_millis: error.retry_after.map(|wait| wait.as_millis()),
            request_charge: error.request_charge,
            ..Self::new(error.status.as_u16())
        }
    }

    pub(super) fn of_item(status: u16, item: &Item, handle: &ContainerHandle) -> Self {
        Self {
            etag: Some(item.etag.as_str().to_owned()),
            body: Some(render::item(item, &handle.link)),
            ..Self::new(status)
        }
    }

    pub(super) fn of_written(written: &WriteResult, handle: &ContainerHandle) -> Self {
        let status = match (&written.etag, written.created) {
            (None, _) => 204,
            (Some(_), true) => 201,
            (Some(_), false) => 200,
        };
        Self {
            etag: written.etag.as_ref().map(|etag| etag.as_str().to_owned()),
            body: written.item.as_ref().map(|item| render::item(item, &handle.link)),
            ..Self::new(status)
        }
    }

    pub(super) fn is_success(&self) -> bool {
        self.status < 300 || self.status == NOT_MODIFIED
    }

    pub(super) fn render(&self, out: &mut Vec<u8>) {
        let charge = if self.request_charge > 0.0 { self.request_charge } else { 1.0 };
        out.extend_from_slice(format!("{{\"statusCode\":{},\"requestCharge\":{charge}", self.status).as_bytes());
        if let Some(substatus) = self.substatus {
            out.extend_from_slice(format!(",\"subStatusCode\":{substatus}").as_bytes());
        }
        if let Some(millis) = self.retry_after_millis {
            out.extend_from_slice(format!(",\"retryAfterMilliseconds\":{millis}").as_bytes());
        }
        for (name, text) in [("eTag", &self.etag), ("message", &self.message)] {
            if let Some(text) = text {
                out.extend_from_slice(format!(",\"{name}\":{}", serde_json::Value::from(text.as_str())).as_bytes());
            }
        }
        if let Some(body) = &self.body {
            out.extend_from_slice(b",\"resourceBody\":");
            out.extend_from_slice(body);
        }
        out.push(b'}');
    }
}
