//! The account document.

use hyper::{Method, StatusCode, header::HeaderValue};

use crate::{
    error::{ApiError, ApiResult},
    state::ServerState,
    wire::{
        http::{Reply, Request},
        resources,
    },
};

pub(crate) fn read(state: &ServerState, request: &Request<'_>) -> ApiResult<Reply> {
    if request.method != Method::GET {
        return Err(ApiError::method_not_allowed(&request.method));
    }
    let mut reply = Reply::json(StatusCode::OK, &resources::account(&state.account, &request.endpoint()));
    for (name, value) in resources::STORAGE_HEADERS {
        reply.headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(reply)
}
