//! Turns the operations of a batch into writes: reads and patches use the current items.

use std::{borrow::Cow, collections::BTreeMap};

use bytes::Bytes;
use changefeed_core::{ETag, ItemId, ItemKey, PartitionKey, Write};

use super::{
    operation::{Kind, Operation, item_id, resource_body},
    outcome::{NOT_MODIFIED, Outcome, Room},
};
use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    handlers::items,
};

/// The state of an item after the operations so far.
#[derive(Clone)]
enum Draft {
    /// Its body, and the index of the write that sets it.
    Body(Bytes, usize),
    Deleted,
}

/// Operations turned into writes: reads and patches need the items as they are now.
pub(super) struct Plan {
    pub(super) writes: Vec<Write>,
    /// For each operation: the write it became, or its outcome if it needs none.
    pub(super) steps: Vec<Step>,
}

pub(super) enum Step {
    Write(usize),
    /// A read of the result of a write of the batch.
    Read(usize),
    Done(Outcome),
}

/// The failed operation of a batch, and its error.
pub(super) struct Failed(pub(super) usize, pub(super) ApiError);

pub(super) async fn plan(
    handle: &ContainerHandle,
    key: &PartitionKey,
    operations: &[Operation<'_>],
    room: &Room,
) -> Result<Plan, Failed> {
    let mut plan = Plan { writes: Vec::new(), steps: Vec::new() };
    let mut drafts: BTreeMap<String, Draft> = BTreeMap::new();
    for (index, operation) in operations.iter().enumerate() {
        let at = plan.writes.len();
        let planned = plan_one(handle, key, operation, at, &mut drafts, room).await;
        plan.steps.push(match planned.map_err(|error| Failed(index, error))? {
            Planned::Write(write) => {
                plan.writes.push(write);
                Step::Write(at)
            }
            Planned::Step(step) => step,
        });
    }
    Ok(plan)
}

enum Planned {
    Write(Write),
    Step(Step),
}

async fn plan_one(
    handle: &ContainerHandle,
    key: &PartitionKey,
    operation: &Operation<'_>,
    at: usize,
    drafts: &mut BTreeMap<String, Draft>,
    room: &Room,
) -> ApiResult<Planned> {
    let kind = Kind::of(operation);
    let if_match = items::parse_if_match(operation.if_match.as_deref())?;
    Ok(match kind {
        Some(Kind::Create) => {
            let body = resource_body(operation)?;
            note(drafts, items::id_in(&body), &body, at);
            Planned::Write(Write::Create { body })
        }
        Some(Kind::Upsert) => {
            let body = resource_body(operation)?;
            note(drafts, items::id_in(&body), &body, at);
            Planned::Write(Write::Upsert { body, if_match })
        }
        Some(Kind::Replace) => {
            let body = resource_body(operation)?;
            let own = items::id_in(&body);
            if let (Some(id), Some(own)) = (&operation.id, &own)
                && *own != ItemId::new(id.as_str())?.as_str()
            {
                return Err(ApiError::bad_request(format!("the body of a Replace in a batch must have the id {id:?}")));
            }
            note(drafts, own, &body, at);
            Planned::Write(Write::Replace { body, if_match })
        }
        Some(Kind::Delete) => {
            let id = item_id(operation)?;
            drafts.insert(id.as_str().to_owned(), Draft::Deleted);
            Planned::Write(Write::Delete { id, if_match })
        }
        Some(Kind::Patch) => {
            let id = item_id(operation)?;
            let (body, if_match) = patched(handle, key, operation, &id, if_match, drafts).await?;
            room.take(&body)?;
            drafts.insert(id.as_str().to_owned(), Draft::Body(body.clone(), at));
            Planned::Write(Write::Replace { body, if_match })
        }
        Some(Kind::Read) => Planned::Step(read(handle, key, operation, drafts, room).await?),
        None => return Err(ApiError::bad_request("unknown operationType")),
    })
}

/// Remembers the new body of an item, for later operations of the batch.
fn note(drafts: &mut BTreeMap<String, Draft>, id: Option<Cow<'_, str>>, body: &Bytes, at: usize) {
    if let Some(id) = id {
        drafts.insert(id.into_owned(), Draft::Body(body.clone(), at));
    }
}

async fn patched(
    handle: &ContainerHandle,
    key: &PartitionKey,
    operation: &Operation<'_>,
    id: &ItemId,
    wanted: Option<ETag>,
    drafts: &BTreeMap<String, Draft>,
) -> ApiResult<(Bytes, Option<ETag>)> {
    let patch = items::parse_patch(&resource_body(operation)?)?;
    let missing = || ApiError::not_found(format!("there is no item {id}"));
    match drafts.get(id.as_str()) {
        Some(Draft::Deleted) => Err(missing()),
        Some(Draft::Body(body, _)) => Ok((items::apply_patch(&patch, body, handle)?, wanted)),
        None => {
            let item = handle.read_item(&ItemKey::new(key.clone(), id.clone())).await?.into_value();
            let body = items::apply_patch(&patch, &item.body, handle)?;
            Ok((body, Some(wanted.unwrap_or(item.etag))))
        }
    }
}

async fn read(
    handle: &ContainerHandle,
    key: &PartitionKey,
    operation: &Operation<'_>,
    drafts: &BTreeMap<String, Draft>,
    room: &Room,
) -> ApiResult<Step> {
    let id = item_id(operation)?;
    match drafts.get(id.as_str()) {
        Some(Draft::Deleted) => return Err(ApiError::not_found(format!("there is no item {id}"))),
        Some(Draft::Body(body, at)) => {
            room.take(body)?;
            return Ok(Step::Read(*at));
        }
        None => {}
    }
    let item = handle.read_item(&ItemKey::new(key.clone(), id)).await?;
    if operation.if_none_match.as_deref() == Some(item.etag.as_str()) {
        return Ok(Step::Done(Outcome::new(NOT_MODIFIED)));
    }
    room.take(&item.body)?;
    let request_charge = item.request_charge;
    Ok(Step::Done(Outcome { request_charge, ..Outcome::of_item(200, &item, handle) }))
}
