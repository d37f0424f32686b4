//! Transactional batches (all or nothing, one partition key, one LSN) and bulk requests (each operation for itself).

mod outcome;

use std::collections::BTreeMap;

use bytes::Bytes;
use changefeed_core::{Batch, ETag, ErrorKind, ItemId, ItemKey, PartitionKey, PhysicalRange, Response, Write};
use futures_util::future::join_all;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use self::outcome::{NOT_MODIFIED, Outcome, Room};
use crate::{
    exchange::{Reply, Request},
    items, names,
    net::timer::Deadline,
    open::Open,
    problem::{Answer, Problem},
    scope,
};

const FAILED_DEPENDENCY: u16 = 424;

/// One operation as it is sent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Operation<'a> {
    operation_type: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    partition_key: Option<String>,
    #[serde(default)]
    if_match: Option<String>,
    #[serde(default)]
    if_none_match: Option<String>,
    #[serde(borrow, default)]
    resource_body: Option<&'a RawValue>,
}

pub(crate) async fn run(request: &Request<'_>, open: &Open) -> Answer<Reply> {
    let body = items::text_body(request)?;
    let operations: Vec<Operation<'_>> = serde_json::from_slice(&body)
        .map_err(|error| Problem::bad_request(format!("the body of a batch is a JSON array of operations: {error}")))?;
    let most = Batch::MAX_WRITES;
    if operations.is_empty() || operations.len() > most {
        let count = operations.len();
        return Err(Problem::bad_request(format!("a batch has 1 to {most} operations, not {count}")));
    }
    if let Some(unknown) = operations.iter().find(|operation| Kind::of(operation).is_none()) {
        let kind = &unknown.operation_type;
        return Err(Problem::bad_request(format!(
            "operationType {kind:?} is not known: use Create, Upsert, Replace, Patch, Read or Delete"
        )));
    }
    let header = scope::partition_key(request)?;
    let range = match request.text(&names::RANGE_ID)? {
        Some(id) => Some(open.range(&id.parse()?).await?),
        None => None,
    };
    let minimal = request.wants_minimal();
    let room = Room::new();
    let outcomes = if request.flag(&names::BATCH_ATOMIC) {
        let key = header
            .clone()
            .ok_or_else(|| Problem::bad_request("a transactional batch needs x-ms-documentdb-partitionkey"))?;
        atomic(open, &key, &operations, minimal, &room).await?
    } else {
        let all = request.flag(&names::BATCH_CONTINUE);
        bulk(open, header.as_ref(), range.as_ref(), &operations, all, minimal, &room).await
    };
    let range = match (range, &header) {
        (Some(range), _) => range.id,
        (None, Some(key)) => open.range_of(&open.identity().partition_key.epk(key)?).await?,
        (None, None) => open.range_of(&changefeed_core::Epk::MIN).await?,
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
    items::set_place(&mut reply, open, &range, open.reached());
    Ok(reply)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Upsert,
    Replace,
    Patch,
    Read,
    Delete,
}

impl Kind {
    fn of(operation: &Operation<'_>) -> Option<Self> {
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

/// What the batch has done to an item so far.
#[derive(Clone)]
enum Draft {
    /// Its body, and which write makes it so.
    Body(Bytes, usize),
    Deleted,
}

/// Operations turned into writes: reads and patches need the items as they are now.
struct Plan {
    writes: Vec<Write>,
    /// For each operation: the write it became, or its outcome if it needs none.
    steps: Vec<Step>,
}

enum Step {
    Write(usize),
    /// A read of what a write of the batch makes.
    Read(usize),
    Done(Outcome),
}

/// The culprit of a batch, and its problem.
struct Failed(usize, Problem);

async fn atomic(
    open: &Open,
    key: &PartitionKey,
    operations: &[Operation<'_>],
    minimal: bool,
    room: &Room,
) -> Answer<Vec<Outcome>> {
    let epk = open.identity().partition_key.epk(key)?;
    let patches = operations.iter().any(|operation| Kind::of(operation) == Some(Kind::Patch));
    let _turn = if patches { Some(open.patch_turn(&epk).await) } else { None };
    let deadline = Deadline::after(items::PATCH_TIME);
    while !deadline.is_over() {
        let plan = match plan(open, key, operations, room).await {
            Ok(plan) => plan,
            Err(Failed(index, problem)) => return Ok(failed(operations.len(), index, &problem)),
        };
        let mut written = Response::free(Vec::new());
        if !plan.writes.is_empty() {
            let at: Vec<usize> = positions(&plan);
            let reads = plan.steps.iter().any(|step| matches!(step, Step::Read(_)));
            let return_items = reads || !minimal;
            let batch = Batch { partition_key: Some(key.clone()), writes: plan.writes, return_items };
            match open.container.backend().write(batch).await {
                Ok(done) => written = done,
                Err(error) => {
                    let write = error.operation().or((at.len() == 1).then_some(0));
                    let Some(index) = write.and_then(|write| at.get(write).copied()) else {
                        return Err(Problem::from(error));
                    };
                    let patched = operations.get(index).and_then(Kind::of) == Some(Kind::Patch);
                    let own_condition = operations.get(index).is_some_and(|operation| operation.if_match.is_some());
                    if error.kind() == ErrorKind::PreconditionFailed && patched && !own_condition {
                        continue;
                    }
                    return Ok(failed(operations.len(), index, &Problem::from(error)));
                }
            }
        }
        // The store charges for the batch, and tells nothing about its parts.
        let share = written.request_charge / written.len().max(1) as f64;
        if let Some(first) = written.first() {
            open.saw(first.lsn.get());
        }
        let outcomes = plan.steps.into_iter().map(|step| match step {
            Step::Done(outcome) => outcome,
            Step::Write(at) => {
                let outcome = written.get(at).map(|done| Outcome::of_written(done, open));
                let outcome = Outcome { request_charge: share, ..outcome.unwrap_or_else(|| Outcome::new(500)) };
                if minimal { Outcome { body: None, ..outcome } } else { outcome }
            }
            Step::Read(at) => {
                let item = written.get(at).and_then(|done| done.item.as_ref());
                item.map_or_else(|| Outcome::new(500), |item| Outcome::of_item(200, item, open))
            }
        });
        return Ok(outcomes.collect());
    }
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the items of the batch are written too often to be patched"))
}

/// Which operation each write comes from.
fn positions(plan: &Plan) -> Vec<usize> {
    let steps = plan.steps.iter().enumerate();
    steps.filter(|(_, step)| matches!(step, Step::Write(_))).map(|(index, _)| index).collect()
}

fn failed(count: usize, culprit: usize, problem: &Problem) -> Vec<Outcome> {
    let outcome = |index| if index == culprit { Outcome::of_problem(problem) } else { Outcome::new(FAILED_DEPENDENCY) };
    (0..count).map(outcome).collect()
}

async fn plan(open: &Open, key: &PartitionKey, operations: &[Operation<'_>], room: &Room) -> Result<Plan, Failed> {
    let mut plan = Plan { writes: Vec::new(), steps: Vec::new() };
    let mut drafts: BTreeMap<String, Draft> = BTreeMap::new();
    for (index, operation) in operations.iter().enumerate() {
        let at = plan.writes.len();
        let planned = plan_one(open, key, operation, at, &mut drafts, room).await;
        plan.steps.push(match planned.map_err(|problem| Failed(index, problem))? {
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
    open: &Open,
    key: &PartitionKey,
    operation: &Operation<'_>,
    at: usize,
    drafts: &mut BTreeMap<String, Draft>,
    room: &Room,
) -> Answer<Planned> {
    let kind = Kind::of(operation);
    let if_match = items::parse_if_match(operation.if_match.as_deref())?;
    Ok(match kind {
        Some(Kind::Create) => {
            let body = resource_body(operation)?;
            note(drafts, &body, at);
            Planned::Write(Write::Create { body })
        }
        Some(Kind::Upsert) => {
            let body = resource_body(operation)?;
            note(drafts, &body, at);
            Planned::Write(Write::Upsert { body, if_match })
        }
        Some(Kind::Replace) => {
            let body = resource_body(operation)?;
            if let Some(id) = &operation.id
                && items::has_other_id(&body, &ItemId::new(id.as_str())?)
            {
                return Err(Problem::bad_request(format!("the body of a Replace in a batch must have the id {id:?}")));
            }
            note(drafts, &body, at);
            Planned::Write(Write::Replace { body, if_match })
        }
        Some(Kind::Delete) => {
            let id = item_id(operation)?;
            drafts.insert(id.as_str().to_owned(), Draft::Deleted);
            Planned::Write(Write::Delete { id, if_match })
        }
        Some(Kind::Patch) => {
            let id = item_id(operation)?;
            let (body, if_match) = patched(open, key, operation, &id, if_match, drafts).await?;
            room.take(&body)?;
            drafts.insert(id.as_str().to_owned(), Draft::Body(body.clone(), at));
            Planned::Write(Write::Replace { body, if_match })
        }
        Some(Kind::Read) => Planned::Step(read(open, key, operation, drafts, room).await?),
        None => return Err(Problem::bad_request("unknown operationType")),
    })
}

/// What has an id.
#[derive(Deserialize)]
struct Named {
    id: String,
}

/// Remembers what an item will be, for later operations of the batch.
fn note(drafts: &mut BTreeMap<String, Draft>, body: &Bytes, at: usize) {
    if let Ok(Named { id }) = serde_json::from_slice(body) {
        drafts.insert(id, Draft::Body(body.clone(), at));
    }
}

async fn patched(
    open: &Open,
    key: &PartitionKey,
    operation: &Operation<'_>,
    id: &ItemId,
    wanted: Option<ETag>,
    drafts: &BTreeMap<String, Draft>,
) -> Answer<(Bytes, Option<ETag>)> {
    let patch = items::parse_patch(&resource_body(operation)?)?;
    let missing = || Problem::not_found(format!("there is no item {id}"));
    match drafts.get(id.as_str()) {
        Some(Draft::Deleted) => Err(missing()),
        Some(Draft::Body(body, _)) => Ok((items::apply_patch(&patch, body, open)?, wanted)),
        None => {
            let item = open.container.backend().read_item(&ItemKey::new(key.clone(), id.clone())).await?.into_value();
            let body = items::apply_patch(&patch, &item.body, open)?;
            Ok((body, Some(wanted.unwrap_or(item.etag))))
        }
    }
}

async fn read(
    open: &Open,
    key: &PartitionKey,
    operation: &Operation<'_>,
    drafts: &BTreeMap<String, Draft>,
    room: &Room,
) -> Answer<Step> {
    let id = item_id(operation)?;
    match drafts.get(id.as_str()) {
        Some(Draft::Deleted) => return Err(Problem::not_found(format!("there is no item {id}"))),
        Some(Draft::Body(body, at)) => {
            room.take(body)?;
            return Ok(Step::Read(*at));
        }
        None => {}
    }
    let item = open.container.backend().read_item(&ItemKey::new(key.clone(), id)).await?;
    if operation.if_none_match.as_deref() == Some(item.etag.as_str()) {
        return Ok(Step::Done(Outcome::new(NOT_MODIFIED)));
    }
    room.take(&item.body)?;
    let request_charge = item.request_charge;
    Ok(Step::Done(Outcome { request_charge, ..Outcome::of_item(200, &item, open) }))
}

fn resource_body(operation: &Operation<'_>) -> Answer<Bytes> {
    let raw = operation
        .resource_body
        .ok_or_else(|| Problem::bad_request(format!("operation {} needs a resourceBody", operation.operation_type)))?;
    Ok(Bytes::copy_from_slice(raw.get().as_bytes()))
}

fn item_id(operation: &Operation<'_>) -> Answer<ItemId> {
    let id = operation
        .id
        .as_deref()
        .ok_or_else(|| Problem::bad_request(format!("operation {} needs an id", operation.operation_type)))?;
    Ok(ItemId::new(id)?)
}

/// Each operation for itself: all at once if none stops the others, apart from those about one item, which keep their
/// order.
async fn bulk(
    open: &Open,
    header: Option<&PartitionKey>,
    range: Option<&PhysicalRange>,
    operations: &[Operation<'_>],
    continue_on_error: bool,
    minimal: bool,
    room: &Room,
) -> Vec<Outcome> {
    let one = async |operation| match bulk_one(open, header, range, operation, minimal, room).await {
        Ok(outcome) => outcome,
        Err(problem) => Outcome::of_problem(&problem),
    };
    let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
    if continue_on_error {
        let mut by_item: BTreeMap<Option<String>, Vec<(usize, &Operation<'_>)>> = BTreeMap::new();
        for (index, operation) in operations.iter().enumerate() {
            by_item.entry(id_of(operation)).or_default().push((index, operation));
        }
        let in_order = by_item.into_values().map(async |of_item| {
            let mut done = Vec::with_capacity(of_item.len());
            for (index, operation) in of_item {
                done.push((index, one(operation).await));
            }
            done
        });
        outcomes.extend(join_all(in_order).await.into_iter().flatten());
    } else {
        for (index, operation) in operations.iter().enumerate() {
            let stopped = outcomes.values().next_back().is_some_and(|last| !last.is_success());
            let outcome = if stopped { Outcome::new(FAILED_DEPENDENCY) } else { one(operation).await };
            outcomes.insert(index, outcome);
        }
    }
    outcomes.into_values().collect()
}

/// The item that an operation is about, as far as it says so.
fn id_of(operation: &Operation<'_>) -> Option<String> {
    operation.id.clone().or_else(|| {
        let named: Named = serde_json::from_str(operation.resource_body?.get()).ok()?;
        Some(named.id)
    })
}

async fn bulk_one(
    open: &Open,
    header: Option<&PartitionKey>,
    range: Option<&PhysicalRange>,
    operation: &Operation<'_>,
    minimal: bool,
    room: &Room,
) -> Answer<Outcome> {
    let definition = &open.identity().partition_key;
    let key = match (&operation.partition_key, header, operation.resource_body) {
        (Some(text), _, _) => text.parse::<PartitionKey>()?,
        (None, Some(key), _) => key.clone(),
        (None, None, Some(body)) if Kind::of(operation) != Some(Kind::Patch) => {
            definition.extract(body.get().as_bytes())?
        }
        _ => return Err(Problem::bad_request("an operation of a bulk request needs its partitionKey")),
    };
    let epk = definition.epk(&key)?;
    if let Some(range) = range
        && !range.range.contains(&epk)
    {
        return Err(Problem::range_gone(format!("the partition key {key} is not in range {}", range.id)));
    }
    let outcomes = atomic(open, &key, std::slice::from_ref(operation), minimal, room).await?;
    outcomes.into_iter().next().ok_or_else(|| Problem::bad_request("an operation without an outcome"))
}
