//! Transactional batches: all operations happen together or none.

use changefeed_core::{Batch, ErrorKind, PartitionKey, Response};
use hyper::StatusCode;

use super::{
    operation::{Kind, Operation},
    outcome::{FAILED_DEPENDENCY, Outcome, Room},
    plan::{Failed, Plan, Step, plan},
};
use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    handlers::items,
    net::timeouts::Deadline,
};

pub(super) async fn atomic(
    handle: &ContainerHandle,
    key: &PartitionKey,
    operations: &[Operation<'_>],
    minimal: bool,
    room: &Room,
) -> ApiResult<Vec<Outcome>> {
    let epk = handle.identity().partition_key.epk(key)?;
    let patches = operations.iter().any(|operation| Kind::of(operation) == Some(Kind::Patch));
    let _turn = if patches { Some(handle.lock_for_patch(&epk).await) } else { None };
    let deadline = Deadline::after(items::PATCH_TIME);
    while !deadline.is_over() {
        let plan = match plan(handle, key, operations, room).await {
            Ok(plan) => plan,
            Err(Failed(index, error)) => return Ok(failed(operations.len(), index, &error)),
        };
        let mut written = Response::free(Vec::new());
        if !plan.writes.is_empty() {
            let at: Vec<usize> = positions(&plan);
            let reads = plan.steps.iter().any(|step| matches!(step, Step::Read(_)));
            let return_items = reads || !minimal;
            let batch = Batch { partition_key: Some(key.clone()), writes: plan.writes, return_items };
            match handle.write(batch).await {
                Ok(done) => written = done,
                Err(error) => {
                    let write = error.operation().or((at.len() == 1).then_some(0));
                    let Some(index) = write.and_then(|write| at.get(write).copied()) else {
                        return Err(ApiError::from(error));
                    };
                    let patched = operations.get(index).and_then(Kind::of) == Some(Kind::Patch);
                    let own_condition = operations.get(index).is_some_and(|operation| operation.if_match.is_some());
                    if error.kind() == ErrorKind::PreconditionFailed && patched && !own_condition {
                        continue;
                    }
                    return Ok(failed(operations.len(), index, &ApiError::from(error)));
                }
            }
        }
        // The store reports one charge for the batch.
        let share = written.request_charge / written.len().max(1) as f64;
        if let Some(first) = written.first() {
            handle.observe_lsn(&handle.range_of(&epk).await?, first.lsn.get());
        }
        let outcomes = plan.steps.into_iter().map(|step| match step {
            Step::Done(outcome) => outcome,
            Step::Write(at) => {
                let outcome = written.get(at).map(|done| Outcome::of_written(done, handle));
                let outcome = Outcome { request_charge: share, ..outcome.unwrap_or_else(|| Outcome::new(500)) };
                if minimal { Outcome { body: None, ..outcome } } else { outcome }
            }
            Step::Read(at) => {
                let item = written.get(at).and_then(|done| done.item.as_ref());
                item.map_or_else(|| Outcome::new(500), |item| Outcome::of_item(200, item, handle))
            }
        });
        return Ok(outcomes.collect());
    }
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the items of the batch are written too often to be patched"))
}

/// Returns the index of the operation of each write.
fn positions(plan: &Plan) -> Vec<usize> {
    let steps = plan.steps.iter().enumerate();
    steps.filter(|(_, step)| matches!(step, Step::Write(_))).map(|(index, _)| index).collect()
}

fn failed(count: usize, culprit: usize, error: &ApiError) -> Vec<Outcome> {
    let outcome = |index| if index == culprit { Outcome::of_error(error) } else { Outcome::new(FAILED_DEPENDENCY) };
    (0..count).map(outcome).collect()
}
