//! One operation of a batch, as it is sent.

use bytes::Bytes;
use changefeed_core::ItemId;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    error::{ApiError, ApiResult},
    handlers::items,
};

/// One operation as it is sent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operation<'a> {
    pub(super) operation_type: String,
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) partition_key: Option<String>,
    #[serde(default)]
    pub(super) if_match: Option<String>,
    #[serde(default)]
    pub(super) if_none_match: Option<String>,
    #[serde(borrow, default)]
    pub(super) resource_body: Option<&'a RawValue>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Upsert,
    Replace,
    Patch,
    Read,
    Delete,
}

impl Kind {
    pub(super) fn of(operation: &Operation<'_>) -> Option<Self> {
        Some(match operation.operation_type.to_ascii_lowercase().as_str() {
            "create" => Self::Create,
            "upsert" => Self::Upsert,
            "replace" => Self::Replace,
            "patch" => Self::Patch,
            "read" => Self::Read,
            "delete" => Self::Delete,
            _ => return None,
        })
    }
}

pub(super) fn resource_body(operation: &Operation<'_>) -> ApiResult<Bytes> {
    let raw = operation
        .resource_body
        .ok_or_else(|| ApiError::bad_request(format!("operation {} needs a resourceBody", operation.operation_type)))?;
    Ok(Bytes::copy_from_slice(raw.get().as_bytes()))
}

pub(super) fn item_id(operation: &Operation<'_>) -> ApiResult<ItemId> {
    let id = operation
        .id
        .as_deref()
        .ok_or_else(|| ApiError::bad_request(format!("operation {} needs an id", operation.operation_type)))?;
    Ok(ItemId::new(id)?)
}

/// Returns the id of the item of an operation, if it has one.
pub(super) fn id_of(operation: &Operation<'_>) -> Option<String> {
    operation.id.clone().or_else(|| Some(items::id_in(operation.resource_body?.get().as_bytes())?.into_owned()))
}
