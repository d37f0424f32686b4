//! Transactional batches (all or nothing, one partition key, one LSN) and bulk requests (independent operations).

mod atomic;
mod bulk;
mod operation;
mod outcome;
mod plan;

use changefeed_core::{Batch, Epk};
use hyper::StatusCode;

use self::{
    atomic::atomic,
    bulk::bulk,
    operation::{Kind, Operation},
    outcome::{Outcome, Room},
};
use super::{items, scope, session_headers};
use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    headers,
    wire::http::{Reply, Request},
};

/// Performs a batch or a bulk request.
pub(crate) async fn run(request: &Request<'_>, handle: &ContainerHandle) -> ApiResult<Reply> {
    let body = items::text_body(request)?;
    let operations: Vec<Operation<'_>> = serde_json::from_slice(&body).map_err(|error| {
        ApiError::bad_request(format!("the body of a batch is a JSON array of operations: {error}"))
    })?;
    let most = Batch::MAX_WRITES;
    if operations.is_empty() || operations.len() > most {
        let count = operations.len();
        return Err(ApiError::bad_request(format!("a batch has 1 to {most} operations, not {count}")));
    }
    if let Some(unknown) = operations.iter().find(|operation| Kind::of(operation).is_none()) {
        let kind = &unknown.operation_type;
        return Err(ApiError::bad_request(format!(
            "operationType {kind:?} is not known: use Create, Upsert, Replace, Patch, Read or Delete"
        )));
    }
    let header = scope::partition_key(request)?;
    let range = match request.text(&headers::RANGE_ID)? {
        Some(id) => Some(handle.range(&id.parse()?).await?),
        None => None,
    };
    let minimal = request.wants_minimal();
    let room = Room::new();
    let outcomes = if request.flag(&headers::BATCH_ATOMIC) {
        let key = header
            .clone()
            .ok_or_else(|| ApiError::bad_request("a transactional batch needs x-ms-documentdb-partitionkey"))?;
        atomic(handle, &key, &operations, minimal, &room).await?
    } else {
        let all = request.flag(&headers::BATCH_CONTINUE);
        bulk(handle, header.as_ref(), range.as_ref(), &operations, all, minimal, &room).await
    };
    let range = match (range, &header) {
        (Some(range), _) => range.id,
        (None, Some(key)) => handle.range_of(&handle.identity().partition_key.epk(key)?).await?,
        (None, None) => handle.range_of(&Epk::MIN).await?,
    };
    let status = if outcomes.iter().all(Outcome::is_success) { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    let mut out = vec![b'['];
    for (index, outcome) in outcomes.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        outcome.render(&mut out);
    }
    out.push(b']');
    let mut reply = Reply::new(status, out);
    reply.charge(outcomes.iter().map(|outcome| outcome.request_charge).sum());
    session_headers::set(&mut reply, handle, &range, handle.known_lsn(&range));
    Ok(reply)
}
